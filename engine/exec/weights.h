/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_WEIGHTS_H
#define HOISTWAY_ENGINE_EXEC_WEIGHTS_H
/* Weights where they are computed with: at home in DRAM, or fetched ahead from NVMe into leases. */
#include "engine_state.h"

/** Leases, and the views of units at home in DRAM. Errors: -ENOMEM, the device's. */
int weights_open(struct hst_engine *engine);
void weights_close(struct hst_engine *engine);
/**
 * Makes the unit's weights readable for what is enqueued from now on; begins fetching those that
 * follow.
 */
int weights_acquire(struct hst_engine *engine, uint32_t unit, uint32_t place);
int weights_release(struct hst_engine *engine, uint32_t unit, struct hst_stream *stream);
/** Begins fetching the units used from `place` on, as far as idle leases allow; never waits. */
int weights_prefetch(struct hst_engine *engine, uint32_t place);
/** Waits for what is being fetched and empties all leases: weights are about to change. */
int weights_invalidate(struct hst_engine *engine);

#endif
