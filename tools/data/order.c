/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shuffled order of sequences: a Feistel network over the smallest even number of bits that
 * holds n, walked along its cycle until the value is below n. Every round is invertible, so the
 * network is a bijection, and cycle walking keeps that on [0, n); the domain is at most 4n, so
 * four rounds of the walk are expected at most. No table, so that the order of a corpus of any size
 * costs nothing and a position is all that a resumed run needs.
 *
 * The numbers are part of what a run means: a changed constant changes every shuffled run.
 */
#include "data/order.h"

#include <assert.h>

#define ROUNDS 6u

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014, doi:10.1145/2660193.2660195). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Bits of one half, so that 2^(2·half) >= n. */
static unsigned half_bits(uint64_t n)
{
    unsigned bits = 2;
    while (bits < 64 && (n - 1) >> bits)
        bits += 2;
    return bits / 2;
}

static uint64_t network(uint64_t key, unsigned half, uint64_t x)
{
    uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t left = x >> half, right = x & mask;
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t f = mix(key + 0x9e3779b97f4a7c15u * (round + 1) + right) & mask;
        uint64_t next = left ^ f;
        left = right;
        right = next;
    }
    return left << half | right;
}

uint64_t data_order_permute(uint64_t seed, uint64_t pass, uint64_t n, uint64_t k)
{
    assert(k < n);
    uint64_t key = mix(mix(seed + 0x9e3779b97f4a7c15u) + pass);
    unsigned half = half_bits(n);
    do {
        k = network(key, half, k);
    } while (k >= n);
    return k;
}

uint64_t data_order_draw(uint64_t seed, uint64_t stream, uint64_t k)
{
    const uint64_t key = mix(mix(seed + 0x9e3779b97f4a7c15u) + stream);
    return mix(key + 0x9e3779b97f4a7c15u * (k + 1));
}
