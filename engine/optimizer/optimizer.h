/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_OPTIMIZER_H
#define HOISTWAY_ENGINE_OPTIMIZER_H
/*
 * An optimizer is a row of a table. The row says what an element has beside its weight, how a step
 * makes its coefficients of the user's numbers, and who updates on the host and on a device. All
 * other rooms read the row: none of them names a state, or a number of the user's.
 *
 * In the order of a run:
 *   optimizer_resolve, optimizer_refusal                     the user's numbers, once
 *   optimizer_groups_read                                    the groups that have others, once
 *   optimizer_find, optimizer_kernel_find                    the row, and its kernel here, once
 *   optimizer_begin                                          first values of each tile
 *   optimizer_coefs_init                                     each step
 *   optimizer_run_into, or the row's `device`                each range of a tile
 *
 * All functions are pure, or write what they are given and nothing else. Thread-safety: safe on
 * disjoint ranges. The table is static and immutable.
 */
#include "base/optimizers.h"

#include <hoistway/cpu_adam.h>
#include <hoistway/hoistway.h>
#include <hoistway/kernels.h>
#include <hoistway/machine.h>
#include <hoistway/plan.h>

/* ---- what there is of an element ------------------------------------------------------------- */

#define OPTIMIZER_STATES_MOST 5u /* of a row */

/** The numbers of a state. */
enum optimizer_number { OPTIMIZER_F32, OPTIMIZER_BF16, OPTIMIZER_I16, OPTIMIZER_CODE /* 8 bits */ };
uint32_t optimizer_number_bytes(enum optimizer_number number);

/** One array of a tile's record; record.h says where it lies there. */
struct optimizer_state {
    const char *name;             /* "remainder", "master", "m", "v", "m scale" */
    enum optimizer_number number; /* what it is an array of */
    uint32_t covers;              /* elements to one number: 1; more for a scale. Divides 4,096 */
};

/** Of one range. */
struct optimizer_arrays {
    void *weights;
    void *states[OPTIMIZER_STATES_MOST]; /* [state_count]; the others are null */
    const void *grads;                   /* of the weights' type; for an update alone */
    uint64_t index; /* of the first element in the model: see struct hst_update_arrays */
};

/* ---- the user's numbers, and a step's -------------------------------------------------------- */

/** Tensors of one group share their numbers; struct layout_param says which it belongs to. */
struct optimizer_group {
    /* as in struct hst_config, resolved; 0: the optimizer has no such number */
    double beta1, beta2, momentum, eps, weight_decay;
    double lr_factor; /* of a step's rate */
    bool decays_all;  /* also tensors that have not HST_PARAM_DECAY */
};
#define OPTIMIZER_GROUPS     (HST_GROUPS_MOST + 1)
#define OPTIMIZER_GLOB_BYTES 96u
struct optimizer_named_group {
    struct optimizer_group numbers;
    char glob[OPTIMIZER_GLOB_BYTES]; /* of the tensors' names, as fnmatch(3) reads it */
    char text[HST_GROUP_BYTES];      /* as it would be typed: equal groups have equal texts */
};
/** list[0] is that of hst_config, which all tensors have that no other group names. */
struct optimizer_groups {
    uint32_t count;
    struct optimizer_named_group list[OPTIMIZER_GROUPS];
};
/** In an optimizer's defaults: it has no such number. */
#define OPTIMIZER_NO_NUMBER (-1.0)

/** This is what a step adds to them. */
struct optimizer_step {
    double lr;        /* >= 0, finite */
    uint64_t t;       /* 1 is the first update */
    float grad_scale; /* finite; every gradient is multiplied with it first */
};

/** One step's coefficients, for tensors of one group that decay, or do not. */
struct optimizer_coef {
    struct hst_adam_coef host; /* of cpu_adam's kernels; a device's are copied from it */
};
struct optimizer_coefs {
    struct optimizer_coef groups[OPTIMIZER_GROUPS][2]; /* [group][whether it decays] */
};

/* ---- the table ------------------------------------------------------------------------------- */

