/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call, as runs of plans over parts of its tensors. The parts of one call lie in the same tensors
 * with the same strides; only where they begin differs.
 */
#include "cut.h"
#include "device.h"

#include <errno.h>
#include <math.h>

static enum sdpa_form form_of(const struct hst_sdpa *sdpa, bool backward)
{
    return backward ? sdpa_backward_form(&sdpa->target) : SDPA_FORWARD;
}

size_t hst_sdpa_version(const struct hst_sdpa *sdpa)
{
    return sdpa->target.version;
}

const char *hst_sdpa_file(const struct hst_sdpa *sdpa)
{
    return sdpa->file;
}

void hst_sdpa_budget(struct hst_sdpa *sdpa, uint64_t memory_bytes)
{
    pthread_mutex_lock(&sdpa->lock);
    sdpa->large_bytes = cut_large_bytes(memory_bytes);
    pthread_mutex_unlock(&sdpa->lock);
}

void hst_sdpa_made(struct hst_sdpa *sdpa, struct hst_sdpa_made *made)
{
    pthread_mutex_lock(&sdpa->lock);
    *made = (struct hst_sdpa_made){.plans = sdpa->cache.built,
                                   .plans_s = sdpa->cache.built_s,
                                   .largest_bytes = sdpa->largest_bytes};
    pthread_mutex_unlock(&sdpa->lock);
}

/* ---- what is served -------------------------------------------------------------------------- */

/*
 * 0: every run of the call has its plan: the first and the last, since those between are as the
 * first. The lock is held.
 */
static int find_plans(struct hst_sdpa *sdpa, const struct hst_attention *args, enum sdpa_form form,
                      struct cut *cut, struct hst_dev_failure *failure)
{
    if (!cut_find(form, args, sdpa->large_bytes, cut))
        return cudnn_fail(failure, -ENOTSUP, HST_DEV_LIBRARY, 0,
                          "cuDNN does not serve attention of this dtype or shape");
    struct run first = cut_run(cut, args, 0);
    struct run last = cut_run(cut, args, cut_count(cut, args) - 1);
    struct plan *plan;
    int rc = cache_get(&sdpa->cache, &sdpa->target, form, &first.shape, &plan, failure);
    if (!rc)
        rc = cache_get(&sdpa->cache, &sdpa->target, form, &last.shape, &plan, failure);
    if (!rc && cut->work_bytes > HST_SDPA_WORK_BYTES && cut->work_bytes > sdpa->largest_bytes)
        sdpa->largest_bytes = cut->work_bytes;
    return rc;
}

int hst_sdpa_supports(struct hst_sdpa *sdpa, const struct hst_attention *args, bool backward,
                      struct hst_dev_failure *failure)
{
    if (!args->batch)
        return 1;
    struct cut cut;
    pthread_mutex_lock(&sdpa->lock);
    int rc = find_plans(sdpa, args, form_of(sdpa, backward), &cut, failure);
    pthread_mutex_unlock(&sdpa->lock);
    return rc == -ENOMEM || rc == -ENODEV ? rc : rc == 0;
}

int hst_sdpa_work_bytes(struct hst_sdpa *sdpa, const struct hst_attention *args, size_t *work_bytes,
                        struct hst_dev_failure *failure)
{
    size_t most = 0;
    bool known = true;
    int rc = 0;
    pthread_mutex_lock(&sdpa->lock);
    for (int backward = 0; backward < 2 && args->batch && known; backward++) {
        struct cut cut;
        rc = find_plans(sdpa, args, form_of(sdpa, backward), &cut, failure);
        known = rc != -ENOMEM && rc != -ENODEV; /* anything else says that there is no plan */
        if (!rc && cut.work_bytes > most)
            most = cut.work_bytes;
    }
    pthread_mutex_unlock(&sdpa->lock);
    if (known)
        *work_bytes = most;
    return known ? 0 : rc;
}

/* ---- running --------------------------------------------------------------------------------- */

/* A call points to these; the gradients are null in a forward. */
struct tensors {
    const void *q, *k, *v, *o, *lse, *dout, *dq, *dk, *dv;
};

/* A pointer per uid. cuDNN takes all as void *, and writes only what its graph writes. */
struct pack {
    int64_t uids[SDPA_UIDS];
    void *data[SDPA_UIDS];
    int64_t count;
};

static void pack_add(struct pack *pack, int64_t uid, const void *data, size_t offset_bytes)
{
    if (!data)
        return;
    pack->uids[pack->count] = uid;
    pack->data[pack->count++] = (char *)(uintptr_t)data + offset_bytes;
}

struct scalars {
    float scale, masked, one;
};

