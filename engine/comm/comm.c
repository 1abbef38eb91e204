/* SPDX-License-Identifier: Apache-2.0 */
/* This decides which transports carry a world. */
#include "comm/comm.h"

#include <errno.h>
#include <hoistway/plugin_load.h>
#include <hoistway/ranks.h>
#include <stdio.h>

static int load_plugin(const char *kind, const void **found, struct hst_dev_failure *story)
{
    const struct hst_plugin_want want = {"comm_plugin", sizeof(struct comm_plugin),
                                         sizeof(struct comm_ops)};
    return hst_plugin_load(kind, &want, found, story);
}

int hst_ranks_transport(char *why)
{
    const void *found = NULL;
    struct hst_dev_failure story;
    if (!why)
        return -EINVAL;
    const int rc = load_plugin("mpi", &found, &story);
    if (rc)
        snprintf(why, 400, "%.390s", story.text);
    return rc;
}

static int find_plugin(const char *kind, const struct comm_plugin **plugin,
                       struct comm_failure *failure)
{
    const void *found = NULL;
    struct hst_dev_failure story;
    int rc = load_plugin(kind, &found, &story);
    *plugin = found;
    return rc ? comm_fail(failure, rc, COMM_NOBODY, "%s", story.text) : 0;
}

static int open_with(const struct comm_plugin *plugin, const struct comm_config *config,
                     struct comm **comm, struct comm_failure *failure)
{
    struct comm_config filled = *config;
    filled.sum = hst_host_sum_ways;
    filled.quantise = hst_host_quantise;
    filled.dequantise = hst_host_dequantise;
    filled.device_quantise = hst_op_quantise;
    filled.device_dequantise = hst_op_dequantise;
    filled.device_sum = hst_op_sum_ways;
    filled.library = hst_plugin_library;
    filled.piece_bytes = config->piece_bytes ? config->piece_bytes : COMM_PIECE_BYTES;
    filled.sum_inputs = config->sum_inputs ? config->sum_inputs : HST_SUM_INPUTS;
    filled.limit_s = config->limit_s > 0 ? config->limit_s : COMM_LIMIT_S;
    return plugin->open(&filled, comm, failure);
}

static int open_plugin(const char *kind, const struct comm_config *config, struct comm **comm,
                       struct comm_failure *failure)
{
    const struct comm_plugin *plugin;
    int rc = find_plugin(kind, &plugin, failure);
    return rc ? rc : open_with(plugin, config, comm, failure);
}

int comm_join(const struct comm_config *config, struct comm **comm, struct comm_failure *failure)
{
    const struct comm_plugin *plugin;
    struct comm_failure story = {0};
    struct comm_failure *told = failure ? failure : &story;
    if (!config || !comm || !*comm || config->size != sizeof *config || !config->dev)
        return comm_fail(told, -EINVAL, COMM_NOBODY, "no comm, or no device to join");
    int rc = find_plugin("nccl", &plugin, told);
    rc = comm_spread_failure(*comm, "the plugin nccl", rc, told); /* others would wait for it */
    if (rc)
        return rc;
    struct comm_config with = *config;
    with.control = *comm;
    return open_with(plugin, &with, comm, told);
}

/* Host memory comes first: ranks agree by it on all that follows. After a failure that all ranks
   know of it is closed; else others may be waiting, and the process's end is what tells them. */
static int open_device(const struct comm_config *config, struct comm **comm,
                       struct comm_failure *failure)
{
    struct comm_config with = *config;
    struct comm *control = NULL;
    with.control = NULL;
    if (!config->launch.mpi)
        return open_plugin("nccl", &with, comm, failure);
    int rc = open_plugin("mpi", config, &control, failure);
    rc = rc ? rc : comm_join(config, &control, failure);
    if (rc == 0)
        *comm = control;
    else if ((rc == -ENODEV || rc == -ENOTSUP) && control)
        (void)comm_close(&control);
    return rc;
}

int comm_open(const struct comm_config *config, struct comm **comm, struct comm_failure *failure)
{
    struct comm_failure story = {0};
    struct comm_failure *told = failure ? failure : &story;
    if (!config || !comm || config->size != sizeof *config || !config->launch.ranks ||
        config->launch.rank >= config->launch.ranks || config->limit_s < 0)
        return comm_fail(told, -EINVAL, COMM_NOBODY,
                         "no place for the comm, or a configuration that is none");
    if (config->piece_bytes > COMM_PIECE_MOST)
        return comm_fail(told, -EINVAL, COMM_NOBODY,
                         "pieces of %zu bytes are asked for, of which %zu are the most",
                         config->piece_bytes, COMM_PIECE_MOST);
    if (config->sum_inputs > HST_SUM_INPUTS || (config->sum_inputs & (config->sum_inputs - 1)))
        return comm_fail(told, -EINVAL, COMM_NOBODY,
                         "sums of %u inputs at once are asked for: a power of two, %d at most",
                         config->sum_inputs, HST_SUM_INPUTS);
    if (config->launch.ranks == 1) {
        int rc = comm_self_open(comm);
        return rc ? comm_fail(told, rc, COMM_NOBODY, "no memory for the comm of one rank") : 0;
    }
    if (!config->launch.mpi && !(config->dev && config->launch.meets))
        return comm_fail(told, -ENODEV, COMM_NOBODY,
                         "%s started %u ranks, which no transport joins: MPI does not know of them",
                         config->launch.launcher, config->launch.ranks);
    return config->dev ? open_device(config, comm, told) : open_plugin("mpi", config, comm, told);
}
