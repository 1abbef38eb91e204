/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TESTS_FAKE_ENGINE_H
#define HOISTWAY_TESTS_FAKE_ENGINE_H
/*
 * The engine's public calls that a model uses, on plain memory, without plan, workers or files:
 * everything is at home where it is used. It is strict where the real one need not be: an order of
 * calls that the header does not promise fails a cmocka assertion, what is promised to be undefined
 * is filled with NaN, what was borrowed for reading must come back unchanged, and the work area
 * ends in a canary. Of several ranks (hst_config.launch) it is one that never meets the others: it
 * has a rank's part of the batch, and its gradients and sums are those of that part.
 */
#include <hoistway/hoistway.h>

/** Units to a kept checkpoint, where they say that they can do with that: 3 until it is set; 1: all
 * are kept. Before seal. */
void fake_engine_segment(struct hst_engine *engine, uint32_t units);
/** Units that are given memory for the activations that they can save: bit u stands for unit u; 0,
 * until it is set: none. Before seal. */
void fake_engine_saves(struct hst_engine *engine, uint64_t units);
/** From now on a backward finds zeros where its forward has left activations. */
void fake_engine_forgets(struct hst_engine *engine);
/** Units with more than `rows` of a matrix that has blocks are cut into slices of so many; 0, until
 * it is set: none are. Before units are added. */
void fake_engine_slices(struct hst_engine *engine, uint64_t rows);
/** Name of a unit, its parameters, the first one's name. Null: no such unit. */
const char *fake_engine_unit(const struct hst_engine *engine, uint32_t unit, uint32_t *param_count,
                             const char **param);
/** FLOPs of a unit's forward per token, as it was added. */
uint64_t fake_engine_flops(const struct hst_engine *engine, uint32_t unit);
/** The gradient of a parameter before clipping, as of the last step: f32[count]. Null: no such
 * parameter. */
const float *fake_engine_grad(const struct hst_engine *engine, const char *name, size_t *count);
/** What was added to the first sum since the engine was made, one value after another. */
const double *fake_engine_added(const struct hst_engine *engine, size_t *count);
/** Public calls of steps so far, and which of them (0 is the first) is to fail with -EIO. */
size_t fake_engine_calls(const struct hst_engine *engine);
void fake_engine_fail_at(struct hst_engine *engine, size_t call);
#endif
