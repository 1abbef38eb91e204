/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators of NCCL: how ranks meet, and which of them there are. Where MPI launched, rank 0's
 * id goes to all by MPI. Else NCCL's own root listens at launch.meet, which all ranks know, or the
 * id goes to all by a file.
 * Gathers use the world, or the ranks of a node; exchanges the world too, or the two of hops: ranks
 * of a group in a node, and ranks of the same place in their groups.
 */
#include "comm/nccl/meet_file.h"
#include "comm/nccl/nccl_comm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct nccl_config config_of(const struct nccl *n)
{
    const bool later = n->library.version >= NCCL_VERSION_ALL_TO_ALL;
    return (struct nccl_config){
        .size = later ? sizeof(struct nccl_config) : offsetof(struct nccl_config, traffic_class),
        .magic = NCCL_CONFIG_MAGIC,
        .version = later ? NCCL_VERSION_ALL_TO_ALL : NCCL_VERSION_LEAST,
        .blocking = 0,
        .cga_cluster_size = NCCL_UNDEFINED,
        .min_ctas = NCCL_UNDEFINED,
        .max_ctas = NCCL_UNDEFINED,
        .split_share = NCCL_UNDEFINED,
        .traffic_class = NCCL_UNDEFINED,
        .collnet_enable = NCCL_UNDEFINED,
        .cta_policy = NCCL_CTA_POLICY_ZERO, /* where it can: products keep the multiprocessors */
        .shrink_share = NCCL_UNDEFINED,
        .nvls_ctas = NCCL_UNDEFINED,
        .channels_per_net_peer = NCCL_UNDEFINED,
        .nvlink_centric_sched = NCCL_UNDEFINED,
    };
}

/* ---- how ranks meet -------------------------------------------------------------------------- */

static int own_id(struct nccl *n, struct nccl_id *id)
{
    const enum nccl_result result = n->library.ncclGetUniqueId(id);
    return result == NCCL_SUCCESS ? 0 : nccl_settle(n, NULL, result, "ncclGetUniqueId");
}

/* Rank 0 tells others why it has none, too: they would wait. */
static int id_by_control(struct nccl *n, struct nccl_id *id)
{
    struct {
        struct nccl_id id;
        int rc;
        char why[sizeof n->failure.text];
    } said = {.rc = 0};
    uint64_t ticket;
    if (n->info.rank == 0 && (said.rc = own_id(n, &said.id)) != 0)
        memcpy(said.why, n->failure.text, sizeof said.why);
    int rc = comm_bcast(n->control, "the id of NCCL", &said, sizeof said, 0, &ticket);
    rc = rc ? rc : comm_wait(n->control, ticket);
    *id = said.id;
    if (!rc && said.rc)
        rc = nccl_fail(n, said.rc, 0, "rank 0: %.380s", said.why);
    return rc;
}

/* NCCL would take the place that the variable names for all ranks' id. */
static int id_by_file(struct nccl *n, struct nccl_id *id)
{
    const struct hst_launch *launch = &n->config.launch;
    const struct meet_file meet = {.folder = launch->folder,
                                   .name = launch->file,
                                   .rank = launch->rank,
                                   .ranks = launch->ranks,
                                   .limit_s = n->config.limit_s};
    unsetenv("NCCL_COMM_ID");
    const int rc = launch->rank == 0 ? own_id(n, id) : 0;
    return rc ? rc : meet_by_file(&meet, id, sizeof *id, &n->failure);
}

/* NCCL takes it from the environment alone, where a variable that the user set stays, unless the
   option names a place. */
static int id_by_meeting(struct nccl *n, struct nccl_id *id)
{
    if (setenv("NCCL_COMM_ID", n->config.launch.meet, n->config.launch.meet_chosen))
        return nccl_fail(n, -ENOMEM, COMM_NOBODY, "no room in the environment for NCCL_COMM_ID");
    return own_id(n, id);
}

/* ---- hops ------------------------------------------------------------------------------------ */

static int find_uniform(struct nccl *n)
{
    const struct hst_launch *launch = &n->config.launch;
    uint32_t *locals = calloc(n->info.ranks, sizeof *locals);
    uint64_t ticket;
    int rc = 0;
    if (!locals)
        return nccl_fail(n, -ENOMEM, COMM_NOBODY, "no memory for the numbers of ranks");
    n->uniform = launch->locals && launch->ranks % launch->locals == 0;
    if (n->control) {
        rc = comm_share(n->control, "ranks of nodes", &n->info.locals, locals, sizeof *locals,
                        &ticket);
        rc = rc ? rc : comm_wait(n->control, ticket);
        n->uniform = true;
        for (uint32_t r = 0; r < n->info.ranks; r++)
            n->uniform = n->uniform && locals[r] == locals[0];
    }
    free(locals);
    return rc;
}

