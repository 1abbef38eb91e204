/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDNN_CACHE_H
#define HST_CUDNN_CACHE_H
/* The plans of a device, one per form and shape, and the shapes that there are none for. */
#include "plan.h"

/* A run has a handful of shapes; more than this, and the one unused for longest is built again. */
#define CACHE_PLANS 32

struct cached {
    enum sdpa_form form;
    struct sdpa_shape shape;
    int rc; /* 0: plan is built; else why there is none */
    struct plan plan;
    uint64_t used; /* the larger, the later */
};

struct cache {
    struct cached *entries[CACHE_PLANS];
    size_t count;
    uint64_t clock;
    unsigned built; /* plans, and shapes found to have none: each costs about the same */
    double built_s;
    int (*wait)(void); /* for all work on the device, before a plan is destroyed; may be null */
};

/**
 * The plan of a shape, built if need be; it lives until the next call. Errors: -ENOTSUP there is
 * none (remembered), -ENOMEM, -ENODEV (cuDNN is not whole).
 */
int cache_get(struct cache *cache, const struct cudnn_target *target, enum sdpa_form form,
              const struct sdpa_shape *shape, struct plan **plan, struct hst_dev_failure *failure);
void cache_clear(struct cache *cache);

#endif
