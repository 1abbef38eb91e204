/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's functions and the story of its errors. */
#include "api.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    {"cudnnGetVersion", offsetof(struct cudnn_api, get_version)},
    {"cudnnGetErrorString", offsetof(struct cudnn_api, get_error_string)},
    {"cudnnGetLastErrorString", offsetof(struct cudnn_api, get_last_error_string)},
    {"cudnnCreate", offsetof(struct cudnn_api, create)},
    {"cudnnDestroy", offsetof(struct cudnn_api, destroy)},
    {"cudnnSetStream", offsetof(struct cudnn_api, set_stream)},
    {"cudnnBackendCreateDescriptor", offsetof(struct cudnn_api, create_descriptor)},
    {"cudnnBackendDestroyDescriptor", offsetof(struct cudnn_api, destroy_descriptor)},
    {"cudnnBackendFinalize", offsetof(struct cudnn_api, finalize)},
    {"cudnnBackendSetAttribute", offsetof(struct cudnn_api, set_attribute)},
    {"cudnnBackendGetAttribute", offsetof(struct cudnn_api, get_attribute)},
    {"cudnnBackendExecute", offsetof(struct cudnn_api, execute)},
};

int cudnn_fail(struct hst_dev_failure *failure, int rc, enum hst_dev_why why, int native,
               const char *format, ...)
{
    if (!failure)
        return rc;
    failure->why = why;
    failure->native = native;
    va_list args;
    va_start(args, format);
    vsnprintf(failure->text, sizeof failure->text, format, args);
    va_end(args);
    for (char *c = failure->text; *c; c++) /* cuDNN's own texts have several lines */
        if (*c == '\n')
            *c = ' ';
    return rc;
}

bool cudnn_memory_short(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
           status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

bool cudnn_not_whole(cudnnStatus_t status)
{
    return (status >= CUDNN_STATUS_NOT_INITIALIZED && status < CUDNN_STATUS_BAD_PARAM) ||
           status == CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER ||
           status == CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART ||
           status == CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE;
}

int cudnn_report(const struct cudnn_api *api, cudnnStatus_t status, const char *what,
                 struct hst_dev_failure *failure)
{
    char said[256] = "";
    api->get_last_error_string(said, sizeof said);
    int rc = -EIO;
    enum hst_dev_why why = HST_DEV_EXECUTION;
    if (cudnn_memory_short(status)) {
        rc = -ENOMEM;
        why = HST_DEV_MEMORY;
    } else if (cudnn_not_whole(status)) {
        return cudnn_fail(failure, -ENODEV, HST_DEV_LIBRARY, (int)status,
                          "%.150s is not whole: %.60s: %s (%d)%s%.100s", api->file, what,
                          api->get_error_string(status), (int)status, *said ? ": " : "", said);
    } else if (status >= CUDNN_STATUS_NOT_SUPPORTED && status < CUDNN_STATUS_INTERNAL_ERROR) {
        rc = -ENOTSUP;
        why = HST_DEV_LIBRARY;
    }
    return cudnn_fail(failure, rc, why, (int)status, "cuDNN: %s: %s (%d)%s%s", what,
                      api->get_error_string(status), (int)status, *said ? ": " : "", said);
}

/* 91600 is 9.16.0. */
#define VERSION_FORMAT        "%zu.%zu.%zu"
#define VERSION_ARGS(version) (version) / 10000, (version) / 100 % 100, (version) % 100

int cudnn_load(struct cudnn_api *api, void *library, const char *file,
               struct hst_dev_failure *failure)
{
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol)
            return cudnn_fail(failure, -ENODEV, HST_DEV_LIBRARY, 0, "%.200s has no %s", file,
                              symbols[i].name);
        memcpy((char *)api + symbols[i].offset, &symbol, sizeof symbol);
    }
    api->file = file;
    size_t version = api->get_version();
    if (version < CUDNN_OLDEST_VERSION)
        return cudnn_fail(failure, -ENODEV, HST_DEV_LIBRARY, 0,
                          "%.200s is cuDNN " VERSION_FORMAT "; attention needs " VERSION_FORMAT
                          " or newer",
                          file, VERSION_ARGS(version), VERSION_ARGS((size_t)CUDNN_OLDEST_VERSION));
    return 0;
}
