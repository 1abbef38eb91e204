/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a job on several lanes at once and turns what they did into one measured point. */
#include "nvme_bench/measure.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* ---- real drives: a thread per lane ---- */

/* All begin at once, or, where one cannot be started, none. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum { GATE_CLOSED, GATE_OPEN, GATE_GIVEN_UP } state;
};

struct worker {
    pthread_t thread;
    struct gate *gate;
    struct nb_lane *lane;
    const struct nb_job *job;
};

static void *work(void *argument)
{
    struct worker *w = argument;
    pthread_mutex_lock(&w->gate->lock);
    while (w->gate->state == GATE_CLOSED)
        pthread_cond_wait(&w->gate->changed, &w->gate->lock);
    bool go = w->gate->state == GATE_OPEN;
    pthread_mutex_unlock(&w->gate->lock);
    if (go)
        nb_lane_run(w->lane, w->job);
    return NULL;
}

/* The caller runs the first lane itself. */
static int run_threads(struct nb_lane *const *lanes, const struct nb_job *jobs, uint32_t count)
{
    struct worker workers[NB_MAX_DRIVES * NB_MAX_THREADS];
    struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, GATE_CLOSED};
    sigset_t all, before;
    uint32_t started = 1;
    int rc = 0;
    sigfillset(&all); /* signals are the main thread's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; !rc && started < count; started += rc == 0) {
        workers[started] =
            (struct worker){.gate = &gate, .lane = lanes[started], .job = &jobs[started]};
        rc = -pthread_create(&workers[started].thread, NULL, work, &workers[started]);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_mutex_lock(&gate.lock);
    gate.state = rc ? GATE_GIVEN_UP : GATE_OPEN;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
    if (!rc)
        nb_lane_run(lanes[0], &jobs[0]);
    for (uint32_t i = 1; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    return rc;
}

/* ---- simulated drives: one thread, one clock ---- */

static int run_in_turn(struct nb_lane *const *lanes, const struct nb_job *jobs, uint32_t count)
{
    struct hst_aio *contexts[NB_MAX_DRIVES];
    for (uint32_t i = 0; i < count; i++) {
        contexts[i] = lanes[i]->aio;
        nb_lane_begin(lanes[i], &jobs[i]);
    }
    while (true) {
        bool ready[NB_MAX_DRIVES] = {false}, busy = false;
        for (uint32_t i = 0; i < count; i++)
            busy |= nb_lane_feed(lanes[i]);
        if (!busy)
            return 0;
        int rc = hst_aio_wait_any(contexts, count, ready, UINT64_MAX);
        if (rc < 0)
            return rc;
        for (uint32_t i = 0; i < count; i++)
            if (ready[i])
                nb_lane_collect(lanes[i], 0);
    }
}

/* ---- the point ---- */

static void sum_up(struct nb_bench *b, struct nb_lane *const *lanes, uint32_t count,
                   struct nb_point *point)
{
    const struct nb_latencies *sets[NB_MAX_DRIVES * NB_MAX_THREADS];
    uint64_t start = UINT64_MAX, end = 0;
    point->bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct nb_lane *lane = lanes[i];
        sets[i] = &lane->latencies;
        start = lane->start_ns < start ? lane->start_ns : start;
        end = lane->end_ns > end ? lane->end_ns : end;
        point->bytes += lane->moved_bytes;
        b->result->written_bytes += lane->written_bytes;
    }
    point->seconds = end > start ? (double)(end - start) * 1e-9 : 0;
    point->rate = end > start ? (double)point->bytes * 1e9 / (double)(end - start) : 0;
    nb_latencies_percentiles(sets, count, b->scratch, point->latency_ns);
}

int nb_run_lanes(struct nb_bench *b, struct nb_lane *const *lanes, const struct nb_job *jobs,
                 uint32_t count, struct nb_point *point)
{
    double cpu = cpu_seconds();
    int rc = 0;
    if (count == 1)
        nb_lane_run(lanes[0], &jobs[0]);
    else if (b->world)
        rc = run_in_turn(lanes, jobs, count);
    else
        rc = run_threads(lanes, jobs, count);
    cpu = cpu_seconds() - cpu;
    if (rc)
        return fail(b->error, FAIL_DEVICE, rc, "threads cannot be started (%s). Fix: --threads 1.",
                    strerror(-rc));
    for (uint32_t i = 0; i < count; i++)
        if (lanes[i]->error)
            return nb_lane_fail(b, lanes[i]);
    if (*b->stopped)
        return -ECANCELED;
    sum_up(b, lanes, count, point);
    /* In virtual time there is no CPU time. */
    point->cpu_s_per_gb =
        b->world || point->bytes == 0 ? NAN : cpu * NB_BYTES_PER_GB / (double)point->bytes;
    return 0;
}

int nb_lane_fail(struct nb_bench *b, const struct nb_lane *lane)
{
    const char *path = b->result->drives[lane->drive].path;
    if (lane->error == -ENOSPC)
        return fail(b->error, FAIL_DISK_SPACE, lane->error,
                    "'%.200s' has no space left while it is measured. Fix: free some, or a "
                    "smaller --size.",
                    path);
    if (lane->error == -ETIMEDOUT)
        return fail(b->error, FAIL_READ, lane->error,
                    "'%.200s' has answered no request for 120 s. Fix: see dmesg and smartctl -a "
                    "for the drive.",
                    path);
    return fail(b->error, lane->failed.write ? FAIL_WRITE : FAIL_READ, lane->error,
                "'%.200s', file %u, offset %llu: a %s failed (%s). Fix: see dmesg and smartctl -a "
                "for the drive.",
                path, lane->index, (unsigned long long)lane->failed.offset,
                lane->failed.write ? "write" : "read", strerror(-lane->error));
}
