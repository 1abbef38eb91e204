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
    cudnnDataType_t type; /* of all but lse: bf16 or half */
};

/* A run names its tensors like this. */
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

/* Plans are made for this: an open device, or the description of one. */
struct cudnn_target {
    const struct cudnn_api *api;
    cudnnHandle_t handle;
    descriptor device; /* where handle is null: a finalized device property */
    int compute;       /* capability, 90 is 9.0 */
    size_t version;    /* cuDNN's */
};

/* It says what a plan computes, and how its workspace grows. */
enum sdpa_form {
    SDPA_NONE, /* no plan of a card's is trusted */
    SDPA_FORWARD,
    SDPA_BACKWARD_STORED,  /* keeps the scores' gradient: seq² per head */
    SDPA_BACKWARD_ORDERED, /* adds to dq in a fixed order: seq per head */
};

/* The form of a target's backward. */
enum sdpa_form sdpa_backward_form(const struct cudnn_target *target);

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
 * Cost: cuDNN compiles, some seconds by estimate; hst_sdpa_made tells what it took.
 */
int plan_build(struct plan *plan, const struct cudnn_target *target, enum sdpa_form form,
               const struct sdpa_shape *shape, size_t work_limit_bytes,
               struct hst_dev_failure *failure);
void plan_destroy(struct plan *plan);

/* ---- the formulas, for plan_build ------------------------------------------------------------ */

void forward_build(struct graph *graph, const struct sdpa_shape *shape);
void backward_build(struct graph *graph, const struct sdpa_shape *shape);

/* An engine asked for by number, with its settings. */
#define ENGINE_KNOBS 8
struct engine_wish {
    int64_t engine;
    size_t count;
    struct {
        cudnnBackendKnobType_t type;
        int64_t value;
    } knobs[ENGINE_KNOBS];
};

/* The engine that a form has to be run by; null: one that cuDNN proposes. */
const struct engine_wish *backward_engine(enum sdpa_form form);

/** The tensors of a shape as they lie in memory: q, o, dout, dq; k, v, dk, dv; lse. */
struct extents shape_query(const struct sdpa_shape *shape);
struct extents shape_key(const struct sdpa_shape *shape);
struct extents shape_lse(const struct sdpa_shape *shape);

#endif
