/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The boundary of devices, memory, streams and events: null handles, sizes, alignment and objects
 * of two different devices are refused here, once, so that no implementation has to look again.
 */
#include "base/object.h"
#include <errno.h>
#include <hoistway/measure.h>

void hst_dev_close(struct hst_dev **dev)
{
    if (!dev || !*dev)
        return;
    (*dev)->ops->close(*dev);
    *dev = NULL;
}

const char *hst_dev_name(const struct hst_dev *dev)
{
    return dev->ops->name;
}

unsigned hst_dev_flags(const struct hst_dev *dev)
{
    return dev->ops->flags;
}

int hst_dev_mem_alloc(struct hst_dev *dev, size_t size_bytes, void **memory)
{
    if (!dev || !memory || !size_bytes || size_bytes > PTRDIFF_MAX)
        return -EINVAL;
    return dev->ops->mem_alloc(dev, size_bytes, memory);
}

void hst_dev_mem_free(struct hst_dev *dev, void *memory, size_t size_bytes)
{
    if (memory)
        dev->ops->mem_free(dev, memory, size_bytes);
}

int hst_dev_host_alloc_of(struct hst_dev *dev, size_t size_bytes,
                          const struct hst_host_pages *pages, void **memory)
{
    if (!dev || !memory || !size_bytes || size_bytes > PTRDIFF_MAX)
        return -EINVAL;
    return dev->ops->host_alloc(dev, size_bytes, pages, memory);
}

int hst_dev_host_alloc(struct hst_dev *dev, size_t size_bytes, void **memory)
{
    return hst_dev_host_alloc_of(dev, size_bytes, NULL, memory);
}

void hst_dev_host_free(struct hst_dev *dev, void *memory, size_t size_bytes)
{
    if (memory)
        dev->ops->host_free(dev, memory, size_bytes);
}

static bool pages_ok(const struct hst_dev *dev, const void *memory, size_t size_bytes)
{
    const uintptr_t page = 4096;
    return dev && memory && size_bytes && size_bytes <= PTRDIFF_MAX &&
           (uintptr_t)memory % page == 0 && size_bytes % page == 0;
}

int hst_dev_host_lock(struct hst_dev *dev, void *memory, size_t size_bytes)
{
    return pages_ok(dev, memory, size_bytes) ? dev->ops->host_lock(dev, memory, size_bytes)
                                             : -EINVAL;
}

int hst_dev_host_unlock(struct hst_dev *dev, void *memory, size_t size_bytes)
{
    return pages_ok(dev, memory, size_bytes) ? dev->ops->host_unlock(dev, memory, size_bytes)
                                             : -EINVAL;
}

void hst_dev_usage(const struct hst_dev *dev, struct hst_dev_usage *usage)
{
    dev->ops->usage(dev, usage);
}

int hst_dev_budget(struct hst_dev *dev, uint64_t memory_bytes, uint64_t host_bytes)
{
    return dev->ops->budget(dev, memory_bytes, host_bytes);
}

void hst_dev_info(struct hst_dev *dev, struct hst_dev_info *info)
{
    dev->ops->info(dev, info);
}

void hst_dev_failure(struct hst_dev *dev, struct hst_dev_failure *failure)
{
    dev->ops->failure(dev, failure);
}

void hst_dev_math(struct hst_dev *dev, char *text, size_t text_bytes)
{
    if (!text_bytes)
        return;
    dev->ops->math(dev, text, text_bytes);
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

int hst_stream_create(struct hst_dev *dev, const char *name, struct hst_stream **stream)
{
    if (!dev || !name || !stream)
        return -EINVAL;
    return dev->ops->stream_create(dev, name, stream);
}

void hst_stream_destroy(struct hst_stream **stream)
{
    if (!stream || !*stream)
        return;
    (*stream)->dev->ops->stream_destroy(*stream);
    *stream = NULL;
}

int hst_stream_sync(struct hst_stream *stream)
{
    return stream ? stream->dev->ops->stream_sync(stream) : -EINVAL;
}

void *hst_stream_native(struct hst_stream *stream)
{
    return stream->dev->ops->stream_native(stream);
}

int hst_event_create(struct hst_dev *dev, struct hst_event **event)
{
    if (!dev || !event)
        return -EINVAL;
    return dev->ops->event_create(dev, event);
}

int hst_event_create_timed(struct hst_dev *dev, struct hst_event **event)
{
    if (!dev || !event)
        return -EINVAL;
    return dev->ops->event_create_timed(dev, event);
}

int hst_event_seconds(struct hst_event *begin, struct hst_event *end, double *seconds)
{
    if (!begin || !end || !seconds || begin->dev != end->dev)
        return -EINVAL;
    return begin->dev->ops->event_seconds(begin, end, seconds);
}

void hst_event_destroy(struct hst_event **event)
{
    if (!event || !*event)
        return;
    (*event)->dev->ops->event_destroy(*event);
    *event = NULL;
}

int hst_event_record(struct hst_event *event, struct hst_stream *stream)
{
    if (!event || !stream || event->dev != stream->dev)
        return -EINVAL;
    return event->dev->ops->event_record(event, stream);
}

int hst_stream_wait(struct hst_stream *stream, struct hst_event *event)
{
    if (!event || !stream || event->dev != stream->dev)
        return -EINVAL;
    return stream->dev->ops->stream_wait(stream, event);
}

int hst_event_query(struct hst_event *event)
{
    return event ? event->dev->ops->event_query(event) : -EINVAL;
}

int hst_event_sync(struct hst_event *event)
{
    return event ? event->dev->ops->event_sync(event) : -EINVAL;
}

int hst_event_fd(struct hst_event *event)
{
    if (!event)
        return -EINVAL;
    return event->dev->ops->event_fd ? event->dev->ops->event_fd(event) : -ENOTSUP;
}

int hst_stream_copy(struct hst_stream *stream, void *dst, const void *src, size_t size_bytes)
{
    if (!stream || size_bytes > PTRDIFF_MAX)
        return -EINVAL;
    if (size_bytes) {
        uintptr_t d = (uintptr_t)dst, s = (uintptr_t)src;
        if (!d || !s || (d < s ? s - d : d - s) < size_bytes)
            return -EINVAL;
    }
    return stream->dev->ops->stream_copy(stream, dst, src, size_bytes);
}

int hst_stream_zero(struct hst_stream *stream, void *dst, size_t size_bytes)
{
    if (!stream || size_bytes > PTRDIFF_MAX || (size_bytes && !dst))
        return -EINVAL;
    return stream->dev->ops->stream_zero(stream, dst, size_bytes);
}
