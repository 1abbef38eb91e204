/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_VISITS_H
#define HOISTWAY_ENGINE_EXEC_VISITS_H
#include <hoistway/hoistway.h>

/** Lists the visits of the graph, for hst_engine_visits. Errors: -ENOMEM. */
int visits_open(struct hst_engine *engine);
void visits_close(struct hst_engine *engine);
/** It tells what a visit does with the unit's checkpoint: HST_READ, HST_WRITE or 0. */
unsigned visits_checkpoint(const struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep);

#endif
