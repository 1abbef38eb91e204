/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDNN_API_H
#define HST_CUDNN_API_H
/* cuDNN's functions, looked up at run time: the plugin loads, and trains, where cuDNN is absent. */
#include <cudnn.h>
#include <hoistway/kernels.h>

/*
 * The oldest that is used. Before it, the backward of lengths that are no multiple of 128 is wrong
 * without a mask of its own (NVIDIA's cudnn-frontend, which adds that mask up to 9.15.0).
 */
#define CUDNN_OLDEST_VERSION 91600

struct cudnn_api {
    const char *file;
    __typeof__(cudnnGetVersion) *get_version;
    __typeof__(cudnnGetErrorString) *get_error_string;
    __typeof__(cudnnGetLastErrorString) *get_last_error_string;
    __typeof__(cudnnCreate) *create;
    __typeof__(cudnnDestroy) *destroy;
    __typeof__(cudnnSetStream) *set_stream;
    __typeof__(cudnnBackendCreateDescriptor) *create_descriptor;
    __typeof__(cudnnBackendDestroyDescriptor) *destroy_descriptor;
    __typeof__(cudnnBackendFinalize) *finalize;
    __typeof__(cudnnBackendSetAttribute) *set_attribute;
    __typeof__(cudnnBackendGetAttribute) *get_attribute;
    __typeof__(cudnnBackendExecute) *execute;
};

/**
 * Fills *api from an open libcudnn.so.9, which `file` names. Errors: -ENODEV a function is missing
 * or the version too old; *failure (may be null) says why.
 */
int cudnn_load(struct cudnn_api *api, void *library, const char *file,
               struct hst_dev_failure *failure);

/** Fills *failure (may be null) and returns rc, so that a caller can return it. */
int cudnn_fail(struct hst_dev_failure *failure, int rc, enum hst_dev_why why, int native,
               const char *format, ...) __attribute__((format(printf, 5, 6)));

/** It tells whether the failure is one of memory, not of what was asked for. */
bool cudnn_memory_short(cudnnStatus_t status);

/**
 * It tells whether cuDNN itself cannot be used: a part of it is missing or of another version, or
 * it does not go with the driver. What was asked for has nothing to do with it.
 */
bool cudnn_not_whole(cudnnStatus_t status);

/**
 * A status and what cuDNN says of it. Returns -ENOMEM where memory was short, -ENODEV where cuDNN
 * is not whole, with its file, -ENOTSUP where cuDNN says that it does not do such a thing, else
 * -EIO.
 */
int cudnn_report(const struct cudnn_api *api, cudnnStatus_t status, const char *what,
                 struct hst_dev_failure *failure);

#endif
