/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store that is read by ranks, each of which finds some of its files: what <hoistway/ckpt.h> has
 * of them. They are joined, and find files, as those that train are; nothing is planned or sealed.
 */
#include "session/store/ckpt_ranks.h"

#include "base/report.h"
#include "comm/report.h"
#include "session/store/copies.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_MS = 50 };

int ckpt_ranks_no_memory(struct hst_error *error)
{
    return store_refuse(error, HST_E_BUDGET, -ENOMEM,
                        "no memory for what ranks tell each other. Fix: end other programs");
}

/* ---- operations that can be given up ---- */

static int wait_for(struct hst_ckpt_ranks *r, uint64_t ticket)
{
    struct comm *comm = r->engine.comm;
    int rc;
    while ((rc = comm_test(comm, ticket)) == -EAGAIN) {
        struct pollfd at = {.fd = comm_fd(comm), .events = POLLIN};
        if (r->stopped && r->stopped(r->stopped_context))
            return -ECANCELED;
        (void)poll(&at, 1, LOOK_MS);
    }
    return rc;
}

static int run(struct hst_ckpt_ranks *r, struct comm_op op)
{
    uint64_t ticket;
    op.patient = true;
    r->agreed = false;
    int rc = comm_begin(r->engine.comm, &op, &ticket);
    rc = rc ? rc : wait_for(r, ticket);
    return rc == 0 || rc == -ECANCELED ? rc : comm_report(r->engine.comm, &r->engine.report, 0, rc);
}

/* Null: no memory. */
static unsigned char *room_for(struct hst_ckpt_ranks *r, size_t bytes)
{
    if (bytes <= r->room_bytes)
        return r->room;
    unsigned char *room = realloc(r->room, bytes);
    r->room = room ? room : r->room;
    r->room_bytes = room ? bytes : r->room_bytes;
    return room;
}

static int take(void *context, uint32_t process, void *memory, size_t bytes)
{
    struct hst_ckpt_ranks *r = context;
    unsigned char *room = room_for(r, bytes);
    if (!room)
        return -ENOMEM;
    const bool own = process == r->engine.ranks.rank;
    if (own)
        memcpy(room, memory, bytes);
    const int rc = run(r, (struct comm_op){.kind = COMM_BCAST,
                                           .name = "what a rank has of the store",
                                           .in = room,
                                           .out = room,
                                           .count = bytes,
                                           .root = process});
    if (rc == 0 && !own)
        memcpy(memory, room, bytes);
    return rc;
}

static int share(void *context, const void *own, void *all, size_t bytes)
{
    struct hst_ckpt_ranks *r = context;
    const size_t of_all = bytes * r->engine.ranks.ranks;
    unsigned char *room = room_for(r, bytes + of_all);
    if (!room)
        return -ENOMEM;
    memcpy(room + of_all, own, bytes);
    const int rc = run(r, (struct comm_op){.kind = COMM_SHARE,
                                           .name = "what ranks find",
                                           .in = room + of_all,
                                           .out = room,
                                           .count = bytes});
    if (rc == 0)
        memcpy(all, room, of_all);
    return rc;
}

/* ---- what is wrong ---- */

/* A rank says this of itself when they agree. */
struct outcome {
    int rc;
    struct hst_error error;
    char who[CKPT_NODE_BYTES + 32];
};

/* *error ← that of `one`, and whose it is unless all say the same. */
static void tell_of(const struct outcome *all, uint32_t processes, uint32_t one,
                    struct hst_error *error)
{
    bool same = true;
    for (uint32_t p = 0; p < processes; p++)
        same = same && all[p].rc == all[one].rc &&
               strcmp(all[p].error.message, all[one].error.message) == 0;
    *error = all[one].error;
    if (!same)
        snprintf(error->message, sizeof error->message, "%.95s%.*s", all[one].who,
                 (int)(sizeof error->message - sizeof all->who), all[one].error.message);
}

int ckpt_ranks_agree(void *context, int rc, struct hst_error *error)
{
    struct hst_ckpt_ranks *r = context;
    const uint32_t processes = r->engine.ranks.ranks;
    struct outcome own, *all = calloc(processes, sizeof *all);
    if (!all)
        return ckpt_ranks_no_memory(error);
    memset(&own, 0, sizeof own);
    own.rc = rc;
    if (rc)
        own.error = *error;
    snprintf(own.who, sizeof own.who, "rank %u (%s): ", r->engine.config.launch->rank, r->node);
    int told = share(r, &own, all, sizeof own);
    const bool heard = told == 0;
    for (uint32_t p = 0; p < processes && told == 0; p++) {
        told = all[p].rc;
        if (told)
            tell_of(all, processes, p, error);
    }
    r->agreed = heard && told;
    free(all);
    return told;
}

