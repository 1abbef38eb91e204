/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_NOISE_H
#define HST_CPU_ADAM_NOISE_H
/*
 * The noise with which moments are rounded to bf16: 32 bits for each step and element, the same on
 * every instruction set. It takes nothing but 32-bit multiplications and shifts, which all of them
 * have as vectors. cpu_adam.h has the formula and its sources.
 */
#include <stdint.h>

#define NOISE_FIRST  0x21f0aaadu
#define NOISE_SECOND 0xd35a2d97u

/* splitmix64: each bit of x changes half the bits. */
static inline uint64_t noise_hash(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/*
 * It holds the keys of a step and of the 2^32 elements that share the upper half of their index. A
 * key in each round makes every step a permutation of its own; with the first key alone, the noise
 * of a step would be that of another one for elements in another order.
 */
struct noise_key {
    uint32_t first, second;
};

static inline struct noise_key noise_key_of(uint64_t step_hash, uint64_t index)
{
    uint64_t key = noise_hash(step_hash + (index >> 32));
    return (struct noise_key){(uint32_t)key, (uint32_t)(key >> 32)};
}

static inline uint32_t noise_at(struct noise_key key, uint32_t index)
{
    uint32_t x = index ^ key.first;
    x = (x ^ x >> 16) * NOISE_FIRST;
    x = (x ^ x >> 15 ^ key.second) * NOISE_SECOND;
    return x ^ x >> 15;
}

#endif
