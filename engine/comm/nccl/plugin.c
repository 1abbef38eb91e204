/* SPDX-License-Identifier: Apache-2.0 */
/* The transport over NCCL: its table, its life, and what the plugin exports. */
#include "comm/nccl/nccl_comm.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { ABORT_WAIT_S = 3, LOOK_NS = 100000 };

static struct nccl *nccl_of(struct comm *comm)
{
    return (struct nccl *)comm;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* The card wakes nobody: while something is in the stream, a clock does. */
static void run_timer(struct nccl *n, bool run)
{
    const struct itimerspec every = {.it_interval.tv_nsec = run ? LOOK_NS : 0,
                                     .it_value.tv_nsec = run ? LOOK_NS : 0};
    if (n->timer_runs != run)
        timerfd_settime(n->timer_fd, 0, &every, NULL);
    n->timer_runs = run;
}

static bool any_in_stream(const struct nccl *n)
{
    for (uint64_t i = n->ended; i < n->begun; i++)
        if (!n->entry[i % COMM_IN_FLIGHT].child)
            return true;
    return false;
}

static int test(struct comm *comm, uint64_t ticket)
{
    struct nccl *n = nccl_of(comm);
    uint64_t times;
    if (n->signs.apart) /* all that was begun has ended */
        return !ticket || ticket > n->begun ? -EINVAL : 0;
    const ssize_t got = read(n->timer_fd, &times, sizeof times);
    (void)got;
    const int rc = nccl_progress(n);
    run_timer(n, !rc && any_in_stream(n));
    return !ticket || ticket > n->begun ? -EINVAL : ticket <= n->ended ? 0 : rc ? rc : -EAGAIN;
}

static bool is_carried(const struct nccl *n, const struct comm_op *op)
{
    if (op->on_device)
        return (!op->near && !op->keep) || n->uniform;
    return n->control || (op->kind != COMM_EXCHANGE && !op->quant && !op->near);
}

static int begin(struct comm *comm, const struct comm_op *op, uint64_t *ticket)
{
    struct nccl *n = nccl_of(comm);
    if (!is_carried(n, op))
        return -ENOTSUP;
    int rc = nccl_come(n, op);
    rc = rc ? rc : nccl_progress(n);
    if (rc)
        return rc;
    if (n->begun - n->ended == COMM_IN_FLIGHT)
        return -EAGAIN;
    struct entry *entry = &n->entry[n->begun % COMM_IN_FLIGHT];
    entry->op = *op;
    entry->op.patient = false; /* all have come */
    entry->child = 0;
    n->wait_s = nccl_limit_s(n, &entry->op);
    if (n->control && !op->on_device)
        rc = comm_begin(n->control, op, &entry->child);
    else
        rc = nccl_enqueue(n, entry);
    n->wait_s = n->config.limit_s;
    if (rc)
        return rc;
    *ticket = ++n->begun;
    rc = op->patient ? nccl_part(n) : 0;
    run_timer(n, any_in_stream(n));
    return rc;
}

static int order(struct comm *comm, uint64_t ticket, struct hst_stream *stream)
{
    struct nccl *n = nccl_of(comm);
    if (!ticket || ticket > n->begun)
        return -EINVAL;
    if (ticket <= n->ended)
        return n->signs.apart ? 0 : n->failure.native;
    struct entry *entry = &n->entry[(ticket - 1) % COMM_IN_FLIGHT];
    return entry->child ? -EINVAL : n->ops->stream_wait(stream, entry->passed);
}

static int fd(struct comm *comm)
{
    return nccl_of(comm)->poll_fd;
}

static int library(struct comm *comm, const struct comm_op *op)
{
    struct comm *control = nccl_of(comm)->control;
    return control ? control->ops->library(control, op) : -ENOTSUP;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static bool is_idle(struct nccl *n)
{
    return nccl_progress(n) == 0 && n->begun == n->ended;
}

/* Takes size_bytes, or frees what is there. Ranks are apart behind it where they were before. */
static int change_memory(struct nccl *n, size_t size_bytes, void **memory, bool take)
{
    const struct comm_op all = {.kind = COMM_SUM64, .name = "ranks before device memory"};
    const bool apart = n->signs.apart;
    int rc = nccl_come(n, &all);
    rc = rc ? rc : n->failure.native;
    if (rc)
        return rc;
    if (!is_idle(n))
        return -EINVAL;
    rc = take ? nccl_alloc(n, size_bytes, memory) : nccl_free(n, *memory);
    const int parted = apart && !n->failure.native ? nccl_part(n) : 0;
    return rc ? rc : parted;
}

static int dev_alloc(struct comm *comm, size_t size_bytes, void **memory)
{
    return change_memory(nccl_of(comm), size_bytes, memory, true);
}

static int dev_free(struct comm *comm, void *memory)
{
    return change_memory(nccl_of(comm), 0, &memory, false);
}

static int host_alloc(struct comm *comm, size_t size_bytes, void **memory)
{
    struct comm *control = nccl_of(comm)->control;
    return control ? comm_alloc(control, size_bytes, memory) : -ENOTSUP;
}

static int host_free(struct comm *comm, void *memory)
{
    struct comm *control = nccl_of(comm)->control;
    return control ? comm_free(control, memory) : -EINVAL;
}

static int host_expose(struct comm *comm, void *memory, size_t size_bytes)
{
    struct comm *control = nccl_of(comm)->control;
    return control ? comm_expose(control, memory, size_bytes) : -ENOTSUP;
}

/* ---- what is told ---------------------------------------------------------------------------- */

static void info(struct comm *comm, struct comm_info *told)
{
    struct nccl *n = nccl_of(comm);
    struct comm_info below = n->info;
    *told = n->info;
    if (n->control) {
        comm_info(n->control, &below);
        told->shared = below.shared;
        told->lacks_room = below.lacks_room;
        told->room_used_bytes = below.room_used_bytes;
        memcpy(told->why_not_shared, below.why_not_shared, sizeof told->why_not_shared);
        told->net_bytes += below.net_bytes;
        told->between_bytes += below.between_bytes;
        told->in_place_bytes += below.in_place_bytes;
    }
    told->transport = n->name;
}

static void failure(struct comm *comm, struct comm_failure *told)
{
    nccl_failure(nccl_of(comm), told);
}

static int number(struct comm *comm, uint32_t rank)
{
    struct nccl *n = nccl_of(comm);
    struct comm_info now;
    if (!n->control)
        return rank == n->info.rank ? 0 : -ENOTSUP;
    for (int i = 0; i < NCCL_WINDOWS; i++)
        if (n->block[i].memory && n->block[i].memory != n->ring)
            return -EINVAL;
    int rc = is_idle(n) ? comm_number(n->control, rank) : -EINVAL;
    if (rc)
        return rc;
    comm_info(n->control, &now);
    n->info.rank = now.rank;
    n->info.local = now.local;
    n->info.node = now.node;
    rc = nccl_free_ring(n); /* it is a window of the communicator that goes */
    rc = rc ? rc : nccl_renumber(n);
    return rc ? rc : nccl_take_ring(n);
}

/* ---- end ------------------------------------------------------------------------------------- */

static void leave_device(struct nccl *n)
{
    nccl_signs_end(n);
    if (n->signs.passed)
        n->ops->event_destroy(n->signs.passed);
    for (int i = 0; i < COMM_IN_FLIGHT && n->dev; i++) {
        if (n->entry[i].ready)
            n->ops->event_destroy(n->entry[i].ready);
        if (n->entry[i].passed)
            n->ops->event_destroy(n->entry[i].passed);
    }
    if (n->mark)
        n->ops->event_destroy(n->mark);
    if (n->stream)
        n->ops->stream_destroy(n->stream);
}

static void destroy(struct nccl *n)
{
    leave_device(n);
    nccl_library_close(&n->library);
    if (n->timer_fd >= 0)
        close(n->timer_fd);
    if (n->poll_fd >= 0)
        close(n->poll_fd);
    free(n->input);
    free(n->size);
    free(n);
}

/* All ranks meet, so that who does not come is named, and then leave NCCL. */
static int leave(struct nccl *n)
{
    int64_t one = 1;
    uint64_t ticket;
    int rc = comm_sum64(&n->base, "closing", &one, 1, &ticket);
    rc = rc ? rc : comm_wait(&n->base, ticket);
    if (rc)
        return rc;
    nccl_free_all(n, true);
    return n->failure.native ? n->failure.native : nccl_leave(n);
}

static int close_comm(struct comm *comm)
{
    struct nccl *n = nccl_of(comm);
    int rc = nccl_come(n, &(struct comm_op){.kind = COMM_SUM64, .name = "closing"});
    if (rc)
        return rc;
    if (!n->failure.native && !is_idle(n))
        return n->failure.native ? n->failure.native : -EINVAL;
    if (!n->failure.native) {
        rc = leave(n);
        if (rc)
            return rc;
    } else {
        nccl_abandon(n);
        nccl_free_all(n, false);
    }
    rc = comm_close(&n->control);
    if (rc) {
        comm_failure(n->control, &n->failure);
        return rc;
    }
    destroy(n);
    return 0;
}

static void *end_in_time(void *status)
{
    sleep(ABORT_WAIT_S);
    _exit((int)(intptr_t)status);
}

/* ncclCommAbort may wait for a card or a network that does not answer. */
static void abort_all(struct comm *comm, int status)
{
    struct nccl *n = nccl_of(comm);
    pthread_t watchdog;
    if (pthread_create(&watchdog, NULL, end_in_time, (void *)(intptr_t)status))
        _exit(status);
    nccl_signs_end(n);
    nccl_abandon(n);
    if (n->control)
        comm_abort(n->control, status);
    _exit(status);
}

/* ---- begin ----------------------------------------------------------------------------------- */

static const struct comm_dev_ops dev_ops = {.order = order, .alloc = dev_alloc, .free = dev_free};

static const struct comm_ops ops = {
    .size = sizeof ops,
    .close = close_comm,
    .abort = abort_all,
    .info = info,
    .failure = failure,
    .alloc = host_alloc,
    .free = host_free,
    .begin = begin,
    .test = test,
    .fd = fd,
    .library = library,
    .expose = host_expose,
    .number = number,
    .dev = &dev_ops,
};

/* torchrun numbers ranks node by node. */
static void fill_info(struct nccl *n)
{
    const struct hst_launch *launch = &n->config.launch;
    const uint32_t locals = launch->locals ? launch->locals : launch->ranks;
    n->info = (struct comm_info){.ranks = launch->ranks,
                                 .rank = launch->rank,
                                 .locals = locals,
                                 .local = launch->rank % locals,
                                 .nodes = (launch->ranks + locals - 1) / locals,
                                 .node = launch->rank / locals};
    if (n->control)
        comm_info(n->control, &n->info);
    n->info.net_bytes = n->info.between_bytes = n->info.in_place_bytes = 0;
}

static void fill_names(struct nccl *n)
{
    char version[NCCL_VERSION_BYTES];
    nccl_version_text(n->library.version, version);
    snprintf(n->name, sizeof n->name, "NCCL %s%s%s", version, n->control ? ", " : "",
             n->control ? n->info.transport : "");
    if (!n->library.ncclAlltoAll)
        snprintf(n->info.note, sizeof n->info.note,
                 "NCCL %s has no ncclAlltoAll: exchanges are sends and receives", version);
}

static int watch(struct nccl *n, int descriptor)
{
    struct epoll_event readable = {.events = EPOLLIN};
    return epoll_ctl(n->poll_fd, EPOLL_CTL_ADD, descriptor, &readable) ? -errno : 0;
}

static int open_descriptors(struct nccl *n)
{
    n->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    n->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    int rc = n->timer_fd < 0 || n->poll_fd < 0 ? -errno : watch(n, n->timer_fd);
    if (!rc && n->control)
        rc = watch(n, comm_fd(n->control));
    return rc ? nccl_fail(n, rc, COMM_NOBODY, "no descriptor to wait with: %s", strerror(-rc)) : 0;
}

static int open_stream(struct nccl *n)
{
    const struct hst_dev_ops *dev = n->ops;
    int rc = dev->stream_create(n->dev, "nccl", &n->stream);
    rc = rc ? rc : dev->event_create(n->dev, &n->mark);
    for (int i = 0; !rc && i < COMM_IN_FLIGHT; i++) {
        rc = dev->event_create(n->dev, &n->entry[i].ready);
        rc = rc ? rc : dev->event_create(n->dev, &n->entry[i].passed);
    }
    if (rc)
        return nccl_device_failed(n, rc, "no stream for NCCL");
    n->native = dev->stream_native(n->stream);
    return n->native ? 0
                     : nccl_fail(n, -EINVAL, COMM_NOBODY, "the device %s is no GPU that NCCL joins",
                                 dev->name);
}

static int open_all(struct nccl *n)
{
    n->input = calloc(n->info.ranks, sizeof *n->input);
    n->size = calloc(2ul * n->info.ranks, sizeof *n->size);
    int rc = n->input && n->size ? 0 : nccl_fail(n, -ENOMEM, COMM_NOBODY, "no memory for a comm");
    rc = rc ? rc : open_descriptors(n);
    rc = rc ? rc : open_stream(n);
    rc = rc ? rc : nccl_join(n);
    rc = rc ? rc : nccl_take_ring(n); /* now: what is left of the device is asked for next */
    rc = rc || n->control ? rc : nccl_take_stage(n);
    return rc ? rc : nccl_signs_begin(n);
}

/* What went wrong below is told in the words of the control comm. */
static void tell_failure(struct nccl *n, int rc, struct comm_failure *told)
{
    if (!n->failure.native && n->control)
        comm_failure(n->control, &n->failure);
    (void)nccl_fail(n, rc, COMM_NOBODY, "%s", strerror(-rc));
    *told = n->failure;
}

static void *abandon(void *comm)
{
    nccl_abandon(comm);
    return NULL;
}

/* A rank that cannot be joined goes on, or ends: it waits no longer for NCCL's abort than at its
 * own. The device is given back, which has nothing of it to do yet; the rest is left to who still
 * uses it. */
static void abandon_in_time(struct nccl *n)
{
    struct timespec until;
    pthread_t thread;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ABORT_WAIT_S;
    bool over = pthread_create(&thread, NULL, abandon, n) == 0;
    if (over && pthread_timedjoin_np(thread, NULL, &until)) {
        pthread_detach(thread);
        over = false;
    }
    nccl_free_all(n, false);
    (over ? destroy : leave_device)(n);
}

static int open_comm(const struct comm_config *config, struct comm **comm,
                     struct comm_failure *told)
{
    struct nccl *n = calloc(1, sizeof *n);
    if (!n)
        return comm_fail(told, -ENOMEM, COMM_NOBODY, "no memory for a comm");
    n->base.ops = &ops;
    n->config = *config;
    n->control = config->control;
    n->dev = config->dev;
    n->wait_s = config->limit_s;
    n->timer_fd = n->poll_fd = -1;
    n->failure.rank = COMM_NOBODY;
    memcpy(&n->ops, n->dev, sizeof n->ops); /* what every device begins with */
    fill_info(n);
    int rc = nccl_library_open(n);
    if (n->control) /* a rank alone with a failure would leave the others waiting */
        rc = comm_spread_failure(n->control, "opening", rc, &n->failure);
    if (!rc) {
        fill_names(n);
        rc = open_all(n);
    }
    if (!rc) {
        *comm = &n->base;
        return 0;
    }
    tell_failure(n, rc, told);
    abandon_in_time(n);
    return rc;
}

__attribute__((visibility("default"))) const struct comm_plugin comm_plugin = {
    .size = sizeof comm_plugin,
    .version = HST_VERSION,
    .ops_size = sizeof(struct comm_ops),
    .open = open_comm,
};
