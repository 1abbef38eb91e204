/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what of the papers is shown: cells that they print, each computed anew by their own
 * accounting, and once more with the bytes that a run of hoistway has. A cell that is further off
 * than a fiftieth says why. Only figures are here that were read; a table without is not.
 */
#include "verbs/plan/paper.h"

#include "cli/log/json.h"
#include "verbs/plan/accounting.h"

#include <errno.h>
#include <hoistway/plan.h>
#include <math.h>
#include <string.h>

#define GB      1e9
#define TB      1e12
#define GIB     0x1p30
#define TIB     0x1p40
#define BILLION 1e9

/** As near as this is the same. */
#define NEAR 0.02

/* This is of a checkpoint without gradients: weights in bf16, masters and two moments in fp32. */
static const struct hst_param_bytes checkpointed = {.weight = 2, .state = 12};

enum says { SAYS_IS = 0, SAYS_AT_MOST, SAYS_AT_LEAST };

/* One side of a cell. */
struct counts {
    const struct hst_param_bytes *bytes; /* of a parameter */
    bool here;                           /* those of a run of hoistway, not of the paper */
};

struct cell {
    const char *what;
    const char *from; /* where in the paper it stands */
    double paper;     /* in `unit` */
    enum says says;
    const char *unit;
    double (*value)(const struct cell *cell, const struct counts *counts);
    double params, ranks;         /* of what is held */
    unsigned stage;               /* of ZeRO */
    double batch, seq, rate;      /* of what has to be fed: sequences, tokens, bytes/s */
    double layers, hidden, vocab; /* of a GPT */
    const char *shape;            /* what is planned here in its place */
    const char *why;              /* a value is another one; null: both are the same */
};

/* ---- what is held ---- */

static double held(const struct cell *c, const struct counts *k)
{
    return paper_held_bytes(c->stage, c->params, c->ranks, k->bytes) / GB;
}

static double weights_held(const struct cell *c, const struct counts *k)
{
    return k->bytes->weight * c->params / GB;
}

static double weights_in_files(const struct cell *c, const struct counts *k)
{
    return k->bytes->weight * c->params / GIB;
}

static double checkpoint_in_files(const struct cell *c, const struct counts *k)
{
    return (k->bytes->weight + k->bytes->state) * c->params / TIB;
}

/* Each rank, or each node, has its share of all. */
static double share_held(const struct cell *c, const struct counts *k)
{
    return paper_held_bytes(3, c->params, c->ranks, k->bytes) / TB;
}

/* Checkpoints of activations, 2 bytes an element, of each layer and of all that is computed at
 * once. */
static double checkpoints_held(const struct cell *c, const struct counts *k)
{
    (void)k;
    return 2 * c->batch * c->seq * c->hidden * c->layers / GB;
}

static double checkpoints_in_tb(const struct cell *c, const struct counts *k)
{
    return checkpoints_held(c, k) * GB / TB;
}

/* Attention has four square matrices of a layer, an MLP two of four times as many rows. */
static double gpt_params(const struct cell *c, const struct counts *k)
{
    const struct hst_shape *shape = hst_shape_find(c->shape);
    if (k->here && shape)
        return (double)hst_shape_params(shape) / BILLION;
    return c->hidden * (12 * c->layers * c->hidden + c->vocab) / BILLION;
}

/* ---- what has to be fed: arXiv:2104.07857, section 4 ---- */

#define V100_FLOPS 70e12 /* that a V100 reaches, as the paper has it */

/* FLOP of a byte that moves, and how much of the peak is left while bytes come at this rate. */
static double efficiency(double flop_per_byte, double rate)
{
    return 100 * flop_per_byte * rate / (flop_per_byte * rate + V100_FLOPS);
}

/* Weights come three times, gradients go once; a token takes 8 FLOP of each parameter. */
static double fed_weights(const struct cell *c, const struct counts *k)
{
    return efficiency(8 * c->batch * c->seq / (3 * k->bytes->weight + k->bytes->grad), c->rate);
}

/* An update reads and writes this: the paper's 16 bytes hold masters and gradients in fp32. Here a
   master is a state and a weight, and gradients are beside both. */
static double updated(const struct counts *k)
{
    return k->here ? k->bytes->state + k->bytes->weight + k->bytes->grad : k->bytes->state;
}

/* All of it comes and goes. */
static double fed_states(const struct cell *c, const struct counts *k)
{
    return efficiency(8 * c->batch * c->seq / (2 * updated(k)), c->rate);
}

static double fed_activations(const struct cell *c, const struct counts *k)
{
    (void)k; /* of a hidden size; checkpoints of each block go and come, 2 bytes an element */
    return efficiency(24 * c->hidden, c->rate);
}

/* ---- tables ---- */

#define SPLIT "the weight in bf16 is the upper half of its fp32 master: 2 + 2 + 10 bytes"
#define MOVES "an update moves 14 bytes each way, not 16: gradients are in bf16, not in fp32"
#define ROUND                                                                                      \
    "14 bytes of a parameter are 2.24, and its authors tell two digits; here they are 2 + 10"
