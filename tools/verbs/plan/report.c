/* SPDX-License-Identifier: Apache-2.0 */
/* Tells a plan: as tables and sentences, or as one JSON object. */
#include "base/text.h"
#include "cli/log/decision.h"
#include "cli/log/json.h"
#include "cli/message/table.h"
#include "cli/rates_text.h"
#include "verbs/plan/accounting.h"
#include "verbs/plan/answer.h"
#include "verbs/plan/plan.h"

#include <hoistway/plan.h>

#include <inttypes.h>
#include <string.h>

/* The ranks of a node share the budgets of its memory and of its drives, each has a device. */
static uint64_t as_given(const struct plan *p, enum hst_tier tier, uint64_t bytes)
{
    return tier == HST_TIER_HBM ? bytes : bytes * p->locals;
}

/* The least budget of a tier that would do, as it is given; 0: there is enough. */
static uint64_t smallest(const struct plan *p, enum hst_tier tier)
{
    const struct hst_memory *memory = &p->t.result.memory;
    return memory->total[tier] > memory->budget[tier] ? as_given(p, tier, memory->total[tier]) : 0;
}

static uint64_t micro_batches(const struct plan *p)
{
    const struct llama_run *r = &p->t.run;
    const uint64_t way = r->batch_tokens / r->ways;
    return r->ways * ((way + r->micro_batch_tokens - 1) / r->micro_batch_tokens);
}

static double tokens_per_s(const struct plan *p)
{
    return (double)p->t.run.batch_tokens / p->t.result.prediction.step_s;
}

/* ---- text ---- */

static void print_update(const struct plan *p, FILE *out)
{
    static const struct {
        const char *name, *text;
    } updates[] = {
        {"deferred", "deferred: beside the next forward"},
        {"optimistic", "optimistic: in the backward, again where the norm clips"},
        {"early", "in the backward: nothing has to be waited for"},
    };
    for (size_t i = 0; i < sizeof updates / sizeof *updates; i++)
        if (strcmp(updates[i].name, p->decision.update) == 0)
            fprintf(out, "update %s\n", updates[i].text);
    if (p->decision.late_share > 0 && strcmp(p->decision.update, "deferred") != 0)
        fprintf(out, "  but for %g %% of the tiles that can wait, which the next forward hides\n",
                100 * p->decision.late_share);
    if (p->decision.update_threads < p->t.result.memory.threads)
        fprintf(out, "  by %u of %u threads, which leaves host memory to drives and copies\n",
                p->decision.update_threads, p->t.result.memory.threads);
}

static void print_checkpoints(const struct plan *p, FILE *out)
{
    uint32_t saved = p->decision.saved_units, able = p->decision.savable_units;
    const char *half = p->t.run.halves ? "half " : "";
    if (saved > 0)
        fprintf(out, "activations of %u of %u %slayer%s are kept for the backward%s\n", saved, able,
                half, text_s(able), saved < able ? ", the others' are recomputed" : "");
    if (p->decision.checkpoint_every > 1)
        fprintf(out,
                "the activation checkpoint of one %slayer in %u is kept, the others are "
                "recomputed\n",
                half, p->decision.checkpoint_every);
}

static void print_homes(const struct plan *p, FILE *out)
{
    const struct hst_decision *d = &p->decision;
    bool gpu = p->t.result.memory.total[HST_TIER_HBM] > 0;
    if (d->slices > 0)
        fprintf(out, "%u unit%s used in %u slices of %s rows\n", d->cut_units,
                d->cut_units == 1 ? " is" : "s are", d->slices,
                d->cut_units == 1 ? "its" : "their");
    if (gpu && d->resident_units < d->units)
        fprintf(out, "%u of %u units %s at home in HBM, where the GPU updates %s\n",
                d->resident_units, d->units, d->resident_units == 1 ? "is" : "are",
                d->resident_units == 1 ? "it" : "them");
    if (d->streamed_tiles > 0)
        fprintf(out, "of the tiles at home in DRAM the GPU updates %u of %u\n", d->streamed_tiles,
                d->tiles_in_dram);
    if (d->step_s < d->usual_step_s)
        fprintf(out, "%s: %.2f times as fast as the usual homes\n", d->homes,
                d->usual_step_s / d->step_s);
}

