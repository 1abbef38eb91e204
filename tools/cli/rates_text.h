/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_RATES_TEXT_H
#define HOISTWAY_TOOLS_CLI_RATES_TEXT_H
/* Rates as people read them: each with its unit and its age. */
#include "base/text.h"

#include <hoistway/machine.h>

#define RATES_TEXT_BYTES 1600u /* enough for all of them */

/** Milliseconds since 1970. */
uint64_t rates_now_ms(void);
/** Seconds between both; 0 where the clock was set back since. Pure. */
double rates_age_s(uint64_t figure_ms, uint64_t now_ms);
/** "just now", "14 min ago", "3 h ago", "2 days ago"; before 2000: "as given". Pure. */
const char *rates_age_text(uint64_t figure_ms, uint64_t now_ms, char dst[TEXT_BYTES]);
/** The same of a figure; "assumed" where nobody measured it. Pure. */
const char *rates_figure_text(const struct hst_rates *rates, enum hst_rate rate, uint64_t now_ms,
                              char dst[TEXT_BYTES]);
/**
 * "compute 203 GFLOP/s, 2 days ago; read 2.1 GB/s, write 1.9 GB/s, just now": what is known, in its
 * order, those of one age in a row together; "" where nothing is. Pure.
 */
const char *rates_text(const struct hst_rates *rates, uint64_t now_ms, char dst[RATES_TEXT_BYTES]);

#endif