struct optimizer {
    const char *name;             /* "adamw" */
    enum hst_precision precision; /* it is chosen by these two, and host.optimizer */
    enum hst_state state;
    struct hst_update_kind host;  /* its kernel in cpu_adam; the type of weights and gradients */
    struct optimizer_state states[OPTIMIZER_STATES_MOST];
    uint32_t state_count;
    bool has_master;              /* states[0] is what the weights' own bits lack */
    /* Elements that are updated together, counted from the record's start. Tensors begin, and
       ranges are cut, at multiples of it (struct layout): it divides LAYOUT_UNIT_ALIGN. */
    uint32_t granularity;
    const char *too_large;        /* what a norm beyond HST_GRAD_NORM_MOST does: "... overflow" */
    /* This is what is measured of it (elements per second): all of the host's threads, half of
       them, a device. Rows may share a rate where their traffic is nearly the same. */
    enum hst_rate update_rate, half_rate, device_rate;
    enum hst_ahead_row ahead_row; /* and whether its kernel on the host is to prefetch */

    /** A step's coefficients. Errors, *coef being untouched: -EINVAL a number out of its range. */
    int (*coef)(const struct optimizer_group *group, const struct optimizer_step *step,
                struct optimizer_coef *coef);
    /** This is what cpu_adam calls these arrays. */
    struct hst_update_arrays (*host_arrays)(const struct optimizer *optimizer,
                                            const struct optimizer_arrays *arrays);
    /**
     * Enqueues the update of n elements in a device's memory, in place, with the host's bits. Null:
     * devices have none, and the host updates. Errors: the device's.
     */
    int (*device)(const struct optimizer *optimizer, struct hst_stream *stream,
                  const struct optimizer_coef *coef, const struct optimizer_arrays *arrays,
                  size_t n);
};

/** The rows of one optimizer, and the user's numbers that it has: one file each. */
struct optimizer_table {
    const char *name; /* "adamw" */
    const struct optimizer *rows;
    size_t row_count;
    struct optimizer_group defaults;
};

/** Each of base/optimizers.h has one. */
#define OPTIMIZER_DECLARE(name, value) extern const struct optimizer_table optimizer_##name;
OPTIMIZERS(OPTIMIZER_DECLARE)

/** "adamw"; null: there is no such optimizer. */
const char *optimizer_name(enum hst_optimizer optimizer);
/** It finds the optimizer of this name, `bytes` long. False: there is none. */
bool optimizer_named(const char *name, size_t bytes, enum hst_optimizer *optimizer);

/** The row of such a run, defaults included; null: that optimizer has not these states. */
const struct optimizer *optimizer_find(enum hst_optimizer optimizer, enum hst_precision precision,
                                       enum hst_state state);
/** The row whose rates are measured of a machine, for other rows of those numbers too: those of the
 * default state, of others whether they are to prefetch. */
const struct optimizer *optimizer_measured(enum hst_precision precision, enum hst_state state);
/** The rates of a row are those that are measured times this, by the bytes that both move. */
double optimizer_pace(const struct optimizer *optimizer);

/* ---- its sizes ------------------------------------------------------------------------------- */

/** Bytes of a weight, and of a gradient. */
static inline uint64_t optimizer_weight_bytes(const struct optimizer *optimizer)
{
    return optimizer->host.weights == HST_CPU_F32 ? 4 : 2;
}
/** Bytes of the nth state of so many elements. */
static inline uint64_t optimizer_array_bytes(const struct optimizer *optimizer, uint32_t nth,
                                             uint64_t elements)
{
    const struct optimizer_state *state = &optimizer->states[nth];
    return (elements + state->covers - 1) / state->covers * optimizer_number_bytes(state->number);
}
/** Bytes of an element's states; a scale counts as its share. */
double optimizer_state_bytes(const struct optimizer *optimizer);
/** Bytes that an update in place reads and writes of an element. */
double optimizer_traffic_bytes(const struct optimizer *optimizer);
/** The arrays from their element `first` on, a multiple of the granularity; index included. */
struct optimizer_arrays optimizer_arrays_at(const struct optimizer *optimizer,
                                            const struct optimizer_arrays *arrays, uint64_t first);

