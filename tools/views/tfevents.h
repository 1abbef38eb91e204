/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VIEWS_TFEVENTS_H
#define HOISTWAY_TOOLS_VIEWS_TFEVENTS_H
/*
 * --tfevents: a file that TensorBoard reads, DIR/events.out.tfevents.hoistway, one event for each
 * step or evaluation with all that the log has of it as scalars ("loss", "stall_s/nvme",
 * "eval/loss"). An event's time is when its run began and the seconds of its steps. All functions
 * do nothing without a directory.
 */
#include "base/fail.h"
#include "views/facts.h"

#include <limits.h>

struct tfevents {
    char path[PATH_MAX]; /* empty: none */
    FILE *file;
    bool headed; /* the first event, which says of which format the others are, is there */
};

/** CRC-32C (Castagnoli), as a file of records masks it. */
uint32_t tfevents_masked_crc(const void *data, size_t bytes);

/** As run_log_check; the directory may be missing, its parent not. */
int tfevents_check(const char *directory, struct hst_error *error);
/** Makes the directory where it is missing; replaces an earlier file of its own. E107. */
int tfevents_open(struct tfevents *events, const char *directory, struct hst_error *error);
/** facts: with this record in them. As csv_take. */
int tfevents_take(struct tfevents *events, const struct record *record, const struct facts *facts,
                  bool flush, struct hst_error *error);
int tfevents_close(struct tfevents *events, struct hst_error *error);

#endif
