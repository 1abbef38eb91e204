/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_SESSION_RANKS_H
#define HOISTWAY_ENGINE_SESSION_RANKS_H
/*
 * The ranks that train together, as an engine sees them: joined when it is created, compared before
 * anything is decided, and left when it is destroyed. With one rank nothing here does anything.
 * What is agreed on here is agreed on while no step graph runs.
 */
#include "session/engine_state.h"

/** Joins the ranks that the configuration names. Errors (sticky): the transport's, -EINVAL. */
int ranks_open(struct hst_engine *engine);
/** *threads ← the cores that this process may use, shared with the ranks that may use the same.
 * Errors: the transport's (sticky). */
int ranks_threads(struct hst_engine *engine, uint32_t *threads);
/** sharers[d] ← how many ranks of this node, itself among them, have a directory on the file system
 * of drive d. After store_dirs_make. Errors: the transport's (sticky). */
int ranks_share_drives(struct hst_engine *engine, uint32_t sharers[STRIPE_DRIVES_MAX]);
/** It counts the ranks that have this GPU, this one among them; 0: the transport's error (sticky).
 * All ranks have a GPU. */
uint32_t ranks_share_device(struct hst_engine *engine, const struct hst_dev_info *info);
/** MPI does not know of the ranks: ranks_open joins none. Each opens its GPU, and then
 * ranks_open_devices does. */
bool ranks_wait_for_devices(const struct hst_engine *engine);
/** Which GPU that is follows from the launch. Errors: -EINVAL (sticky): they cannot be joined. */
int ranks_await_devices(struct hst_engine *engine);
/** Errors: the transport's (sticky). */
int ranks_open_devices(struct hst_engine *engine);
/** It names by what GPUs of several ranks meet, as hst_memory.comm has it. */
const char *ranks_comm(const struct hst_engine *engine);
/** Joins the memory of GPUs as --comm has it, and so decides plan_in.joined. After ranks_check.
 * Errors: the transport's, -EINVAL (sticky). */
int ranks_join_devices(struct hst_engine *engine);
/** Refuses what several ranks cannot do, and devices of different kinds. Errors: -EINVAL (sticky).
 */
int ranks_check(struct hst_engine *engine);
/** Refuses options that other ranks have otherwise. Errors: -EINVAL (sticky, E503). */
int ranks_compare_options(struct hst_engine *engine);
/** Waits until all ranks have come here. Errors: the transport's (sticky). */
int ranks_meet(struct hst_engine *engine);
/** What plans follow from is the same on all ranks then: the least budgets, rank 0's rates, the
 * largest files. Errors: the transport's, -EINVAL (sticky). */
int ranks_plan_alike(struct hst_engine *engine, struct placement_in *in);
/** All ranks then know the same of the machines, while the engine is sealed: of each
 * rate the least. Errors: the transport's, -ENOMEM (sticky). */
int ranks_rates_alike(struct hst_engine *engine);
/** All ranks have planned the same order of what they do together. Errors: -EINVAL (sticky). */
int ranks_compare_graphs(struct hst_engine *engine);
/** Ranks of a node can read what others hand them in the host's arena, which nothing has touched:
 * in place, or else by messages, which rank 0 warns of. Errors: the transport's (sticky). */
int ranks_expose(struct hst_engine *engine, unsigned char *arena);
/** memory ← rank 0's. Errors: the transport's (sticky). */
int ranks_take_first(struct hst_engine *engine, void *memory, size_t size_bytes);
/** This one speaks for all: the one that the launcher numbered 0, whatever number it has here. */
bool ranks_tells(const struct hst_engine *engine);
/** memory ← that of one rank. Errors: the transport's (sticky). */
int ranks_take(struct hst_engine *engine, const char *name, uint32_t root, void *memory,
               size_t size_bytes);
/** all[ranks · size_bytes] ← each rank's own. Errors: the transport's (sticky). */
int ranks_share_all(struct hst_engine *engine, const char *name, const void *own, void *all,
                    size_t size_bytes);
/** values[i] ← sums over all ranks, modulo 2^64. Errors: the transport's (sticky). */
int ranks_sum(struct hst_engine *engine, int64_t *values, size_t count);
/** The widest type that any rank hands its sum of ways on in. */
enum hst_dtype ranks_widest(const struct hst_engine *engine);
/** Leaves them. False where that cannot be, after an error or in the middle of what they do: then
 * operations may be under way in this rank's memory, and what ends them is the process's end. */
bool ranks_close(struct hst_engine *engine);

/** The engine is one of several, each of which has all of all: ZeRO stage 0. */
static inline bool ranks_are_replicas(const struct hst_engine *engine)
{
    return engine->ranks.ranks > 1 && engine->config.zero_stage == HST_ZERO_0;
}
/** Refuses what is asked of gathers and exchanges where it is not to be had. E402. */
int ranks_check_gathers(struct hst_engine *engine);
/** And where nodes have different numbers of ranks, once all have the same options. E402. Tells
 * what leaves nodes in f32 though integers were asked for. */
int ranks_check_nodes(struct hst_engine *engine);
/** What --gather and --reduce save of the bytes of gathers and exchanges. shared: ranks of a node
 * read each other's DRAM in place. */
void ranks_put_saved(const struct hst_engine *engine, bool shared, struct sim_net *net);
/** It tells whether gradients are exchanged in the memory of devices. */
bool ranks_exchange_on_device(const struct hst_engine *engine);
/** It returns what operations between ranks take by these rates, and which rate says what one takes
 * beside its bytes. Of a rate that is not known 0. */
struct sim_net ranks_net(const struct hst_engine *engine, const struct hst_rates *rates);
enum hst_rate ranks_operations_rate(const struct comm_info *ranks);
/** So many ranks of this node keep gathered weights for the backward; 0: none does. */
uint32_t ranks_secondary(const struct hst_engine *engine);
/** This of the model is the rank's: a shard of several, or all of it. */
static inline struct share ranks_share(const struct hst_engine *engine)
{
    if (engine->ranks.ranks <= 1 || ranks_are_replicas(engine))
        return SHARE_ALL;
    return (struct share){engine->ranks.rank, engine->ranks.ranks};
}

#endif
