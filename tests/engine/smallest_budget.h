/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_ENGINE_SMALLEST_BUDGET_H
#define TESTS_ENGINE_SMALLEST_BUDGET_H
#include <hoistway/hoistway.h>

/** Lowers one budget of *config, from `most` on, to the smallest, to the page, with which an engine
 * of the units that `describe` adds is sealed. */
void lower_budget(struct hst_config *config, uint64_t *budget, uint64_t most,
                  int (*describe)(struct hst_engine *engine));
/** True where it is sealed. */
bool seals(const struct hst_config *config, int (*describe)(struct hst_engine *engine));

/** Gives *config, for a device with memory of its own, the largest HBM budget, to the page, with
 * which not all units are resident; some are. */
void share_units(struct hst_config *config, uint64_t most,
                 int (*describe)(struct hst_engine *engine));

#endif
