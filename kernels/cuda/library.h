/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_LIBRARY_H
#define HST_CUDA_LIBRARY_H
/* NVIDIA's libraries, opened when they are needed: where they are looked for. */
#include <hoistway/kernels.h>

/*
 * Opens `soname` ("libcublasLt.so.13"): in each folder of the environment's HOISTWAY_CUDA_PATH
 * (colon-separated, absolute; ignored in a set-user-ID program), as the system's loader finds it,
 * and in /usr/local/cuda/lib64. A file that is there and does not load ends the search. Null with
 * *failure (HST_DEV_LIBRARY, may be null) written. Close with dlclose; the library stays loaded.
 */
void *cuda_library_open(const char *soname, struct hst_dev_failure *failure);

#endif
