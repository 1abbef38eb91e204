/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plugin `nccl` that joins no devices, on any rank: as the real one where an exchange had more
 * ranks in a hop than a GPU adds, for which a test would need more than 64 of them.
 */
#include "comm/comm.h"

#include <errno.h>

static int open_comm(const struct comm_config *config, struct comm **comm,
                     struct comm_failure *failure)
{
    (void)config;
    (void)comm;
    *failure = (struct comm_failure){
        .native = -ENOTSUP, .rank = COMM_NOBODY, .text = "this plugin joins no devices"};
    return -ENOTSUP;
}

__attribute__((visibility("default"))) const struct comm_plugin comm_plugin = {
    .size = sizeof comm_plugin,
    .version = HST_VERSION,
    .ops_size = sizeof(struct comm_ops),
    .open = open_comm,
};
