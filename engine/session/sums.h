/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_SUMS_H
#define HOISTWAY_ENGINE_SUMS_H
/* The client's exact sums: what it adds, and what all ranks have added together. */
#include "session/engine_state.h"

/** This is what the step that has ended agreed on; the next ones begin with nothing. */
void sums_take(struct hst_engine *engine, double sums[HST_SUMS]);

#endif
