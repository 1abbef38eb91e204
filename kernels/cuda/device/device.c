/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens and closes a GPU, and is the plugin's door. What can be missing is asked for from the
 * outside in (driver, card, code for it, libraries), so that the first thing missing is the one
 * that is told (refusal.c has the words); whatever fails, nothing of ours is left. The GPU's
 * primary context, which the runtime makes at the first call, belongs to the process and stays.
 */
#include "attention.h"
#include "cuda.h"
#include "cuda_config.h"
#include "cudnn/sdpa.h"
#include "libraries/library.h"
#include "matmul.h"
#include "wait.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int no_code(int index, const struct hst_dev_info *info, cudaError_t error,
                   struct hst_dev_failure *failure)
{
    if (error == cudaErrorUnsupportedPtxVersion)
        return cuda_no_gpu(error, failure);
    if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction)
        return cuda_no_context(index, error, failure);
    (void)cudaGetLastError();
    cuda_failure_set(failure, HST_DEV_ARCHITECTURE, error,
                     "GPU %d (%s) is of compute capability %u.%u; this build has code for %s",
                     index, info->model, info->compute_major, info->compute_minor,
                     HST_CUDA_ARCHITECTURES);
    return -ENODEV;
}

/* Finds the card and makes it the calling thread's. Writes *info. */
static int start_gpu(unsigned index, struct hst_dev_info *info, struct hst_dev_failure *failure)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (!error && !count)
        error = cudaErrorNoDevice;
    if (error)
        return cuda_no_gpu(error, failure);
    if (index >= (unsigned)count)
        return cuda_no_index(index, count, failure);
    error = cudaSetDevice((int)index);
    if (!error)
        error = cuda_info_read((int)index, info);
    if (error)
        return cuda_no_context((int)index, error, failure);
    error = hst_cuda_probe();
    return error ? no_code((int)index, info, error, failure) : 0;
}

static void name_libraries(struct cuda_dev *cuda)
{
    struct hst_dev_info *info = &cuda->info;
    char *text = info->libraries;
    size_t room = sizeof info->libraries;
    matmul_name(cuda->blaslt, text, room);
    size_t used = strlen(text), version = cuda->sdpa ? hst_sdpa_version(cuda->sdpa) : 0;
    if (version)
        snprintf(text + used, room - used, ", cuDNN %zu.%zu.%zu", version / 10000,
                 version / 100 % 100, version % 100);
    snprintf(info->library_files, sizeof info->library_files, "%s%s%s",
             cuda->blaslt ? blaslt_file(cuda->blaslt) : "", cuda->blaslt && version ? ", " : "",
             version ? hst_sdpa_file(cuda->sdpa) : "");
}

/* It tells what lies there in another version, and is the reason why own kernels serve, beside what
 * attention_open has said. */
static void tell_unlike(struct cuda_dev *cuda)
{
    char products[sizeof cuda->info.library_unused] = "", *all = cuda->info.library_unused;
    char attention[sizeof products];
    if (cuda->info.absent[0])
        cuda_library_unlike(cuda->info.absent, products, sizeof products);
    if (!products[0])
        return;
    snprintf(attention, sizeof attention, "%s", all);
    snprintf(all, sizeof cuda->info.library_unused, "%.190s%s%.200s", products,
             attention[0] ? "; " : "", attention);
}

static int cuda_dev_open(const struct hst_dev_config *config, struct hst_dev **dev,
                         struct hst_dev_failure *failure)
{
    struct cuda_dev *cuda = calloc(1, sizeof *cuda);
    if (!cuda) {
        cuda_failure_set(failure, HST_DEV_MEMORY, 0, "no host memory for a device's own records");
        return -ENOMEM;
    }
    int rc = start_gpu(config->index, &cuda->info, failure);
    if (rc)
        goto err_free;
    cudaError_t error = cudaStreamCreateWithFlags(&cuda->own, cudaStreamNonBlocking);
    if (error) {
        rc = cuda_no_context((int)config->index, error, failure);
        goto err_free;
    }
    rc = wait_open(&cuda->sleeps, failure);
    if (rc)
        goto err_stream;
    rc = matmul_open(cuda->info.compute_major, &cuda->blaslt, cuda->info.absent,
                     sizeof cuda->info.absent, failure);
    if (rc)
        goto err_stream;
    rc = attention_open(&cuda->sdpa, &cuda->sdpa_alone, cuda->info.library_unused, failure);
    if (rc)
        goto err_blaslt;
    if (cuda->sdpa)
        hst_sdpa_budget(cuda->sdpa, config->memory_bytes);
    name_libraries(cuda);
    tell_unlike(cuda);
    cuda->base.ops = &cuda_ops;
    cuda->index = (int)config->index;
    hst_book_open(&cuda->book, config);
    pthread_mutex_init(&cuda->lock, NULL); /* a default mutex on Linux: nothing can fail */
    *dev = &cuda->base;
    return 0;
err_blaslt:
    if (cuda->blaslt)
        blaslt_destroy(&cuda->blaslt);
err_stream:
    (void)cudaStreamDestroy(cuda->own);
err_free:
    free(cuda);
    return rc;
}

void cuda_dev_close(struct hst_dev *dev)
{
    struct cuda_dev *cuda = cuda_dev_of(dev);
    assert(cuda->stream_count == 0 && cuda->event_count == 0);
    assert(!cuda->blocks);
    hst_book_close(&cuda->book);
    (void)cuda_enter(cuda);
    hst_sdpa_close(&cuda->sdpa);
    if (cuda->blaslt)
        blaslt_destroy(&cuda->blaslt);
    (void)cudaStreamDestroy(cuda->own);
    pthread_mutex_destroy(&cuda->lock);
    free(cuda);
}

__attribute__((visibility("default"))) extern const struct hst_dev_plugin hst_dev_plugin;
const struct hst_dev_plugin hst_dev_plugin = {
    .size = sizeof(struct hst_dev_plugin),
    .version = HST_CUDA_VERSION,
    .ops_size = sizeof(struct hst_dev_ops),
    .open = cuda_dev_open,
};
