/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_RATES_FILE_H
#define HOISTWAY_TOOLS_VERBS_RATES_FILE_H
/* Files of rates, as --save-rates writes them and options of plan read them. */
#include "base/fail.h"

#include <hoistway/machine.h>

/** option: "--rates", for messages. E402 where it cannot be read, or is no file of rates; those of
 * a machine file serve, too (E406). */
int rates_file_read(const char *option, const char *path, struct hst_rates *rates,
                    struct hst_error *error);
/** By how many ranks on how many nodes a network's rates were measured, as bench comm says it;
 * false: they do not say it. Pure. */
bool rates_file_measured_by(const struct hst_rates *rates, unsigned *ranks, unsigned *nodes);
/** Refuses a path for --save-rates where something else is; null is fine. E107. */
int rates_file_check(const char *path, struct hst_error *error);
/** Writes what is known; an earlier file of rates is replaced, and nothing else. E107. */
int rates_file_write(const char *path, const struct hst_rates *rates, struct hst_error *error);

#endif
