/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces are handed out by one atomic counter: no lock per piece, and no piece belongs to a thread,
 * so a slow core takes fewer. Which thread does a piece never shows in the result. Idle threads
 * spin for a few tens of microseconds, the distance between two operations of a layer, before they
 * sleep.
 */
#include "machine/workers.h"

#include "base/clock.h"
#include "machine/machine.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define SPIN_ROUNDS 4000u

struct worker {
    struct workers *workers;
    unsigned number;
    pthread_t thread;
};

struct workers {
    unsigned width;
    struct worker *helpers; /* [width - 1] */
    /* One job at a time, in the order in which they were asked for. A computation asks again at
       once: a mutex alone lets it in again and again, and updates beside it wait for its end. */
    pthread_mutex_t turn_lock;
    pthread_cond_t turn;
    uint64_t turns, turn_now; /* that were asked for; whose it is */

    void (*body)(void *arg, size_t index, unsigned worker);
    void *arg;
    size_t count;
    unsigned most;          /* workers that take pieces */
    atomic_size_t next;     /* piece to hand out */
    atomic_uint generation; /* rises by one per job: what helpers wait for */
    atomic_uint busy;       /* helpers that have not finished the job */
    atomic_bool stop;

    pthread_mutex_t sleep_lock;
    pthread_cond_t wake, idle;
};

static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* It takes so many of all, on each NUMA node the same share; the caller, number 0, is one. */
static bool takes_part(const struct workers *workers, unsigned number)
{
    return (uint64_t)number * workers->most % workers->width < workers->most;
}

static void take_pieces(struct workers *workers, unsigned number)
{
    size_t count = workers->count;
    for (;;) {
        size_t index = atomic_fetch_add_explicit(&workers->next, 1, memory_order_relaxed);
        if (index >= count)
            return;
        workers->body(workers->arg, index, number);
    }
}

static bool generation_moved(struct workers *workers, unsigned seen)
{
    return atomic_load_explicit(&workers->generation, memory_order_acquire) != seen;
}

static void wait_for_job(struct workers *workers, unsigned seen)
{
    for (unsigned i = 0; i < SPIN_ROUNDS; i++) {
        if (generation_moved(workers, seen))
            return;
        spin_pause();
    }
    pthread_mutex_lock(&workers->sleep_lock);
    while (!generation_moved(workers, seen))
        pthread_cond_wait(&workers->wake, &workers->sleep_lock);
    pthread_mutex_unlock(&workers->sleep_lock);
}

