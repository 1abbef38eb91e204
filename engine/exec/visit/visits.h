/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_VISITS_H
#define HOISTWAY_ENGINE_EXEC_VISITS_H
#include "exec/executor.h"

/** Lists the visits of the graph, for hst_engine_visits. Errors: -ENOMEM. */
int visits_open(struct executor *exec);
void visits_close(struct executor *exec);
/** It tells what a visit does with the unit's checkpoint: HST_READ, HST_WRITE or 0. */
unsigned visits_checkpoint(const struct executor *exec, uint32_t unit, enum hst_sweep sweep);

#endif
