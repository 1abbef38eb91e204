/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events. A stream is one thread and a ring of records of fixed size. Its progress is a
 * timeline: how many records were queued, how many are done, and the first error. An event is a
 * place on a timeline, so recording one queues nothing. Timelines are counted references: an event,
 * or a wait that another stream has not reached yet, may outlive the stream it speaks of.
 */
#include "host.h"
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { RING_RECORDS = 2048, ARGS_BYTES = 192 };

struct timeline {
    pthread_mutex_t lock;
    pthread_cond_t progress; /* a record is done, an error came, or a slot is free */
    uint64_t queued, done;
    int error;
    unsigned waiting; /* threads asleep on progress */
    unsigned references;
    int fd; /* an eventfd that rings when the mark is passed; -1: nobody has asked for it */
    uint64_t watched; /* the mark; UINT64_MAX: none */
};

struct record {
    host_op *op;
    bool always; /* runs after an error too */
    _Alignas(16) unsigned char args[ARGS_BYTES];
};

struct host_stream {
    struct hst_stream base;
    struct timeline *timeline;
    pthread_cond_t work; /* a record was queued, or the stream is ending */
    bool idle, ending;
    pthread_t thread;
    char name[16];
    struct record ring[RING_RECORDS];
};

/* When a stream came to a mark: the event's, and its record's until it has run. */
struct stamp {
    double seconds; /* of the clock; written by the stream */
    atomic_uint references;
};

struct host_event {
    struct hst_event base;
    bool timed;
    pthread_mutex_t lock;
    struct timeline *timeline; /* null: never recorded */
    uint64_t mark;             /* passed when this many records are done */
    struct stamp *stamp;       /* of a timed one that was recorded */
};

static struct timeline *timeline_create(void)
{
    struct timeline *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->progress, NULL);
    t->references = 1;
    t->fd = -1;
    t->watched = UINT64_MAX;
    return t;
}

static void timeline_hold(struct timeline *t)
{
    pthread_mutex_lock(&t->lock);
    t->references++;
    pthread_mutex_unlock(&t->lock);
}

static void timeline_drop(struct timeline *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    bool last = --t->references == 0;
    pthread_mutex_unlock(&t->lock);
    if (!last)
        return;
    if (t->fd >= 0)
        close(t->fd);
    pthread_cond_destroy(&t->progress);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* The lock is held. */
static void timeline_ring(struct timeline *t)
{
    if (t->done < t->watched)
        return;
    t->watched = UINT64_MAX;
    eventfd_write(t->fd, 1);
}

/* Sleeps until `mark` records are done; the lock is held before and after. */
static void timeline_await(struct timeline *t, uint64_t mark)
{
    while (t->done < mark) {
        t->waiting++;
        pthread_cond_wait(&t->progress, &t->lock);
        t->waiting--;
    }
}

static int timeline_sync(struct timeline *t, uint64_t mark)
{
    pthread_mutex_lock(&t->lock);
    timeline_await(t, mark);
    int error = t->error;
    pthread_mutex_unlock(&t->lock);
    return error;
}

static void run_record(struct host_stream *s, struct record *record)
{
    struct timeline *t = s->timeline;
    bool skip = t->error && !record->always;
    pthread_mutex_unlock(&t->lock);
    int error = skip ? 0 : record->op(host_dev_of(s->base.dev), record->args);
    pthread_mutex_lock(&t->lock);
    if (error && !t->error)
        t->error = error;
    t->done++;
    if (t->waiting)
        pthread_cond_broadcast(&t->progress);
    timeline_ring(t);
}

static void *stream_main(void *arg)
{
    struct host_stream *s = arg;
    struct timeline *t = s->timeline;
    pthread_setname_np(pthread_self(), s->name);
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (t->queued == t->done && !s->ending) {
            s->idle = true;
            pthread_cond_wait(&s->work, &t->lock);
            s->idle = false;
        }
        if (t->queued == t->done)
            break;
        run_record(s, &s->ring[t->done % RING_RECORDS]);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* Signals belong to the owner's threads: a stream's thread takes none. */
static int start_thread(struct host_stream *s)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&s->thread, NULL, stream_main, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -error;
}

int host_stream_create(struct hst_dev *dev, const char *name, struct hst_stream **stream)
{
    if (strlen(name) > 15)
        return -EINVAL;
    struct host_stream *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    int error = -ENOMEM;
    s->base.dev = dev;
    snprintf(s->name, sizeof s->name, "%s", name);
    s->timeline = timeline_create();
    if (!s->timeline)
        goto err_free;
    pthread_cond_init(&s->work, NULL);
    error = start_thread(s);
    if (error)
        goto err_timeline;
    pthread_mutex_lock(&host_dev_of(dev)->lock);
    host_dev_of(dev)->stream_count++;
    pthread_mutex_unlock(&host_dev_of(dev)->lock);
    *stream = &s->base;
    return 0;
err_timeline:
    pthread_cond_destroy(&s->work);
    timeline_drop(s->timeline);
err_free:
    free(s);
    return error;
}

void host_stream_destroy(struct hst_stream *stream)
{
    struct host_stream *s = (struct host_stream *)stream;
    struct host_dev *dev = host_dev_of(stream->dev);
    pthread_mutex_lock(&s->timeline->lock);
    s->ending = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->timeline->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->work);
    timeline_drop(s->timeline);
    free(s);
    pthread_mutex_lock(&dev->lock);
    dev->stream_count--;
    pthread_mutex_unlock(&dev->lock);
}

