/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary frequencies: Su et al. 2021, arXiv:2104.09864, eq. 15, and the two scalings that stretch
 * them over longer contexts. Computed in float64: float32 angles, as other code computes them, are
 * off by up to position·6e-8 radians.
 */
#include "model/layer/rope.h"

#include <math.h>

/* Llama 3.1: waves that turn often inside the original context stay, slow ones are stretched, those
 * between are blended. `turns` is original context / wavelength. */
static double scale_llama3(const struct rope_config *config, double frequency)
{
    double turns = config->original_max_positions * frequency / (2.0 * M_PI);
    if (turns <= config->low_freq_factor)
        return frequency / config->factor;
    if (turns >= config->high_freq_factor)
        return frequency;
    double smooth =
        (turns - config->low_freq_factor) / (config->high_freq_factor - config->low_freq_factor);
    return (1.0 - smooth) * frequency / config->factor + smooth * frequency;
}

double rope_frequency(const struct rope_config *config, uint32_t head_dim, uint32_t i)
{
    double frequency = pow(config->theta, -2.0 * (double)i / (double)head_dim);
    if (config->type == ROPE_LINEAR)
        return frequency / config->factor;
    if (config->type == ROPE_LLAMA3)
        return scale_llama3(config, frequency);
    return frequency;
}

void rope_tables(const struct rope_config *config, uint32_t head_dim, size_t seq, float *cos_table,
                 float *sin_table)
{
    uint32_t half = head_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        double frequency = rope_frequency(config, head_dim, i);
        for (size_t t = 0; t < seq; t++) {
            cos_table[t * half + i] = (float)cos((double)t * frequency);
            sin_table[t * half + i] = (float)sin((double)t * frequency);
        }
    }
}