/* It tells a failure in the engine's words. */
int ckpt_ranks_failed(const struct hst_ckpt_ranks *r, int rc, struct hst_error *error)
{
    if (r->engine.report.error.code)
        *error = r->engine.report.error;
    else if (rc == -ECANCELED)
        store_refuse(error, HST_E_READ, rc, "stopped");
    else if (!error->code)
        ckpt_ranks_no_memory(error);
    return rc;
}

static int fill(void *context, const char *store, char *text, size_t bytes, struct hst_error *error)
{
    const struct hst_ckpt_ranks *r = context;
    const struct comm_info *ranks = &r->engine.ranks;
    const struct hst_store_place place = {ranks->rank, ranks->local, ranks->node};
    return hst_store_words(store, &place, text, bytes, error) < 0 ? -EINVAL : 0;
}

static void name(void *context, const char *directory, char *text, size_t bytes)
{
    const struct hst_ckpt_ranks *r = context;
    snprintf(text, bytes, "%s:%s", r->node, directory);
}

void ckpt_ranks_talk(struct hst_ckpt_ranks *r, struct ckpt_shares *shares)
{
    shares->processes = r->engine.ranks.ranks;
    shares->process = r->engine.ranks.rank;
    shares->node = r->engine.ranks.node;
    shares->writer = r->writer;
    shares->take = take;
    shares->share = share;
    shares->agree = ckpt_ranks_agree;
    shares->fill = fill;
    shares->name = name;
    shares->context = r;
}

/* ---- joining ---- */

static int check_found(struct hst_ckpt_ranks *r, struct hst_error *error)
{
    struct report *report = &r->engine.report;
    const struct shares *shares = &r->engine.shares;
    const enum share_fate fate = shares->map.fate;
    int rc = 0;
    if (fate == SHARE_MISSING && shares->error.code) /* others do not know of it */
        *error = shares->error;
    else if (fate == SHARE_NONE && shares->stray.code)
        *error = shares->stray;
    else
        *error = (struct hst_error){0};
    rc = error->native;
    rc = ckpt_ranks_agree(r, rc, error);
    if (rc)
        return rc;
    rc = shares_check(&r->engine);
    if (rc && report->error.code)
        *error = report->error;
    else if (rc)
        store_refuse(error, HST_E_STORE_EMPTY, -ENOENT,
                     "%s holds no version on any of %u ranks. Fix: name the directories of a "
                     "store that a run has begun, as --store had them",
                     r->engine.config.store, r->engine.ranks.ranks);
    report->error = (struct hst_error){0}; /* it is no engine's end */
    return ckpt_ranks_agree(r, rc, error);
}

static int find_writer(struct hst_ckpt_ranks *r)
{
    const uint32_t processes = r->engine.ranks.ranks, own = r->engine.config.launch->rank;
    uint32_t *all = calloc(processes, sizeof *all);
    const int rc = all ? share(r, &own, all, sizeof own) : -ENOMEM;
    for (uint32_t p = 0; p < processes && rc == 0; p++)
        r->writer = all[p] == 0 ? p : r->writer;
    free(all);
    return rc;
}

static int join(struct hst_ckpt_ranks *r, const struct hst_ckpt_ranks_config *config,
                struct hst_error *error)
{
    struct hst_engine *engine = &r->engine;
    int rc = ranks_open(engine);
    if (rc == 0 && !engine->comm) /* a world of one, which says the same things to itself */
        rc = comm_self_open(&engine->comm);
    rc = rc ? rc : hst_engine_same(engine, "the version of hoistway", hst_version());
    rc = rc ? rc : hst_engine_same(engine, "what is asked", config->work);
    if (rc)
        return ckpt_ranks_failed(r, rc, error);
    rc = hst_store_words(engine->store, &(struct hst_store_place){0}, NULL, 0, error);
    rc = ckpt_ranks_agree(r, rc < 0 ? rc : 0, error);
    if (rc)
        return rc;
    rc = shares_find(engine);
    rc = rc ? rc : find_writer(r);
    return rc ? ckpt_ranks_failed(r, rc, error) : check_found(r, error);
}

int hst_ckpt_ranks_join(const struct hst_ckpt_ranks_config *config, struct hst_ckpt_ranks **ranks,
                        struct hst_error *error)
{
    *ranks = NULL;
    if (config->size < sizeof *config || !config->launch || config->launch->ranks < 1 ||
        !config->store || !config->work)
        return store_refuse(error, HST_E_VALUE, -EINVAL,
                            "ranks open a store together, each with its launch");
    struct hst_ckpt_ranks *r = calloc(1, sizeof *r);
    if (!r)
        return ckpt_ranks_no_memory(error);
    r->engine.config.launch = config->launch;
    r->engine.config.peer_timeout_s = config->peer_timeout_s;
    r->engine.plan_in.stored = true;
    r->engine.config.store = r->engine.store = strdup(config->store);
    r->stopped = config->stopped;
    r->stopped_context = config->context;
    if (gethostname(r->node, sizeof r->node - 1))
        snprintf(r->node, sizeof r->node, "a node without a name");
    *ranks = r;
    return r->engine.store ? join(r, config, error) : ckpt_ranks_no_memory(error);
}