int host_stream_sync(struct hst_stream *stream)
{
    struct timeline *t = ((struct host_stream *)stream)->timeline;
    pthread_mutex_lock(&t->lock);
    timeline_await(t, t->queued);
    int error = t->error;
    pthread_mutex_unlock(&t->lock);
    return error;
}

static int enqueue(struct host_stream *s, struct record record)
{
    struct timeline *t = s->timeline;
    pthread_mutex_lock(&t->lock);
    if (t->queued - t->done == RING_RECORDS)
        timeline_await(t, t->queued - RING_RECORDS + 1);
    int error = t->error;
    if (!error) {
        s->ring[t->queued++ % RING_RECORDS] = record;
        if (s->idle)
            pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&t->lock);
    return error;
}

int host_enqueue(struct hst_stream *stream, host_op *op, const void *args, size_t args_bytes)
{
    struct record record = {.op = op};
    assert(args_bytes <= sizeof record.args);
    memcpy(record.args, args, args_bytes);
    return enqueue((struct host_stream *)stream, record);
}

struct wait_args {
    struct timeline *timeline;
    uint64_t mark;
};

/* The next work would use what the failed stream has not made: its error passes on. */
static int run_wait(struct host_dev *dev, const void *args)
{
    (void)dev;
    const struct wait_args *wait = args;
    int error = timeline_sync(wait->timeline, wait->mark);
    timeline_drop(wait->timeline);
    return error;
}

/* The event's place, held; null where it was never recorded. */
static struct wait_args event_place(struct hst_event *event)
{
    struct host_event *e = (struct host_event *)event;
    pthread_mutex_lock(&e->lock);
    struct wait_args place = {e->timeline, e->mark};
    if (place.timeline)
        timeline_hold(place.timeline);
    pthread_mutex_unlock(&e->lock);
    return place;
}

int host_stream_wait(struct hst_stream *stream, struct hst_event *event)
{
    struct wait_args place = event_place(event);
    if (!place.timeline)
        return 0;
    struct record record = {.op = run_wait, .always = true};
    memcpy(record.args, &place, sizeof place);
    int error = enqueue((struct host_stream *)stream, record);
    if (error)
        timeline_drop(place.timeline);
    return error;
}

static int create_event(struct hst_dev *dev, bool timed, struct hst_event **event)
{
    struct host_event *e = calloc(1, sizeof *e);
    if (!e)
        return -ENOMEM;
    e->base.dev = dev;
    e->timed = timed;
    pthread_mutex_init(&e->lock, NULL);
    pthread_mutex_lock(&host_dev_of(dev)->lock);
    host_dev_of(dev)->event_count++;
    pthread_mutex_unlock(&host_dev_of(dev)->lock);
    *event = &e->base;
    return 0;
}

int host_event_create(struct hst_dev *dev, struct hst_event **event)
{
    return create_event(dev, false, event);
}

int host_event_create_timed(struct hst_dev *dev, struct hst_event **event)
{
    return create_event(dev, true, event);
}

static void stamp_drop(struct stamp *stamp)
{
    if (stamp && atomic_fetch_sub(&stamp->references, 1) == 1)
        free(stamp);
}

