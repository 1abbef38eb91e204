/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_MATMUL_H
#define HST_CUDA_MATMUL_H
/* Which of two engines makes matrix products: cuBLASLt, or the plugin's own kernels. */
#include "libraries/blaslt.h"

/*
 * It goes by the environment's HOISTWAY_MATMUL: `own` never opens cuBLASLt, `cublaslt` fails
 * without it. Unset or empty takes it where it is found; where it is not, *blaslt is null and
 * `absent`, of absent_bytes, names it. What is found and cannot be used is an error, not a reason
 * to make other bits silently. Errors: -EINVAL another value, -ENODEV, -ENOMEM, with *failure (may
 * be null) written.
 */
int matmul_open(unsigned compute_major, struct blaslt **blaslt, char *absent, size_t absent_bytes,
                struct hst_dev_failure *failure);
/* "cuBLASLt 13.1.0", "own products" */
void matmul_name(const struct blaslt *blaslt, char *text, size_t size);

/* The table's entries. */
int matmul_run(struct hst_stream *stream, const struct hst_matmul *args);
size_t matmul_work_bytes(struct hst_dev *dev, const struct hst_matmul *args);

#endif
