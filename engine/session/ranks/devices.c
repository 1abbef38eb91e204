/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how GPUs of several ranks hand each other what they gather and exchange: in their own
 * memory, by NCCL, or in DRAM. All ranks decide alike: by options that are the same, and by what
 * they agree on.
 */
#include "comm/report.h"
#include "machine/machine.h"
#include "session/ranks/ranks.h"

#include <errno.h>
#include <string.h>

static bool computes_on_host(const struct hst_engine *engine)
{
    return (hst_dev_flags(engine->dev) & HST_DEV_HOST_MEMORY) != 0;
}

static int refuse_host(struct hst_engine *engine)
{
    return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                       "--comm nccl joins the memory of GPUs, which device \"%s\" has not. Fix: "
                       "--device cuda, or leave --comm out",
                       engine->config.device);
}

/* It leaves ranks as they are, who meet in DRAM. */
static int stay(struct hst_engine *engine, const char *why)
{
    if (ranks_tells(engine))
        report_log(&engine->report, HST_LOG_INFO,
                   "I505 what GPUs of ranks gather and exchange meets in DRAM, by MPI: %s", why);
    return 0;
}

/* *sharing: ranks that have a GPU with another one. */
static int count_sharing(struct hst_engine *engine, int64_t *sharing)
{
    struct hst_dev_info info;
    hst_dev_info(engine->dev, &info);
    const uint32_t sharers = ranks_share_device(engine, &info);
    *sharing = sharers > 1;
    return sharers == 0 ? engine->report.error.native : ranks_sum(engine, sharing, 1);
}

/* Its name is in what a client is told of its part (hst_engine_part). */
static void take_transport(struct hst_engine *engine)
{
    struct comm_info info;
    comm_info(engine->comm, &info);
    engine->ranks.transport = info.transport;
    engine->plan_in.joined = true;
    if (*info.note && ranks_tells(engine))
        report_log(&engine->report, HST_LOG_INFO, "I505 %s", info.note);
}

static int join(struct hst_engine *engine)
{
    struct comm_failure failure;
    const struct comm_config config = {.size = sizeof config,
                                       .launch = *engine->config.launch,
                                       .limit_s = engine->config.peer_timeout_s,
                                       .dev = engine->dev};
    int rc = comm_join(&config, &engine->comm, &failure);
    const bool alike = rc == -ENODEV || rc == -ENOTSUP; /* on all ranks */
    if (alike && engine->config.comm == HST_COMM_AUTO)
        return stay(engine, failure.text);
    if (rc)
        return comm_report_open(&failure, true, &engine->report);
    take_transport(engine);
    return 0;
}

/* Each of a node's ranks has an equal part of the cores. */
static uint32_t threads_of(uint32_t locals)
{
    const uint32_t cores = machine_cores();
    return cores > locals ? cores / locals : 1;
}

static int check_alone(struct hst_engine *engine)
{
    const struct hst_config *c = &engine->config;
    if (strcmp(c->device, "host") != 0 && c->comm != HST_COMM_MPI && c->zero_stage == HST_ZERO_3)
        return 0;
    return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                       "%s has started %u ranks, which MPI does not know of: NCCL joins GPUs, and "
                       "what is in DRAM of ZeRO stages 0 to 2 needs MPI. Fix: mpirun or srun, or "
                       "--device cuda, --zero-stage 3 and no --comm mpi",
                       c->launch->launcher, c->launch->ranks);
}

bool ranks_wait_for_devices(const struct hst_engine *engine)
{
    const struct hst_launch *launch = engine->config.launch;
    return launch && launch->ranks > 1 && !engine->config.plan && !launch->mpi && launch->meets;
}

int ranks_await_devices(struct hst_engine *engine)
{
    const struct hst_launch *launch = engine->config.launch;
    engine->ranks.local = launch->local;
    if (engine->config.threads == 0)
        engine->config.threads = threads_of(launch->locals ? launch->locals : 1);
    return check_alone(engine);
}

/* It is memory of the device and of the host, for what ranks agree on before a plan has a budget.
   */
#define AGREEMENTS_BYTES ((uint64_t)64 << 20)

int ranks_open_devices(struct hst_engine *engine)
{
    struct comm_failure failure;
    const struct comm_config config = {.size = sizeof config,
                                       .launch = *engine->config.launch,
                                       .limit_s = engine->config.peer_timeout_s,
                                       .dev = engine->dev};
    (void)hst_dev_budget(engine->dev, AGREEMENTS_BYTES, AGREEMENTS_BYTES);
    int rc = comm_open(&config, &engine->comm, &failure);
    if (rc)
        return comm_report_open(&failure, true, &engine->report);
    comm_info(engine->comm, &engine->ranks);
    take_transport(engine);
    return 0;
}

/* What a run would have: a plan's ranks have NCCL, a GPU each unless one is named by its number,
   and nodes of as many ranks. */
static int plan_joined(struct hst_engine *engine)
{
    char why[COMM_WHY_BYTES];
    const struct comm_info *ranks = &engine->ranks;
    const bool nccl = engine->config.comm == HST_COMM_NCCL;
    if (ranks->ranks == 1 || engine->config.comm == HST_COMM_MPI ||
        (!nccl && strcmp(hst_dev_name(engine->dev), "cuda") != 0))
        return 0;
    if (!nccl && ranks->locals > 1 && strchr(engine->config.device, ':'))
        return stay(engine, "ranks share GPUs, of which NCCL joins one rank's each");
    engine->plan_in.joined = comm_hops_fit(ranks, true, why);
    if (engine->plan_in.joined)
        return 0;
    return nccl ? report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                              "--comm nccl: %s. Fix: --comm mpi", why)
                : stay(engine, why);
}

const char *ranks_comm(const struct hst_engine *engine)
{
    if (engine->ranks.ranks == 1 || !engine->dev || computes_on_host(engine))
        return NULL;
    return engine->plan_in.joined ? "nccl" : "mpi";
}

int ranks_join_devices(struct hst_engine *engine)
{
    static const char *const names[] = {"auto", "nccl", "mpi"};
    const enum hst_comm comm = engine->config.comm;
    const bool nccl = comm == HST_COMM_NCCL;
    int64_t sharing;
    if (computes_on_host(engine))
        return nccl ? refuse_host(engine) : 0;
    if (engine->config.plan)
        return plan_joined(engine);
    if (!engine->comm || engine->plan_in.joined)
        return 0;
    int rc = hst_engine_same(engine, "--comm", names[comm]);
    if (rc || comm == HST_COMM_MPI)
        return rc;
    if (strcmp(hst_dev_name(engine->dev), "cuda") != 0)
        return nccl ? refuse_host(engine) : 0;
    rc = count_sharing(engine, &sharing);
    if (rc)
        return rc;
    if (sharing > 0 && nccl)
        return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                           "%lld of %u ranks share a GPU with another one, and NCCL joins GPUs of "
                           "one rank each. Fix: --comm mpi, or a GPU for each rank",
                           (long long)sharing, engine->ranks.ranks);
    return sharing > 0 ? stay(engine, "ranks share GPUs, of which NCCL joins one rank's each")
                       : join(engine);
}