static void print_prediction(const struct plan *p, FILE *out)
{
    char rate[TEXT_BYTES];
    const struct hst_prediction *r = &p->t.result.prediction;
    if (r->step_s <= 0) {
        fprintf(out, "how long a step takes is not known: %s\n", r->why);
        return;
    }
    fprintf(out,
            "a step takes %.3g s (%s tok/s), at least %.3g s on these rates in any order (%.0f %% "
            "of that); bounded by %s\n",
            r->step_s, text_count(tokens_per_s(p), rate), r->bound_s, 100 * r->bound_s / r->step_s,
            r->bound_by);
    for (uint32_t i = 0; i < r->help_count; i++)
        fprintf(out, "  %s twice as fast: %.3g s, %.2f times as fast\n", r->helps[i].what,
                r->helps[i].step_s, r->step_s / r->helps[i].step_s);
    if (r->help_count == 0)
        fprintf(out, "  no part of the machine alone would make it faster\n");
}

/* The batches of one evaluation; 0: not known how many, or no data is named. */
static uint64_t sweeps(const struct plan *p)
{
    const uint64_t most = p->t.eval.times.step_sequences;
    return p->t.eval.data ? (data_sequence_count(p->t.eval.data) + most - 1) / most : 0;
}

static bool evaluates(const struct plan *p)
{
    return p->t.options->eval || p->t.options->eval_split > 0;
}

static void print_evaluation(const struct plan *p, FILE *out)
{
    const double sweep_s = p->t.result.prediction.evaluation_s;
    if (!evaluates(p) || sweep_s <= 0)
        return;
    fprintf(out, "an evaluation takes %.3g s for %" PRIu64 " tokens", sweep_s,
            p->t.run.batch_tokens);
    if (sweeps(p))
        fprintf(out, ", %.3g s for %" PRIu64 " sweep%s over all of it", sweep_s * (double)sweeps(p),
                sweeps(p), text_s(sweeps(p)));
    fprintf(out, "\n");
}

/* Each of their sweeps has no more sequences than a step's. */
static void print_samples(const struct plan *p, FILE *out)
{
    const double sweep_s = p->t.result.prediction.evaluation_s;
    const uint64_t sweeps = p->t.samples.sweeps;
    if (sweeps && sweep_s > 0)
        fprintf(out, "samples take about %.3g s each time, for up to %" PRIu64 " sweep%s\n",
                sweep_s * (double)sweeps, sweeps, text_s(sweeps));
}

/* Half of a store, whose files have two slots of everything but what is frozen. */
static uint64_t kept_bytes(const struct plan *p)
{
    struct hst_config config = p->t.options->engine;
    struct hst_param_bytes bytes;
    config.precision = train_precision(&p->t);
    if (!p->t.options->keep_best || !hst_config_bytes(&config, &bytes))
        return 0;
    const bool follow =
        config.precision == HST_PRECISION_FP16; /* from masters: no bytes of theirs */
    const double all = (double)p->t.result.memory.parameters;
    const double trained = all - (double)p->t.result.frozen.elements;
    return (uint64_t)(trained * bytes.state + (follow ? 0 : all * bytes.weight));
}

static void print_kept(const struct plan *p, FILE *out)
{
    char size[TEXT_BYTES];
    if (kept_bytes(p))
        fprintf(out, "--keep-best takes %s beside the store\n", text_size(kept_bytes(p), size));
}

/* Rows that move nothing, or at unknown rates alone, have no line. */
static void print_start_up(const struct plan *p, FILE *out)
{
    char text[HST_START_UP_TEXT_BYTES];
    if (p->start_up.seconds > 0)
        fprintf(out, "%s\n", hst_start_up_text(&p->start_up, text));
}