static int split(struct nccl *n, int color, struct nccl_comm **made)
{
    struct nccl_config config = config_of(n);
    const enum nccl_result result =
        n->library.ncclCommSplit(n->world, color, (int)n->info.rank, made, &config);
    return nccl_settle_made(n, n->world, made, result, "ncclCommSplit");
}

static void destroy(struct nccl *n, struct nccl_comm **comm)
{
    if (*comm)
        n->library.ncclCommDestroy(*comm);
    *comm = NULL;
}

static int split_hops(struct nccl *n)
{
    if (n->group == 1)
        return 0;
    int rc = split(n, (int)(n->info.rank / n->group), &n->inner);
    return rc ? rc : split(n, (int)(n->info.rank % n->group), &n->outer);
}

/* All ranks decide alike. A node of 2^k ranks is a group already, and one node is the world. */
static int split_nodes(struct nccl *n)
{
    const bool apart = n->uniform && n->info.nodes > 1 && n->group != n->info.locals;
    return apart ? split(n, (int)n->info.node, &n->node) : 0;
}

int nccl_split(struct nccl *n)
{
    destroy(n, &n->node);
    destroy(n, &n->inner);
    destroy(n, &n->outer);
    int rc = split_hops(n);
    return rc ? rc : split_nodes(n);
}

struct nccl_comm *nccl_node(const struct nccl *n)
{
    if (n->info.nodes == 1)
        return n->world;
    return n->node ? n->node : n->inner;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* All ranks are refused alike, before NCCL has any of them. */
static int check_inputs(struct nccl *n)
{
    char why[COMM_WHY_BYTES];
    n->group = comm_hop_group(&n->info, n->uniform);
    return comm_hops_fit(&n->info, n->uniform, why)
               ? 0
               : nccl_fail(n, -ENOTSUP, COMM_NOBODY, "%s", why);
}

static int find_id(struct nccl *n, struct nccl_id *id)
{
    if (n->control)
        return id_by_control(n, id);
    return n->config.launch.folder ? id_by_file(n, id) : id_by_meeting(n, id);
}

/* Nobody but NCCL looks whether the port is free. */
static void tell_place(struct nccl *n)
{
    if (!n->control && *n->config.launch.meet && !*n->failure.fix)
        snprintf(n->failure.fix, sizeof n->failure.fix,
                 "what it or rank 0 has said; where %.60s cannot be used, --rendezvous "
                 "tcp:HOST:PORT with another place",
                 n->config.launch.meet);
}

int nccl_join(struct nccl *n)
{
    const uint64_t since_ns = nccl_now_ns();
    struct nccl_config config = config_of(n);
    struct nccl_id id = {0};
    int rc = find_uniform(n);
    rc = rc ? rc : check_inputs(n);
    rc = rc ? rc : find_id(n, &id);
    if (rc)
        return rc;
    nccl_wait_rest(n, since_ns); /* a rank that has not come by the file is not waited for anew */
    const enum nccl_result result = n->library.ncclCommInitRankConfig(
        &n->world, (int)n->info.ranks, id, (int)n->info.rank, &config);
    rc = nccl_settle_made(n, NULL, &n->world, result, "ncclCommInitRankConfig");
    n->wait_s = n->config.limit_s;
    if (rc)
        tell_place(n);
    return rc ? rc : nccl_split(n);
}

int nccl_renumber(struct nccl *n)
{
    struct nccl_comm *made = NULL;
    int rc = split(n, 0, &made);
    if (rc)
        return rc;
    destroy(n, &n->node);
    destroy(n, &n->inner);
    destroy(n, &n->outer);
    destroy(n, &n->world);
    n->world = made;
    return nccl_split(n);
}

int nccl_leave(struct nccl *n)
{
    struct nccl_comm **all[NCCL_COMMUNICATORS] = {&n->node, &n->outer, &n->inner, &n->world};
    int rc = 0;
    for (int i = 0; !rc && i < NCCL_COMMUNICATORS; i++) {
        if (!*all[i])
            continue;
        rc = nccl_settle(n, *all[i], n->library.ncclCommFinalize(*all[i]), "ncclCommFinalize");
        if (!rc)
            destroy(n, all[i]);
    }
    return rc;
}

void nccl_abandon(struct nccl *n)
{
    struct nccl_comm **all[NCCL_COMMUNICATORS] = {&n->node, &n->outer, &n->inner, &n->world};
    for (int i = 0; i < NCCL_COMMUNICATORS; i++) {
        if (*all[i])
            n->library.ncclCommAbort(*all[i]);
        *all[i] = NULL;
    }
}
