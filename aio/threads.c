/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads backend: a fixed pool in pread, pwrite and fdatasync, for machines where io_uring is
 * forbidden.
 *
 * One lock guards both queues; it is held for a few instructions per piece of about 1 MiB. The
 * threads block every signal: handlers run on the caller's threads, and the SIGXFSZ of a write
 * beyond RLIMIT_FSIZE stays pending here while the write returns EFBIG.
 */
#include "internal.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work; /* the queue is not empty, or stop */
    pthread_cond_t news; /* finished_count has reached wake_at */
    bool stop;
    bool abandoned; /* with stop: threads are in calls that do not return; the last one frees it */
    uint32_t busy;  /* threads in a call */
    uint32_t capacity;
    struct piece **queue; /* a circle of `capacity` */
    uint32_t queue_head, queue_count;
    struct piece **finished;
    uint32_t finished_count;
    uint32_t wake_at; /* 0: nobody waits */
    int event_fd;     /* readable while finished_count > 0; -1: nobody has asked for it */
    uint32_t thread_count;
    pthread_t threads[HST_AIO_THREADS_MAX];
};

static int perform(const struct piece *piece, int fd)
{
    ssize_t n = -1;
    switch (piece->kind) {
    case HST_AIO_READ:
        n = pread(fd, piece->buffer, piece->bytes, (off_t)piece->offset);
        break;
    case HST_AIO_WRITE:
        n = pwrite(fd, piece->buffer, piece->bytes, (off_t)piece->offset);
        break;
    case HST_AIO_SYNC:
        n = fdatasync(fd);
        break;
    }
    return n < 0 ? -errno : (int)n;
}

static void pool_free(struct pool *pool)
{
    pthread_cond_destroy(&pool->news);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    if (pool->event_fd >= 0)
        close(pool->event_fd);
    free(pool->finished);
    free(pool->queue);
    free(pool);
}

/* A call that has returned; the context, and the piece with it, may be gone. */
static void answer(struct pool *pool, struct piece *piece, int result)
{
    if (pool->abandoned)
        return;
    piece->result = result;
    pool->finished[pool->finished_count++] = piece;
    if (pool->finished_count == pool->wake_at)
        pthread_cond_signal(&pool->news);
    if (pool->finished_count == 1 && pool->event_fd >= 0)
        eventfd_write(pool->event_fd, 1);
}

static void *worker(void *arg)
{
    struct pool *pool = arg;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->queue_count == 0 && !pool->stop)
            pthread_cond_wait(&pool->work, &pool->lock);
        if (pool->stop)
            break;
        struct piece *piece = pool->queue[pool->queue_head];
        const struct piece request = *piece;
        const int fd = request.file->fd;
        pool->queue_head = (pool->queue_head + 1) % pool->capacity;
        pool->queue_count--;
        pool->busy++;
        pthread_mutex_unlock(&pool->lock);
        const int result = perform(&request, fd);
        pthread_mutex_lock(&pool->lock);
        pool->busy--;
        answer(pool, piece, result);
    }
    const bool last = --pool->thread_count == 0 && pool->abandoned;
    pthread_mutex_unlock(&pool->lock);
    if (last)
        pool_free(pool);
    return NULL;
}

/* Threads in calls that may never return are left to themselves where the context is broken. */
static void pool_destroy(struct pool *pool, bool broken)
{
    pthread_mutex_lock(&pool->lock);
    const uint32_t count = pool->thread_count;
    const bool abandoned = broken && pool->busy > 0;
    pthread_t threads[HST_AIO_THREADS_MAX];
    memcpy(threads, pool->threads, sizeof threads);
    pool->stop = true;
    pool->abandoned = abandoned;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock); /* from here on an abandoned pool is its threads' */
    for (uint32_t i = 0; i < count; i++)
        if (abandoned)
            pthread_detach(threads[i]);
        else
            pthread_join(threads[i], NULL);
    if (!abandoned)
        pool_free(pool);
}