/* ---- its numbers ----------------------------------------------------------------------------- */

/** Gives each number that is 0 its default; HST_NONE becomes 0. A number that the optimizer has not
 * stays as it is. */
void optimizer_resolve(struct hst_config *config);
/** It says whether there is no such optimizer, or it cannot have these resolved numbers; and
 * why. */
bool optimizer_refusal(const struct hst_config *config, char why[HST_WHY_BYTES]);
/** The lines of a version's settings that say them. Returns the bytes, as snprintf does. */
int optimizer_settings_write(const struct hst_config *config, char *text, size_t bytes);

/** The group of all tensors, of resolved numbers. */
struct optimizer_group optimizer_group_of(const struct hst_config *config);
/** It says whether the optimizer has the number that is there in a struct optimizer_group. */
bool optimizer_has(enum hst_optimizer optimizer, size_t offset);
/** All groups of a configuration whose numbers are resolved and not refused. False: `why` says what
 * cannot be. */
bool optimizer_groups_read(const struct hst_config *config, struct optimizer_groups *groups,
                           char why[HST_WHY_BYTES]);
/** The configuration has them by their own texts, which it borrows. */
void optimizer_groups_say(const struct optimizer_groups *groups, struct hst_config *config);
/** All groups' coefficients of a step. Errors, *coefs being untouched: as the row's `coef`. */
int optimizer_coefs_init(const struct optimizer *optimizer, const struct optimizer_groups *groups,
                         const struct optimizer_step *step, struct optimizer_coefs *coefs);
static inline const struct optimizer_coef *optimizer_coef(const struct optimizer_coefs *coefs,
                                                          uint32_t group, bool decays)
{
    return &coefs->groups[group][decays];
}
/** Of one step: whether an update by the one stands for an update by the other. */
bool optimizer_coefs_agree(const struct optimizer_coefs *a, const struct optimizer_coefs *b);

/* ---- on the host ----------------------------------------------------------------------------- */

/** A row with its kernel of one instruction set. */
struct optimizer_kernel {
    const struct optimizer *optimizer;
    const struct hst_cpu_adam_ops *ops;
    const struct hst_update *update;
    uint32_t ahead; /* see struct hst_update_arrays; 0 when it is found */
};
struct optimizer_kernel optimizer_kernel_find(const struct optimizer *optimizer,
                                              const struct hst_cpu_adam_ops *ops);

/** First values of n f32 (x may be the weights, where those are f32); all states that are no
 * masters begin as zero. */
void optimizer_begin(const struct optimizer_kernel *kernel, const float *x,
                     const struct optimizer_arrays *arrays, size_t n);
/** Weights that are not trained: of x[n] what optimizer_begin makes of it, without states. x may be
 * the weights, where those are f32. For weights that are no f16. */
void optimizer_set_frozen(const struct optimizer_kernel *kernel, float *x, void *weights, size_t n);
/** And back: the weights as f32, where they are or in room[n]. */
const float *optimizer_widen(const struct optimizer_kernel *kernel, const void *weights,
                             float *room, size_t n);
/** The masters of a range: where they are, or joined into room[n], which may be null where no
 * weight is split. */
const float *optimizer_masters(const struct optimizer_kernel *kernel,
                               const struct optimizer_arrays *arrays, float *room, size_t n);
/** Weights that are f32 masters, rounded, are made of these anew. */
void optimizer_derive(const struct optimizer_kernel *kernel, const struct optimizer_arrays *arrays,
                      size_t n);

/** The update in place: see hst_update_run, whose result it returns. */
int optimizer_run(const struct optimizer_kernel *kernel, const struct optimizer_coef *coef,
                  const struct optimizer_arrays *arrays, size_t n);
/** The update from the one into the other: see hst_update_run_into. */
int optimizer_run_into(const struct optimizer_kernel *kernel, const struct optimizer_coef *coef,
                       const struct optimizer_arrays *from, const struct optimizer_arrays *into,
                       size_t n);

#endif
