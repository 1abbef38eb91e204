/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what might help, and prices it. Each case is a whole plan of its own, with its own homes,
 * but a rough one: its graphs have few tiles. So it is compared with a plan as rough of what is
 * asked for, and its step is the predicted step in the same proportion.
 */
#include "verbs/plan/help.h"

#include "cli/options/store.h"
#include "verbs/plan/plan.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ROUGH_TILES      128u
#define GAIN             1.02 /* less is none: of two plans each may overlook a hundredth */
#define TOKENS_DOUBLINGS 10u
#define TOKENS_MOST      (UINT64_C(1) << 50)

struct variant {
    double drives;  /* times as fast and as large */
    double between; /* what comes from other nodes, times as fast */
    uint64_t dram_bytes, tokens;
    enum hst_state state;
};

/* A directory whose name has a rank's number is another one, on another drive, for each of them. */
static bool of_rank(const char *name)
{
    return strstr(name, "{local}") || strstr(name, "{rank}");
}

uint32_t plan_drives(const struct plan *p)
{
    struct store_list list = {.rest = p->store_names};
    uint32_t count = 0;
    while (store_next(&list))
        count += of_rank(list.directory) ? p->locals : 1;
    const uint32_t of_machine = p->machine->drives;
    count = count ? count : of_machine ? of_machine : p->t.rates.drive_count;
    return count ? count : 1;
}

/* Budgets are a node's, and what was planned is a rank's. Only a GPU is a rank's alone. */
static void set_budgets(const struct plan *p, const struct variant *v, struct hst_config *config)
{
    const uint64_t *budget = p->t.result.memory.budget;
    config->hbm_bytes = budget[HST_TIER_HBM];
    config->dram_bytes = v->dram_bytes;
    config->nvme_bytes = (uint64_t)((double)budget[HST_TIER_NVME] * p->locals * v->drives);
    config->state = v->state;
    config->plan_tiles = ROUGH_TILES;
}

static void scale_drives(struct hst_rates *rates, double times)
{
    for (int r = HST_RATE_READ; r <= HST_RATE_MIXED_BUSY; r++)
        rates->figures[r].value *= times;
}

static void scale_between(struct hst_rates *rates, double times)
{
    rates->figures[HST_RATE_NET_BETWEEN].value *= times;
}

/* Returns 0 with a step of 0 s where it does not fit, or cannot be. */
static int simulate_variant(const struct plan *p, const struct variant *v,
                            struct hst_prediction *told)
{
    struct hst_error error = {0};
    struct train_options options = *p->t.options;
    struct train *t = malloc(sizeof *t);
    if (!t)
        return -ENOMEM;
    *told = (struct hst_prediction){0};
    *t = p->t;
    set_budgets(p, v, &options.engine);
    scale_drives(&t->rates, v->drives);
    scale_between(&t->rates, v->between);
    t->options = &options;
    t->error = &error;
    t->engine = NULL;
    t->model = NULL;
    t->aside = true;
    t->run.batch_tokens = v->tokens;
    t->run.micro_batch_tokens = train_micro_batch(t, v->tokens);
    int native = llama_create(&p->config, &t->run, &t->model, &error);
    native = native ? native : train_engine_plan(t, HST_PLAN_ELSEWHERE);
    if (native == 0)
        native = hst_engine_predict(t->engine, &t->rates, told);
    hst_engine_destroy(&t->engine);
    llama_destroy(&t->model);
    free(t);
    return native == -ENOMEM && !error.code ? native : 0;
}

/* ---- cases ---- */

static struct variant as_it_is(const struct plan *p)
{
    return (struct variant){.drives = 1,
                            .between = 1,
                            .dram_bytes = p->t.result.memory.budget[HST_TIER_DRAM] * p->locals,
                            .tokens = p->t.run.batch_tokens,
                            .state = p->t.options->engine.state};
}