static void print_rates(const struct plan *p, FILE *out)
{
    char text[RATES_TEXT_BYTES];
    if (*rates_text(&p->t.rates, rates_now_ms(), text))
        fprintf(out, "rates: %s\n", text);
}

/* What a budget can be at most, as it is given; 0: not known. */
static uint64_t most(const struct plan *p, enum hst_tier tier)
{
    if (p->machine->name[0] && tier == HST_TIER_HBM)
        return p->machine->hbm_bytes;
    return as_given(p, tier, p->t.result.memory.most[tier]);
}

/* Which of the budgets that would do are more than the machine has, and what it has. */
static void print_lacking(const struct plan *p, FILE *out)
{
    static const char *const names[HST_TIER_COUNT] = {
        [HST_TIER_HBM] = "HBM", [HST_TIER_DRAM] = "DRAM", [HST_TIER_NVME] = "NVMe"};
    const char *before = "; no more than";
    for (int t = 0; t < HST_TIER_COUNT; t++) {
        const uint64_t there = most(p, (enum hst_tier)t);
        char size[TEXT_BYTES];
        if (there == 0 || smallest(p, (enum hst_tier)t) <= there)
            continue;
        fprintf(out, "%s %s of %s", before, text_size(there, size), names[t]);
        before = " and";
    }
    if (strcmp(before, " and") == 0)
        fprintf(out, p->machine->name[0] ? " are there" : " are free here");
}

/*
 * Budgets that work, in words that --hbm, --dram and --nvme take. They are in one line, since all
 * of them are needed; there is none where no budget is short, but a drive of several.
 */
static void print_smallest(const struct plan *p, FILE *out)
{
    const char *before = "the smallest that would do:";
    for (int t = 0; t < HST_TIER_COUNT; t++) {
        uint64_t bytes = smallest(p, (enum hst_tier)t);
        char size[TEXT_BYTES];
        if (bytes == 0)
            continue;
        fprintf(out, "%s --%s %s", before, hst_tier_name((enum hst_tier)t),
                text_typed_up(bytes, size));
        before = "";
    }
    if (*before)
        return;
    print_lacking(p, out);
    fprintf(out, "\n");
}

/* It prints what the data decides. */
static void print_length(const struct plan *p, FILE *out)
{
    const struct train_options *o = p->t.options;
    if (!p->t.data)
        return;
    const uint64_t rows = data_sequence_count(p->t.data), each = p->t.run.batch_tokens / o->seq_len;
    const struct data_packing *packing = data_packing(p->t.data);
    fprintf(out, "a pass over the data is %" PRIu64 " %s%s of %" PRIu64, rows,
            packing ? "row" : "sequence", text_s(rows), o->seq_len);
    if (packing)
        fprintf(out, ", %.2f %% full", 100 * train_fill(packing, o->seq_len));
    fprintf(out, ", %" PRIu64 " a step", each);
    if (o->steps > 0)
        fprintf(out, ": %" PRIu64 " step%s are %.3g pass%s", o->steps, text_s(o->steps),
                (double)o->steps * (double)each / (double)rows,
                o->steps * each == rows ? "" : "es");
    fprintf(out, "\n");
}

/* It tells what a name of a GPT stands for, since no Llama of these sizes was ever published. */
static void print_shape(const struct plan *p, FILE *out)
{
    const struct hst_shape *shape = hst_shape_find(p->model);
    if (shape && shape->stands_for)
        fprintf(out, "%s is a Llama with as many parameters, in place of %s\n", shape->name,
                shape->stands_for);
}

static void print_machine(const struct plan *p, FILE *out)
{
    const struct machine *m = p->machine;
    if (m->name[0])
        fprintf(out, "on %s%s%s\n", m->name, m->about[0] ? ": " : "", m->about);
}

