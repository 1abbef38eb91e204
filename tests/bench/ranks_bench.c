/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of two or more ranks by turns: A on the transport as it is, B behind a link on which what a
 * step moves takes SHARE of its computation. ranks.py starts it under mpirun; rank 0 prints one
 * JSON object. A turn's prediction and bound are of what the same turn's visits took, and of the
 * rank for which they are longest: a step ends for all when it ends for the last one.
 *
 *     ranks_bench STAGE PAIRS SHARE deferred|optimistic     ZeRO stage 2 or 3; turns of each
 *
 * A Llama of 16 layers of width 256, 4 sequences of 256 tokens for each rank, in fp32, all in DRAM.
 * It is trained with a clip that no norm comes to.
 */
#include "comm/wrap.h"
#include "model/llama.h"
#include "session/engine_state.h"
#include "session/ranks/ranks.h"

#include <errno.h>
#include <hoistway/predict.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEQUENCE   256u
#define ROWS       4u /* of a rank */
#define VOCABULARY 256u
#define TURN_STEPS 3u /* after one that begins on the other link */
#define PAIRS_MOST 101u
#define RANKS_MOST 64u

static const struct llama_config MODEL = {
    .hidden = 256,
    .intermediate = 688,
    .layers = 16,
    .heads = 4,
    .kv_heads = 4,
    .head_dim = 64,
    .vocab = VOCABULARY,
    .max_positions = SEQUENCE,
    .rms_norm_eps = 1e-5,
    .rope = {.type = ROPE_DEFAULT, .theta = 10000},
};

enum side { A = 0, B };

/* The means of a turn's steps. */
struct turn_means {
    double step_s, predicted_s, bound_s;
    double compute_s; /* a step, without waiting for the network */
    double net_bytes;
    double link_bytes_per_s; /* of B's link then */
};

