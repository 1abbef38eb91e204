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
    double drives; /* times as fast and as large */
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
    for (int r = HST_RATE_READ; r <= HST_RATE_MIXED; r++)
        rates->figures[r].value *= times;
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
    return (struct variant){1, p->t.result.memory.budget[HST_TIER_DRAM] * p->locals,
                            p->t.run.batch_tokens, p->t.options->engine.state};
}

/* A step with drives twice as fast; 0 s: they are nothing that a step waits for. */
static double with_quick_drives(const struct plan *p)
{
    const struct hst_prediction *r = &p->t.result.prediction;
    for (uint32_t i = 0; i < r->help_count; i++)
        if (strcmp(r->helps[i].what, "drives") == 0 && r->step_s >= GAIN * r->helps[i].step_s)
            return r->helps[i].step_s;
    return 0;
}

/* Something lives elsewhere, or is recomputed for want of room. */
static bool may_have_dram(const struct plan *p)
{
    const struct hst_memory *m = &p->t.result.memory;
    const bool stored = m->bytes[HST_CLASS_STATES][HST_TIER_NVME] > 0 ||
                        m->bytes[HST_CLASS_ACTS][HST_TIER_NVME] > 0;
    return stored || p->decision.saved_units < p->decision.savable_units;
}

static bool may_have_state(const struct plan *p)
{
    const struct hst_config *c = &p->t.options->engine;
    const struct hst_prediction *r = &p->t.result.prediction;
    return r->step_s > GAIN * r->compute_s && train_precision(&p->t) == HST_PRECISION_BF16 &&
           c->state <= HST_STATE_FP32 && c->optimizer == HST_OPTIMIZER_ADAMW;
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

static int try_variant(struct plan *p, const char *what, uint64_t amount, double rough_s,
                       const struct variant *v)
{
    struct hst_prediction told;
    const int native = simulate_variant(p, v, &told);
    if (native == 0)
        keep(p, what, amount, rough_s, v, &told);
    return native;
}

/* Beside one drive, another is what the prediction has as drives twice as fast: one figure. */
static int find_drive(struct plan *p, double rough_s)
{
    const struct hst_prediction *now = &p->t.result.prediction;
    const uint32_t drives = plan_drives(p);
    const double quick_s = with_quick_drives(p);
    struct variant v = as_it_is(p);
    if (quick_s <= 0)
        return 0;
    v.drives = (drives + 1.0) / drives;
    if (drives > 1)
        return try_variant(p, "drive", drives + 1, rough_s, &v);
    keep(p, "drive", 2, now->step_s, &v,
         &(struct hst_prediction){.step_s = quick_s, .compute_s = now->compute_s});
    return 0;
}

/* Twice as many, until computation is nine tenths of a step, or memory ends. */
struct tokens_search {
    const struct plan *p;
    struct variant v; /* the last that was tried */
    struct hst_prediction told;
    bool full;
    int native;
};

static void *search_tokens(void *context)
{
    struct tokens_search *s = context;
    for (unsigned i = 0; i < TOKENS_DOUBLINGS && s->v.tokens < TOKENS_MOST && !s->full; i++) {
        s->v.tokens *= 2;
        s->native = simulate_variant(s->p, &s->v, &s->told);
        if (s->native || s->told.step_s <= 0)
            break;
        s->full = s->told.compute_s >= PLAN_FULL * s->told.step_s;
    }
    return NULL;
}

static void keep_tokens(struct plan *p, double rough_s, const struct tokens_search *s)
{
    if (s->v.tokens > p->t.run.batch_tokens)
        p->tried_tokens = s->v.tokens;
    if (!s->full)
        return;
    p->full_tokens = s->v.tokens;
    keep(p, "tokens", s->v.tokens, rough_s, &s->v, &s->told);
}

/* All but more tokens. */
static int find_rest(struct plan *p, double rough_s)
{
    struct variant v = as_it_is(p);
    int native = find_drive(p, rough_s);
    if (!native && may_have_dram(p)) {
        v.dram_bytes *= 2;
        native = try_variant(p, "dram", v.dram_bytes, rough_s, &v);
    }
    v = as_it_is(p);
    if (!native && may_have_state(p)) {
        v.state = HST_STATE_BF16;
        native = try_variant(p, "state", 0, rough_s, &v);
    }
    return native;
}

/* More tokens are about half of the work: they are tried beside the rest. */
static int find_all(struct plan *p)
{
    const struct hst_prediction *now = &p->t.result.prediction;
    const bool full = now->compute_s >= PLAN_FULL * now->step_s;
    const struct variant v = as_it_is(p);
    struct tokens_search tokens = {.p = p, .v = v};
    struct hst_prediction rough;
    pthread_t beside;
    p->full_tokens = full ? v.tokens : 0;
    const bool begun = !full && pthread_create(&beside, NULL, search_tokens, &tokens) == 0;
    int native = simulate_variant(p, &v, &rough);
    const bool fits = !native && rough.step_s > 0;
    native = fits ? find_rest(p, rough.step_s) : native;
    if (begun)
        pthread_join(beside, NULL);
    else if (fits && !full)
        search_tokens(&tokens);
    native = native ? native : tokens.native;
    if (fits && !native && !full)
        keep_tokens(p, rough.step_s, &tokens);
    return native;
}

int plan_find_help(struct plan *p, struct hst_error *error)
{
    if (!p->fits || p->t.result.prediction.step_s <= 0)
        return 0;
    const int native = find_all(p);
    return native ? fail(error, FAIL_BUDGET, native, "no memory for what would help") : 0;
}
