/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_LAYER_KERNELS_H
#define HOISTWAY_TOOLS_BENCH_LAYER_KERNELS_H
#include "bench/figure.h"

enum bench_group {
    BENCH_COPIES = 1u << 0,    /* host to device and back, of the link; page-locking */
    BENCH_MEMORY = 1u << 1,    /* what moves more than it computes, of a copy inside the device */
    BENCH_MATMUL = 1u << 2,    /* GEMMs at an 8B Llama's shapes, of the largest one */
    BENCH_ATTENTION = 1u << 3, /* of that product too */
    BENCH_LAUNCHES = 1u << 4,  /* of a layer: what they cost, and when computing takes longer */
    BENCH_WAITS = 1u << 5,     /* of a thread for the device: when it goes on, its processor time */
    BENCH_ALL = 63,
};

/**
 * Measures a device's operations at the shapes of an 8B Llama (on the host, where one thread does
 * them, at smaller ones), bf16, each beside a ceiling of the same run. groups: of enum bench_group.
 * An operation that the device does not have is told with a note. A GPU is warmed before the first
 * figure (bench_burn_in). Needs some 6 GiB of device
 * memory (smoke: 1 MiB). Errors: negative errno with *error.
 */
int bench_kernels(struct hst_dev *dev, unsigned groups, const struct bench_teller *teller,
                  struct hst_error *error);

#endif
