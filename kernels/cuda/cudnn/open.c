/* SPDX-License-Identifier: Apache-2.0 */
/* Opening cuDNN on a card: the only file that calls the CUDA runtime. */
#include "device.h"
#include "libraries/library.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int wait_for_device(void)
{
    return (int)cudaDeviceSynchronize();
}

static cudaError_t get_compute(int *compute)
{
    int device, major, minor;
    cudaError_t error = cudaGetDevice(&device);
    if (!error)
        error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (!error)
        error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (!error)
        *compute = 10 * major + minor;
    return error;
}

static int open_handle(struct hst_sdpa *sdpa, struct hst_dev_failure *failure)
{
    bool there;
    void *library = cuda_library_open(hst_sdpa_soname(), &there, failure);
    if (!library)
        return there ? -ENODEV : -ENOENT;
    sdpa->file = cuda_library_path(library);
    int rc = cudnn_load(&sdpa->api, library, sdpa->file, failure);
    if (rc)
        return rc;
    cudaError_t error = get_compute(&sdpa->target.compute);
    if (error)
        return cudnn_fail(failure, -ENODEV, HST_DEV_EXECUTION, (int)error, "%s",
                          cudaGetErrorString(error));
    cudnnStatus_t status = sdpa->api.create(&sdpa->target.handle);
    if (status) {
        char what[256];
        snprintf(what, sizeof what, "opening %.200s", cudnn_not_whole(status) ? "it" : sdpa->file);
        rc = cudnn_report(&sdpa->api, status, what, failure);
        if (rc == -ENOMEM)
            return rc;
        if (failure)
            failure->why = HST_DEV_LIBRARY; /* the card has answered before */
        return -ENODEV;
    }
    sdpa->target.api = &sdpa->api;
    sdpa->target.version = sdpa->api.get_version();
    sdpa->cache.wait = wait_for_device;
    sdpa->large_bytes = HST_SDPA_WORK_BYTES;
    return 0;
}

const char *hst_sdpa_soname(void)
{
    return "libcudnn.so.9";
}

int hst_sdpa_open(struct hst_sdpa **sdpa, struct hst_dev_failure *failure)
{
    struct hst_sdpa *s = calloc(1, sizeof *s);
    if (!s || pthread_mutex_init(&s->lock, NULL)) {
        free(s);
        return cudnn_fail(failure, -ENOMEM, HST_DEV_MEMORY, 0, "no host memory for cuDNN's plans");
    }
    int rc = open_handle(s, failure);
    if (rc) {
        pthread_mutex_destroy(&s->lock);
        free(s);
        return rc;
    }
    *sdpa = s;
    return 0;
}

void hst_sdpa_close(struct hst_sdpa **sdpa)
{
    struct hst_sdpa *s = *sdpa;
    if (!s)
        return;
    cache_clear(&s->cache);
    s->api.destroy(s->target.handle);
    pthread_mutex_destroy(&s->lock);
    free(s);
    *sdpa = NULL;
}