/* A step with that part twice as fast; 0 s: it is nothing that a step waits for. */
static double with_quick(const struct plan *p, const char *part)
{
    const struct hst_prediction *r = &p->t.result.prediction;
    for (uint32_t i = 0; i < r->help_count; i++)
        if (strcmp(r->helps[i].what, part) == 0 && r->step_s >= GAIN * r->helps[i].step_s)
            return r->helps[i].step_s;
    return 0;
}

/* What crosses nodes is a part of the network, and a NIC brings nothing else. */
static bool waits_for_nodes(const struct plan *p)
{
    return train_options_ranks(p->t.options) > p->locals && with_quick(p, "network") > 0;
}

bool plan_lacks_nics(const struct plan *p)
{
    return p->machine->nics == 0 && waits_for_nodes(p);
}

/* Something lives elsewhere, or is recomputed for want of room. */
static bool may_have_dram(const struct plan *p)
{
    const struct hst_memory *m = &p->t.result.memory;
    const bool stored = m->bytes[HST_CLASS_STATES][HST_TIER_NVME] > 0 ||
                        m->bytes[HST_CLASS_ACTS][HST_TIER_NVME] > 0;
    return stored || p->decision.saved_units < p->decision.savable_units;
}

static bool may_have_state(const struct plan *p, enum hst_state state)
{
    const struct hst_config *c = &p->t.options->engine;
    const struct hst_prediction *r = &p->t.result.prediction;
    const enum hst_state now = c->state ? c->state : HST_STATE_FP32;
    return r->step_s > GAIN * r->compute_s && train_precision(&p->t) == HST_PRECISION_BF16 &&
           now < state && c->optimizer == HST_OPTIMIZER_ADAMW;
}

/* Less is none where a rough plan of what was asked for is off by as much, from the exact one. */
static double least_gain(const struct plan *p, double rough_s)
{
    return fmax(GAIN, 1 + fabs(rough_s / p->t.result.prediction.step_s - 1));
}

/* A plan that is no faster, or does not fit, helps nobody. */
static void keep(struct plan *p, const char *what, uint64_t amount, double rough_s,
                 const struct variant *v, const struct hst_prediction *told)
{
    const struct hst_prediction *now = &p->t.result.prediction;
    const double step_s = now->step_s * told->step_s / rough_s;
    const double more = (double)v->tokens / (double)p->t.run.batch_tokens;
    if (told->step_s > 0 && more * now->step_s >= least_gain(p, rough_s) * step_s)
        p->helps[p->help_count++] = (struct plan_help){
            what, amount, step_s, more * now->step_s / step_s, told->compute_s / told->step_s};
}

/* ---- questions, each of which is answered by a thread of its own ---- */

enum { OF_ROUGH, OF_DRIVE, OF_NIC, OF_DRAM, OF_BF16, OF_8BIT, OF_TOKENS, QUESTIONS };

struct question {
    const struct plan *p;
    struct variant v;
    bool is_asked, is_beside; /* beside: `thread` answers it */
    pthread_t thread;
    struct hst_prediction told; /* of v */
    int native;
    bool full; /* of OF_TOKENS: computation is nine tenths of the step */
};

static void *answer_one(void *context)
{
    struct question *q = context;
    q->native = simulate_variant(q->p, &q->v, &q->told);
    return NULL;
}

/* Twice as many tokens, until computation is nine tenths of a step, or memory ends. */
static void *answer_tokens(void *context)
{
    struct question *q = context;
    for (unsigned i = 0; i < TOKENS_DOUBLINGS && q->v.tokens < TOKENS_MOST && !q->full; i++) {
        q->v.tokens *= 2;
        answer_one(q);
        if (q->native || q->told.step_s <= 0)
            break;
        q->full = q->told.compute_s >= PLAN_FULL * q->told.step_s;
    }
    return NULL;
}

static void ask(struct question *q, void *answer(void *))
{
    q->is_asked = true;
    q->is_beside = pthread_create(&q->thread, NULL, answer, q) == 0;
    if (!q->is_beside)
        answer(q);
}

