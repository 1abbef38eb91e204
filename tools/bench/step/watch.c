/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stream in front: an object with a table of its own, as every device's streams are. Its table
 * has what may be enqueued and what that asks for; memory, other streams and events are made on
 * the device behind.
 */
#include "bench/step/watch.h"

#include <errno.h>
#include <hoistway/measure.h>
#include <hoistway/plugin.h>
#include <stdlib.h>

#define ROOM_FIRST 64u

/* The boundary sees this of a device and of a stream. */
struct front_dev {
    const struct hst_dev_ops *ops;
    struct hst_dev *behind;
};

struct front_stream {
    struct front_dev *dev;
    struct watch *watch;
};

struct watch {
    struct front_dev dev;
    struct front_stream front;
    struct hst_stream *behind;
    struct watched *seen;
    struct hst_event **marks; /* one more: the first is the beginning */
    size_t count, room;
};

static struct watch *watch_of(struct hst_stream *stream)
{
    return ((struct front_stream *)(void *)stream)->watch;
}

static struct hst_dev *behind_of(struct hst_dev *dev)
{
    return ((struct front_dev *)(void *)dev)->behind;
}

/* Room for twice as many operations, with their events. */
static int grow(struct watch *w)
{
    size_t room = w->room ? 2 * w->room : ROOM_FIRST;
    struct watched *seen = realloc(w->seen, room * sizeof *seen);
    w->seen = seen ? seen : w->seen;
    struct hst_event **marks = realloc(w->marks, (room + 1) * sizeof *marks);
    w->marks = marks ? marks : w->marks;
    if (!seen || !marks)
        return -ENOMEM;
    for (size_t made = w->room ? w->room + 1 : 0; made <= room; made++)
        marks[made] = NULL;
    w->room = room;
    return 0;
}

static int mark(struct watch *w, size_t place)
{
    int rc = w->marks[place] ? 0 : hst_event_create_timed(w->dev.behind, &w->marks[place]);
    return rc ? rc : hst_event_record(w->marks[place], w->behind);
}

/* An operation that was enqueued behind, or refused there. */
static int saw(struct watch *w, struct watched what, int rc)
{
    if (rc == 0 && w->count == w->room)
        rc = grow(w);
    if (rc)
        return rc;
    w->seen[w->count++] = what;
    return mark(w, w->count);
}

#define SEE(operation)                                                                             \
    static int see_##operation(struct hst_stream *stream, const struct hst_##operation *args)      \
    {                                                                                              \
        struct watch *w = watch_of(stream);                                                        \
        int rc = hst_op_##operation(w->behind, args);                                              \
        return saw(w, watched_##operation(args), rc);                                              \
    }
SEE(matmul)
SEE(rmsnorm)
SEE(rmsnorm_backward)
SEE(bias)
SEE(bias_backward)
SEE(rope)
SEE(attention)
SEE(attention_backward)
SEE(swiglu)
SEE(swiglu_backward)
SEE(add)
SEE(cast)
SEE(embedding)
SEE(embedding_backward)
SEE(cross_entropy)
SEE(norm2)
SEE(optimize)

static int see_copy(struct hst_stream *stream, void *dst, const void *src, size_t size_bytes)
{
    struct watch *w = watch_of(stream);
    int rc = hst_stream_copy(w->behind, dst, src, size_bytes);
    return saw(w, watched_copy(size_bytes), rc);
}

static int see_zero(struct hst_stream *stream, void *dst, size_t size_bytes)
{
    struct watch *w = watch_of(stream);
    int rc = hst_stream_zero(w->behind, dst, size_bytes);
    return saw(w, watched_zero(size_bytes), rc);
}

static int sync_behind(struct hst_stream *stream)
{
    return hst_stream_sync(watch_of(stream)->behind);
}

static size_t matmul_work(struct hst_dev *dev, const struct hst_matmul *args)
{
    return hst_matmul_work_bytes(behind_of(dev), args);
}

static size_t norm_work(struct hst_dev *dev, size_t tokens, size_t width)
{
    return hst_rmsnorm_backward_work_bytes(behind_of(dev), tokens, width);
}

static size_t bias_work(struct hst_dev *dev, size_t tokens, size_t width)
{
    return hst_bias_backward_work_bytes(behind_of(dev), tokens, width);
}

static size_t attention_work(struct hst_dev *dev, const struct hst_attention *args)
{
    return hst_attention_work_bytes(behind_of(dev), args);
}

static size_t embedding_work(struct hst_dev *dev, size_t tokens, size_t vocab)
{
    return hst_embedding_backward_work_bytes(behind_of(dev), tokens, vocab);
}

static const struct hst_dev_ops front_ops = {
    .size = sizeof(struct hst_dev_ops),
    .name = "watched",
    .stream_sync = sync_behind,
    .stream_copy = see_copy,
    .stream_zero = see_zero,
    .matmul = see_matmul,
    .matmul_work_bytes = matmul_work,
    .rmsnorm = see_rmsnorm,
    .rmsnorm_backward = see_rmsnorm_backward,
    .rmsnorm_backward_work_bytes = norm_work,
    .bias = see_bias,
    .bias_backward = see_bias_backward,
    .bias_backward_work_bytes = bias_work,
    .rope = see_rope,
    .attention = see_attention,
    .attention_backward = see_attention_backward,
    .attention_work_bytes = attention_work,
    .swiglu = see_swiglu,
    .swiglu_backward = see_swiglu_backward,
    .add = see_add,
    .cast = see_cast,
    .embedding = see_embedding,
    .embedding_backward = see_embedding_backward,
    .embedding_backward_work_bytes = embedding_work,
    .cross_entropy = see_cross_entropy,
    .norm2 = see_norm2,
    .optimize = see_optimize,
};

int watch_open(struct hst_dev *dev, struct hst_stream *stream, struct watch **watch)
{
    struct watch *w = calloc(1, sizeof *w);
    if (!w)
        return -ENOMEM;
    w->dev = (struct front_dev){&front_ops, dev};
    w->front = (struct front_stream){&w->dev, w};
    w->behind = stream;
    *watch = w;
    int rc = grow(w);
    if (rc)
        watch_close(watch);
    return rc;
}

void watch_close(struct watch **watch)
{
    struct watch *w = *watch;
    if (!w)
        return;
    for (size_t i = 0; w->room && i <= w->room; i++)
        if (w->marks[i])
            hst_event_destroy(&w->marks[i]);
    free(w->marks);
    free(w->seen);
    free(w);
    *watch = NULL;
}

struct hst_stream *watch_front(struct watch *watch)
{
    return (struct hst_stream *)(void *)&watch->front;
}

int watch_begin(struct watch *watch)
{
    watch->count = 0;
    return mark(watch, 0);
}

const struct watched *watch_seen(const struct watch *watch, size_t *count)
{
    *count = watch->count;
    return watch->seen;
}

int watch_seconds(struct watch *watch, double *seconds, double *all_s)
{
    int rc = hst_stream_sync(watch->behind);
    for (size_t i = 0; i < watch->count && !rc; i++)
        rc = hst_event_seconds(watch->marks[i], watch->marks[i + 1], &seconds[i]);
    return rc ? rc : hst_event_seconds(watch->marks[0], watch->marks[watch->count], all_s);
}
