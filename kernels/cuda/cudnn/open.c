/* SPDX-License-Identifier: Apache-2.0 */
/* Opening cuDNN on a card: the only file that calls the loader and the CUDA runtime. */
#include "device.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libcudnn.so.9"

/* It has threads and handlers of its own: never unloaded. It opens its parts itself. */
#define OPEN_FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)

/* Each folder of HOISTWAY_CUDA_PATH that is absolute, then the loader's own search. */
static void *open_library(void)
{
    const char *path = secure_getenv("HOISTWAY_CUDA_PATH");
    while (path && *path) {
        int length = (int)strcspn(path, ":");
        char *file = NULL;
        if (*path == '/' && asprintf(&file, "%.*s/" LIBRARY, length, path) > 0) {
            void *library = dlopen(file, OPEN_FLAGS);
            free(file);
            if (library)
                return library;
        }
        path += length + (path[length] == ':');
    }
    return dlopen(LIBRARY, OPEN_FLAGS);
}

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
    void *library = open_library();
    if (!library)
        return cudnn_fail(failure, -ENODEV, HST_DEV_LIBRARY, 0, "%s", dlerror());
    int rc = cudnn_load(&sdpa->api, library, failure);
    if (rc)
        return rc;
    cudaError_t error = get_compute(&sdpa->target.compute);
    if (error)
        return cudnn_fail(failure, -ENODEV, HST_DEV_EXECUTION, (int)error, "%s",
                          cudaGetErrorString(error));
    cudnnStatus_t status = sdpa->api.create(&sdpa->target.handle);
    if (status) {
        rc = cudnn_report(&sdpa->api, status, "opening it", failure);
        return rc == -ENOMEM ? rc : -ENODEV;
    }
    sdpa->target.api = &sdpa->api;
    sdpa->target.version = sdpa->api.get_version();
    sdpa->cache.wait = wait_for_device;
    return 0;
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