static void print_ranks(const struct plan *p, FILE *out)
{
    const uint32_t ranks = train_options_ranks(p->t.options), locals = p->locals;
    const uint32_t ways = p->t.run.ways;
    const char *comm = p->t.result.memory.comm;
    if (ranks == 1)
        return;
    fprintf(out, "rank 0 of %" PRIu32 " on %" PRIu32 " node%s, %" PRIu32 " way%s%s\n", ranks,
            ranks / locals, ranks == locals ? "" : "s", ways, text_s(ways),
            !comm                       ? ""
            : strcmp(comm, "nccl") == 0 ? ", which meet in HBM by NCCL"
                                        : ", which meet in DRAM by MPI");
}

static void print_one(const struct plan *p, FILE *out)
{
    const struct llama_run *r = &p->t.run;
    table_print(&p->t.result.memory, p->locals, out);
    print_shape(p, out);
    print_machine(p, out);
    table_print_groups(p->t.result.groups, p->t.result.group_count, &p->t.result.frozen, out);
    print_ranks(p, out);
    fprintf(out,
            "%s on %s, a step of %" PRIu64 " token%s in %" PRIu64 " micro-batch%s of %" PRIu64 "\n",
            p->precision, p->t.device.name, r->batch_tokens, text_s(r->batch_tokens),
            micro_batches(p), micro_batches(p) == 1 ? "" : "es", r->micro_batch_tokens);
    print_length(p, out);
    if (!p->fits) {
        fprintf(out, "does not fit: %s\n", p->refusal.message);
        print_smallest(p, out);
        plan_print_accounting(p, out);
        return;
    }
    print_update(p, out);
    print_checkpoints(p, out);
    print_homes(p, out);
    fprintf(out, plan_assumes(p) ? "fits, assumed: " : "fits: ");
    print_prediction(p, out);
    print_evaluation(p, out);
    print_samples(p, out);
    print_kept(p, out);
    print_start_up(p, out);
    print_rates(p, out);
    plan_print_answer(p, out);
    plan_print_accounting(p, out);
}

void plan_print(const struct plan *p, FILE *out)
{
    print_one(p, out);
    if (p->instead) {
        fprintf(out, "\nwith %s:\n", p->t.way_out->options);
        print_one(p->instead, out);
    }
}

/* ---- JSON ---- */

static void put_tiers(struct json_writer *json, const char *key, const uint64_t *bytes)
{
    json_put_object(json, key);
    for (int t = 0; t < HST_TIER_COUNT; t++)
        json_put_whole(json, hst_tier_name((enum hst_tier)t), bytes[t]);
    json_put_end(json);
}

/* A rank's; and what those of a node take. */
static void put_memory(struct json_writer *json, const struct hst_memory *memory, uint32_t locals)
{
    json_put_object(json, "memory");
    for (int c = 0; c < HST_CLASS_COUNT; c++)
        put_tiers(json, hst_class_name((enum hst_class)c), memory->bytes[c]);
    put_tiers(json, "total", memory->total);
    put_tiers(json, "budget", memory->budget);
    if (locals > 1) {
        uint64_t node[HST_TIER_COUNT];
        for (int t = 0; t < HST_TIER_COUNT; t++)
            node[t] = memory->total[t] * locals;
        put_tiers(json, "node_total", node);
    }
    json_put_end(json);
}

static void put_smallest(struct json_writer *json, const struct plan *p)
{
    json_put_object(json, "smallest");
    for (int t = 0; t < HST_TIER_COUNT; t++)
        if (smallest(p, (enum hst_tier)t) > 0)
            json_put_whole(json, hst_tier_name((enum hst_tier)t), smallest(p, (enum hst_tier)t));
    json_put_end(json);
}

/* It puts what the data decides, and who has none does not know. */
static void put_length(struct json_writer *json, const struct plan *p)
{
    const struct data_packing *packing = p->t.data ? data_packing(p->t.data) : NULL;
    if (!p->t.data)
        return;
    json_put_whole(json, "rows", data_sequence_count(p->t.data));
    if (packing) {
        json_put_whole(json, "documents", packing->document_count);
        json_put_real(json, "fill", train_fill(packing, p->t.options->seq_len));
    }
    if (p->t.options->steps > 0)
        json_put_whole(json, "steps", p->t.options->steps);
}

