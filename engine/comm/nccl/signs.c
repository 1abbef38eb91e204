/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signs of life where MPI has not launched: so that one that loads for long is told from one that
 * hangs, and neither is waited for in vain nor given up. From the join on, and from the end of an
 * operation that is patient, ranks are apart until each begins its next one. Meanwhile they add up
 * on their GPUs how many have come to it, round by round: a rank that has come does so at once, one
 * that is at work by its thread, each second. A round takes no longer than any operation, or the
 * comm fails. Where all have come in the same round they know it from its sum, and none has begun
 * another: so all ranks call NCCL in one order, whatever each of them does meanwhile.
 *
 * While ranks are apart who has the lock uses NCCL, the stream and the failure. At all other times
 * they are the owner's alone, and the thread sleeps.
 */
#include "comm/nccl/nccl_comm.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#define SIGN_S        1.0
#define SIGNS_LEAST   4.0 /* so many are given within the limit */
#define NS_PER_SECOND 1000000000ull

static void lock(struct nccl *n)
{
    pthread_mutex_lock(&n->signs.lock);
}

static void unlock(struct nccl *n)
{
    pthread_mutex_unlock(&n->signs.lock);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* True once it is time for another sign; the lock is the thread's before and after. */
static bool wait_for_turn(struct nccl *n)
{
    const double most_s = n->config.limit_s / SIGNS_LEAST;
    const double wait_s = SIGN_S < most_s ? SIGN_S : most_s;
    const uint64_t until_ns = nccl_now_ns() + (uint64_t)(wait_s * (double)NS_PER_SECOND);
    const struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_SECOND),
                                   .tv_nsec = (long)(until_ns % NS_PER_SECOND)};
    struct nccl_signs *s = &n->signs;
    if (!s->apart || n->failure.native) {
        pthread_cond_wait(&s->wake, &s->lock);
        return false;
    }
    return pthread_cond_timedwait(&s->wake, &s->lock, &until) == ETIMEDOUT && s->apart;
}

static void *give_signs(void *arg)
{
    struct nccl *n = arg;
    const struct comm_op op = {.kind = COMM_SUM64, .name = "signs of life"};
    lock(n);
    while (!nccl_is_ending(n))
        if (wait_for_turn(n) && !nccl_is_ending(n)) {
            int64_t come = 0;
            n->wait_s = n->config.limit_s;
            (void)nccl_sum_one(n, &op, nccl_now_ns(), &come); /* a failure is told to who comes */
        }
    unlock(n);
    return NULL;
}

static int make_lock(struct nccl_signs *s)
{
    pthread_condattr_t steady;
    int error = pthread_condattr_init(&steady);
    if (error)
        return error;
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    error = pthread_cond_init(&s->wake, &steady);
    pthread_condattr_destroy(&steady);
    return error ? error : pthread_mutex_init(&s->lock, NULL);
}

/* Signals are for the owner's threads. */
static int start_thread(struct nccl *n)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&n->signs.thread, NULL, give_signs, n);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int nccl_signs_begin(struct nccl *n)
{
    struct nccl_signs *s = &n->signs;
    if (n->control)
        return 0;
    const int rc = n->ops->event_create(n->dev, &s->passed);
    if (rc)
        return nccl_device_failed(n, rc, "no event for signs of life");
    int error = make_lock(s);
    error = error ? error : start_thread(n);
    if (error)
        return nccl_fail(n, -error, COMM_NOBODY, "no thread for signs of life: %s",
                         strerror(error));
    s->begun = true;
    return nccl_part(n);
}

/* A round that is under way ends at once. */
void nccl_signs_end(struct nccl *n)
{
    struct nccl_signs *s = &n->signs;
    if (s->begun) {
        __atomic_store_n(&s->ending, true, __ATOMIC_RELEASE);
        lock(n);
        s->apart = false;
        pthread_cond_signal(&s->wake);
        unlock(n);
        pthread_join(s->thread, NULL);
        pthread_cond_destroy(&s->wake);
        pthread_mutex_destroy(&s->lock);
    }
    s->begun = false;
}

/* ---- the owner ------------------------------------------------------------------------------- */

int nccl_part(struct nccl *n)
{
    struct nccl_signs *s = &n->signs;
    int rc = 0;
    while (s->begun && (rc = nccl_progress(n)) == 0 && n->ended < n->begun)
        nccl_nap();
    if (rc || !s->begun)
        return rc;
    lock(n);
    s->apart = true;
    pthread_cond_signal(&s->wake);
    unlock(n);
    return 0;
}

/* One that is not patient has its limit for all rounds together. */
int nccl_come(struct nccl *n, const struct comm_op *op)
{
    const uint64_t since_ns = nccl_now_ns();
    struct comm_op round = *op;
    round.patient = false;
    if (!n->signs.apart)
        return 0;
    lock(n); /* once the round is over that the thread is in */
    int rc = n->failure.native;
    int64_t come = 0;
    while (!rc && come < (int64_t)n->info.ranks) {
        come = 1;
        n->wait_s = nccl_limit_s(n, &round);
        rc = nccl_sum_one(n, &round, op->patient ? nccl_now_ns() : since_ns, &come);
        if (!rc && come < (int64_t)n->info.ranks)
            rc = nccl_check_time(n, op, since_ns);
    }
    n->wait_s = n->config.limit_s;
    n->signs.apart = false;
    unlock(n);
    return rc;
}

void nccl_failure(struct nccl *n, struct comm_failure *told)
{
    *told = (struct comm_failure){.rank = COMM_NOBODY};
    if (!n->signs.apart) {
        *told = n->failure;
    } else if (pthread_mutex_trylock(&n->signs.lock) == 0) { /* in a round there is none yet */
        *told = n->failure;
        unlock(n);
    }
}
