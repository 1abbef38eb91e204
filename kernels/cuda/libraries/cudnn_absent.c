/* SPDX-License-Identifier: Apache-2.0 */
/* This file stands for cudnn/ in a build without cuDNN's headers: it is never there. */
#include "cuda.h"
#include "cudnn/sdpa.h"
#include <errno.h>

int hst_sdpa_open(struct hst_sdpa **sdpa, struct hst_dev_failure *failure)
{
    (void)sdpa;
    cuda_failure_set(failure, HST_DEV_LIBRARY, 0,
                     "cuDNN cannot be used: its headers were not there when this was built");
    return -ENOENT;
}

void hst_sdpa_close(struct hst_sdpa **sdpa)
{
    (void)sdpa;
}

const char *hst_sdpa_soname(void)
{
    return "";
}

size_t hst_sdpa_version(const struct hst_sdpa *sdpa)
{
    (void)sdpa;
    return 0;
}

const char *hst_sdpa_file(const struct hst_sdpa *sdpa)
{
    (void)sdpa;
    return "";
}

void hst_sdpa_budget(struct hst_sdpa *sdpa, uint64_t memory_bytes)
{
    (void)sdpa, (void)memory_bytes;
}

void hst_sdpa_made(struct hst_sdpa *sdpa, struct hst_sdpa_made *made)
{
    (void)sdpa;
    *made = (struct hst_sdpa_made){0};
}

int hst_sdpa_supports(struct hst_sdpa *sdpa, const struct hst_attention *args, bool backward,
                      struct hst_dev_failure *failure)
{
    (void)sdpa, (void)args, (void)backward, (void)failure;
    return 0;
}

int hst_sdpa_work_bytes(struct hst_sdpa *sdpa, const struct hst_attention *args, size_t *work_bytes,
                        struct hst_dev_failure *failure)
{
    (void)sdpa, (void)args, (void)failure;
    *work_bytes = 0;
    return 0;
}

int hst_sdpa_forward(struct hst_sdpa *sdpa, cudaStream_t stream, const struct hst_attention *args,
                     struct hst_dev_failure *failure)
{
    (void)sdpa, (void)stream, (void)args, (void)failure;
    return -ENOTSUP;
}

int hst_sdpa_backward(struct hst_sdpa *sdpa, cudaStream_t stream,
                      const struct hst_attention_backward *args, struct hst_dev_failure *failure)
{
    (void)sdpa, (void)stream, (void)args, (void)failure;
    return -ENOTSUP;
}