static void put_groups(struct json_writer *json, const struct train_result *result)
{
    if (result->group_count == 0)
        return;
    json_put_array(json, "groups");
    for (uint32_t i = 0; i < result->group_count; i++) {
        json_put_object(json, NULL);
        json_put_text(json, "group", result->groups[i].text);
        json_put_whole(json, "tensors", result->groups[i].params);
        json_put_whole(json, "parameters", result->groups[i].elements);
        json_put_end(json);
    }
    json_put_end(json);
}

static void put_frozen(struct json_writer *json, const struct hst_frozen *frozen)
{
    if (frozen->params == 0)
        return;
    json_put_object(json, "frozen");
    json_put_whole(json, "tensors", frozen->params);
    json_put_whole(json, "parameters", frozen->elements);
    json_put_whole(json, "units", frozen->units);
    json_put_whole(json, "units_without_backward", frozen->resting_units);
    json_put_end(json);
}

static void put_run(struct json_writer *json, const struct plan *p)
{
    const struct train *t = &p->t;
    const struct hst_shape *shape = hst_shape_find(p->model);
    json_put_text(json, "model", p->model);
    json_put_text(json, "stands_for", shape ? shape->stands_for : NULL);
    json_put_text(json, "machine", p->machine->name[0] ? p->machine->name : NULL);
    json_put_text(json, "store", t->options->engine.store);
    json_put_text(json, "device", t->device.name);
    json_put_text(json, "precision", p->precision);
    json_put_text(json, "io", t->result.memory.io);
    json_put_whole(json, "threads", t->result.memory.threads);
    json_put_whole(json, "parameters", t->result.memory.parameters);
    json_put_whole(json, "tile_elements", t->result.memory.tile_elements);
    put_groups(json, &t->result);
    put_frozen(json, &t->result.frozen);
    json_put_whole(json, "seq_len", t->run.seq_len);
    json_put_whole(json, "batch_tokens", t->run.batch_tokens);
    json_put_whole(json, "grain_tokens", t->run.micro_batch_tokens);
    json_put_whole(json, "micro_batches", micro_batches(p));
    json_put_text(json, "layers", t->run.halves ? "halves" : "whole");
    json_put_whole(json, "ranks", train_options_ranks(t->options));
    json_put_whole(json, "nodes", train_options_ranks(t->options) / p->locals);
    if (p->machine->nics)
        json_put_whole(json, "nics", p->machine->nics);
    else
        json_put_null(json, "nics");
    json_put_text(json, "comm", t->result.memory.comm);
    put_length(json, p);
    decision_put(json, &p->decision);
}

static void put_prediction(struct json_writer *json, const struct plan *p)
{
    const struct hst_prediction *r = &p->t.result.prediction;
    bool known = r->step_s > 0;
    json_put_known(json, "predicted_step_s", r->step_s);
    json_put_known(json, "tok_s", known ? tokens_per_s(p) : 0);
    json_put_known(json, "bound_s", r->bound_s);
    json_put_known(json, "bound_fraction", known ? r->bound_s / r->step_s : 0);
    json_put_text(json, "bound_by", r->bound_by);
    json_put_array(json, "twice_as_fast");
    for (uint32_t i = 0; i < r->help_count; i++) {
        json_put_object(json, NULL);
        json_put_text(json, "what", r->helps[i].what);
        json_put_real(json, "predicted_step_s", r->helps[i].step_s);
        json_put_end(json);
    }
    json_put_end(json);
}

static void put_evaluation(struct json_writer *json, const struct plan *p)
{
    if (!evaluates(p) && !p->t.samples.sweeps)
        return;
    json_put_known(json, "predicted_sweep_s", p->t.result.prediction.evaluation_s);
    if (p->t.samples.sweeps)
        json_put_whole(json, "sample_sweeps", p->t.samples.sweeps);
    if (sweeps(p))
        json_put_whole(json, "sweeps", sweeps(p));
    if (kept_bytes(p))
        json_put_whole(json, "keep_best_bytes", kept_bytes(p));
}