struct bench {
    struct llama *model;
    struct hst_engine *engine;
    struct hst_part part;
    struct hst_rates rates;
    uint32_t *tokens; /* of a rank: inputs, then targets */
    uint64_t rank_tokens, batch_tokens;
    enum hst_update_time update;
    struct hst_error error;
    double share; /* of the computation, that B's link takes */
    double rate;  /* of B's link, bytes/s */
    struct turn_means turns[2][PAIRS_MOST + 1];
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the run ---- */

static int read_random(void *context, const struct hst_param_ref *param, uint64_t offset,
                       float *dst, size_t count)
{
    (void)context;
    const struct llama_init init = {0, param->name, offset};
    llama_init_random(&MODEL, &init, dst, count);
    return 0;
}

static int set_link(const struct bench *b, enum side side)
{
    const struct comm_model link = {.bytes_per_s = side == A ? INFINITY : b->rate};
    return comm_model_set(b->engine->comm, &link);
}

static int open_engine(struct bench *b, const struct hst_launch *launch, uint32_t stage)
{
    const struct llama_run sizes = {.seq_len = SEQUENCE,
                                    .batch_tokens = b->batch_tokens,
                                    .micro_batch_tokens = b->rank_tokens,
                                    .ways = launch->ranks,
                                    .ranks = launch->ranks};
    int rc = llama_create(&MODEL, &sizes, &b->model, &b->error);
    if (rc)
        return rc;
    const struct hst_config *config =
        hst_config(.device = "host", .durability = "none", .precision = HST_PRECISION_FP32,
                   .batch_tokens = sizes.batch_tokens, .threads = 1, .dram_bytes = 2ull << 30,
                   .clip = 1e9, .update_time = b->update,
                   .micro_batch_tokens = sizes.micro_batch_tokens, .launch = launch,
                   .zero_stage = stage == 2 ? HST_ZERO_2 : HST_ZERO_3, .error = &b->error);
    rc = hst_engine_create(config, &b->engine);
    const struct comm_model whole = {.bytes_per_s = INFINITY};
    rc = rc ? rc : comm_model_wrap(&b->engine->comm, &whole);
    rc = rc ? rc : hst_engine_net_rates(b->engine, &b->rates);
    rc = rc ? rc : llama_add_units(b->model, b->engine);
    rc = rc ? rc : hst_engine_seal(b->engine, HST_ORDER_FORWARD);
    rc = rc ? rc : hst_engine_part(b->engine, &b->part);
    return rc ? rc : hst_engine_load(b->engine, &(struct hst_reader){.read = read_random});
}

static int step(struct bench *b, double *seconds, struct hst_step_stats *stats)
{
    const struct hst_step_in in = {.size = sizeof in, .lr = 1e-4};
    const struct llama_batch batch = {.inputs = b->tokens,
                                      .targets = b->tokens + b->rank_tokens,
                                      .target_count = b->batch_tokens};
    double loss;
    const double begun = now_s();
    int rc = llama_step(b->model, b->engine, &in, &batch, &loss, stats);
    *seconds = now_s() - begun;
    return rc;
}

/* ---- turns ---- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, uint32_t count)
{
    double sorted[PAIRS_MOST];
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, by_value);
    return sorted[count / 2];
}

/* The machine's clock changes: B's link is of what rank 0 computed in the turn of A before it. */
static int choose_rate(struct bench *b, const struct turn_means *a)
{
    b->rate = a->net_bytes / (b->share * a->compute_s);
    return ranks_take_first(b->engine, &b->rate, sizeof b->rate);
}

/* B's link is a network of that rate, where the transport is faster. */
static int predict(const struct bench *b, enum side side, struct hst_prediction *prediction)
{
    struct hst_rates rates = b->rates;
    for (int r = HST_RATE_NET_GATHER; side == B && r <= HST_RATE_NET_BETWEEN; r++)
        if (rates.figures[r].value > b->rate)
            rates.figures[r].value = b->rate;
    return hst_engine_predict(b->engine, &rates, prediction);
}

/* What follows from the visits of this turn: all of them are of steps on the same link. */
static int predict_turn(struct bench *b, enum side side, struct turn_means *turn)
{
    double all[RANKS_MOST][2] = {{0}};
    struct hst_prediction p = {.step_s = 0};
    int rc = predict(b, side, &p);
    rc = rc ? rc : hst_engine_drain(b->engine, NULL);
    rc = rc ? rc
            : ranks_share_all(b->engine, "predictions", (double[]){p.step_s, p.bound_s}, all,
                              sizeof *all);
    for (uint32_t r = 0; r < b->part.ranks; r++) {
        turn->predicted_s = fmax(turn->predicted_s, all[r][0]);
        turn->bound_s = fmax(turn->bound_s, all[r][1]);
    }
    return rc;
}

static void forget_visits(struct bench *b)
{
    struct measure *measure = &b->engine->exec.measure;
    for (int i = 0; i < MEASURE_SWEEPS; i++)
        memset(measure->visits[i], 0, b->engine->layout.unit_count * sizeof *measure->visits[i]);
    measure->update = measure->norm = (struct measure_work){0};
}

/* A drain before keeps the links of both apart. */
static int take_turn(struct bench *b, enum side side, struct turn_means *turn)
{
    struct hst_step_stats stats;
    double seconds;
    int rc = hst_engine_drain(b->engine, NULL);
    rc = rc ? rc : set_link(b, side);
    rc = rc ? rc : step(b, &seconds, &stats);
    forget_visits(b);
    *turn = (struct turn_means){.link_bytes_per_s = b->rate};
    for (uint32_t i = 0; rc == 0 && i < TURN_STEPS; i++) {
        rc = step(b, &seconds, &stats);
        turn->step_s += seconds / TURN_STEPS;
        turn->compute_s += (seconds - stats.stall_s.net) / TURN_STEPS;
        turn->net_bytes = (double)stats.bytes.net;
    }
    return rc ? rc : predict_turn(b, side, turn);
}

/* A B A B … A: each turn of B lies between two of A, so that a drift of the clock is in both. */
static int take_turns(struct bench *b, uint32_t pairs)
{
    struct turn_means first; /* which warms up */
    int rc = take_turn(b, A, &first);
    for (uint32_t i = 0; rc == 0 && i <= pairs; i++) {
        rc = take_turn(b, A, &b->turns[A][i]);
        rc = rc ? rc : choose_rate(b, &b->turns[A][i]);
        if (rc == 0 && i < pairs)
            rc = take_turn(b, B, &b->turns[B][i]);
    }
    return rc;
}

/* ---- telling ---- */

static void print_side(const struct bench *b, enum side side, uint32_t pairs)
{
    double step_s[PAIRS_MOST], predicted[PAIRS_MOST], bound[PAIRS_MOST];
    for (uint32_t i = 0; i < pairs; i++) {
        const struct turn_means *turn = &b->turns[side][i];
        step_s[i] = turn->step_s;
        predicted[i] = turn->predicted_s / turn->step_s;
        bound[i] = turn->bound_s / turn->step_s;
    }
    printf(", \"%s\": {\"step_s\": %.6f, \"predicted\": %.4f, \"bound\": %.4f}",
           side == A ? "a" : "b", median(step_s, pairs), median(predicted, pairs),
           median(bound, pairs));
}

static void print(const struct bench *b, uint32_t stage, uint32_t pairs)
{
    double ratio[PAIRS_MOST], link[PAIRS_MOST];
    for (uint32_t i = 0; i < pairs; i++) {
        const struct turn_means *around = &b->turns[A][i];
        ratio[i] = 2 * b->turns[B][i].step_s / (around[0].step_s + around[1].step_s);
        link[i] = b->turns[B][i].link_bytes_per_s;
    }
    qsort(ratio, pairs, sizeof *ratio, by_value);
    printf("{\"stage\": %u, \"ranks\": %u, \"pairs\": %u, \"link_bytes_per_s\": %.0f, "
           "\"ratio\": %.4f, \"ratio_least\": %.4f, \"ratio_most\": %.4f",
           stage, b->part.ranks, pairs, median(link, pairs), ratio[pairs / 2], ratio[0],
           ratio[pairs - 1]);
    print_side(b, A, pairs);
    print_side(b, B, pairs);
    printf("}\n");
}

static int run(struct bench *b, const struct hst_launch *launch, uint32_t stage, uint32_t pairs)
{
    b->rank_tokens = ROWS * SEQUENCE;
    b->batch_tokens = b->rank_tokens * launch->ranks;
    b->tokens = malloc(2 * b->rank_tokens * sizeof *b->tokens);
    for (uint64_t i = 0; b->tokens && i < 2 * b->rank_tokens; i++)
        b->tokens[i] = (uint32_t)((i + launch->rank) * 2654435761u >> 7) % VOCABULARY;
    int rc = b->tokens ? open_engine(b, launch, stage) : -ENOMEM;
    rc = rc ? rc : take_turns(b, pairs);
    rc = rc ? rc : hst_engine_drain(b->engine, NULL);
    if (rc == 0 && b->part.rank == 0)
        print(b, stage, pairs);
    return rc;
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct hst_launch launch;
    char why[200];
    const uint32_t stage = argc == 5 ? (uint32_t)atoi(argv[1]) : 0;
    const uint32_t pairs = argc == 5 ? (uint32_t)atoi(argv[2]) : 0;
    b.share = argc == 5 ? atof(argv[3]) : 0;
    b.update = argc == 5 && strcmp(argv[4], "optimistic") == 0 ? HST_UPDATE_OPTIMISTIC
                                                               : HST_UPDATE_DEFERRED;
    if ((stage != 2 && stage != 3) || pairs == 0 || pairs > PAIRS_MOST || !(b.share > 0)) {
        fprintf(stderr, "usage: mpirun -n 2 ranks_bench 2|3 PAIRS SHARE deferred|optimistic\n");
        return 2;
    }
    if (hst_launch_read(NULL, NULL, &launch, why) || launch.ranks < 2 ||
        launch.ranks > RANKS_MOST) {
        fprintf(stderr, "ranks_bench: %s\n", why[0] ? why : "it is for 2 to 64 ranks");
        return 2;
    }
    const int rc = run(&b, &launch, stage, pairs);
    if (rc) {
        const struct hst_error *told = b.engine ? hst_engine_error(b.engine) : &b.error;
        fprintf(stderr, "ranks_bench: rank %u: %s (%d)\n", launch.rank, told->message, rc);
        hst_engine_abort(b.engine, 1);
        return 1;
    }
    free(b.tokens);
    hst_engine_destroy(&b.engine);
    llama_destroy(&b.model);
    return 0;
}