static struct pack pack_run(const struct tensors *t, const struct run *run,
                            const struct scalars *scalars)
{
    const struct sdpa_shape *s = &run->shape;
    const size_t element = sizeof(uint16_t);
    size_t head = run->group * (size_t)(s->heads / s->kv_heads), dim = (size_t)s->head_dim;
    size_t all = (size_t)s->all_heads, all_kv = (size_t)s->all_kv_heads, seq = (size_t)s->seq;
    size_t query = (run->row * seq * all + head) * dim * element;
    size_t key = (run->row * seq * all_kv + run->group) * dim * element;
    struct pack pack = {.count = 0};
    pack_add(&pack, SDPA_Q, t->q, query);
    pack_add(&pack, SDPA_K, t->k, key);
    pack_add(&pack, SDPA_V, t->v, key);
    pack_add(&pack, SDPA_O, t->o, query);
    pack_add(&pack, SDPA_LSE, t->lse, (run->row * all + head) * seq * sizeof(float));
    pack_add(&pack, SDPA_DOUT, t->dout, query);
    pack_add(&pack, SDPA_DQ, t->dq, query);
    pack_add(&pack, SDPA_DK, t->dk, key);
    pack_add(&pack, SDPA_DV, t->dv, key);
    pack_add(&pack, SDPA_SCALE, &scalars->scale, 0);
    pack_add(&pack, SDPA_MASKED, &scalars->masked, 0);
    if (t->dout)
        pack_add(&pack, SDPA_ONE, &scalars->one, 0);
    return pack;
}

static int execute(struct hst_sdpa *sdpa, const struct plan *plan, const struct pack *pack,
                   void *work, struct hst_dev_failure *failure)
{
    struct graph g;
    graph_begin(&g, &sdpa->api, 0);
    descriptor d = graph_make(&g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "the operands");
    graph_set(&g, d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, pack->count, pack->uids);
    graph_set(&g, d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pack->count,
              pack->data);
    graph_set(&g, d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &work);
    graph_finalize(&g, d);
    int rc = graph_status(&g, failure);
    if (!rc) {
        cudnnStatus_t status = sdpa->api.execute(sdpa->target.handle, plan->plan, d);
        if (status)
            rc = cudnn_report(&sdpa->api, status, "attention", failure);
    }
    graph_end(&g);
    return rc;
}

/* The lock is held. */
static int run_all(struct hst_sdpa *sdpa, cudaStream_t stream, const struct hst_attention *args,
                   const struct tensors *tensors, enum sdpa_form form,
                   struct hst_dev_failure *failure)
{
    struct cut cut;
    int rc = find_plans(sdpa, args, form, &cut, failure);
    if (rc)
        return rc;
    cudnnStatus_t status = sdpa->api.set_stream(sdpa->target.handle, stream);
    if (status)
        return cudnn_report(&sdpa->api, status, "choosing the stream", failure);
    const struct scalars scalars = {.scale = args->scale, .masked = -INFINITY, .one = 1.0f};
    uintptr_t work = (uintptr_t)args->work.data + WORK_ALIGN_BYTES - 1;
    work -= work % WORK_ALIGN_BYTES;
    size_t count = cut_count(&cut, args);
    for (size_t i = 0; i < count && !rc; i++) {
        struct run run = cut_run(&cut, args, i);
        struct pack pack = pack_run(tensors, &run, &scalars);
        struct plan *plan;
        rc = cache_get(&sdpa->cache, &sdpa->target, form, &run.shape, &plan, failure);
        if (!rc)
            rc = execute(sdpa, plan, &pack, (void *)work, failure);
        if (rc == -ENOTSUP && i > 0)
            rc = -EIO; /* "not supported" would say that nothing was enqueued */
    }
    return rc;
}

static int run_locked(struct hst_sdpa *sdpa, cudaStream_t stream, const struct hst_attention *args,
                      const struct tensors *tensors, struct hst_dev_failure *failure)
{
    if (!args->batch)
        return 0;
    pthread_mutex_lock(&sdpa->lock);
    int rc = run_all(sdpa, stream, args, tensors, form_of(sdpa, tensors->dout), failure);
    pthread_mutex_unlock(&sdpa->lock);
    return rc;
}

int hst_sdpa_forward(struct hst_sdpa *sdpa, cudaStream_t stream, const struct hst_attention *args,
                     struct hst_dev_failure *failure)
{
    const struct tensors tensors = {
        .q = args->q, .k = args->k, .v = args->v, .o = args->o, .lse = args->lse};
    return run_locked(sdpa, stream, args, &tensors, failure);
}

int hst_sdpa_backward(struct hst_sdpa *sdpa, cudaStream_t stream,
                      const struct hst_attention_backward *args, struct hst_dev_failure *failure)
{
    const struct hst_attention *f = &args->forward;
    const struct tensors tensors = {.q = f->q,
                                    .k = f->k,
                                    .v = f->v,
                                    .o = f->o,
                                    .lse = f->lse,
                                    .dout = args->dout,
                                    .dq = args->dq,
                                    .dk = args->dk,
                                    .dv = args->dv};
    return run_locked(sdpa, stream, f, &tensors, failure);
}