static int pool_start(struct pool *pool, uint32_t thread_count)
{
    sigset_t all, before;
    int rc = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new threads inherit it */
    while (rc == 0 && pool->thread_count < thread_count) {
        rc = pthread_create(&pool->threads[pool->thread_count], NULL, worker, pool);
        if (rc != 0)
            break;
        pthread_setname_np(pool->threads[pool->thread_count], "hst-aio");
        pool->thread_count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -rc;
}

static int threads_open(struct hst_aio *aio, const char **step)
{
    *step = "memory";
    struct pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return -ENOMEM;
    pool->capacity = aio->piece_capacity;
    pool->event_fd = -1;
    pool->queue = calloc(pool->capacity, sizeof(struct piece *));
    pool->finished = calloc(pool->capacity, sizeof(struct piece *));
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->news, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int rc = -ENOMEM;
    if (pool->queue && pool->finished) {
        *step = "pthread_create";
        rc = pool_start(pool, aio->config.thread_count);
    }
    if (rc < 0) {
        pool_destroy(pool, false);
        return rc;
    }
    aio->piece_limit = aio->piece_capacity;
    aio->state = pool;
    return 0;
}

static void threads_close(struct hst_aio *aio)
{
    pool_destroy(aio->state, aio->broken != 0);
}

static void threads_push(struct hst_aio *aio, struct piece *piece)
{
    struct pool *pool = aio->state;
    pthread_mutex_lock(&pool->lock);
    assert(pool->queue_count < pool->capacity);
    pool->queue[(pool->queue_head + pool->queue_count++) % pool->capacity] = piece;
    pthread_cond_signal(&pool->work);
    pthread_mutex_unlock(&pool->lock);
}

static int threads_flush(struct hst_aio *aio)
{
    (void)aio; /* every push has started its piece */
    return 0;
}

static void threads_drop(struct hst_aio *aio)
{
    struct pool *pool = aio->state;
    pthread_mutex_lock(&pool->lock);
    pool->queue_count = 0;
    pthread_mutex_unlock(&pool->lock);
}

static int threads_wait(struct hst_aio *aio, uint32_t least, uint64_t timeout_ns)
{
    struct pool *pool = aio->state;
    struct timespec deadline = {0};
    const bool limited = timeout_ns != UINT64_MAX;
    uint64_t end_ns;
    if (least > 0 && limited) {
        if (__builtin_add_overflow(hst_aio_now_ns(), timeout_ns, &end_ns))
            end_ns = INT64_MAX;
        deadline.tv_sec = (time_t)(end_ns / 1000000000u);
        deadline.tv_nsec = (long)(end_ns % 1000000000u);
    }
    pthread_mutex_lock(&pool->lock);
    int rc = 0;
    pool->wake_at = least;
    while (pool->finished_count < least && rc == 0)
        rc = limited ? pthread_cond_timedwait(&pool->news, &pool->lock, &deadline)
                     : pthread_cond_wait(&pool->news, &pool->lock);
    pool->wake_at = 0;
    const uint32_t count = pool->finished_count;
    for (uint32_t i = 0; i < count; i++)
        aio->finished[i] = pool->finished[i];
    pool->finished_count = 0;
    eventfd_t drained;
    if (count > 0 && pool->event_fd >= 0)
        eventfd_read(pool->event_fd, &drained);
    pthread_mutex_unlock(&pool->lock);
    return (int)count;
}

static int threads_descriptor(struct hst_aio *aio)
{
    struct pool *pool = aio->state;
    pthread_mutex_lock(&pool->lock);
    if (pool->event_fd < 0)
        pool->event_fd = eventfd(pool->finished_count > 0, EFD_CLOEXEC | EFD_NONBLOCK);
    const int fd = pool->event_fd < 0 ? -errno : pool->event_fd;
    pthread_mutex_unlock(&pool->lock);
    return fd;
}

const struct hst_aio_ops hst_aio_threads_ops = {
    .id = HST_AIO_THREADS,
    .open = threads_open,
    .close = threads_close,
    .push = threads_push,
    .flush = threads_flush,
    .wait = threads_wait,
    .drop = threads_drop,
    .descriptor = threads_descriptor,
};
