/* SPDX-License-Identifier: Apache-2.0 */
/*
 * It tells how the comm's thread waits: it naps where nothing moves, gives up on ranks that do not
 * come within the limit, and says who they are.
 */
#include "comm/mpi/mpi_comm.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S    3600.0
#define CALL_S        10.0 /* at least, of calls of MPI itself */
#define WATCH_S       1
#define NAP_NS        50000L
#define SLEEP_NS      10000000L /* a sleep, at most */
#define SILENT_NS     2000000000ull
#define CUT_NS        5000000000ull /* at least, between nodes */
#define NS_PER_SECOND 1000000000ull

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_SECOND + (uint64_t)t.tv_nsec;
}

void mpi_ring(struct mpi *m)
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
    mpi_ring(m);
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

/* This is where this operation stands, for messages. */
static void say_operation(const struct mpi *m, char text[80])
{
    const struct comm_op *op = &m->job.op;
    if (m->job.kind == JOB_OPERATION || m->job.kind == JOB_LIBRARY)
        snprintf(text, 80, "%s of %.40s", comm_kind_name(op->kind), op->name ? op->name : "data");
    else
        snprintf(text, 80, "%s",
                 m->job.kind == JOB_ALLOC    ? "allocation"
                 : m->job.kind == JOB_EXPOSE ? "sharing of memory"
                 : m->job.kind == JOB_FREE   ? "free"
                 : m->job.kind == JOB_CLOSE  ? "closing"
                                             : "start");
}

/* ---- waiting --------------------------------------------------------------------------------- */

void mpi_wait_open(struct mpi *m)
{
    mpi_pulse_open(m, now_ns());
    mpi_beat(m);
}

void mpi_wait_begin(struct mpi *m)
{
    m->wait_since_ns = now_ns();
}

/* mpirun of Open MPI ends all ranks once one has gone without MPI_Finalize. MPI_Abort has something
 * to say besides, and mpirun 4.1 may crash while it passes that on. */
static void end_all(const struct mpi *m, int status)
{
    if (strcmp(m->config.launch.variable, "OMPI_COMM_WORLD_SIZE") == 0)
        _exit(status);
    MPI_Abort(MPI_COMM_WORLD, status);
}

void mpi_beat(struct mpi *m)
{
    const uint64_t at_ns = now_ns();
    pthread_mutex_lock(&m->lock);
    const int status = m->abort_status;
    const bool failed = m->failure.native != 0;
    pthread_mutex_unlock(&m->lock);
    if (m->slot)
        atomic_store_explicit(&m->slot[m->info.local]->alive_ns, at_ns, memory_order_relaxed);
    if (m->slot && !failed)
        mpi_pulse(m, at_ns); /* else MPI would write to what is under way, whose memory is gone */
    if (status >= 0)
        end_all(m, status);
}

/* Another rank of this node that shows no sign of life; COMM_NOBODY: they all do. */
static int find_silent(const struct mpi *m, uint64_t at_ns)
{
    for (uint32_t local = 0; m->slot && local < m->info.locals; local++)
        if (local != m->info.local && atomic_load(&m->slot[local]->alive_ns) + SILENT_NS < at_ns)
            return (int)(m->info.rank - m->info.local + local);
    return COMM_NOBODY;
}

static bool is_cut(const struct mpi *m, uint64_t at_ns)
{
    const uint64_t limit_ns = (uint64_t)(m->config.limit_s * (double)NS_PER_SECOND);
    return mpi_pulse_is_lost(m, at_ns, limit_ns > CUT_NS ? limit_ns : CUT_NS);
}

/* Seconds that ranks are waited for in the job at hand. */
static double limit_s(const struct mpi *m)
{
    if (m->job.kind == JOB_OPERATION && m->job.op.within_s > 0)
        return m->job.op.within_s;
    const bool patient = m->job.kind == JOB_OPERATION && m->job.op.patient;
    return patient && m->config.limit_s < PATIENCE_S ? PATIENCE_S : m->config.limit_s;
}

/* However patient one is, who shows no sign of life is not waited for behind the limit. */
static bool is_over(struct mpi *m)
{
    const uint64_t at_ns = now_ns();
    const double waited_s = (double)(at_ns - m->wait_since_ns) / (double)NS_PER_SECOND;
    mpi_beat(m);
    return waited_s >= limit_s(m) || (waited_s >= m->config.limit_s &&
                                      (find_silent(m, at_ns) != COMM_NOBODY || is_cut(m, at_ns)));
}

