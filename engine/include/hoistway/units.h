/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_UNITS_H
#define HOISTWAY_UNITS_H
/* A client describes its model to the engine by this: units of parameters. */
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HST_MAX_DIMS 8u

enum hst_param_flag {
    HST_PARAM_DECAY = 1u << 0, /* weight decay applies */
    /* It is not trained (hst_config.freeze): no gradient, no states, and its bytes stay what
       hst_engine_load has read. Of a tied parameter any of its names says so for all. */
    HST_PARAM_FROZEN = 1u << 1,
};

struct hst_param_desc {
    const char *name; /* unique in the engine; copied */
    uint32_t dim_count;
    uint64_t dims[HST_MAX_DIMS]; /* row-major, each > 0 */
    unsigned flags;
    /* name of a parameter of an earlier unit that this one is (tied weights); null: own storage */
    const char *alias_of;
};

enum hst_unit_flag {
    /* In training the unit is not visited in the forward: its backward computes that too, as a head
       does that turns a chunk of tokens into losses and gradients at once. */
    HST_UNIT_NO_FORWARD = 1u << 0,
    /* The unit's backward reads none of its weights, as an embedding's does not, which adds what
       comes back to the rows of its tokens: there view.param[i].data is null, and they need not
       travel for it. */
    HST_UNIT_BLIND_BACKWARD = 1u << 1,
    /* The checkpoint is the hidden state as it arrives (act_bytes_per_token is the hidden state's),
       and the client makes the visits that hst_engine_visits lists. Where memory is short the
       engine may then keep the checkpoint of every second, third, ... of units with this flag that
       follow one another; those between are computed from it again in the backward. */
    HST_UNIT_RECOMPUTE = 1u << 2,
    /*
     * The unit's backward writes gradients where it else adds to them: the engine does not zero
     * them, and view.param[i].fresh says when one is to be written. It is fresh at each way's
     * beginning, from hst_unit_acquire or from hst_act_acquire of the way's first micro-batch on,
     * until hst_act_acquire of another micro-batch of the way, for good: write before that. What is
     * there is any bits then, NaN too, so all elements are written, or zeroed first. A way may have
     * its gradients at another address than the way before, whose sum waits there: read grad behind
     * hst_act_acquire. Tied tensors are never fresh. Each way acquires an activation, else its end
     * is refused (-EINVAL). Zeros and x add up to x, but for a −0, which a sum of terms that all
     * underflow may be: a zero among gradients and moments may have the other sign then.
     */
    HST_UNIT_WRITES_GRADS = 1u << 3,
};

struct hst_unit_desc {
    const char *name; /* copied */
    const struct hst_param_desc *params;
    uint32_t param_count;     /* 0 is allowed */
    uint64_t flops_per_token; /* of the forward */
    /* of the activation checkpoint kept from forward to backward; 0: none */
    uint64_t act_bytes_per_token;
    /* device memory the computation of one micro-batch needs beside its inputs */
    uint64_t work_bytes;
    unsigned flags; /* of enum hst_unit_flag */
    /*
     * This is for a unit that is one matrix and nothing else, as an embedding or an output head is,
     * which may be far larger than a layer (memory-centric tiling). The client can compute with
     * blocks of its rows, one after another, and makes the visits that hst_engine_visits lists.
     * Where budgets are too small for the unit as a whole, or a step would be faster with the
     * memory that this leaves, the engine cuts it between blocks into slices. Each of them is
     * visited as a unit is, in the forward from the first rows to the last ones and in the backward
     * the other way round, by calls that name the same unit; view.first_row and view.rows tell
     * which rows are there. A unit that is cut has a forward, whatever its flags say. What is
     * stored and saved, and every bit of it, is the same. The f32 sum of a tied matrix's gradients
     * stays whole. Not with a checkpoint.
     */
    struct {
        uint64_t block_rows; /* 0: never cut; a block's elements are a multiple of 4,096 */
        uint64_t work_bytes; /* of a slice, in place of the unit's */
        /* Device memory for each token of a step, all slices' own from the forward of the first of
           them until its backward: what they add up, and what the first sweep finds for the
           second. */
        uint64_t token_bytes;
    } slices;
    /*
     * Device memory in which the forward of one micro-batch can leave activations that the backward
     * would else compute again from the checkpoint; 0: it cannot. Units are given it, for all
     * micro-batches of a step, as far as there is room (view.saved), which spares a third of a
     * backward. Not with slices or HST_UNIT_NO_FORWARD.
     */
    uint64_t saved_bytes;
};

#ifdef __cplusplus
}
#endif
#endif