bool hst_ckpt_ranks_agreed(const struct hst_ckpt_ranks *r, int native, struct hst_error *error)
{
    if (!error->code)
        ckpt_ranks_failed(r, native, error);
    return r->agreed || !r->engine.comm;
}

int hst_ckpt_ranks_leave(struct hst_ckpt_ranks **ranks, struct hst_error *error)
{
    struct hst_ckpt_ranks *r = *ranks;
    if (!r)
        return 0;
    r->engine.report.error = (struct hst_error){0};
    const int rc = hst_engine_leave(&r->engine);
    if (rc)
        return ckpt_ranks_failed(r, rc, error);
    shares_close(&r->engine);
    replicas_close(&r->replicas);
    shares_free(&r->copy);
    free(r->engine.store);
    free(r->room);
    free(r);
    *ranks = NULL;
    return 0;
}

void hst_ckpt_ranks_abort(struct hst_ckpt_ranks *ranks, int status)
{
    hst_engine_abort(&ranks->engine, status);
}

/* ---- copies and replicas ---- */

/* The steps of copies, as the process tells that finds rank 0's files; of others nothing. */
static size_t kept_here(const struct hst_ckpt_ranks *r, uint64_t *steps, size_t capacity)
{
    struct share_directories directories;
    struct hst_error ignored;
    const uint32_t nth = shares_nth(&r->engine.shares, 0);
    size_t count = 0;
    if (nth == UINT32_MAX)
        return 0;
    if (share_directories_open(&r->engine.shares, nth, &directories, &ignored) == 0)
        count = hst_ckpt_kept(directories.list[0].path, steps, capacity);
    share_directories_close(&directories);
    return count;
}

int hst_ckpt_ranks_kept(struct hst_ckpt_ranks *r, uint64_t *steps, size_t capacity, size_t *count,
                        struct hst_error *error)
{
    const uint32_t teller = share_map_first(&r->engine.shares.map, r->engine.ranks.ranks, 0);
    uint64_t found = 0;
    if (teller == r->engine.ranks.rank)
        found = kept_here(r, steps, capacity);
    int rc = take(r, teller, &found, sizeof found);
    const size_t told = found < capacity ? found : capacity;
    if (rc == 0 && told > 0)
        rc = take(r, teller, steps, told * sizeof *steps);
    *count = rc ? 0 : found;
    return rc ? ckpt_ranks_failed(r, rc, error) : 0;
}

int hst_ckpt_ranks_replicas(struct hst_ckpt_ranks *r, uint64_t step, uint32_t *numbers,
                            size_t capacity, size_t *count, struct hst_error *error)
{
    const struct comm_info *ranks = &r->engine.ranks;
    const struct hst_store_place place = {ranks->rank, ranks->local, ranks->node};
    int rc = 0;
    *count = 0;
    if (step == HST_NO_VERSION && r->engine.shares.map.world != 1) /* of a copy its files tell */
        return 0;
    if (replicas_look(&r->replicas, r->engine.store, &place, step, ranks->ranks))
        rc = ckpt_ranks_no_memory(error);
    rc = ckpt_ranks_agree(r, rc, error);
    if (rc)
        return rc;
    rc = share(r, r->replicas.own, r->replicas.all, REPLICA_SET_BYTES);
    if (rc)
        return ckpt_ranks_failed(r, rc, error);
    *count = replicas_numbers(&r->replicas, ranks->ranks, numbers, capacity);
    return 0;
}

int hst_ckpt_ranks_copies(struct hst_ckpt_ranks *r, uint64_t *steps, size_t capacity, size_t *count,
                          struct hst_error *error)
{
    const struct comm_info *ranks = &r->engine.ranks;
    const struct hst_store_place place = {ranks->rank, ranks->local, ranks->node};
    struct copies *all = calloc(ranks->ranks + 1ul, sizeof *all); /* the last is this one's own */
    int rc = !all || copies_look(&all[ranks->ranks], r->engine.store, &place)
                 ? ckpt_ranks_no_memory(error)
                 : 0;
    *count = 0;
    rc = ckpt_ranks_agree(r, rc, error);
    if (rc == 0 && all) {
        rc = share(r, &all[ranks->ranks], all, sizeof *all);
        if (rc)
            ckpt_ranks_failed(r, rc, error);
        else
            *count = copies_of_all(all, ranks->ranks, steps, capacity);
    }
    free(all);
    return rc;
}
