/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events over the runtime's. What the runtime lacks is a stream that stays failed: each
 * stream has a first error of its own, counted by references, because an event may outlive the
 * stream that it was recorded in and still has to tell of it. An error that the card meets later
 * reaches the host at a sync or a query, and from then on every stream of that GPU. CUDA does not
 * say which kernel met it, so a stream remembers what was enqueued last.
 *
 * A thread that waits sleeps or looks all the time (wait.h). To sleep until a stream is done it
 * waits for an event of the stream's own.
 */
#include "cuda.h"
#include "wait.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECENT 4u /* operations that the story of a failure names */

/* A stream's first error, and for the story of it the stream's name and what was enqueued. */
struct state {
    atomic_int error;
    atomic_uint references;
    char name[16];
    atomic_uint enqueued; /* operations since the last sync that found no error */
    _Atomic(const char *) recent[RECENT];
};

struct cuda_stream {
    struct hst_stream base;
    cudaStream_t native;
    cudaEvent_t end; /* null: who waits looks all the time */
    struct state *state;
};

struct cuda_event {
    struct hst_event base;
    cudaEvent_t native;
    bool timed;
    pthread_mutex_t lock;
    struct state *state; /* of the stream it was recorded in; null: never recorded */
};

static struct state *state_hold(struct state *state)
{
    if (state)
        atomic_fetch_add(&state->references, 1);
    return state;
}

static void state_drop(struct state *state)
{
    if (state && atomic_fetch_sub(&state->references, 1) == 1)
        free(state);
}

/* The first error stays; returns the one that does. */
static int state_fail(struct state *state, int error)
{
    int none = 0;
    return atomic_compare_exchange_strong(&state->error, &none, error) ? error : none;
}

static void remember(struct state *state, const char *what)
{
    unsigned number = atomic_fetch_add(&state->enqueued, 1);
    atomic_store(&state->recent[number % RECENT], what);
}

/* "; enqueued last: swiglu, rmsnorm of 7", the latest first; empty where nothing was. */
static const char *tell_recent(struct state *state, char text[160])
{
    unsigned enqueued = atomic_load(&state->enqueued);
    int used = 0;
    *text = '\0';
    for (unsigned i = 0; i < RECENT && i < enqueued; i++) {
        const char *what = atomic_load(&state->recent[(enqueued - 1 - i) % RECENT]);
        used += snprintf(text + used, 120u - (size_t)used, "%s%.24s",
                         i ? ", " : "; enqueued last: ", what ? what : "?");
    }
    if (enqueued > RECENT)
        snprintf(text + used, 40, " of %u", enqueued);
    return text;
}

static struct cuda_stream *stream_of(struct hst_stream *stream)
{
    return (struct cuda_stream *)stream;
}

static struct cuda_event *event_of(struct hst_event *event)
{
    return (struct cuda_event *)event;
}

static void count(struct cuda_dev *dev, unsigned *counter, int by)
{
    pthread_mutex_lock(&dev->lock);
    *counter += (unsigned)by;
    pthread_mutex_unlock(&dev->lock);
}

/* ---- streams --------------------------------------------------------------------------------- */

static cudaError_t open_native(const struct cuda_dev *dev, struct cuda_stream *s)
{
    cudaError_t error = cudaStreamCreateWithFlags(&s->native, cudaStreamNonBlocking);
    if (error || !dev->sleeps)
        return error;
    error = cudaEventCreateWithFlags(&s->end, wait_event_flags(dev) | cudaEventDisableTiming);
    if (error)
        (void)cudaStreamDestroy(s->native);
    return error;
}

/* drain has told of what a failed GPU answers here. */
static void close_native(struct cuda_stream *s)
{
    if (s->end && cudaEventDestroy(s->end) != cudaSuccess)
        (void)cudaGetLastError();
    if (cudaStreamDestroy(s->native) != cudaSuccess)
        (void)cudaGetLastError();
}

int cuda_stream_create(struct hst_dev *dev, const char *name, struct hst_stream **stream)
{
    struct cuda_dev *cuda = cuda_dev_of(dev);
    if (strlen(name) > 15)
        return -EINVAL;
    struct cuda_stream *s = calloc(1, sizeof *s);
    struct state *state = calloc(1, sizeof *state);
    int rc = s && state ? cuda_enter(cuda) : -ENOMEM;
    if (rc)
        goto err_free;
    cudaError_t error = open_native(cuda, s);
    if (error) {
        rc = cuda_failed(cuda, error, "creating stream \"%s\"", name);
        goto err_free;
    }
    atomic_init(&state->error, 0);
    atomic_init(&state->references, 1);
    snprintf(state->name, sizeof state->name, "%s", name);
    s->base.dev = dev;
    s->state = state;
    count(cuda, &cuda->stream_count, 1);
    *stream = &s->base;
    return 0;
err_free:
    free(state);
    free(s);
    return rc;
}