/* A part that moves nothing takes 0 s; null is what is not known. */
static void put_part(struct json_writer *json, const char *bytes_key, uint64_t bytes,
                     const char *seconds_key, double seconds)
{
    json_put_whole(json, bytes_key, bytes);
    if (bytes == 0)
        json_put_real(json, seconds_key, 0);
    else
        json_put_known(json, seconds_key, seconds);
}

static void put_start_up(struct json_writer *json, const struct plan *p)
{
    const struct hst_start_up *s = &p->start_up;
    if (p->fits && !s->why[0])
        json_put_real(json, "predicted_start_up_s", s->seconds);
    else
        json_put_null(json, "predicted_start_up_s");
    json_put_object(json, "start_up");
    put_part(json, "lock_bytes", s->lock_bytes, "lock_s", s->lock_s);
    put_part(json, "read_bytes", s->read_bytes, "read_s", s->read_s);
    put_part(json, "write_bytes", s->write_bytes, "write_s", s->write_s);
    json_put_end(json);
}

/* Why not, or null: why it does not fit, or why no step is predicted. */
static void put_why(struct json_writer *json, const struct plan *p)
{
    const char *why = p->fits ? p->t.result.prediction.why : p->refusal.message;
    json_put_text(json, "why", why[0] ? why : NULL);
}

static void put_rates(struct json_writer *json, const struct hst_rates *rates)
{
    json_put_object(json, "rates");
    for (int r = 0; r < HST_RATE_COUNT; r++)
        json_put_known(json, hst_rate_name((enum hst_rate)r), rates->figures[r].value);
    json_put_end(json);
    const uint64_t now_ms = rates_now_ms();
    json_put_object(json, "rate_ages_s");
    for (int r = 0; r < HST_RATE_COUNT; r++) {
        const char *name = hst_rate_name((enum hst_rate)r);
        if (rates->figure_ms[r] == 0)
            json_put_null(json, name);
        else
            json_put_real(json, name, rates_age_s(rates->figure_ms[r], now_ms));
    }
    json_put_end(json);
    json_put_object(json, "prefetch"); /* elements ahead, 0: none; null: not measured */
    for (int a = 0; a < HST_AHEAD_COUNT; a++) {
        const uint32_t ahead = hst_ahead_elements(&rates->ahead[a]);
        const char *name = hst_ahead_name((enum hst_ahead_row)a);
        if (ahead == 0)
            json_put_null(json, name);
        else
            json_put_whole(json, name, ahead == HST_AHEAD_NONE ? 0 : ahead);
    }
    json_put_end(json);
    json_put_array(json, "assumed");
    for (int r = 0; r < HST_RATE_COUNT; r++)
        if (machine_assumes(&rates->figures[r]))
            json_put_text(json, NULL, hst_rate_name((enum hst_rate)r));
    json_put_end(json);
    json_put_text(json, "disturbed", rates->disturbed[0] ? rates->disturbed : NULL);
}

static void put_one(struct json_writer *json, const struct plan *p)
{
    json_put_bool(json, "fits", p->fits);
    put_why(json, p);
    put_run(json, p);
    put_prediction(json, p);
    put_evaluation(json, p);
    put_start_up(json, p);
    put_memory(json, &p->t.result.memory, p->locals);
    put_smallest(json, p);
    put_rates(json, &p->t.rates);
    plan_put_answer(json, p);
    plan_put_accounting(json, p);
}

static void put_instead(struct json_writer *json, const struct plan *p)
{
    if (!p->instead) {
        json_put_null(json, "instead");
        return;
    }
    json_put_object(json, "instead");
    json_put_text(json, "options", p->t.way_out->options);
    put_one(json, p->instead);
    json_put_end(json);
}

void plan_print_json(const struct plan *p, FILE *out)
{
    struct json_writer json = {.out = out};
    json_put_object(&json, NULL);
    put_one(&json, p);
    put_instead(&json, p);
    json_put_end(&json);
    fputc('\n', out);
}
