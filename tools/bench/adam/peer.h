/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_ADAM_PEER_H
#define HOISTWAY_TOOLS_BENCH_ADAM_PEER_H
#include "bench/adam/adam.h"

#include <hoistway/cpu_adam.h>

/* All updates are measured with these. */
#define ADAM_LR           1e-5
#define ADAM_BETA1        0.9
#define ADAM_BETA2        0.999
#define ADAM_EPS          1e-8
#define ADAM_WEIGHT_DECAY 0.01

/** The coefficients of a step. */
struct hst_adam_coef adam_coef(uint64_t step);

/** Runs the peer's step. Returns 0, or what the peer returned. */
int adam_peer_step(bench_peer_adamw *peer, const struct hst_update_arrays *a, size_t n,
                   unsigned step, unsigned threads);

/**
 * Opens a library and finds what it exports, then holds it to our numbers. The library stays open.
 * Errors: -EINVAL with *error (E402).
 */
int adam_peer_open(const char *path, bench_peer_adamw **peer, struct hst_error *error);

#endif