static cudaError_t wait_for_all(struct cuda_stream *s)
{
    if (!s->end)
        return cudaStreamSynchronize(s->native);
    cudaError_t error = cudaEventRecord(s->end, s->native);
    return error ? error : cudaEventSynchronize(s->end);
}

/* Waits; what the stream met on its way becomes its error, and its events'. */
static int drain(struct cuda_stream *s)
{
    struct cuda_dev *dev = cuda_dev_of(s->base.dev);
    int rc = cuda_enter(dev);
    cudaError_t error = rc ? cudaSuccess : wait_for_all(s);
    char recent[160];
    if (error)
        rc = cuda_failed(dev, error, "stream \"%s\"%s", s->state->name,
                         tell_recent(s->state, recent));
    else if (!rc)
        atomic_store(&s->state->enqueued, 0);
    return rc ? state_fail(s->state, rc) : atomic_load(&s->state->error);
}

void cuda_stream_destroy(struct hst_stream *stream)
{
    struct cuda_stream *s = stream_of(stream);
    struct cuda_dev *dev = cuda_dev_of(stream->dev);
    (void)drain(s);
    close_native(s);
    state_drop(s->state);
    free(s);
    count(dev, &dev->stream_count, -1);
}

int cuda_stream_sync(struct hst_stream *stream)
{
    return drain(stream_of(stream));
}

void *cuda_stream_native(struct hst_stream *stream)
{
    return stream_of(stream)->native;
}

int cuda_stream_begin(struct hst_stream *stream)
{
    struct cuda_stream *s = stream_of(stream);
    int rc = atomic_load(&s->state->error);
    if (rc)
        return rc;
    rc = cuda_enter(cuda_dev_of(stream->dev));
    return rc ? state_fail(s->state, rc) : 0;
}

int cuda_stream_end(struct hst_stream *stream, cudaError_t error, const char *what)
{
    struct cuda_stream *s = stream_of(stream);
    if (!error) {
        remember(s->state, what);
        return 0;
    }
    int rc =
        cuda_failed(cuda_dev_of(stream->dev), error, "stream \"%s\": %s", s->state->name, what);
    return rc == -ENOTSUP ? rc : state_fail(s->state, rc);
}

int cuda_stream_fail(struct hst_stream *stream, int error)
{
    return state_fail(stream_of(stream)->state, error);
}

int cuda_stream_copy(struct hst_stream *stream, void *dst, const void *src, size_t size_bytes)
{
    int rc = cuda_stream_begin(stream);
    if (rc || !size_bytes)
        return rc;
    cudaError_t error =
        cudaMemcpyAsync(dst, src, size_bytes, cudaMemcpyDefault, stream_of(stream)->native);
    return cuda_stream_end(stream, error, "copy");
}

int cuda_stream_zero(struct hst_stream *stream, void *dst, size_t size_bytes)
{
    int rc = cuda_stream_begin(stream);
    if (rc || !size_bytes)
        return rc;
    cudaError_t error = cudaMemsetAsync(dst, 0, size_bytes, stream_of(stream)->native);
    return cuda_stream_end(stream, error, "zero");
}

/* ---- events ---------------------------------------------------------------------------------- */

static int create_event(struct hst_dev *dev, bool timed, struct hst_event **event)
{
    struct cuda_dev *cuda = cuda_dev_of(dev);
    struct cuda_event *e = calloc(1, sizeof *e);
    int rc = e ? cuda_enter(cuda) : -ENOMEM;
    if (rc)
        goto err_free;
    cudaError_t error = cudaEventCreateWithFlags(
        &e->native, wait_event_flags(cuda) | (timed ? 0u : cudaEventDisableTiming));
    if (error) {
        rc = cuda_failed(cuda, error, "creating an event");
        goto err_free;
    }
    e->base.dev = dev;
    e->timed = timed;
    pthread_mutex_init(&e->lock, NULL);
    count(cuda, &cuda->event_count, 1);
    *event = &e->base;
    return 0;
err_free:
    free(e);
    return rc;
}

int cuda_event_create(struct hst_dev *dev, struct hst_event **event)
{
    return create_event(dev, false, event);
}

int cuda_event_create_timed(struct hst_dev *dev, struct hst_event **event)
{
    return create_event(dev, true, event);
}

