/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors of CUDA calls: which errno each becomes, and the first of a device with its story. A later
 * one is mostly an echo: after an illegal address every call on that GPU returns it again.
 */
#include "cuda.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int cuda_errno(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return 0;
    case cudaErrorMemoryAllocation:
        return -ENOMEM;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidPitchValue:
        return -EINVAL;
    case cudaErrorNotSupported:
        return -ENOTSUP;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorInsufficientDriver:
        return -ENODEV;
    default:
        return -EIO;
    }
}

enum hst_dev_why cuda_why(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation   ? HST_DEV_MEMORY
           : error == cudaErrorECCUncorrectable ? HST_DEV_CARD
                                                : HST_DEV_EXECUTION;
}

void cuda_failure_keep(struct cuda_dev *dev, const struct hst_dev_failure *failure)
{
    pthread_mutex_lock(&dev->lock);
    if (dev->failure.why == HST_DEV_OK)
        dev->failure = *failure;
    pthread_mutex_unlock(&dev->lock);
}

int cuda_failed(struct cuda_dev *dev, cudaError_t error, const char *what, ...)
{
    (void)cudaGetLastError(); /* the runtime's own memory of it */
    struct hst_dev_failure doing, failure;
    va_list args;
    va_start(args, what);
    cuda_failure_vset(&doing, HST_DEV_EXECUTION, error, what, args);
    va_end(args);
    cuda_failure_set(&failure, cuda_why(error), error, "GPU %d: %.200s: %s (%s)", dev->index,
                     doing.text, cudaGetErrorName(error), cudaGetErrorString(error));
    cuda_failure_keep(dev, &failure);
    return cuda_errno(error);
}

void cuda_dev_failure(struct hst_dev *dev, struct hst_dev_failure *failure)
{
    struct cuda_dev *cuda = cuda_dev_of(dev);
    pthread_mutex_lock(&cuda->lock);
    *failure = cuda->failure;
    pthread_mutex_unlock(&cuda->lock);
}

int cuda_enter(struct cuda_dev *dev)
{
    cudaError_t error = cudaSetDevice(dev->index);
    return error ? cuda_failed(dev, error, "cudaSetDevice") : 0;
}
