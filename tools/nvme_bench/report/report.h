/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_NVME_BENCH_REPORT_REPORT_H
#define HOISTWAY_TOOLS_NVME_BENCH_REPORT_REPORT_H
/* Results as people and programs read them. `answer` is null where nothing was to be planned. */
#include "nvme_bench/report/answer.h"
#include "nvme_bench/result.h"

#include <stdio.h>

void nb_report_text(const struct nb_result *result, const struct nb_answer *answer, FILE *out);
void nb_report_json(const struct nb_result *result, const struct nb_answer *answer, FILE *out);
/** One page that needs nothing else: no network, no script. */
void nb_report_html(const struct nb_result *result, const struct nb_answer *answer, FILE *out);

#define NB_NO_DRIVE UINT32_MAX
/** Drives of two results that are compared; NB_NO_DRIVE: there is none. */
struct nb_pair {
    uint32_t a, b;
    bool same; /* as far as is known: the same disks, model and size, or the same simulated drive */
};
/** The same drives first, what is left in order, then those without a counterpart. Pure. */
uint32_t nb_pair_drives(const struct nb_result *a, const struct nb_result *b,
                        struct nb_pair pairs[2 * NB_MAX_DRIVES]);
/** Two results, the second in terms of the first, and what of them cannot be compared. */
void nb_compare(const struct nb_result *a, const struct nb_result *b, const char *const names[2],
                bool json, FILE *out);

/**
 * Reads what nb_report_json wrote. Files are hostile: every number is checked, nothing is trusted.
 * E402 what is not such a file, E106 what cannot be read.
 */
int nb_result_load(const char *path, struct nb_result *result, struct hst_error *error);

#define NB_SENTENCE 600u
/** The verdict in two sentences. Pure. */
void nb_verdict(const struct nb_answer *answer, char headline[NB_SENTENCE],
                char advice[NB_SENTENCE]);
/** "1 MiB x 16 x 1". Pure. */
void nb_shape_text(const struct nb_shape *shape, char dst[48]);
/** "3.81 GB/s": drives are sold in powers of 1000. Pure. */
void nb_rate_text(double bytes_per_s, char dst[32]);
/** "192.7 GB", likewise; 24.0 MB, 1.5 TB. Pure. */
void nb_bytes_text(double bytes, char dst[32]);
/** It tells what is known of a drive, in a line. Pure. */
void nb_drive_text(const struct nb_drive *drive, char dst[NB_SENTENCE]);
/** It tells how all drives were measured together. Pure. */
void nb_together_text(const struct nb_result *result, char dst[NB_SENTENCE]);
/** It tells what the long write showed, in a sentence. Pure. */
void nb_sustained_text(const struct nb_sustained *sustained, char dst[NB_SENTENCE]);

#endif
