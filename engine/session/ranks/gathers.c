/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what weights travel as, and what a node keeps of them: where that is to be had, and what
 * it saves. One rank computes what several would, and is refused what they are.
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
static int check_where(struct hst_engine *engine, const char *option, const char *what,
                       const char *plain)
{
    if (engine->config.zero_stage != HST_ZERO_3)
        return refuse_stage(engine, option, what, plain);
    if (hst_dev_flags(engine->dev) & HST_DEV_HOST_MEMORY)
        return 0;
    return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                       "%s is for computation on the host, and this run computes on %s. Fix: "
                       "%s %s, or --device host",
                       what, engine->config.device, option, plain);
}

static int check_integers(struct hst_engine *engine)
{
    return engine->config.gather == HST_GATHER_PLAIN
               ? 0
               : check_where(engine, "--gather", "--gather int8", "plain");
}

static int check_secondary(struct hst_engine *engine)
{
    if (engine->config.secondary == HST_SECONDARY_NONE)
        return 0;
    int rc = check_where(engine, "--secondary", "--secondary node", "none");
    if (rc == 0 && engine->ranks.nodes == 1 && ranks_tells(engine))
        report_log(&engine->report, HST_LOG_INFO,
                   "I501 --secondary node keeps nothing: all ranks are on one node, and no gather "
                   "leaves it");
    return rc;
}

int ranks_check_gathers(struct hst_engine *engine)
{
    int rc = check_integers(engine);
    return rc ? rc : check_secondary(engine);
}

/* A row is cut evenly among the ranks of any node. All ranks learn what one of them sees. */
int ranks_check_nodes(struct hst_engine *engine)
{
    const struct comm_info *ranks = &engine->ranks;
    int64_t uneven = ranks->locals * ranks->nodes != ranks->ranks;
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

double ranks_gather_saved(const struct hst_engine *engine)
{
    const double block = HST_QUANT_BLOCK * (double)optimizer_weight_bytes(engine->optimizer);
    return engine->config.gather == HST_GATHER_INT8 ? 1 - (HST_QUANT_BLOCK + sizeof(float)) / block
                                                    : 0;
}
