/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_NVME_BENCH_TARGET_H
#define HOISTWAY_TOOLS_NVME_BENCH_TARGET_H
/* The file of a report: opened before minutes of measuring, changed only when there is something to
   write. */
#include "base/fail.h"

#include <stdbool.h>
#include <stdio.h>

struct nb_target {
    const char *path; /* null: none was asked for */
    int fd;
    bool created; /* by the open: removed where nothing comes to stand in it */
};

/** E402 where a report would replace the result that it is made from. Both may be null. */
int nb_target_check(const char *path, const char *source, struct hst_error *error);
/** E107 where it cannot be written. Borrows path. */
int nb_target_open(struct nb_target *target, const char *path, struct hst_error *error);
/** It returns a stream: what is written there replaces what the file held; null: *error. */
FILE *nb_target_begin(struct nb_target *target, struct hst_error *error);
/** Closes the stream. E107 where something was lost; then no part is left of a file that was not
    there before. */
int nb_target_end(struct nb_target *target, FILE *stream, struct hst_error *error);
void nb_target_close(struct nb_target *target); /* accepts a zeroed or ended one */

/** Descriptors 0 to 2 that are closed would be taken by the files of a run: they become /dev/null.
    E107 where stdout was closed, or is not open for writing. */
int nb_target_check_stdout(struct hst_error *error);
#endif
