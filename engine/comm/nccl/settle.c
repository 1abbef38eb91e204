/* SPDX-License-Identifier: Apache-2.0 */
/*
 * It decides how long the transport over NCCL waits, and what it says when it gives up. All
 * communicators are non-blocking: a call returns at once, and until NCCL says that it has taken it,
 * the stream may not hold it yet. NCCL does not know who is late, so ranks tell each other by the
 * control comm where they are, for as long as COMPARE_S.
 */
#include "comm/nccl/nccl_comm.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PATIENCE_S    3600.0
#define COMPARE_S     3.0
#define LEAST_S       10.0 /* of NCCL itself, where all have the id */
#define NAP_NS        50000L
#define NS_PER_SECOND 1000000000ull

uint64_t nccl_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_SECOND + (uint64_t)t.tv_nsec;
}

void nccl_nap(void)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    nanosleep(&nap, NULL);
}

static double seconds_since(uint64_t since_ns)
{
    return (double)(nccl_now_ns() - since_ns) / (double)NS_PER_SECOND;
}

double nccl_limit_s(const struct nccl *n, const struct comm_op *op)
{
    if (op->within_s > 0)
        return op->within_s;
    return op->patient && n->config.limit_s < PATIENCE_S ? PATIENCE_S : n->config.limit_s;
}

void nccl_wait_rest(struct nccl *n, uint64_t since_ns)
{
    const double limit_s = n->config.limit_s, rest_s = limit_s - seconds_since(since_ns);
    const double least_s = limit_s < LEAST_S ? limit_s : LEAST_S;
    n->wait_s = rest_s > least_s ? rest_s : least_s;
}

/* ---- failures -------------------------------------------------------------------------------- */

int nccl_fail(struct nccl *n, int native, int rank, const char *format, ...)
{
    if (n->failure.native)
        return n->failure.native;
    n->failure.native = native;
    n->failure.rank = rank;
    va_list args;
    va_start(args, format);
    vsnprintf(n->failure.text, sizeof n->failure.text, format, args);
    va_end(args);
    return native;
}

int nccl_device_failed(struct nccl *n, int native, const char *doing)
{
    struct hst_dev_failure story = {0};
    n->ops->failure(n->dev, &story);
    return nccl_fail(n, native == -ENOMEM || native == -ENOSPC ? -ENOMEM : -EIO, COMM_NOBODY,
                     "%s: %.300s", doing,
                     story.why == HST_DEV_OK ? "the device refuses it" : story.text);
}

