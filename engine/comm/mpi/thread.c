/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that makes all calls of MPI: takes jobs in order, naps where nothing moves, and gives
 * up on ranks that do not come within the limit.
 */
#include "comm/mpi/mpi_comm.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS        50000L
#define SLACK_NS      1000ul     /* a nap may be so much longer */
#define IDLE_NS       100000000L /* between signs of life, where there is nothing to do */
#define SILENT_NS     2000000000ull
#define NS_PER_SECOND 1000000000ull

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_SECOND + (uint64_t)t.tv_nsec;
}

static void ring_owner(struct mpi *m)
{
    const uint64_t one = 1;
    ssize_t written = write(m->event_fd, &one, sizeof one);
    (void)written; /* full only if it is readable anyway */
}

/* ---- failures -------------------------------------------------------------------------------- */

int mpi_fail(struct mpi *m, int native, int rank, const char *format, ...)
{
    pthread_mutex_lock(&m->lock);
    if (!m->failure.native) {
        m->failure.native = native;
        m->failure.rank = rank;
        va_list args;
        va_start(args, format);
        vsnprintf(m->failure.text, sizeof m->failure.text, format, args);
        va_end(args);
    }
    native = m->failure.native;
    pthread_cond_broadcast(&m->wake);
    pthread_mutex_unlock(&m->lock);
    ring_owner(m);
    return native;
}

int mpi_check(struct mpi *m, int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return 0;
    MPI_Error_string(code, text, &length);
    return mpi_fail(m, -EIO, COMM_NOBODY, "%s failed: %.200s", call, text);
}

/* Where this operation stands, for messages. */
static void say_operation(const struct mpi *m, char text[80])
{
    const struct comm_op *op = &m->job.op;
    if (m->job.kind == JOB_OPERATION || m->job.kind == JOB_LIBRARY)
        snprintf(text, 80, "%s of %.40s", comm_kind_name(op->kind), op->name ? op->name : "data");
    else
        snprintf(text, 80, "%s", m->opened ? "allocation" : "start");
}

/* ---- waiting --------------------------------------------------------------------------------- */

void mpi_wait_begin(struct mpi *m)
{
    m->wait_since_ns = now_ns();
}

void mpi_beat(struct mpi *m)
{
    if (m->slot)
        atomic_store_explicit(&m->slot[m->info.local]->alive_ns, now_ns(), memory_order_relaxed);
    pthread_mutex_lock(&m->lock);
    const int status = m->abort_status;
    pthread_mutex_unlock(&m->lock);
    if (status >= 0)
        MPI_Abort(MPI_COMM_WORLD, status);
}

/* Whether a rank of this node shows no sign of life. */
static bool is_silent(const struct mpi *m, int rank, uint64_t at_ns)
{
    const int64_t local = rank - ((int64_t)m->info.rank - m->info.local);
    return m->slot && local >= 0 && local < m->info.locals &&
           atomic_load(&m->slot[local]->alive_ns) + SILENT_NS < at_ns;
}

bool mpi_nap(struct mpi *m)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    const uint64_t waited_ns = now_ns() - m->wait_since_ns;
    mpi_beat(m);
    if ((double)waited_ns >= m->config.limit_s * (double)NS_PER_SECOND)
        return true;
    nanosleep(&nap, NULL);
    return false;
}

int mpi_late(struct mpi *m, int rank, const char *what)
{
    char operation[80];
    say_operation(m, operation);
    if (rank == COMM_NOBODY)
        return mpi_fail(m, -EPIPE, rank, "ranks of other nodes have not answered for %.0f s: %s",
                        m->config.limit_s, operation);
    if (is_silent(m, rank, now_ns()))
        what = "has not answered: it is stopped or gone";
    return mpi_fail(m, -EPIPE, rank, "rank %d %s; waited %.0f s for it in the %s", rank, what,
                    m->config.limit_s, operation);
}

