/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_STEP_RUN_H
#define HOISTWAY_TOOLS_BENCH_STEP_RUN_H
/*
 * A training run of the benchmark's model: a Llama of width 512, 8 layers, 256-token sequences, in
 * fp32, on synthetic tokens, each block recomputed that has no room for its activations.
 */
#include "base/fail.h"
#include "model/llama.h"

#define BENCH_WIDTH        512u
#define BENCH_LAYERS       8u
#define BENCH_INTERMEDIATE 1376u
#define BENCH_VOCABULARY   256u
#define BENCH_SEQUENCE     256u

struct bench_run_in {
    uint64_t batch_tokens;  /* a multiple of BENCH_SEQUENCE · ways */
    uint32_t ways;          /* 0: 1 */
    uint32_t threads;       /* 0: physical cores */
    const char *store;      /* where `place` puts what is on NVMe; may be null */
    const char *place;      /* null: all in DRAM */
    const char *durability; /* null: none */
    double clip;            /* as in struct hst_config */
    enum hst_update_time update_time;
    const char *device; /* null: host */
    bool plan;          /* no steps: to predict them, without the memory they need */
};

struct bench_run {
    struct llama *model;
    struct hst_engine *engine;
    uint64_t batch_tokens;
    uint32_t *tokens; /* inputs, then targets */
};

/** Errors: negative errno with *error; the run is closed then. */
int bench_run_open(struct bench_run *run, const struct bench_run_in *in, struct hst_error *error);
/** One step; *seconds is the wall time of the call. */
int bench_run_step(struct bench_run *run, double *seconds, double *loss, struct hst_error *error);
void bench_run_close(struct bench_run *run); /* accepts a zeroed one */

/** The median; sorts the values. */
double bench_median(double *values, uint64_t count);

#endif
