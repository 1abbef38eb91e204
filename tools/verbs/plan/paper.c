/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what of the papers is shown: cells that they print, each computed anew by their own
 * accounting, and once more with the bytes that a run of hoistway has. A cell that is further off
 * than a fiftieth says why. Only figures are here that were read; a table without is not.
 */
#include "verbs/plan/paper.h"

#include "cli/log/json.h"

#include <errno.h>
#include <hoistway/plan.h>
#include <math.h>
#include <string.h>

#define GB  1e9
#define TB  1e12
#define GIB 0x1p30

/** As near as this is the same. */
#define NEAR 0.02

/* Bytes of a parameter: Adam in mixed precision as papers count it, 2 + 2 + 12. What ZeRO-Infinity
   counts has gradients in fp32 beside them, which its drives hold with the states. */
static const struct hst_param_bytes counted = {.weight = 2, .state = 12, .grad = 2};
static const struct hst_param_bytes counted_infinity = {.weight = 2, .state = 16, .grad = 2};

enum says { SAYS_IS = 0, SAYS_AT_MOST, SAYS_AT_LEAST };

struct cell {
    const char *what;
    double paper; /* in `unit` */
    enum says says;
    const char *unit;
    double (*value)(const struct cell *cell, const struct hst_param_bytes *bytes);
    double params, ranks;    /* of what is held */
    unsigned stage;          /* of ZeRO */
    double batch, seq, rate; /* of what has to be fed: sequences, tokens, bytes/s */
    const char *why;         /* ours is another value; null: it is the same */
};

/* ---- what is held ---- */

/* Each stage shards one more class: states, gradients, weights. */
static double held(const struct cell *c, const struct hst_param_bytes *b)
{
    const double state = c->stage >= 1 ? b->state / c->ranks : b->state;
    const double grad = c->stage >= 2 ? b->grad / c->ranks : b->grad;
    const double weight = c->stage >= 3 ? b->weight / c->ranks : b->weight;
    return (state + grad + weight) * c->params / GB;
}

static double weights_held(const struct cell *c, const struct hst_param_bytes *b)
{
    return b->weight * c->params / GB;
}

static double weights_in_files(const struct cell *c, const struct hst_param_bytes *b)
{
    return b->weight * c->params / GIB;
}

static double drives_held(const struct cell *c, const struct hst_param_bytes *b)
{
    return (b->weight + b->state + b->grad) * c->params / c->ranks / TB;
}

/* ---- what has to be fed: arXiv:2104.07857, section 4 ---- */

#define V100_FLOPS 70e12 /* that a V100 reaches, as the paper has it */

/* FLOP of a byte that moves, and how much of the peak is left while bytes come at this rate. */
static double efficiency(double flop_per_byte, double rate)
{
    return 100 * flop_per_byte * rate / (flop_per_byte * rate + V100_FLOPS);
}

/* Weights come three times, gradients go once; a token takes 8 FLOP of each parameter. */
static double fed_weights(const struct cell *c, const struct hst_param_bytes *b)
{
    return efficiency(8 * c->batch * c->seq / (3 * b->weight + b->grad), c->rate);
}

/* An update reads and writes this: the paper's 16 bytes hold masters and gradients in fp32. Here a
   master is a state and a weight, and gradients are beside both. */
static double updated(const struct hst_param_bytes *b)
{
    return b == &counted_infinity ? b->state : b->state + b->weight + b->grad;
}

/* All of it comes and goes. */
static double fed_states(const struct cell *c, const struct hst_param_bytes *b)
{
    return efficiency(8 * c->batch * c->seq / (2 * updated(b)), c->rate);
}

static double fed_activations(const struct cell *c, const struct hst_param_bytes *b)
{
    (void)b; /* of a hidden size; checkpoints of each block go and come, 2 bytes an element */
    return efficiency(24 * c->params, c->rate);
}

/* ---- tables ---- */

#define SPLIT "the weight in bf16 is the upper half of its fp32 master: 2 + 2 + 10 bytes"
#define MOVES "an update moves 14 bytes each way, not 16: gradients are in bf16, not in fp32"

static const struct cell zero_1[] = {
    {"7.5B, 64 GPUs, no ZeRO", 120, SAYS_IS, "GB", held, 7.5e9, 64, 0, .why = SPLIT},
    {"7.5B, 64 GPUs, states sharded", 31.4, SAYS_IS, "GB", held, 7.5e9, 64, 1, .why = SPLIT},
    {"7.5B, 64 GPUs, gradients too", 16.6, SAYS_IS, "GB", held, 7.5e9, 64, 2, .why = SPLIT},
    {"7.5B, 64 GPUs, weights too", 1.9, SAYS_IS, "GB", held, 7.5e9, 64, 3, .why = SPLIT},
    {"1T, 1,024 GPUs, weights too", 15.6, SAYS_IS, "GB", held, 1e12, 1024, 3, .why = SPLIT},
};
static const struct cell offload_2[] = {
    {"13B on one GPU, its weights in 32 GB", 32, SAYS_AT_MOST, "GB", weights_held, 13e9,
     .ranks = 1},
};
static const struct cell infinity_3[] = {
    {"weights and gradients, batch 1, 70 GB/s", 50, SAYS_AT_LEAST, "%", fed_weights, .batch = 1,
     .seq = 1024, .rate = 70e9},
    {"optimizer states, batch 2, 1.5 TB/s", 90, SAYS_IS, "%", fed_states, .batch = 2, .seq = 1024,
     .rate = 1.5e12, .why = MOVES},
    {"activations, hidden 2,048, 2 GB/s", 50, SAYS_AT_LEAST, "%", fed_activations, 2048,
     .rate = 2e9},
};
/* A DGX-2 has 30 TB of NVMe, 8 drives of 3.84 TB, as its data sheet says. */
static const struct cell infinity_1[] = {
    {"1T on one DGX-2, all of it on its drives", 30, SAYS_AT_MOST, "TB", drives_held, 1e12,
     .ranks = 1},
    {"32T on 32 of them, a node's drives", 30, SAYS_AT_MOST, "TB", drives_held, 32e12, .ranks = 32},
};
/* Its authors tell this of a checkpoint (bigscience.notion.site), with the parameters of the paper.
   They say GB and mean 2^30: no other unit makes it 2 bytes of each. */
