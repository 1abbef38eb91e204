/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Initial values under --init random: what transformers gives a fresh Llama (normal with the
 * deviation of config.json, norms 1, biases 0, the embedding's row for padding 0), from a
 * counter-based generator, so that any part of any tensor can be made by itself.
 *
 * The numbers are part of what a seed means: a changed constant changes every such run.
 */
#include "model/llama.h"

#include <math.h>
#include <string.h>

#define DEVIATION 0.02 /* where config.json says none */

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014, doi:10.1145/2660193.2660195). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t key_of(uint64_t seed, const char *name)
{
    uint64_t key = mix(seed + 0x9e3779b97f4a7c15u);
    for (; *name; name++)
        key = mix(key ^ (unsigned char)*name) + 0x9e3779b97f4a7c15u;
    return key;
}

/* Uniform in (0, 1): never 0, whose logarithm is infinite. */
static double uniform(uint64_t key, uint64_t counter)
{
    return ((double)(mix(key + 0x9e3779b97f4a7c15u * counter) >> 11) + 0.5) * 0x1p-53;
}

/* Box and Muller 1958: elements 2·pair and 2·pair + 1. */
static void normal_pair(uint64_t key, uint64_t pair, double deviation, float out[2])
{
    double radius = deviation * sqrt(-2.0 * log(uniform(key, 2 * pair)));
    double angle = 2.0 * M_PI * uniform(key, 2 * pair + 1);
    out[0] = (float)(radius * cos(angle));
    out[1] = (float)(radius * sin(angle));
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), s = strlen(suffix);
    return n >= s && strcmp(name + n - s, suffix) == 0;
}

static void fill(float *dst, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = value;
}

/* It makes 0 what of elements [offset, offset + count) lies in the row for padding. */
static void clear_pad(const struct llama_config *c, uint64_t offset, float *dst, size_t count)
{
    const uint64_t begin = (uint64_t)c->pad * c->hidden, end = begin + c->hidden;
    for (size_t i = 0; i < count; i++)
        if (offset + i >= begin && offset + i < end)
            dst[i] = 0.0f;
}

void llama_init_random(const struct llama_config *config, const struct llama_init *init, float *dst,
                       size_t count)
{
    if (ends_with(init->name, "norm.weight")) {
        fill(dst, count, 1.0f);
        return;
    }
    if (ends_with(init->name, ".bias")) {
        fill(dst, count, 0.0f);
        return;
    }
    const double deviation = config->initializer_range > 0 ? config->initializer_range : DEVIATION;
    uint64_t key = key_of(init->seed, init->name);
    for (size_t i = 0; i < count;) {
        uint64_t element = init->offset + i;
        float pair[2];
        normal_pair(key, element / 2, deviation, pair);
        dst[i++] = pair[element % 2];
        if (element % 2 == 0 && i < count)
            dst[i++] = pair[1];
    }
    if (config->has_pad && ends_with(init->name, "embed_tokens.weight"))
        clear_pad(config, init->offset, dst, count);
}
