/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what is told by the accounting of ZeRO's papers: what a rank holds and hands to others at
 * each stage, and how many FLOP/s it reaches. Each figure stands beside that of a run here.
 */
#include "verbs/plan/accounting.h"

#include "verbs/train/train.h"

#include <hoistway/kernels.h>
#include <hoistway/ways.h>

#define STAGES          4u
#define GB              1e9
#define TERA            1e12
#define FLOP_OF_A_TOKEN 8.0 /* and of a parameter: 2 forward, 4 backward, 2 for activations anew */

const struct hst_param_bytes paper_zero = {.weight = 2, .state = 12, .grad = 2};
const struct hst_param_bytes paper_infinity = {.weight = 2, .state = 16, .grad = 2};

double paper_held_bytes(unsigned stage, double params, double ranks,
                        const struct hst_param_bytes *bytes)
{
    const double state = stage >= 1 ? bytes->state / ranks : bytes->state;
    const double grad = stage >= 2 ? bytes->grad / ranks : bytes->grad;
    const double weight = stage >= 3 ? bytes->weight / ranks : bytes->weight;
    return (state + grad + weight) * params;
}

struct accounts {
    double params, ranks;
    double nodes;
    double locals; /* ranks of a node that keep what they gather, by --secondary; 0: none do */
    struct hst_param_bytes here;
    double gathered; /* bytes of a weight that travels for each use, by --gather */
    double handed;   /* of a gradient, by --reduce */
    double group;    /* so many ranks of a node add up what they hand each other, */
    double summed;   /* and hand on their sum, of so many bytes */
};

/* Bytes of a value that travels as an integer, with its part of a scale. */
static double of_integer(unsigned bits)
{
    return bits / 8.0 + (double)sizeof(float) / HST_QUANT_BLOCK;
}

/* Bytes of a gradient as it is handed over by ranks that have added it up among so many. */
static double handed_bytes(const struct plan *p, double ranks, uint32_t added)
{
    const struct hst_config *config = &p->t.options->engine;
    const uint32_t ways = config->ways ? config->ways : (uint32_t)ranks;
    const enum hst_reduce reduce = config->reduce;
    const enum hst_dtype root = train_dtype(&p->t);
    const struct hst_sum_tree tree = {.ways = ways,
                                      .hop = config->hop ? config->hop : HST_HOP_DEFAULT,
                                      .reduce = reduce == HST_REDUCE_GRADS ? root : HST_F32,
                                      .root = root,
                                      .quant = reduce == HST_REDUCE_INT8   ? HST_INT8
                                               : reduce == HST_REDUCE_INT4 ? HST_INT4
                                                                           : 0};
    const struct hst_sum_node node = {0, added * ways / (uint32_t)ranks};
    return hst_sum_quantised(&tree, node) ? of_integer(tree.quant)
                                          : (double)hst_dtype_bytes(hst_sum_type(&tree, node));
}

static struct accounts accounts_of(const struct plan *p)
{
    struct hst_config config = p->t.options->engine;
    struct accounts a = {.params = (double)p->t.result.memory.parameters,
                         .ranks = train_options_ranks(p->t.options)};
    const uint32_t group = p->locals > 0 ? p->locals & -p->locals : 1;
    a.nodes = p->locals > 0 ? a.ranks / p->locals : 1;
    config.precision = train_precision(&p->t);
    if (!hst_config_bytes(&config, &a.here))
        a.here = (struct hst_param_bytes){0}; /* no such optimizer: the plan has refused it */
    if (config.secondary == HST_SECONDARY_NODE && a.ranks > p->locals)
        a.locals = p->locals;
    a.gathered = config.gather == HST_GATHER_INT8 ? of_integer(HST_INT8) : a.here.weight;
    a.handed = handed_bytes(p, a.ranks, 1);
    a.group = group;
    a.summed = handed_bytes(p, a.ranks, group);
    return a;
}

/* Gradients once, and weights once or, where none are kept, for each sweep: ZeRO, section 7. */
static double sent_bytes(unsigned stage, double params, const struct hst_param_bytes *bytes)
{
    return params * (bytes->grad + bytes->weight * (stage == 3 ? 2 : 1));
}

static double held_here(unsigned stage, const struct accounts *a)
{
    const double kept = stage == 3 && a->locals > 0 ? a->here.weight * a->params / a->locals : 0;
    return paper_held_bytes(stage, a->params, a->ranks, &a->here) + kept;
}

/* A rank adds up its group's part of a shard for each group, and then what all groups have of its
   own shard. */
