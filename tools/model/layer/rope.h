/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_MODEL_LAYER_ROPE_H
#define HOISTWAY_TOOLS_MODEL_LAYER_ROPE_H
#include "hf/config/llama_config.h"

#include <stddef.h>

/** Angle per position of pair i < head_dim/2, in radians, scaled as configured. Pure. */
double rope_frequency(const struct rope_config *config, uint32_t head_dim, uint32_t i);
/** cos, sin f32[seq, head_dim/2], written: computed in float64, rounded once. */
void rope_tables(const struct rope_config *config, uint32_t head_dim, size_t seq, float *cos_table,
                 float *sin_table);
#endif
