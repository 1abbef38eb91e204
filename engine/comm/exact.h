/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_COMM_EXACT_H
#define HOISTWAY_ENGINE_COMM_EXACT_H
/*
 * Sums of doubles without an error, so that no order of additions can be seen in them: a
 * fixed-point number of 68 limbs of 32 bits, each in an int64. Ranks add theirs limb by limb as
 * integers (comm_sum64), which is exact with any algorithm.
 */
#include <stdint.h>

enum { EXACT_LIMBS = 68, EXACT_NUMBERS = EXACT_LIMBS + 3 };

/** Zero-initialised: 0. Thread-safety: of one thread. */
struct exact_sum {
    /*
     * Limb i counts units of 2^(32·i - 1074); behind the limbs: how many NaN, +∞ and -∞ were added.
     * These are what ranks add.
     */
    int64_t number[EXACT_NUMBERS];
    uint32_t unsettled; /* additions since the last exact_settle */
};

/** Adds x, exactly. Settles by itself where limbs could grow too large. Errors: none. */
void exact_add(struct exact_sum *sum, double x);
/**
 * Brings every limb but the last into [0, 2^32): to be called before ranks add theirs, of which
 * 2^30 may then be added. The value is the same.
 */
void exact_settle(struct exact_sum *sum);
/** Adds the other sum, exactly; both are settled then. */
void exact_join(struct exact_sum *sum, struct exact_sum *other);
/**
 * The sum, rounded once to nearest even; infinite where it is beyond the doubles. As in IEEE 754: a
 * NaN, or infinities of both signs, make a NaN. The sum itself is left as it is. 0 is +0.
 */
double exact_value(const struct exact_sum *sum);

#endif
