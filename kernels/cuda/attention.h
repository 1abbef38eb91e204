/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_ATTENTION_H
#define HST_CUDA_ATTENTION_H
/* Which of two engines serves attention: cuDNN, or the plugin's own kernels. */
#include "cudnn/sdpa.h"

enum { ATTENTION_UNUSED_BYTES = sizeof((struct hst_dev_info *)0)->library_unused };

/*
 * It goes by the environment's HOISTWAY_ATTENTION: `own` never opens cuDNN, `cudnn` fails without
 * it, `cudnn-only` does too and sets *alone: what it does not serve is then refused. Unset or empty
 * takes it where it is (*sdpa is null where not; where it is there and of no use, `unused` says
 * why, else it is empty). Errors: -EINVAL another value, -ENODEV, -ENOMEM, with *failure (may be
 * null) written.
 */
int attention_open(struct hst_sdpa **sdpa, bool *alone, char unused[ATTENTION_UNUSED_BYTES],
                   struct hst_dev_failure *failure);

/* The table's entries. */
int attention_forward(struct hst_stream *stream, const struct hst_attention *args);
int attention_backward(struct hst_stream *stream, const struct hst_attention_backward *args);
size_t attention_work_bytes(struct hst_dev *dev, const struct hst_attention *args);

#endif
