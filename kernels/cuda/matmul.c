/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice between cuBLASLt and the plugin's own matrix products: made once, when a device is
 * opened, by what was asked for and what is there, for all products of that device. So a run has
 * one of them, and what its bits depend on says which.
 */
#include "matmul.h"
#include "cuda.h"
#include "launchers.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int matmul_open(unsigned compute_major, struct blaslt **blaslt, char *absent, size_t absent_bytes,
                struct hst_dev_failure *failure)
{
    const char *wish = getenv("HOISTWAY_MATMUL");
    bool any = !wish || !*wish;
    *blaslt = NULL;
    *absent = '\0';
    if (!any && strcmp(wish, "own") == 0)
        return 0;
    if (!any && strcmp(wish, "cublaslt") != 0) {
        cuda_failure_set(failure, HST_DEV_ENVIRONMENT, 0,
                         "HOISTWAY_MATMUL is \"%.100s\": none of \"own\", \"cublaslt\"", wish);
        return -EINVAL;
    }
    int rc = blaslt_create(compute_major, blaslt, failure);
    if (rc != -ENOENT)
        return rc;
    if (!any)
        return -ENODEV;
    snprintf(absent, absent_bytes, "%s", BLASLT_SONAME);
    return 0;
}

void matmul_name(const struct blaslt *blaslt, char *text, size_t size)
{
    if (blaslt)
        blaslt_version(blaslt, text, size);
    else
        snprintf(text, size, "own products");
}

int matmul_run(struct hst_stream *stream, const struct hst_matmul *args)
{
    const struct cuda_dev *cuda = cuda_dev_of(stream->dev);
    if (cuda->blaslt)
        return blaslt_matmul(stream, args);
    int rc = cuda_stream_begin(stream);
    return rc ? rc
              : cuda_stream_end(
                    stream,
                    hst_cuda_matmul(cuda_stream_native(stream), args, cuda->info.multiprocessors),
                    "matmul");
}

size_t matmul_work_bytes(struct hst_dev *dev, const struct hst_matmul *args)
{
    return cuda_dev_of(dev)->blaslt ? blaslt_work_bytes(dev, args) : 0;
}
