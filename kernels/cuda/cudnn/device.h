/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDNN_DEVICE_H
#define HST_CUDNN_DEVICE_H
/* This header tells what is behind a struct hst_sdpa. */
#include "cache.h"
#include "sdpa.h"

#include <pthread.h>

struct hst_sdpa {
    struct cudnn_api api;
    struct cudnn_target target;
    struct cache cache;
    const char *file;     /* of the library, by the loader */
    size_t large_bytes;   /* what one group of heads may need of a workspace */
    size_t largest_bytes; /* that a call beyond HST_SDPA_WORK_BYTES is served with; 0: none is */
    pthread_mutex_t lock; /* the cache, the handle and its stream */
};

#endif
