/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The io_uring backend.
 *
 * One ring per context. The best flags make it single-issuer with deferred task work: completions
 * are processed when the owner asks and never interrupt it while it computes. The kernel binds such
 * a ring to the thread that made it, and without those flags too I/O belongs to the thread that
 * started it. A context may wander between threads while nothing is in flight, so `claim` makes a
 * new ring (about 0.05 ms) when it finds itself on another thread. IORING_SETUP_R_DISABLED would
 * allow one such move, from open to first use, and break at the second.
 *
 * Not used: SQPOLL (burns a core), IOPOLL (needs poll queues), the timeout operation (the wait
 * carries its timeout in its argument: kernel 5.11). The completion queue has twice the entries of
 * what can be in flight: it cannot overflow.
 */
#include "internal.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct uring {
    struct io_uring ring;
    pid_t
        /*
         * thread that made the ring; pthread_t values are used again too soon to tell threads
         * apart
         */
        owner;
    bool live;
};

static int setup(struct io_uring *ring, uint32_t entries)
{
    static const unsigned flag_sets[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, /* Linux 6.1 */
        IORING_SETUP_COOP_TASKRUN,                               /* Linux 5.19 */
        0,
    };
    int rc = -EINVAL;
    for (size_t i = 0; i < sizeof flag_sets / sizeof *flag_sets && rc == -EINVAL; i++) {
        rc = -ENOMEM; /* rings may count against RLIMIT_MEMLOCK: smaller ones may fit */
        for (uint32_t n = entries; rc == -ENOMEM && n >= HST_AIO_PIECES_MIN; n /= 2) {
            struct io_uring_params params = {
                .flags = flag_sets[i] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
                .cq_entries = 2 * n,
            };
            rc = io_uring_queue_init_params(n, ring, &params);
        }
    }
    return rc;
}

static int ring_open(struct hst_aio *aio, const char **step)
{
    struct uring *uring = aio->state;
    *step = "io_uring_setup";
    int rc = setup(&uring->ring, aio->piece_capacity);
    if (rc < 0)
        return rc;
    if (!(uring->ring.features & IORING_FEAT_EXT_ARG)) {
        *step = "io_uring features (Linux 5.11)";
        rc = -ENOSYS;
        goto err_ring;
    }
    *step = "io_uring_ring_dontfork";
    rc = io_uring_ring_dontfork(&uring->ring);
    if (rc < 0)
        goto err_ring;
    const uint32_t entries = uring->ring.sq.ring_entries;
    aio->piece_limit = entries < aio->piece_capacity ? entries : aio->piece_capacity;
    uring->owner = gettid();
    uring->live = true;
    return 0;

err_ring:
    io_uring_queue_exit(&uring->ring);
    return rc;
}

static int uring_open(struct hst_aio *aio, const char **step)
{
    *step = "memory";
    aio->state = calloc(1, sizeof(struct uring));
    if (!aio->state)
        return -ENOMEM;
    int rc = ring_open(aio, step);
    if (rc < 0)
        free(aio->state);
    return rc;
}

static void ring_close(struct uring *uring)
{
    if (uring->live)
        io_uring_queue_exit(&uring->ring);
    uring->live = false;
}

static void uring_close(struct hst_aio *aio)
{
    ring_close(aio->state);
    free(aio->state);
}

static int uring_claim(struct hst_aio *aio)
{
    struct uring *uring = aio->state;
    const char *step;
    if (uring->live && uring->owner == gettid())
        return 0;
    ring_close(uring);
    return ring_open(aio, &step);
}

static void uring_push(struct hst_aio *aio, struct piece *piece)
{
    struct uring *uring = aio->state;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    assert(sqe); /* entries >= piece_limit */
    switch (piece->kind) {
    case HST_AIO_READ:
        io_uring_prep_read(sqe, piece->fd, piece->buffer, piece->bytes, piece->offset);
        break;
    case HST_AIO_WRITE:
        io_uring_prep_write(sqe, piece->fd, piece->buffer, piece->bytes, piece->offset);
        break;
    case HST_AIO_SYNC:
        io_uring_prep_fsync(sqe, piece->fd, IORING_FSYNC_DATASYNC);
        break;
    }
    /* A worker of the kernel may sleep where the inline attempt, which may not, said EAGAIN. */
    if (piece->retries > 0)
        io_uring_sqe_set_flags(sqe, IOSQE_ASYNC);
    io_uring_sqe_set_data(sqe, piece);
}

/*
 * What io_uring_enter says when it could not do everything now; what is left in the queue goes
 * with the next call.
 */
static bool is_passing(int rc)
{
    return rc >= 0 || rc == -ETIME || rc == -EINTR || rc == -EAGAIN || rc == -EBUSY ||
           rc == -ENOMEM;
}

static int uring_flush(struct hst_aio *aio)
{
    struct uring *uring = aio->state;
    int rc = io_uring_submit(&uring->ring);
    return is_passing(rc) ? 0 : rc;
}

/* Takes what the completion queue holds, without a system call. */
static uint32_t harvest(struct hst_aio *aio, uint32_t count)
{
    struct uring *uring = aio->state;
    struct io_uring_cqe *cqe;
    unsigned head, seen = 0;
    assert(!io_uring_cq_has_overflow(&uring->ring));
    io_uring_for_each_cqe(&uring->ring, head, cqe)
    {
        struct piece *piece = io_uring_cqe_get_data(cqe);
        piece->result = cqe->res;
        aio->finished[count + seen++] = piece;
    }
    io_uring_cq_advance(&uring->ring, seen);
    return count + seen;
}

static int uring_wait(struct hst_aio *aio, uint32_t least, uint64_t timeout_ns)
{
    struct uring *uring = aio->state;
    uint32_t count = harvest(aio, 0);
    if (count > 0 && count >= least && io_uring_sq_ready(&uring->ring) == 0)
        return (int)count;

    int rc;
    if (count >= least) {
        rc = io_uring_submit_and_get_events(&uring->ring);
    } else {
        struct __kernel_timespec limit = {
            .tv_sec = (long long)(timeout_ns / 1000000000u),
            .tv_nsec = (long long)(timeout_ns % 1000000000u),
        };
        struct io_uring_cqe *cqe;
        rc = io_uring_submit_and_wait_timeout(&uring->ring, &cqe, least - count,
                                              timeout_ns == UINT64_MAX ? NULL : &limit, NULL);
    }
    if (!is_passing(rc))
        return rc;
    const uint32_t before = count;
    count = harvest(aio, count);
    if (count == before && least > 0 && (rc == -EAGAIN || rc == -EBUSY || rc == -ENOMEM)) {
        const struct timespec pause = {.tv_nsec = 1000000}; /* the kernel is short of memory */
        nanosleep(&pause, NULL);
    }
    return (int)count;
}

const struct hst_aio_ops hst_aio_uring_ops = {
    .id = HST_AIO_URING,
    .open = uring_open,
    .close = uring_close,
    .claim = uring_claim,
    .push = uring_push,
    .flush = uring_flush,
    .wait = uring_wait,
};
