/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owner's side of the transport over MPI, and what the plugin exports: jobs go into the queue,
 * tickets are compared with what the thread has done.
 */
#include "comm/mpi/mpi_comm.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { ABORT_WAIT_S = 5 };

static struct mpi *mpi_of(struct comm *comm)
{
    return (struct mpi *)comm;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static int put(struct mpi *m, const struct job *job, uint64_t *ticket)
{
    pthread_mutex_lock(&m->lock);
    int rc = m->failure.native;
    if (!rc && m->begun - m->ended == COMM_IN_FLIGHT)
        rc = -EAGAIN;
    if (!rc) {
        m->queue[m->begun++ % COMM_IN_FLIGHT] = *job;
        *ticket = m->begun;
        pthread_cond_broadcast(&m->wake);
    }
    pthread_mutex_unlock(&m->lock);
    return rc;
}

static int test(struct comm *comm, uint64_t ticket)
{
    struct mpi *m = mpi_of(comm);
    uint64_t rings;
    ssize_t got = read(m->event_fd, &rings, sizeof rings); /* before looking: none is lost */
    (void)got;
    pthread_mutex_lock(&m->lock);
    const int rc = !ticket || ticket > m->begun ? -EINVAL
                   : ticket <= m->ended         ? 0
                   : m->failure.native          ? m->failure.native
                                                : -EAGAIN;
    pthread_mutex_unlock(&m->lock);
    return rc;
}

/* It waits until the operation is done; nothing else is under way. */
static int do_now(struct mpi *m, const struct job *job)
{
    uint64_t ticket = 0;
    pthread_mutex_lock(&m->lock);
    const bool idle = m->begun == m->ended;
    pthread_mutex_unlock(&m->lock);
    int rc = idle ? put(m, job, &ticket) : -EINVAL;
    pthread_mutex_lock(&m->lock);
    while (!rc && m->ended < ticket) {
        rc = m->failure.native;
        if (!rc)
            mpi_watch(m);
    }
    pthread_mutex_unlock(&m->lock);
    return rc;
}

static int begin(struct comm *comm, const struct comm_op *op, uint64_t *ticket)
{
    return put(mpi_of(comm), &(struct job){.kind = JOB_OPERATION, .op = *op}, ticket);
}

static int library(struct comm *comm, const struct comm_op *op)
{
    return do_now(mpi_of(comm), &(struct job){.kind = JOB_LIBRARY, .op = *op});
}

static int fd(struct comm *comm)
{
    return mpi_of(comm)->event_fd;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* After a failure a block is left: the thread may still hold it. */
static int alloc(struct comm *comm, size_t size_bytes, void **memory)
{
    struct block *block = calloc(1, sizeof *block);
    if (!block)
        return -ENOMEM;
    block->size_bytes = size_bytes;
    int rc = do_now(mpi_of(comm), &(struct job){.kind = JOB_ALLOC, .block = block});
    if (!rc)
        *memory = block->memory;
    return rc;
}

/* A block is kept where its memory is shared. */
static int expose(struct comm *comm, void *memory, size_t size_bytes)
{
    struct block *block = calloc(1, sizeof *block);
    if (!block)
        return -ENOMEM;
    block->memory = memory;
    block->size_bytes = size_bytes;
    int rc = do_now(mpi_of(comm), &(struct job){.kind = JOB_EXPOSE, .block = block});
    if (!rc && !block->peer)
        free(block);
    return rc;
}

static int free_memory(struct comm *comm, void *memory)
{
    struct mpi *m = mpi_of(comm);
    for (struct block *block = m->blocks; block; block = block->next)
        if (block->memory == memory && !block->exposed)
            return do_now(m, &(struct job){.kind = JOB_FREE, .block = block});
    return -EINVAL;
}

static int number(struct comm *comm, uint32_t rank)
{
    struct mpi *m = mpi_of(comm);
    return m->blocks ? -EINVAL : do_now(m, &(struct job){.kind = JOB_NUMBER, .rank = rank});
}

/* ---- what is told ---------------------------------------------------------------------------- */

static void info(struct comm *comm, struct comm_info *told)
{
    struct mpi *m = mpi_of(comm);
    pthread_mutex_lock(&m->lock);
    *told = m->info;
    pthread_mutex_unlock(&m->lock);
    told->transport = m->version;
}

static void failure(struct comm *comm, struct comm_failure *told)
{
    struct mpi *m = mpi_of(comm);
    pthread_mutex_lock(&m->lock);
    *told = m->failure;
    pthread_mutex_unlock(&m->lock);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void destroy(struct mpi *m)
{
    close(m->event_fd);
    pthread_cond_destroy(&m->wake);
    pthread_mutex_destroy(&m->lock);
    free(m->host);
    free(m);
}

/* Ranks that all want to close end at once: whom MPI_Finalize waits for now has gone since. */
static int join_thread(struct mpi *m)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)m->config.limit_s + 1;
    if (pthread_timedjoin_np(m->thread, NULL, &until) == 0)
        return 0;
    return mpi_fail(m, -EPIPE, COMM_NOBODY,
                    "MPI_Finalize has not ended for %.0f s: a rank that "
                    "wanted to close has gone",
                    m->config.limit_s);
}

/* All ranks meet before MPI ends, which has no limit; after a failure nobody is waited for. */
static int close_comm(struct comm *comm)
{
    struct mpi *m = mpi_of(comm);
    struct comm_failure before;
    failure(comm, &before);
    int rc = before.native ? 0 : do_now(m, &(struct job){.kind = JOB_CLOSE});
    if (rc)
        return rc;
    pthread_mutex_lock(&m->lock);
    m->closing = true;
    pthread_cond_broadcast(&m->wake);
    pthread_mutex_unlock(&m->lock);
    rc = join_thread(m);
    if (!rc)
        destroy(m);
    return rc;
}

/* The watchdog of the thread's own MPI_Abort, which may not return where a link is cut. */
static void abort_all(struct comm *comm, int status)
{
    struct mpi *m = mpi_of(comm);
    pthread_mutex_lock(&m->lock);
    m->abort_status = status & 0xff;
    pthread_cond_broadcast(&m->wake);
    pthread_mutex_unlock(&m->lock);
    sleep(ABORT_WAIT_S);
    _exit(status);
}

static const struct comm_ops ops = {
    .size = sizeof ops,
    .close = close_comm,
    .abort = abort_all,
    .info = info,
    .failure = failure,
    .alloc = alloc,
    .free = free_memory,
    .begin = begin,
    .test = test,
    .fd = fd,
    .library = library,
    .expose = expose,
    .number = number,
};

/* Signals are for the owner's threads. */
static int start_thread(struct mpi *m)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&m->thread, NULL, mpi_thread, m);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return -error;
    pthread_mutex_lock(&m->lock);
    while (!m->opened && !m->failure.native)
        mpi_watch(m);
    pthread_mutex_unlock(&m->lock);
    return 0;
}

static int open_comm(const struct comm_config *config, struct comm **comm,
                     struct comm_failure *told)
{
    struct mpi *m = calloc(1, sizeof *m);
    if (!m)
        return comm_fail(told, -ENOMEM, COMM_NOBODY, "no memory for a comm");
    m->base.ops = &ops;
    m->config = *config;
    m->abort_status = -1;
    m->heads = m->old_heads = MPI_COMM_NULL;
    m->failure.rank = COMM_NOBODY;
    m->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->wake, NULL);
    int rc = m->event_fd < 0 ? -errno : start_thread(m);
    if (rc) {
        destroy(m);
        return comm_fail(told, rc, COMM_NOBODY, "no descriptor or no thread for MPI: %s",
                         strerror(-rc));
    }
    failure(&m->base, told);
    if (!told->native)
        *comm = &m->base;
    return told->native; /* a failed one keeps its thread: there may be an MPI to be ended */
}

__attribute__((visibility("default"))) const struct comm_plugin comm_plugin = {
    .size = sizeof comm_plugin,
    .version = HST_VERSION,
    .ops_size = sizeof(struct comm_ops),
    .open = open_comm,
};