bool mpi_nap(struct mpi *m)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    if (is_over(m))
        return true;
    nanosleep(&nap, NULL);
    return false;
}

/* ---- calls without a limit ------------------------------------------------------------------- */

const char *mpi_call(struct mpi *m, const char *what)
{
    pthread_mutex_lock(&m->lock);
    const char *before = m->call;
    m->call = what;
    m->call_since_ns = now_ns();
    pthread_mutex_unlock(&m->lock);
    return before;
}

void mpi_watch(struct mpi *m)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WATCH_S;
    pthread_cond_timedwait(&m->wake, &m->lock, &until);
    const char *call = m->call;
    const double waited_s = (double)(now_ns() - m->call_since_ns) / (double)NS_PER_SECOND;
    if (!call || m->failure.native || waited_s < m->config.limit_s || waited_s < CALL_S)
        return;
    pthread_mutex_unlock(&m->lock); /* both are of this rank: no failure is lost in between */
    mpi_fail(m, -EPIPE, COMM_NOBODY, "ranks have not answered for %.0f s: %s by MPI", waited_s,
             call);
    pthread_mutex_lock(&m->lock);
}

/* ---- meetings of a node ---------------------------------------------------------------------- */

/* The bell is in memory that processes share. Who begins to sleep says so before it looks, and who
   comes rings before it looks who sleeps: so one of them sees the other. */
void mpi_come(struct mpi *m)
{
    struct slot *own = m->slot[m->info.local];
    atomic_store(&own->step, m->step);
    atomic_store(&own->bell, (uint32_t)m->step);
    if (atomic_load(&own->sleepers) > 0)
        syscall(SYS_futex, &own->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool mpi_sleep(struct mpi *m, uint32_t local)
{
    const struct timespec most = {.tv_nsec = SLEEP_NS};
    struct slot *other = m->slot[local];
    if (is_over(m))
        return true;
    atomic_fetch_add(&other->sleepers, 1);
    const uint32_t bell = atomic_load(&other->bell);
    if (atomic_load(&other->step) < m->step)
        syscall(SYS_futex, &other->bell, FUTEX_WAIT, bell, &most, NULL, 0);
    atomic_fetch_sub(&other->sleepers, 1);
    return false;
}

/* Where there are two nodes the other one has a name. */
static int others_late(struct mpi *m, double waited_s, const char *operation)
{
    const uint32_t other = m->info.node ? 0 : m->info.ranks - 1; /* a rank of it, if of two */
    const char *where = m->info.nodes == 1   ? ""
                        : m->info.nodes == 2 ? m->info.host[other]
                                             : "other nodes";
    return mpi_fail(m, -EPIPE, COMM_NOBODY, "ranks%s%s have not answered for %.0f s: %s",
                    *where ? " of " : "", where, waited_s, operation);
}

int mpi_late(struct mpi *m, int rank, const char *what)
{
    const uint64_t at_ns = now_ns();
    const double waited_s = (double)(at_ns - m->wait_since_ns) / (double)NS_PER_SECOND;
    char operation[80], name[COMM_RANK_BYTES];
    say_operation(m, operation);
    const int silent = find_silent(m, at_ns);
    const uint32_t first = m->info.rank - m->info.local;
    if ((uint32_t)rank - first < m->info.locals && is_cut(m, at_ns))
        rank = COMM_NOBODY; /* it waits for another node, too */
    if (rank == COMM_NOBODY && silent == COMM_NOBODY)
        return others_late(m, waited_s, operation);
    if (silent != COMM_NOBODY) { /* who is late may wait for it, too */
        rank = silent;
        what = "has not answered: it is stopped or gone";
    }
    const bool elsewhere =
        (uint32_t)rank - first >= m->info.locals && m->info.ranks > m->info.nodes;
    return mpi_fail(m, -EPIPE, rank, "%s%s %s; waited %.0f s for it in the %s",
                    comm_rank_text(&m->info, (uint32_t)rank, name),
                    elsewhere ? ", or one of its node that it waits for," : "", what, waited_s,
                    operation);
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
