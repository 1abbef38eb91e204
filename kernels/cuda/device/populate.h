/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_POPULATE_H
#define HST_CUDA_POPULATE_H
#include <stddef.h>

#pragma GCC visibility push(hidden)

/** Bytes that are worth a thread. */
#define POPULATE_PART ((size_t)256 << 20)

/**
 * Gives every page of fresh anonymous memory, which begins on a huge page, its zeroed bytes now, by
 * up to 16 threads, no more than processors that this thread may use. Errors: those of madvise(2)
 * (-ENOMEM, -EFAULT), pages being there or not.
 */
int cuda_populate(void *memory, size_t size_bytes);

#pragma GCC visibility pop
#endif
