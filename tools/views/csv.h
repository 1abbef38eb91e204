/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VIEWS_CSV_H
#define HOISTWAY_TOOLS_VIEWS_CSV_H
/*
 * --csv: a row for each step and each evaluation, with the digits of the log. What the log has as
 * null, or not in that line, is empty: an evaluation is told after its step's row is in the file.
 * All functions do nothing without a path.
 */
#include "base/fail.h"
#include "views/record.h"

struct csv {
    const char *path; /* borrowed */
    FILE *file;
};

/** As run_log_check. */
int csv_check(const char *path, struct hst_error *error);
/** Replaces an earlier one and writes the names of the columns. E107. */
int csv_open(struct csv *csv, const char *path, struct hst_error *error);
/** flush: the row is in the file before the next step. E107; the file is closed then. */
int csv_take(struct csv *csv, const struct record *record, bool flush, struct hst_error *error);
int csv_close(struct csv *csv, struct hst_error *error);

#endif
