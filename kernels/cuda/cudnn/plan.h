/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDNN_PLAN_H
#define HST_CUDNN_PLAN_H
/* From a shape to something that can be run: the formulas, and the choice of an engine for them. */
#include "graph.h"

/*
 * A part of the rows of a batch and of its heads, within tensors of all_heads and all_kv_heads; the
 * extents are a graph's dimensions, the heads of the whole its strides.
 */
struct sdpa_shape {
    int64_t batch, seq, heads, kv_heads, head_dim;
    int64_t all_heads, all_kv_heads;
};

/* How a run names its tensors. */
enum sdpa_uid {
    SDPA_Q = 1,
    SDPA_K,
    SDPA_V,
    SDPA_O,
    SDPA_LSE,
    SDPA_DOUT,
    SDPA_DQ,
    SDPA_DK,
    SDPA_DV,
    SDPA_SCALE,  /* scalars */
    SDPA_MASKED, /* what a masked score is: minus infinity */
    SDPA_ONE,
    SDPA_UIDS /* one more than the last */
};

/* What plans are made for: an open device, or the description of one. */
struct cudnn_target {
    cudnnHandle_t handle;
    descriptor device; /* where handle is null: a finalized device property */
    int compute;       /* capability, 90 is 9.0 */
    size_t version;    /* cuDNN's */
};

/* The built graph; everything that the plan refers to lives as long as it. */
struct plan {
    struct graph graph;
    descriptor plan;
    int64_t engine;
    size_t work_bytes;
};

/**
 * The plan of a shape, whose workspace is at most work_limit_bytes, and which gives the same bits
 * each time. Errors: -ENOTSUP there is none, -ENOMEM, -EIO; *failure (may be null) says why. On
 * success plan_destroy frees it.
 * Cost: 0.3 to 1 s (cuDNN compiles).
 */
int plan_forward(struct plan *plan, const struct cudnn_api *api, const struct cudnn_target *target,
                 const struct sdpa_shape *shape, size_t work_limit_bytes,
                 struct hst_dev_failure *failure);
int plan_backward(struct plan *plan, const struct cudnn_api *api, const struct cudnn_target *target,
                  const struct sdpa_shape *shape, size_t work_limit_bytes,
                  struct hst_dev_failure *failure);
void plan_destroy(struct plan *plan);

/* ---- between the formulas and the choice ----------------------------------------------------- */

/* An engine asked for by number, with its settings; count 0: none. */
struct engine_wish {
    int64_t engine;
    size_t count;
    struct {
        cudnnBackendKnobType_t type;
        int64_t value;
    } knobs[8];
};

/**
 * Chooses among what cuDNN proposes, in its order, the first that is deterministic, fits the limit
 * and can be built; wish (may be null) comes before all of them. plan->graph is complete. On error
 * the caller ends the graph.
 */
int plan_choose(struct plan *plan, const struct cudnn_target *target,
                const struct engine_wish *wish, size_t work_limit_bytes,
                struct hst_dev_failure *failure);

/** The tensors of a shape as they lie in memory: q, o, dout, dq; k, v, dk, dv; lse. */
struct extents shape_query(const struct sdpa_shape *shape);
struct extents shape_key(const struct sdpa_shape *shape);
struct extents shape_lse(const struct sdpa_shape *shape);

#endif
