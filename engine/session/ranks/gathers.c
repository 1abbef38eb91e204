/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what weights and gradients travel as, and what a node keeps of weights: where that is to
 * be had, and what it saves. One rank computes what several would, and is refused what they are.
 */
#include "session/ranks/ranks.h"

#include <errno.h>

static int refuse_stage(struct hst_engine *engine, const char *option, const char *what,
                        const char *plain)
{
    static const char *const stages[] = {"3", "2", "1", "0"};
    return report_fail(
        &engine->report, HST_E_VALUE, -EINVAL,
        "%s is for weights that are gathered for each use, and --zero-stage %s keeps "
        "them whole. Fix: --zero-stage 3, or %s %s",
        what, stages[engine->config.zero_stage], option, plain);
}

/* A file of DeepSpeed may have asked for it: the option's own word takes that back, too. */
static int check_stage(struct hst_engine *engine, const char *option, const char *what,
                       const char *plain)
{
    return engine->config.zero_stage == HST_ZERO_3 ? 0 : refuse_stage(engine, option, what, plain);
}

static int check_integers(struct hst_engine *engine)
{
    return engine->config.gather == HST_GATHER_PLAIN
               ? 0
               : check_stage(engine, "--gather", "--gather int8", "plain");
}

static int check_secondary(struct hst_engine *engine)
{
    if (engine->config.secondary == HST_SECONDARY_NONE)
        return 0;
    int rc = check_stage(engine, "--secondary", "--secondary node", "none");
    if (rc == 0 && engine->ranks.nodes == 1 && ranks_tells(engine))
        report_log(&engine->report, HST_LOG_INFO,
                   "I508 --secondary node keeps nothing: all ranks are on one node, and no gather "
                   "leaves it");
    return rc;
}

/* One way is all of a batch: nobody adds its gradient to another's. */
static int check_reduce(struct hst_engine *engine)
{
    const struct hst_config *c = &engine->config;
    const bool four = c->reduce == HST_REDUCE_INT4;
    const char *what = four ? "--reduce int4" : "--reduce int8";
    if (!four && c->reduce != HST_REDUCE_INT8)
        return 0;
    if ((c->ways ? c->ways : engine->ranks.ranks) > 1)
        return 0;
    return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                       "%s is for gradients that ways hand each other, and this run has one way, "
                       "of one rank. Fix: --ways 2 or more, or --reduce grads",
                       what);
}

int ranks_check_gathers(struct hst_engine *engine)
{
    int rc = check_integers(engine);
    rc = rc ? rc : check_reduce(engine);
    return rc ? rc : check_secondary(engine);
}

/* It tells how many ways have one sum, which leaves their node in an exchange. */
static uint32_t ways_of_group(const struct hst_engine *engine)
{
    const struct comm_info *ranks = &engine->ranks;
    return comm_hop_group(ranks, ranks->locals * ranks->nodes == ranks->ranks) * engine->ways.count;
}

/* A node's sum that is no group of --hop ways crosses in f32, though fewer bytes were asked for. */
static void tell_crossing(struct hst_engine *engine)
{
    const struct hst_sum_tree *tree = &engine->ways.tree;
    const uint32_t ways = ways_of_group(engine);
    const char *narrow = tree->quant                ? "as integers"
                         : tree->reduce == HST_BF16 ? "in bf16"
                                                    : "in fp16";
    if (engine->ranks.nodes > 1 && ranks_tells(engine) && ways_sum_is_wide(tree, ways))
        report_log(&engine->report, HST_LOG_INFO,
                   "I508 sums of gradients cross nodes in f32, not %s: they are of %u ways, and "
                   "--hop is %u. Other numbers and fewer bytes: --hop %u",
                   narrow, ways, tree->hop, ways);
}

/* A row is cut evenly among the ranks of any node. All ranks learn what one of them sees. */
int ranks_check_nodes(struct hst_engine *engine)
{
    const struct comm_info *ranks = &engine->ranks;
    int64_t uneven = ranks->locals * ranks->nodes != ranks->ranks;
    tell_crossing(engine);
    if (engine->config.secondary == HST_SECONDARY_NONE || !engine->comm) /* a plan's are even */
        return 0;
    int rc = ranks_sum(engine, &uneven, 1);
    if (rc || uneven == 0)
        return rc;
    return report_fail(
        &engine->report, HST_E_VALUE, -EINVAL,
        "--secondary node needs as many ranks on each node, and %u ranks are not "
        "spread evenly over %u nodes. Fix: as many on each, or leave out --secondary",
        ranks->ranks, ranks->nodes);
}

uint32_t ranks_secondary(const struct hst_engine *engine)
{
    return engine->config.secondary == HST_SECONDARY_NODE && engine->ranks.nodes > 1
               ? engine->ranks.locals
               : 0;
}

/* The part of a gather's bytes that are not sent. */
static double gather_saved(const struct hst_engine *engine)
{
    const double block = HST_QUANT_BLOCK * (double)optimizer_weight_bytes(engine->optimizer);
    return engine->config.gather == HST_GATHER_INT8 ? 1 - (HST_QUANT_BLOCK + sizeof(float)) / block
                                                    : 0;
}

/* It returns the part of a sum's f32 bytes that its integers save. */
static double saved_of(const struct hst_sum_tree *tree, uint32_t ways)
{
    const double block = (double)comm_sum_block_bytes(tree, (struct hst_sum_node){0, ways});
    return tree->quant ? 1 - block / (HST_QUANT_BLOCK * sizeof(float)) : 0;
}

/* Before a layout is there. Buckets of gradients, of stage 1, are in DRAM. */
bool ranks_exchange_on_device(const struct hst_engine *engine)
{
    return engine->plan_in.joined && engine->config.zero_stage != HST_ZERO_1;
}

void ranks_put_saved(const struct hst_engine *engine, bool shared, struct sim_net *net)
{
    const struct hst_sum_tree *tree = &engine->ways.tree;
    net->gather_saved_between = gather_saved(engine);
    net->gather_saved = shared && !engine->plan_in.joined ? 0 : net->gather_saved_between;
    net->exchange_saved_between = saved_of(tree, ways_of_group(engine));
    net->exchange_saved =
        shared && !ranks_exchange_on_device(engine) ? 0 : saved_of(tree, engine->ways.count);
}
