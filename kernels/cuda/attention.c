/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice between cuDNN and the plugin's own attention: made by what was asked for when the
 * device was opened and by the shape, never by time or memory, so that results do not depend on
 * them.
 */
#include "attention.h"
#include "cuda.h"
#include "launchers.h"
#include "libraries/library.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* It opens cuDNN where that is; without it, or without a use for it, own kernels serve. */
static int open_if_there(struct hst_sdpa **sdpa, char *unused, struct hst_dev_failure *failure)
{
    struct hst_dev_failure reason = {.why = HST_DEV_OK};
    int rc = hst_sdpa_open(sdpa, &reason);
    if (rc == -ENODEV)
        snprintf(unused, ATTENTION_UNUSED_BYTES, "%s", reason.text);
    if (rc == -ENOENT && *hst_sdpa_soname())
        cuda_library_unlike(hst_sdpa_soname(), unused, ATTENTION_UNUSED_BYTES);
    if (rc == -ENODEV || rc == -ENOENT)
        return 0;
    if (rc && failure)
        *failure = reason;
    return rc;
}

int attention_open(struct hst_sdpa **sdpa, bool *alone, char unused[ATTENTION_UNUSED_BYTES],
                   struct hst_dev_failure *failure)
{
    const char *wish = getenv("HOISTWAY_ATTENTION");
    *sdpa = NULL;
    *unused = '\0';
    if (!wish || !*wish)
        return open_if_there(sdpa, unused, failure);
    *alone = strcmp(wish, "cudnn-only") == 0;
    if (*alone || strcmp(wish, "cudnn") == 0) {
        int rc = hst_sdpa_open(sdpa, failure);
        return rc == -ENOENT ? -ENODEV : rc;
    }
    if (strcmp(wish, "own") == 0)
        return 0;
    cuda_failure_set(failure, HST_DEV_ENVIRONMENT, 0,
                     "HOISTWAY_ATTENTION is \"%.100s\": none of \"own\", \"cudnn\", \"cudnn-only\"",
                     wish);
    return -EINVAL;
}

/* Kept and made the stream's, as any error of an operation. */
static int sdpa_end(struct hst_stream *stream, int rc, const struct hst_dev_failure *failure)
{
    if (!rc)
        return 0;
    cuda_failure_keep(cuda_dev_of(stream->dev), failure);
    return rc == -ENOTSUP ? rc : cuda_stream_fail(stream, rc);
}

/* 1 cuDNN, 0 own kernels, or an error. cuDNN's plans here know of no documents and no window. */
static int served_by_cudnn(struct hst_sdpa *sdpa, const struct hst_attention *args, bool backward,
                           struct hst_dev_failure *failure)
{
    if (!sdpa || args->first || args->window)
        return 0;
    return hst_sdpa_supports(sdpa, args, backward, failure);
}

int attention_forward(struct hst_stream *stream, const struct hst_attention *args)
{
    struct hst_sdpa *sdpa = cuda_dev_of(stream->dev)->sdpa;
    cudaStream_t native = cuda_stream_native(stream);
    struct hst_dev_failure failure;
    int rc = cuda_stream_begin(stream);
    int served = rc ? rc : served_by_cudnn(sdpa, args, false, &failure);
    if (served < 0)
        return served == rc ? rc : sdpa_end(stream, served, &failure);
    if (!served && cuda_dev_of(stream->dev)->sdpa_alone)
        return -ENOTSUP;
    if (!served)
        return cuda_stream_end(stream, hst_cuda_attention(native, args), "attention");
    rc = hst_sdpa_forward(sdpa, native, args, &failure);
    return sdpa_end(stream, rc, &failure);
}

int attention_backward(struct hst_stream *stream, const struct hst_attention_backward *args)
{
    struct hst_sdpa *sdpa = cuda_dev_of(stream->dev)->sdpa;
    cudaStream_t native = cuda_stream_native(stream);
    struct hst_dev_failure failure;
    int rc = cuda_stream_begin(stream);
    int served = rc ? rc : served_by_cudnn(sdpa, &args->forward, true, &failure);
    if (served < 0)
        return served == rc ? rc : sdpa_end(stream, served, &failure);
    if (!served && cuda_dev_of(stream->dev)->sdpa_alone)
        return -ENOTSUP;
    if (!served)
        return cuda_stream_end(stream, hst_cuda_attention_backward(native, args),
                               "attention backward");
    rc = hst_sdpa_backward(sdpa, native, args, &failure);
    return sdpa_end(stream, rc, &failure);
}

size_t attention_work_bytes(struct hst_dev *dev, const struct hst_attention *args)
{
    struct cuda_dev *cuda = cuda_dev_of(dev);
    size_t own = hst_cuda_attention_work_bytes(args), other = 0;
    struct hst_dev_failure failure;
    if (cuda->sdpa && !cuda_enter(cuda) && hst_sdpa_work_bytes(cuda->sdpa, args, &other, &failure))
        cuda_failure_keep(cuda, &failure);
    return own > other ? own : other;
}