static int call_failed(struct nccl *n, struct nccl_comm *comm, enum nccl_result result,
                       const char *call)
{
    const char *last = n->library.ncclGetLastError(comm);
    return nccl_fail(n, result == NCCL_REMOTE_ERROR ? -EPIPE : -EIO, COMM_NOBODY,
                     "%s failed: %.100s%s%.200s", call, n->library.ncclGetErrorString(result),
                     last && *last ? ": " : "", last ? last : "");
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Waits while NCCL says that it is at work. */
static int wait_for(struct nccl *n, struct nccl_comm *comm, uint64_t since_ns, const char *call)
{
    enum nccl_result state = NCCL_IN_PROGRESS;
    for (;;) {
        const enum nccl_result rc = n->library.ncclCommGetAsyncError(comm, &state);
        if (rc != NCCL_SUCCESS || state != NCCL_IN_PROGRESS)
            return rc || state ? call_failed(n, comm, rc ? rc : state, call) : 0;
        if (nccl_check_end(n))
            return n->failure.native;
        if (seconds_since(since_ns) >= n->wait_s)
            return nccl_late(n, call, since_ns);
        nccl_nap();
    }
}

bool nccl_is_ending(const struct nccl *n)
{
    return __atomic_load_n(&n->signs.ending, __ATOMIC_ACQUIRE);
}

int nccl_check_end(struct nccl *n)
{
    return nccl_is_ending(n) ? nccl_fail(n, -ECANCELED, COMM_NOBODY, "this rank has ended it") : 0;
}

int nccl_settle(struct nccl *n, struct nccl_comm *comm, enum nccl_result result, const char *call)
{
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
        return call_failed(n, comm, result, call);
    return wait_for(n, comm, nccl_now_ns(), call);
}

/* The parent tells of it as long as there is no communicator to ask. */
int nccl_settle_made(struct nccl *n, struct nccl_comm *parent, struct nccl_comm *const *made,
                     enum nccl_result result, const char *call)
{
    const uint64_t since_ns = nccl_now_ns();
    if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
        return call_failed(n, parent, result, call);
    int rc = parent ? wait_for(n, parent, since_ns, call) : 0;
    while (!rc && !__atomic_load_n(made, __ATOMIC_ACQUIRE)) {
        if (seconds_since(since_ns) >= n->config.limit_s)
            return nccl_fail(n, -EIO, COMM_NOBODY, "%s has made no communicator for %.0f s", call,
                             seconds_since(since_ns));
        nccl_nap();
    }
    return rc ? rc : wait_for(n, *made, since_ns, call);
}

int nccl_look(struct nccl *n)
{
    struct nccl_comm *const all[NCCL_COMMUNICATORS] = {n->world, n->inner, n->outer, n->node};
    for (int i = 0; i < NCCL_COMMUNICATORS && !n->failure.native; i++) {
        enum nccl_result state = NCCL_SUCCESS;
        if (!all[i])
            continue;
        const enum nccl_result rc = n->library.ncclCommGetAsyncError(all[i], &state);
        if (rc != NCCL_SUCCESS || (state != NCCL_SUCCESS && state != NCCL_IN_PROGRESS))
            call_failed(n, all[i], rc != NCCL_SUCCESS ? rc : state, "an operation of NCCL");
    }
    return n->failure.native;
}

/* ---- who is late ----------------------------------------------------------------------------- */

/* It tells how many operations each rank has begun; false where not all of them tell. */
static bool compare(struct nccl *n, uint64_t *begun)
{
    uint64_t ticket;
    struct comm_op op = {.kind = COMM_SHARE,
                         .name = "where ranks are",
                         .in = &n->begun,
                         .out = begun,
                         .count = sizeof *begun,
                         .within_s = COMPARE_S};
    const uint64_t since_ns = nccl_now_ns();
    int rc = comm_begin(n->control, &op, &ticket);
    while (!rc && (rc = comm_test(n->control, ticket)) == -EAGAIN) {
        if (seconds_since(since_ns) >= 2 * COMPARE_S)
            break; /* an operation before it waits for longer */
        nccl_nap();
        rc = 0;
    }
    return rc == 0;
}

int nccl_late(struct nccl *n, const char *where, uint64_t since_ns)
{
    uint64_t *begun = calloc(n->info.ranks, sizeof *begun);
    struct comm_failure story = {.rank = COMM_NOBODY};
    const double waited_s = seconds_since(since_ns);
    int late = COMM_NOBODY;
    if (n->control && begun && compare(n, begun)) {
        for (uint32_t r = 0; r < n->info.ranks; r++)
            if (begun[r] < n->begun && (late == COMM_NOBODY || begun[r] < begun[late]))
                late = (int)r;
    } else if (n->control) {
        comm_failure(n->control, &story);
        late = story.rank;
    }
    free(begun);
    char name[COMM_RANK_BYTES], who[COMM_RANK_BYTES + 24] = "ranks have not come, or not ended it";
    if (late != COMM_NOBODY)
        snprintf(who, sizeof who, "%s has not come this far",
                 comm_rank_text(&n->info, (uint32_t)late, name));
    return nccl_fail(n, -EPIPE, late, "%s; rank %u waited %.0f s in %.100s", who, n->info.rank,
                     waited_s, where);
}

int nccl_check_time(struct nccl *n, const struct comm_op *op, uint64_t since_ns)
{
    char where[100];
    if (seconds_since(since_ns) < nccl_limit_s(n, op))
        return 0;
    snprintf(where, sizeof where, "the %s of %.40s by NCCL", comm_kind_name(op->kind),
             op->name ? op->name : "data");
    return nccl_late(n, where, since_ns);
}
