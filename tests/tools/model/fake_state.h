/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TESTS_FAKE_STATE_H
#define HOISTWAY_TESTS_FAKE_STATE_H
/* What the files of the fake engine share. */
#include "fake_engine.h"

#define MAX_UNITS    64u
#define MAX_PARAMS   16u
#define VISITS_MOST  (4 * MAX_UNITS)
#define CANARY_BYTES 64u
#define ADDED_MOST   4096u

struct fake_param {
    char name[80];
    uint32_t dim_count;
    uint64_t dims[HST_MAX_DIMS];
    size_t count;
    unsigned flags;
    struct fake_param *owner; /* not null: an alias, has no storage */
    float *master, *m, *v;
    float *grad; /* of the unit's */
    void *data;  /* likewise */
};

struct fake_act {
    void *data;
    void *snapshot; /* as it was lent */
    bool written, held, read_only;
};

struct fake_unit {
    char name[32];
    uint32_t param_count;
    struct fake_param params[MAX_PARAMS];
    struct hst_param_view views[MAX_PARAMS];
    float *grads; /* one parameter's behind another's */
    float *sums;  /* of the ways before, where the unit writes gradients; else null */
    void *weights;
    uint64_t flops_per_token, act_bytes_per_token, work_bytes;
    uint64_t rows, slice_rows, slice_work_bytes, kept_bytes; /* rows: of a matrix with blocks */
    char *kept;                                              /* by all slices, and a canary */
    uint64_t saved_bytes;                                    /* of a micro-batch */
    char *saved; /* of all, and a canary; null: it is not given any */
    unsigned flags;
    uint32_t place;               /* in its segment; 0: it keeps its checkpoint */
    bool is_last;                 /* of it, whose checkpoint is the carry */
    struct fake_act *checkpoints; /* [micro_count] */
};

struct hst_engine {
    struct hst_config config;
    struct hst_dev *dev;
    struct hst_stream *stream;
    enum hst_dtype dtype;
    struct hst_part part;
    double sums[HST_SUMS], added[ADDED_MOST]; /* added: to the first sum, one by one */
    size_t added_count;
    uint32_t unit_count, micro_count, segment;
    struct fake_unit units[MAX_UNITS];
    uint64_t hidden_bytes_per_token;
    struct fake_act *carry, *hidden_grad; /* [micro_count] */
    char *work;
    size_t work_size;
    struct hst_client_memory client;
    bool in_step, acquired, grad_ready;
    struct fake_visit {
        struct hst_visit visit;
        uint64_t first_row;
    } visits[VISITS_MOST];
    struct hst_visit list[VISITS_MOST];
    size_t visit_count, next_visit;
    uint64_t slice_rows; /* at most; 0: nothing is cut */
    uint64_t saves;      /* bit u: unit u is given what it can use */
    bool forgets;        /* zeros are what a backward finds there */
    uint32_t unit;
    uint64_t evaluated_rows; /* of the unit that an evaluation is at, or comes to */
    uint32_t evaluated_unit;
    enum hst_sweep sweep;
    uint32_t way, first_micro; /* of the backward at hand; UINT32_MAX: none has come */
    unsigned held; /* activations lent now */
    struct hst_unit_view view;
    uint64_t step;
    double lr;
    size_t calls, fail_at;
};

/* Of NaN in f32 and bf16; of zeros. */
void *fake_take(size_t bytes);
float *fake_take_zeros(size_t count);
/* Counts the calls of a step; the chosen one fails, those after it would not: an ignored error
 * shows. */
int fake_enter(struct hst_engine *e);
/* The parameter of that name, or null. */
struct fake_param *fake_find(const struct hst_engine *e, const char *name);
/* Its master, rounded, is what the client sees. */
void fake_publish(const struct hst_engine *e, struct fake_param *p);
uint64_t fake_micro_tokens(const struct hst_engine *e, uint32_t micro);
uint32_t fake_way_of(const struct hst_engine *e, uint32_t micro);

static inline bool fake_is_cut(const struct fake_unit *u)
{
    return u->slice_rows > 0;
}

/* Of all micro-batches. */
static inline uint64_t fake_saved_bytes(const struct hst_engine *e, uint32_t unit)
{
    return e->units[unit].saved_bytes * e->micro_count;
}

/* As long as what the other ranks' tokens would need. */
static inline size_t fake_kept_canary(const struct fake_unit *u, const struct hst_part *part)
{
    return u->kept_bytes * (part->ranks - 1) + CANARY_BYTES;
}

/* Of the unit as it is visited. */
static inline uint64_t fake_work_bytes(const struct fake_unit *u)
{
    return fake_is_cut(u) ? u->slice_work_bytes : u->work_bytes;
}
#endif
