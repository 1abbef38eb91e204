/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that makes all calls of MPI: starts it, takes jobs in order, and ends it. */
#include "comm/mpi/mpi_comm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#define SLACK_NS      1000ul     /* a nap may be so much longer */
#define IDLE_NS       100000000L /* between signs of life, where there is nothing to do */
#define NS_PER_SECOND 1000000000l

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
        rc = mpi_fail(m, -EIO, COMM_NOBODY, "this MPI cannot be called from a thread of its own");
    rc = rc ? rc : check_world(m);
    if (rc)
        return rc;
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return mpi_node_open(m, rank);
}

enum next { NEXT_NONE, NEXT_JOB, NEXT_END };

/* This is what there is to do; where that is nothing, sleeps a little. After a failure: only an
   end. */
static enum next what_next(struct mpi *m, bool failed)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += IDLE_NS;
    until.tv_sec += until.tv_nsec / NS_PER_SECOND;
    until.tv_nsec %= NS_PER_SECOND;
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
    case JOB_EXPOSE:
        return mpi_expose(m, m->job.block);
    case JOB_FREE:
        return mpi_free(m, m->job.block);
    case JOB_NUMBER:
        return mpi_number(m, m->job.rank);
    case JOB_CLOSE:
        return mpi_meet_all(m);
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
    mpi_ring(m);
}

static void is_open(struct mpi *m)
{
    pthread_mutex_lock(&m->lock);
    m->opened = true;
    pthread_cond_broadcast(&m->wake);
    pthread_mutex_unlock(&m->lock);
}

/* After a failure MPI is called for an end alone: more could wait for ever. */
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