static double exchanged(const struct accounts *a)
{
    const double groups = a->ranks / a->group;
    return a->params / a->ranks * (groups * (a->group - 1) * a->handed + (groups - 1) * a->summed);
}

/* The papers leave the factor of (ranks - 1) / ranks out. One rank sends nothing. */
static double paper_sent(unsigned stage, const struct accounts *a)
{
    return a->ranks > 1 ? sent_bytes(stage, a->params, &paper_zero) : 0;
}

/* A rank has its own share already. What a node keeps is gathered in it for the backward, as it
   is, and nothing then leaves the node: ZeRO++, section 3.2. */
static double sent_here(unsigned stage, const struct accounts *a)
{
    struct hst_param_bytes bytes = a->here;
    const double others = (a->ranks - 1) / a->ranks;
    bytes.weight = stage == 3 ? a->gathered : bytes.weight;
    bytes.grad = 0;
    if (stage == 3 && a->locals > 0)
        return a->params * (bytes.weight * others + a->here.weight * (a->locals - 1) / a->locals) +
               exchanged(a);
    return sent_bytes(stage, a->params, &bytes) * others + exchanged(a);
}

/* Of that, what comes from other nodes, where each node adds up its gradients first and its ranks
   read one another in place: each shard then crosses once for each gather, and once as a sum. */
static double between_here(unsigned stage, const struct accounts *a)
{
    const double gathers = stage == 3 && a->locals == 0 ? 2 : 1;
    const double weight = stage == 3 ? a->gathered : a->here.weight;
    const double sums = a->ranks / a->nodes / a->group; /* of a node, for each shard of another */
    return a->params * (sums * a->summed + weight * gathers) * (a->nodes - 1) / a->ranks;
}

static double flops_per_s(const struct plan *p, const struct accounts *a)
{
    const double step_s = p->fits ? p->t.result.prediction.step_s : 0;
    return step_s > 0
               ? FLOP_OF_A_TOKEN * a->params * (double)p->t.run.batch_tokens / (step_s * a->ranks)
               : 0;
}

void plan_print_accounting(const struct plan *p, FILE *out)
{
    const struct accounts a = accounts_of(p);
    if (p->accounting != PLAN_ACCOUNTING_PAPER)
        return;
    fprintf(out, "by the papers' accounting, of %g rank%s: GB that one holds, GB that it sends\n",
            a.ranks, a.ranks == 1 ? "" : "s");
    fprintf(out, "%-8s%12s%12s%12s%12s%12s\n", "stage", "2 + 2 + 12", "20 bytes", p->precision,
            "2 + 2 sent", p->precision);
    for (unsigned stage = 0; stage < STAGES; stage++)
        fprintf(out, "%-8u%12.4g%12.4g%12.4g%12.4g%12.4g\n", stage,
                paper_held_bytes(stage, a.params, a.ranks, &paper_zero) / GB,
                paper_held_bytes(stage, a.params, a.ranks, &paper_infinity) / GB,
                held_here(stage, &a) / GB, paper_sent(stage, &a) / GB, sent_here(stage, &a) / GB);
    if (flops_per_s(p, &a) > 0)
        fprintf(out, "at %g FLOP of a parameter and token a rank reaches %.3g TFLOPS\n",
                FLOP_OF_A_TOKEN, flops_per_s(p, &a) / TERA);
}

void plan_put_accounting(struct json_writer *json, const struct plan *p)
{
    const struct accounts a = accounts_of(p);
    if (p->accounting != PLAN_ACCOUNTING_PAPER) {
        json_put_null(json, "accounting");
        return;
    }
    json_put_object(json, "accounting");
    json_put_array(json, "stages");
    for (unsigned stage = 0; stage < STAGES; stage++) {
        json_put_object(json, NULL);
        json_put_whole(json, "stage", stage);
        json_put_real(json, "zero_bytes", paper_held_bytes(stage, a.params, a.ranks, &paper_zero));
        json_put_real(json, "infinity_bytes",
                      paper_held_bytes(stage, a.params, a.ranks, &paper_infinity));
        json_put_real(json, "here_bytes", held_here(stage, &a));
        json_put_real(json, "zero_sent_bytes", paper_sent(stage, &a));
        json_put_real(json, "here_sent_bytes", sent_here(stage, &a));
        json_put_real(json, "here_between_bytes", between_here(stage, &a));
        json_put_end(json);
    }
    json_put_end(json);
    json_put_known(json, "flops_per_s", flops_per_s(p, &a));
    json_put_end(json);
}