static int run_stamp(struct host_dev *dev, const void *args)
{
    struct stamp *stamp = *(struct stamp *const *)args;
    struct timespec now;
    (void)dev;
    clock_gettime(CLOCK_MONOTONIC, &now);
    stamp->seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    stamp_drop(stamp);
    return 0;
}

/* Each record has a stamp of its own: the one before it may still be on its way. */
static int enqueue_stamp(struct host_stream *s, struct stamp **stamp)
{
    struct record record = {.op = run_stamp, .always = true};
    *stamp = calloc(1, sizeof **stamp);
    if (!*stamp)
        return -ENOMEM;
    atomic_init(&(*stamp)->references, 2);
    memcpy(record.args, stamp, sizeof *stamp);
    int error = enqueue(s, record);
    if (error)
        stamp_drop(*stamp);
    return error;
}

void host_event_destroy(struct hst_event *event)
{
    struct host_event *e = (struct host_event *)event;
    struct host_dev *dev = host_dev_of(event->dev);
    timeline_drop(e->timeline);
    stamp_drop(e->stamp);
    pthread_mutex_destroy(&e->lock);
    free(e);
    pthread_mutex_lock(&dev->lock);
    dev->event_count--;
    pthread_mutex_unlock(&dev->lock);
}

/* A failed stream moves the mark too: whoever waits for it must learn of the error. */
int host_event_record(struct hst_event *event, struct hst_stream *stream)
{
    struct host_event *e = (struct host_event *)event;
    struct timeline *t = ((struct host_stream *)stream)->timeline;
    struct stamp *stamp = NULL;
    int unstamped = e->timed ? enqueue_stamp((struct host_stream *)stream, &stamp) : 0;
    pthread_mutex_lock(&t->lock);
    uint64_t mark = t->queued;
    int error = t->error ? t->error : unstamped;
    t->references++;
    pthread_mutex_unlock(&t->lock);
    pthread_mutex_lock(&e->lock);
    struct timeline *before = e->timeline;
    struct stamp *stamp_before = e->stamp;
    e->timeline = t;
    e->mark = mark;
    e->stamp = stamp;
    pthread_mutex_unlock(&e->lock);
    timeline_drop(before);
    stamp_drop(stamp_before);
    return error;
}

int host_event_query(struct hst_event *event)
{
    struct wait_args place = event_place(event);
    if (!place.timeline)
        return 1;
    pthread_mutex_lock(&place.timeline->lock);
    int state = place.timeline->error ? place.timeline->error : place.timeline->done >= place.mark;
    pthread_mutex_unlock(&place.timeline->lock);
    timeline_drop(place.timeline);
    return state;
}

int host_event_sync(struct hst_event *event)
{
    struct wait_args place = event_place(event);
    if (!place.timeline)
        return 0;
    int error = timeline_sync(place.timeline, place.mark);
    timeline_drop(place.timeline);
    return error;
}

static int timeline_watch(struct timeline *t, uint64_t mark)
{
    eventfd_t told;
    pthread_mutex_lock(&t->lock);
    if (t->fd < 0)
        t->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const int fd = t->fd < 0 ? -EMFILE : t->fd;
    if (fd >= 0) {
        eventfd_read(fd, &told); /* of a mark before */
        t->watched = mark;
        timeline_ring(t);
    }
    pthread_mutex_unlock(&t->lock);
    return fd;
}

int host_event_fd(struct hst_event *event)
{
    struct wait_args place = event_place(event);
    if (!place.timeline)
        return -ENOTSUP;
    int fd = timeline_watch(place.timeline, place.mark);
    timeline_drop(place.timeline);
    return fd;
}

/* *seconds of the mark, where it was passed. */
static int time_of(struct hst_event *event, double *seconds)
{
    struct host_event *e = (struct host_event *)event;
    int state = host_event_query(event);
    if (state != 1)
        return state ? state : -EAGAIN;
    pthread_mutex_lock(&e->lock);
    int rc = e->stamp ? 0 : -EINVAL;
    if (!rc)
        *seconds = e->stamp->seconds;
    pthread_mutex_unlock(&e->lock);
    return rc;
}

int host_event_seconds(struct hst_event *begin, struct hst_event *end, double *seconds)
{
    double from, to;
    int rc = time_of(begin, &from);
    rc = rc ? rc : time_of(end, &to);
    if (!rc)
        *seconds = to - from;
    return rc;
}
