/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_PROGRESS_H
#define HOISTWAY_TOOLS_CLI_PROGRESS_H
/* The step line on stderr: rewritten in place on a terminal, else at most one every 10 seconds, the
   first and the last. */
#include "cli/report.h"

#include <stdbool.h>

#define PROGRESS_LINE_BYTES 256u

/** "step 120/1000 12% | loss 2.413 | norm 0.91 | 18.2k tok/s | stall nvme 3% | eta 14m". Pure. */
void progress_format(const struct step_report *step, char line[PROGRESS_LINE_BYTES]);

/**
 * Whether a line is due where each line stays (no terminal): first, last, or 10 s after the one
 * before. Pure.
 */
bool progress_due(const struct step_report *step, double last_s);

struct progress {
    bool quiet, terminal;
    bool line_open; /* on the terminal, to be rewritten */
    double last_s;
};
void progress_init(struct progress *progress, bool quiet);
void progress_show(struct progress *progress, const struct step_report *step);
/* What reading or writing many bytes has come to. */
struct byte_report {
    const char *what; /* "verify step 120" */
    uint64_t done_bytes, total_bytes;
    double elapsed_s;
};
/** "verify step 120 1.5 GiB of 4.0 GiB 38% | 3.0 GiB/s | eta 1s". Pure. */
void progress_bytes_format(const struct byte_report *report, char line[PROGRESS_LINE_BYTES]);
/** The same for bytes: on a terminal ten lines a second at most, else one every 10 seconds. */
void progress_bytes(struct progress *progress, const struct byte_report *report);
/** Ends a step line that is still open on the terminal, before anything else is printed. */
void progress_interrupt(struct progress *progress);

#endif