void cuda_event_destroy(struct hst_event *event)
{
    struct cuda_event *e = event_of(event);
    struct cuda_dev *dev = cuda_dev_of(event->dev);
    (void)cuda_enter(dev);
    if (cudaEventDestroy(e->native) != cudaSuccess)
        (void)cudaGetLastError(); /* a failed GPU's; its streams tell of it */
    state_drop(e->state);
    pthread_mutex_destroy(&e->lock);
    free(e);
    count(dev, &dev->event_count, -1);
}

/* The state of the stream that the event was recorded in, held; null: it never was. */
static struct state *recorded_in(struct cuda_event *e)
{
    pthread_mutex_lock(&e->lock);
    struct state *state = state_hold(e->state);
    pthread_mutex_unlock(&e->lock);
    return state;
}

/* A failed stream moves the mark too: whoever waits for it must learn of the error. */
int cuda_event_record(struct hst_event *event, struct hst_stream *stream)
{
    struct cuda_event *e = event_of(event);
    struct cuda_stream *s = stream_of(stream);
    int rc = cuda_stream_begin(stream);
    if (!rc)
        rc = cuda_stream_end(stream, cudaEventRecord(e->native, s->native), "event");
    struct state *state = state_hold(s->state);
    pthread_mutex_lock(&e->lock);
    struct state *before = e->state;
    e->state = state;
    pthread_mutex_unlock(&e->lock);
    state_drop(before);
    return rc;
}

/* As on a device whose streams run apart, the wait is taken and `stream` is what fails. */
int cuda_stream_wait(struct hst_stream *stream, struct hst_event *event)
{
    struct cuda_event *e = event_of(event);
    int rc = cuda_stream_begin(stream);
    struct state *state = rc ? NULL : recorded_in(e);
    if (!state)
        return rc;
    int error = atomic_load(&state->error);
    state_drop(state);
    if (error) {
        (void)cuda_stream_fail(stream, error);
        return 0;
    }
    return cuda_stream_end(stream, cudaStreamWaitEvent(stream_of(stream)->native, e->native, 0),
                           "wait for an event");
}

/* It makes what a query or a sync of the event returned its stream's error. */
static int event_result(struct cuda_event *e, struct state *state, cudaError_t error)
{
    char recent[160];
    int rc = error ? cuda_failed(cuda_dev_of(e->base.dev), error, "event of stream \"%s\"%s",
                                 state->name, tell_recent(state, recent))
                   : 0;
    rc = rc ? state_fail(state, rc) : atomic_load(&state->error);
    state_drop(state);
    return rc;
}

int cuda_event_query(struct hst_event *event)
{
    struct cuda_event *e = event_of(event);
    struct state *state = recorded_in(e);
    if (!state)
        return 1;
    int rc = atomic_load(&state->error);
    if (!rc)
        rc = cuda_enter(cuda_dev_of(event->dev));
    if (rc)
        (void)state_fail(state, rc); /* where it is there already, it stays */
    cudaError_t error = rc ? cudaSuccess : cudaEventQuery(e->native);
    bool passed = error != cudaErrorNotReady;
    if (!passed) {
        (void)cudaGetLastError(); /* "not yet" is not an error */
        error = cudaSuccess;
    }
    rc = event_result(e, state, error);
    return rc ? rc : passed;
}

int cuda_event_sync(struct hst_event *event)
{
    struct cuda_event *e = event_of(event);
    struct state *state = recorded_in(e);
    if (!state)
        return 0;
    int rc = cuda_enter(cuda_dev_of(event->dev));
    if (rc)
        (void)state_fail(state, rc);
    return event_result(e, state, rc ? cudaSuccess : cudaEventSynchronize(e->native));
}

/* 0 where the event takes the time and its mark was passed. */
static int timed_and_passed(struct hst_event *event)
{
    struct cuda_event *e = event_of(event);
    struct state *state = recorded_in(e);
    state_drop(state); /* the event holds it */
    if (!e->timed || !state)
        return -EINVAL;
    int passed = cuda_event_query(event);
    return passed == 1 ? 0 : passed ? passed : -EAGAIN;
}

int cuda_event_seconds(struct hst_event *begin, struct hst_event *end, double *seconds)
{
    float milliseconds = 0;
    int rc = timed_and_passed(begin);
    rc = rc ? rc : timed_and_passed(end);
    rc = rc ? rc : cuda_enter(cuda_dev_of(begin->dev));
    if (rc)
        return rc;
    cudaError_t error =
        cudaEventElapsedTime(&milliseconds, event_of(begin)->native, event_of(end)->native);
    if (error)
        return cuda_failed(cuda_dev_of(begin->dev), error, "time between events");
    *seconds = 1e-3 * (double)milliseconds;
    return 0;
}