int mpi_finish(struct mpi *m, MPI_Request *request)
{
    int done = 0;
    mpi_wait_begin(m);
    for (;;) {
        int rc = mpi_check(m, MPI_Test(request, &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (rc || done)
            return rc;
        if (mpi_nap(m))
            return mpi_late(m, COMM_NOBODY, "");
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

static int check_world(struct mpi *m)
{
    int size = 0, length = 0;
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    MPI_Get_library_version(text, &length);
    snprintf(m->version, sizeof m->version, "%.*s", (int)strcspn(text, ",\n"), text);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if ((uint32_t)size == m->config.launch.ranks)
        return 0;
    return mpi_fail(m, -ENODEV, COMM_NOBODY,
                    "%s has a world of %d ranks, but %s is %u: this process was not started by it",
                    m->version, size, m->config.launch.variable, m->config.launch.ranks);
}

static int open_mpi(struct mpi *m)
{
    int provided = 0, started = 0;
    MPI_Initialized(&started);
    if (started)
        return mpi_fail(m, -EBUSY, COMM_NOBODY, "MPI has been started in this process before");
    int rc = mpi_check(m, MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided),
                       "MPI_Init_thread");
    if (!rc && provided < MPI_THREAD_SERIALIZED)
        rc = mpi_fail(m, -EIO, COMM_NOBODY, "this MPI can not be called from a thread of its own");
    rc = rc ? rc : check_world(m);
    return rc ? rc : mpi_node_open(m);
}

enum next { NEXT_NONE, NEXT_JOB, NEXT_END };

/* What there is to do; where that is nothing, sleeps a little. After a failure: only an end. */
static enum next what_next(struct mpi *m, bool failed)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += IDLE_NS;
    until.tv_sec += until.tv_nsec / (long)NS_PER_SECOND;
    until.tv_nsec %= (long)NS_PER_SECOND;
    pthread_mutex_lock(&m->lock);
    if ((failed || m->begun == m->ended) && !m->closing && m->abort_status < 0)
        pthread_cond_timedwait(&m->wake, &m->lock, &until);
    enum next next = NEXT_NONE;
    if (!failed && m->begun != m->ended)
        next = NEXT_JOB;
    else if (m->closing)
        next = NEXT_END;
    if (next == NEXT_JOB)
        m->job = m->queue[m->ended % COMM_IN_FLIGHT];
    pthread_mutex_unlock(&m->lock);
    return next;
}

static int run_job(struct mpi *m)
{
    switch (m->job.kind) {
    case JOB_OPERATION:
        return mpi_run(m, &m->job.op);
    case JOB_ALLOC:
        return mpi_alloc(m, m->job.block);
    case JOB_FREE:
        return mpi_free(m, m->job.block);
    default:
        return mpi_library(m, &m->job.op);
    }
}

static void job_ended(struct mpi *m)
{
    pthread_mutex_lock(&m->lock);
    m->ended++;
    pthread_cond_broadcast(&m->wake);
    pthread_mutex_unlock(&m->lock);
    ring_owner(m);
}

static void is_open(struct mpi *m)
{
    pthread_mutex_lock(&m->lock);
    m->opened = true;
    pthread_cond_broadcast(&m->wake);
    pthread_mutex_unlock(&m->lock);
}

/* After a failure MPI is called for signs of life and an end alone: more could wait for ever. */
void *mpi_thread(void *arg)
{
    struct mpi *m = arg;
    prctl(PR_SET_NAME, "hst-mpi");
    prctl(PR_SET_TIMERSLACK, SLACK_NS);
    int rc = open_mpi(m);
    is_open(m);
    for (;;) {
        mpi_beat(m);
        switch (what_next(m, rc != 0)) {
        case NEXT_JOB:
            rc = run_job(m);
            if (!rc)
                job_ended(m);
            break;
        case NEXT_END:
            if (!rc) {
                mpi_node_close(m);
                MPI_Finalize();
            }
            return NULL;
        default:
            break;
        }
    }
}
