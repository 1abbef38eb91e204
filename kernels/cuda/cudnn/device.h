/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDNN_DEVICE_H
#define HST_CUDNN_DEVICE_H
/* What is behind a struct hst_sdpa. */
#include "cache.h"
#include "sdpa.h"

#include <pthread.h>

struct hst_sdpa {
    struct cudnn_api api;
    struct cudnn_target target;
    struct cache cache;
    const char *file;     /* of the library, by the loader */
    pthread_mutex_t lock; /* the cache, the handle and its stream */
};

#endif