#define BOTH "here 14 bytes, not 20: gradients are in bf16 alone, weights are half of their masters"

static const struct cell zero_1[] = {
    {"7.5B, 64 GPUs, no ZeRO", "figure 1", 120, SAYS_IS, "GB", held, 7.5e9, 64, 0, .why = SPLIT},
    {"7.5B, 64 GPUs, states sharded", "figure 1", 31.4, SAYS_IS, "GB", held, 7.5e9, 64, 1,
     .why = SPLIT},
    {"7.5B, 64 GPUs, gradients too", "figure 1", 16.6, SAYS_IS, "GB", held, 7.5e9, 64, 2,
     .why = SPLIT},
    {"7.5B, 64 GPUs, weights too", "figure 1", 1.9, SAYS_IS, "GB", held, 7.5e9, 64, 3,
     .why = SPLIT},
    {"1T, 1,024 GPUs, weights too", "table 1", 15.6, SAYS_IS, "GB", held, 1e12, 1024, 3,
     .why = SPLIT},
};
static const struct cell offload_2[] = {
    {"13B on one GPU, its weights in 32 GB", "abstract", 32, SAYS_AT_MOST, "GB", weights_held, 13e9,
     .ranks = 1},
};
static const struct cell infinity_3[] = {
    {"weights and gradients, batch 1, 70 GB/s", "section 4", 50, SAYS_AT_LEAST, "%", fed_weights,
     .batch = 1, .seq = 1024, .rate = 70e9},
    {"optimizer states, batch 2, 1.5 TB/s", "section 4", 90, SAYS_IS, "%", fed_states, .batch = 2,
     .seq = 1024, .rate = 1.5e12, .why = MOVES},
    {"activations, hidden 2,048, 2 GB/s", "section 4", 50, SAYS_AT_LEAST, "%", fed_activations,
     .hidden = 2048, .rate = 2e9},
};
/* A DGX-2 has 30 TB of NVMe, 8 drives of 3.84 TB, as its data sheet says. */
static const struct cell infinity_1[] = {
    {"1T on one DGX-2, all of it on its drives", "abstract", 30, SAYS_AT_MOST, "TB", share_held,
     1e12, .ranks = 1},
    {"32T on 32 of them, a node's drives", "section 8.2", 30, SAYS_AT_MOST, "TB", share_held, 32e12,
     .ranks = 32},
};
/* Their slides of SC21 have the GPUs, and the paper the nodes of which drives hold the last. */
static const struct cell infinity_2a[] = {
    {"1T, on 800 V100 of 32 GB", "abstract", 25.6, SAYS_AT_MOST, "TB", share_held, 1e12,
     .ranks = 1},
    {"10T, on 8,000 of them", "slides, SC21", 256, SAYS_AT_MOST, "TB", share_held, 10e12,
     .ranks = 1},
    {"100T, on the drives of 96 nodes, a node's", "section 5.1.1", 30, SAYS_AT_MOST, "TB",
     share_held, 100e12, .ranks = 96},
};
/* Its authors tell this of a checkpoint (bigscience.notion.site), with the parameters of the paper.
   They say GB and TB and mean 2^30 and 2^40: no other unit makes the first 2 bytes of each. */
static const struct cell bloom_1[] = {
    {"176B: 70 layers x 14,336, 250,880 tokens", "table 3", 176.247, SAYS_IS, "B", gpt_params,
     .layers = 70, .hidden = 14336, .vocab = 250880, .shape = "176B"},
    {"the files of its weights in bf16", "its page", 329, SAYS_IS, "GiB", weights_in_files,
     176.247e9, .ranks = 1},
    {"a checkpoint with optimizer states", "its page", 2.3, SAYS_IS, "TiB", checkpoint_in_files,
     176.247e9, .ranks = 1, .why = ROUND},
};
static const struct cell t_nlg_1[] = {
    {"17B: 78 layers x 4,256", "announcement", 17, SAYS_IS, "B", gpt_params, .layers = 78,
     .hidden = 4256, .shape = "17B"},
};
static const struct cell mt_nlg_1[] = {
    {"530B: 105 layers x 20,480", "abstract", 530, SAYS_IS, "B", gpt_params, .layers = 105,
     .hidden = 20480, .shape = "530B"},
    {"weights, gradients and states", "section 2.1", 10, SAYS_AT_LEAST, "TB", share_held, 530e9,
     .ranks = 1, .why = BOTH},
    {"activations of 1,920 sequences of 2,048", "section 2.1", 16.9, SAYS_IS, "TB",
     checkpoints_in_tb, .batch = 1920, .seq = 2048, .layers = 105, .hidden = 20480},
    {"activations of one of them", "section 2.1", 8.8, SAYS_IS, "GB", checkpoints_held, .batch = 1,
     .seq = 2048, .layers = 105, .hidden = 20480},
};