static const struct cell bloom_1[] = {
    {"176B, the files of its weights in bf16", 329, SAYS_IS, "GiB", weights_in_files, 176.247e9,
     .ranks = 1},
};

static const struct paper {
    const char *name, *title;
    const struct hst_param_bytes *bytes;
    const struct cell *cells;
    size_t count;
} papers[] = {
    {"zero-1", "ZeRO, arXiv:1910.02054: memory of a GPU", &counted, zero_1,
     sizeof zero_1 / sizeof *zero_1},
    {"offload-2", "ZeRO-Offload, arXiv:2101.06840: weights alone stay on the GPU", &counted,
     offload_2, sizeof offload_2 / sizeof *offload_2},
    {"infinity-1", "ZeRO-Infinity, arXiv:2104.07857: models that its drives hold",
     &counted_infinity, infinity_1, sizeof infinity_1 / sizeof *infinity_1},
    {"bloom-1", "BLOOM, arXiv:2211.05100: a model's files", &counted, bloom_1,
     sizeof bloom_1 / sizeof *bloom_1},
    {"infinity-3", "ZeRO-Infinity, arXiv:2104.07857: efficiency at a bandwidth, 70 TFLOPS",
     &counted_infinity, infinity_3, sizeof infinity_3 / sizeof *infinity_3},
};
#define PAPERS (sizeof papers / sizeof *papers)

static bool is_off(const struct cell *cell, double value)
{
    if (cell->says == SAYS_AT_MOST)
        return value > cell->paper;
    if (cell->says == SAYS_AT_LEAST)
        return value < cell->paper;
    return fabs(value - cell->paper) > NEAR * cell->paper;
}

/* ---- how it is told ---- */

static void print_text(const struct paper *paper, const struct hst_param_bytes *own, FILE *out)
{
    static const char *const says[] = {"", "<= ", ">= "};
    const char *why = NULL;
    char cell[32];
    fprintf(out, "%s\n%-42s %12s %12s %12s\n", paper->title, "", "paper", "its bytes", "bf16 here");
    for (size_t i = 0; i < paper->count; i++) {
        const struct cell *c = &paper->cells[i];
        const double theirs = c->value(c, paper->bytes), ours = c->value(c, own);
        snprintf(cell, sizeof cell, "%s%g %s", says[c->says], c->paper, c->unit);
        fprintf(out, "%-42s %12s %9.4g%s%s %9.4g%s%s\n", c->what, cell, theirs,
                is_off(c, theirs) ? "*" : " ", c->unit, ours, is_off(c, ours) ? "*" : " ", c->unit);
        why = c->why && is_off(c, ours) ? c->why : why;
    }
    if (why)
        fprintf(out, "* more than 2 %% off: %s\n", why);
}

static void print_json(const struct paper *paper, const struct hst_param_bytes *own, FILE *out)
{
    static const char *const says[] = {"is", "at most", "at least"};
    struct json_writer json = {.out = out};
    json_put_object(&json, NULL);
    json_put_text(&json, "paper", paper->name);
    json_put_text(&json, "title", paper->title);
    json_put_array(&json, "cells");
    for (size_t i = 0; i < paper->count; i++) {
        const struct cell *c = &paper->cells[i];
        const double ours = c->value(c, own);
        json_put_object(&json, NULL);
        json_put_text(&json, "what", c->what);
        json_put_text(&json, "unit", c->unit);
        json_put_text(&json, "says", says[c->says]);
        json_put_real(&json, "paper", c->paper);
        json_put_real(&json, "by_its_bytes", c->value(c, paper->bytes));
        json_put_real(&json, "here", ours);
        json_put_text(&json, "why", is_off(c, ours) ? c->why : NULL);
        json_put_end(&json);
    }
    json_put_end(&json);
    json_put_end(&json);
    fputc('\n', out);
}

int plan_paper_print(const char *name, bool json, FILE *out, struct hst_error *error)
{
    struct hst_param_bytes own;
    if (!hst_precision_bytes("bf16", &own))
        return fail(error, FAIL_VALUE, -EINVAL, "bf16 has no bytes of a parameter.");
    for (size_t i = 0; i < PAPERS; i++)
        if (strcmp(papers[i].name, name) == 0) {
            (json ? print_json : print_text)(&papers[i], &own, out);
            return 0;
        }
    return fail(error, FAIL_VALUE, -EINVAL,
                "--paper '%.60s' names no table that is here. Fix: zero-1, offload-2, infinity-1, "
                "infinity-3 or bloom-1.",
                name);
}