/* Asks all that may help, and what their answers are compared with. */
static void ask_all(struct plan *p, bool full, struct question *q)
{
    const uint32_t drives = plan_drives(p), nics = p->machine->nics;
    for (int i = 0; i < QUESTIONS; i++)
        q[i] = (struct question){.p = p, .v = as_it_is(p)};
    if (!full)
        ask(&q[OF_TOKENS], answer_tokens);
    q[OF_DRIVE].v.drives = (drives + 1.0) / drives;
    if (drives > 1 && with_quick(p, "drives") > 0)
        ask(&q[OF_DRIVE], answer_one);
    q[OF_NIC].v.between = nics > 0 ? (nics + 1.0) / nics : 1;
    if (nics > 0 && waits_for_nodes(p))
        ask(&q[OF_NIC], answer_one);
    q[OF_DRAM].v.dram_bytes *= 2;
    if (may_have_dram(p))
        ask(&q[OF_DRAM], answer_one);
    q[OF_BF16].v.state = HST_STATE_BF16;
    q[OF_8BIT].v.state = HST_STATE_8BIT;
    for (int i = OF_BF16; i <= OF_8BIT; i++)
        if (may_have_state(p, q[i].v.state))
            ask(&q[i], answer_one);
    answer_one(&q[OF_ROUGH]);
}

static int hear_all(struct question *q)
{
    int native = q[OF_ROUGH].native;
    for (int i = 0; i < QUESTIONS; i++) {
        if (q[i].is_beside)
            pthread_join(q[i].thread, NULL);
        native = native ? native : q[i].native;
    }
    return native;
}

/* ---- answers ---- */

static void keep_drive(struct plan *p, double rough_s, const struct question *q)
{
    const struct hst_prediction *now = &p->t.result.prediction;
    const double quick_s = with_quick(p, "drives");
    if (q->is_asked)
        keep(p, "drive", plan_drives(p) + 1, rough_s, &q->v, &q->told);
    else if (quick_s > 0) /* beside one drive, another is what drives twice as fast are */
        keep(p, "drive", 2, now->step_s, &q->v,
             &(struct hst_prediction){.step_s = quick_s, .compute_s = now->compute_s});
}

static void keep_tokens(struct plan *p, double rough_s, const struct question *q)
{
    if (q->v.tokens > p->t.run.batch_tokens)
        p->tried_tokens = q->v.tokens;
    if (!q->full)
        return;
    p->full_tokens = q->v.tokens;
    keep(p, "tokens", q->v.tokens, rough_s, &q->v, &q->told);
}

static int find_all(struct plan *p)
{
    const struct hst_prediction *now = &p->t.result.prediction;
    const bool full = now->compute_s >= PLAN_FULL * now->step_s;
    struct question q[QUESTIONS];
    p->full_tokens = full ? p->t.run.batch_tokens : 0;
    ask_all(p, full, q);
    const int native = hear_all(q);
    const double rough_s = q[OF_ROUGH].told.step_s;
    if (native || rough_s <= 0)
        return native;
    keep_drive(p, rough_s, &q[OF_DRIVE]);
    keep(p, "nic", p->machine->nics + 1ul, rough_s, &q[OF_NIC].v, &q[OF_NIC].told);
    keep(p, "dram", q[OF_DRAM].v.dram_bytes, rough_s, &q[OF_DRAM].v, &q[OF_DRAM].told);
    keep(p, "state", 0, rough_s, &q[OF_BF16].v, &q[OF_BF16].told);
    keep(p, "state_8bit", 0, rough_s, &q[OF_8BIT].v, &q[OF_8BIT].told);
    keep_tokens(p, rough_s, &q[OF_TOKENS]);
    return 0;
}

int plan_find_help(struct plan *p, struct hst_error *error)
{
    if (!p->fits || p->t.result.prediction.step_s <= 0)
        return 0;
    const int native = find_all(p);
    return native ? fail(error, FAIL_BUDGET, native, "no memory for what would help") : 0;
}
