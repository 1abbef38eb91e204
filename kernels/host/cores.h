/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_CORES_H
#define HST_KERNELS_CORES_H
/* OpenBLAS's cores, as it names its sets of kernels, and the instructions that each one uses. */
#include <stdbool.h>
#include <stdint.h>

struct host_core {
    const char *name; /* as openblas_get_corename writes it */
    uint64_t needs;   /* bits of host_cpu_features */
};

/* It tells whether the rows are of this architecture: elsewhere OpenBLAS's choice is not looked
 * at. */
#if defined(__x86_64__)
#define HOST_CORES_KNOWN true
#else
#define HOST_CORES_KNOWN false
#endif

/* The core of this name, in any case of letters; null: none that is known. Pure. */
const struct host_core *host_core_find(const char *name);
/* All names, between commas. */
const char *host_core_names(void);
/* The first instruction set that the core needs and the features lack; null: none. Pure. */
const char *host_core_lacks(const struct host_core *core, uint64_t features);

/* It tells what this processor has and its kernel saves over a context switch. */
uint64_t host_cpu_features(void);

#endif