static void finish_job(struct workers *workers)
{
    if (atomic_fetch_sub_explicit(&workers->busy, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_lock(&workers->sleep_lock);
    pthread_cond_signal(&workers->idle);
    pthread_mutex_unlock(&workers->sleep_lock);
}

static void *helper_main(void *arg)
{
    struct worker *self = arg;
    struct workers *workers = self->workers;
    unsigned seen = 0;
    for (;;) {
        wait_for_job(workers, seen);
        seen++;
        if (atomic_load_explicit(&workers->stop, memory_order_acquire))
            return NULL;
        if (takes_part(workers, self->number))
            take_pieces(workers, self->number);
        finish_job(workers);
    }
}

static void begin_job(struct workers *workers)
{
    atomic_store_explicit(&workers->next, 0, memory_order_relaxed);
    atomic_store_explicit(&workers->busy, workers->width - 1, memory_order_relaxed);
    pthread_mutex_lock(&workers->sleep_lock);
    atomic_fetch_add_explicit(&workers->generation, 1, memory_order_release);
    pthread_cond_broadcast(&workers->wake);
    pthread_mutex_unlock(&workers->sleep_lock);
}

static bool all_idle(struct workers *workers)
{
    return atomic_load_explicit(&workers->busy, memory_order_acquire) == 0;
}

static void wait_for_helpers(struct workers *workers)
{
    for (unsigned i = 0; i < SPIN_ROUNDS; i++) {
        if (all_idle(workers))
            return;
        spin_pause();
    }
    pthread_mutex_lock(&workers->sleep_lock);
    while (!all_idle(workers))
        pthread_cond_wait(&workers->idle, &workers->sleep_lock);
    pthread_mutex_unlock(&workers->sleep_lock);
}

/* It sleeps: a thread that spins takes a core from the job it waits for. */
static void await_turn(struct workers *workers)
{
    pthread_mutex_lock(&workers->turn_lock);
    const uint64_t own = workers->turns++;
    while (workers->turn_now != own)
        pthread_cond_wait(&workers->turn, &workers->turn_lock);
    pthread_mutex_unlock(&workers->turn_lock);
}

static void end_turn(struct workers *workers)
{
    pthread_mutex_lock(&workers->turn_lock);
    workers->turn_now++;
    if (workers->turn_now != workers->turns)
        pthread_cond_broadcast(&workers->turn);
    pthread_mutex_unlock(&workers->turn_lock);
}

/* In the caller's turn. */
static void run_job(struct workers *workers, unsigned most, size_t count,
                    void (*body)(void *arg, size_t index, unsigned worker), void *arg)
{
    workers->body = body;
    workers->arg = arg;
    workers->count = count;
    workers->most = most > 0 && most < workers->width ? most : workers->width;
    if (count > 1 && workers->most > 1) {
        begin_job(workers);
        take_pieces(workers, 0);
        wait_for_helpers(workers);
    } else {
        for (size_t i = 0; i < count; i++)
            body(arg, i, 0);
    }
}

void workers_run(void *context, size_t count,
                 void (*body)(void *arg, size_t index, unsigned worker), void *arg)
{
    struct workers *workers = context;
    await_turn(workers);
    run_job(workers, 0, count, body, arg);
    end_turn(workers);
}

double workers_time(struct workers *workers, unsigned most, size_t count,
                    void (*body)(void *arg, size_t index, unsigned worker), void *arg)
{
    await_turn(workers);
    double start_s = clock_seconds();
    run_job(workers, most, count, body, arg);
    double end_s = clock_seconds();
    end_turn(workers);
    return end_s - start_s;
}

static void stop_helpers(struct workers *workers, unsigned started)
{
    atomic_store_explicit(&workers->stop, true, memory_order_release);
    begin_job(workers);
    for (unsigned i = 0; i < started; i++)
        pthread_join(workers->helpers[i].thread, NULL);
}

static int start_helpers(struct workers *workers)
{
    for (unsigned i = 0; i + 1 < workers->width; i++) {
        struct worker *helper = &workers->helpers[i];
        *helper = (struct worker){.workers = workers, .number = i + 1};
        int rc = pthread_create(&helper->thread, NULL, helper_main, helper);
        if (rc) {
            stop_helpers(workers, i);
            return -rc;
        }
        char name[16]; /* the kernel keeps 15 characters */
        snprintf(name, sizeof name, "hst-work-%u", (i + 1) % 100000);
        pthread_setname_np(helper->thread, name);
    }
    return 0;
}

/* Far memory is slow, no more: a system that does not let threads be bound is no error. */
static void bind_helpers(struct workers *workers)
{
    unsigned count = workers->width - 1;
    pthread_t *threads = calloc((size_t)count + 1, sizeof *threads);
    for (unsigned i = 0; threads && i < count; i++)
        threads[i] = workers->helpers[i].thread;
    if (threads && count > 0)
        (void)machine_bind(threads, count);
    free(threads);
}

static void workers_free(struct workers *workers)
{
    pthread_cond_destroy(&workers->idle);
    pthread_cond_destroy(&workers->wake);
    pthread_mutex_destroy(&workers->sleep_lock);
    pthread_cond_destroy(&workers->turn);
    pthread_mutex_destroy(&workers->turn_lock);
    free(workers->helpers);
    free(workers);
}

int workers_create(unsigned width, struct workers **workers)
{
    struct workers *w = calloc(1, sizeof *w);
    if (!w)
        return -ENOMEM;
    w->width = width;
    w->helpers = calloc(width, sizeof *w->helpers);
    pthread_mutex_init(&w->turn_lock, NULL);
    pthread_cond_init(&w->turn, NULL);
    pthread_mutex_init(&w->sleep_lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    pthread_cond_init(&w->idle, NULL);
    int rc = w->helpers ? start_helpers(w) : -ENOMEM;
    if (rc) {
        workers_free(w);
        return rc;
    }
    bind_helpers(w);
    *workers = w;
    return 0;
}

void workers_destroy(struct workers **workers)
{
    if (!*workers)
        return;
    stop_helpers(*workers, (*workers)->width - 1);
    workers_free(*workers);
    *workers = NULL;
}