#define CELLS(table) table, sizeof(table) / sizeof *(table)
static const struct paper {
    const char *name, *title;
    const struct hst_param_bytes *bytes;
    const struct cell *cells;
    size_t count;
} papers[] = {
    {"zero-1", "ZeRO, arXiv:1910.02054: memory of a GPU", &paper_zero, CELLS(zero_1)},
    {"offload-2", "ZeRO-Offload, arXiv:2101.06840: weights alone stay on the GPU", &paper_zero,
     CELLS(offload_2)},
    {"infinity-1", "ZeRO-Infinity, arXiv:2104.07857: models that its drives hold", &paper_infinity,
     CELLS(infinity_1)},
    {"infinity-2a", "ZeRO-Infinity, arXiv:2104.07857: what models need", &paper_infinity,
     CELLS(infinity_2a)},
    {"infinity-3", "ZeRO-Infinity, arXiv:2104.07857: efficiency at a bandwidth, 70 TFLOPS",
     &paper_infinity, CELLS(infinity_3)},
    {"t-nlg-1", "T-NLG, Rosset 2020, \"Turing-NLG\": how large it is", &paper_zero, CELLS(t_nlg_1)},
    {"bloom-1", "BLOOM, arXiv:2211.05100: a model's files", &checkpointed, CELLS(bloom_1)},
    {"mt-nlg-1", "MT-NLG, arXiv:2201.11990: memory of all GPUs", &paper_infinity, CELLS(mt_nlg_1)},
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
    const struct counts paper_s = {paper->bytes, false}, here = {own, true};
    const char *why = NULL;
    char cell[32];
    fprintf(out, "%s\n%-42s %12s %12s %12s\n", paper->title, "", "paper", "its bytes", "bf16 here");
    for (size_t i = 0; i < paper->count; i++) {
        const struct cell *c = &paper->cells[i];
        const double theirs = c->value(c, &paper_s), ours = c->value(c, &here);
        snprintf(cell, sizeof cell, "%s%.6g %s", says[c->says], c->paper, c->unit);
        fprintf(out, "%-42s %12s %9.4g%s%s %9.4g%s%s  %s\n", c->what, cell, theirs,
                is_off(c, theirs) ? "*" : " ", c->unit, ours, is_off(c, ours) ? "*" : " ", c->unit,
                c->from);
        why = is_off(c, ours) || is_off(c, theirs) ? c->why : why;
    }
    if (why)
        fprintf(out, "* more than 2 %% off: %s\n", why);
}

static void print_json(const struct paper *paper, const struct hst_param_bytes *own, FILE *out)
{
    static const char *const says[] = {"is", "at most", "at least"};
    const struct counts paper_s = {paper->bytes, false}, here = {own, true};
    struct json_writer json = {.out = out};
    json_put_object(&json, NULL);
    json_put_text(&json, "paper", paper->name);
    json_put_text(&json, "title", paper->title);
    json_put_array(&json, "cells");
    for (size_t i = 0; i < paper->count; i++) {
        const struct cell *c = &paper->cells[i];
        const double theirs = c->value(c, &paper_s), ours = c->value(c, &here);
        json_put_object(&json, NULL);
        json_put_text(&json, "what", c->what);
        json_put_text(&json, "from", c->from);
        json_put_text(&json, "unit", c->unit);
        json_put_text(&json, "says", says[c->says]);
        json_put_real(&json, "paper", c->paper);
        json_put_real(&json, "by_its_bytes", theirs);
        json_put_real(&json, "here", ours);
        json_put_text(&json, "why", is_off(c, ours) || is_off(c, theirs) ? c->why : NULL);
        json_put_end(&json);
    }
    json_put_end(&json);
    json_put_end(&json);
    fputc('\n', out);
}

static void print_list(FILE *out)
{
    for (size_t i = 0; i < PAPERS; i++)
        fprintf(out, "%-12s %s\n", papers[i].name, papers[i].title);
}

int plan_paper_print(const char *name, bool json, FILE *out, struct hst_error *error)
{
    struct hst_param_bytes own;
    char names[120] = "";
    if (!hst_precision_bytes("bf16", &own))
        return fail(error, FAIL_VALUE, -EINVAL, "bf16 has no bytes of a parameter.");
    if (strcmp(name, "list") == 0) {
        print_list(out);
        return 0;
    }
    for (size_t i = 0; i < PAPERS; i++) {
        if (strcmp(papers[i].name, name) == 0) {
            (json ? print_json : print_text)(&papers[i], &own, out);
            return 0;
        }
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                 i == 0           ? ""
                 : i + 1 < PAPERS ? ", "
                                  : " or ",
                 papers[i].name);
    }
    return fail(error, FAIL_VALUE, -EINVAL, "--paper '%.60s' names no table that is here. Fix: %s.",
                name, names);
}
