/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_MESSAGE_PROGRESS_H
#define HOISTWAY_TOOLS_CLI_MESSAGE_PROGRESS_H
/* A run shows this on stderr: the step line, rewritten in place on a terminal, else at most one
   every 10 seconds, the first and the last; and what it is at between them. */
#include "cli/message/report.h"

#include <stdbool.h>

#define PROGRESS_LINE_BYTES 256u

/** "step 120/1000 12% | loss 2.413 | norm 0.91 | 18.2k tok/s | stall nvme 3% | eta 14m". Pure. */
void progress_format(const struct step_report *step, char line[PROGRESS_LINE_BYTES]);

/**
 * It tells whether a line is due where each line stays (no terminal): first, last, or 10 s after
 * the one before. Pure.
 */
bool progress_due(const struct step_report *step, double last_s);

/* It holds what a run shows, unless it is quiet. */
struct progress {
    bool quiet;
    double last_s; /* when the last step line was written, where each stays */
};
void progress_init(struct progress *progress, bool quiet);
void progress_show(struct progress *progress, const struct step_report *step);
/** They tell what the run is at from now on, how far it has come, and that it is at nothing. */
void progress_begin(const struct progress *progress, const char *what);
void progress_bytes(const struct progress *progress, uint64_t done_bytes, uint64_t total_bytes);
void progress_end(const struct progress *progress);

#endif
