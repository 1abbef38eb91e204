/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_LAYER_LAYER_H
#define HOISTWAY_TOOLS_BENCH_LAYER_LAYER_H
/*
 * One layer of a model and its head, operation by operation: what the model's own code enqueues,
 * timed by events of the device, beside what each has to do at the rates of the same run.
 */
#include "bench/figure.h"
#include "model/llama.h"

/* It is all that was enqueued under one name in a phase; or the phase itself. */
struct bench_layer_row {
    uint64_t seq;      /* tokens of a sequence; 0: the phase does not depend on them */
    const char *phase; /* "forward", "backward", "head" */
    const char *name;  /* "product 8192x4096x4096"; null: the phase from its first to its last */
    size_t times;      /* operations of that name in the phase */
    /* all of them together; each operation's median, least and most of the rounds */
    double seconds, least_s, most_s;
    double bytes, flops;
    double rate, ceiling;     /* bytes or FLOP per second */
    const char *unit;         /* of the two */
    const char *ceiling_name; /* "the large product", "a copy inside the device" */
    double ceiling_s;         /* seconds at the ceiling */
};

struct bench_layer_in {
    struct llama_config config;
    enum hst_dtype dtype;
    uint64_t tokens;
    const uint64_t *seqs; /* each divides tokens */
    size_t seq_count;
    uint64_t budget_bytes; /* of device memory: see bench/budget.h */
    bool smoke;
    void (*tell)(void *context, const struct bench_layer_row *row);
    /* before: the device is warm, and nothing is measured yet; else: all is measured */
    void (*pause)(void *context, bool before);
    void *context;
};

/** Whole sequences, in order: forward and backward of each seq, then the head. The device's budgets
 * are replaced. Errors: negative errno with *error. */
int bench_layer(struct hst_dev *dev, const struct bench_layer_in *in, struct hst_error *error);

/** The shape of a smoke run: a model as this one, and tiny. */
struct llama_config bench_layer_tiny(const struct llama_config *config);

#endif
