/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin `mpi` of another version, under whose name a test copies it: it is never opened. */
#include "comm/comm.h"

#include <stdlib.h>

static int open_comm(const struct comm_config *config, struct comm **comm,
                     struct comm_failure *failure)
{
    (void)config;
    (void)comm;
    (void)failure;
    abort();
}

__attribute__((visibility("default"))) const struct comm_plugin comm_plugin = {
    .size = sizeof comm_plugin,
    .version = "0.0.7",
    .ops_size = sizeof(struct comm_ops),
    .open = open_comm,
};
