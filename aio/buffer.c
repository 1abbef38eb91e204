/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for I/O. Huge pages make a 1 MiB transfer one segment for the drive instead of hundreds,
 * which is worth more than any setting of a queue. MADV_DONTFORK, because a page that a child
 * shares may be copied away from under a transfer; MADV_DONTDUMP, because what lies here are
 * weights.
 */
#include "internal.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { HUGE_BYTES = 2 << 20, PAGE_BYTES = 4096, NODES_MAX = 1024, STAGGER_BYTES = 1088 };

static size_t round_up(size_t size_bytes, size_t unit_bytes)
{
    return (size_bytes + unit_bytes - 1) / unit_bytes * unit_bytes;
}

static int advise(char *map, size_t length)
{
    madvise(map, length, MADV_HUGEPAGE); /* advice: a kernel built without huge pages refuses */
    if (madvise(map, length, MADV_DONTFORK) == 0 && madvise(map, length, MADV_DONTDUMP) == 0)
        return 0;
    int rc = -errno;
    munmap(map, length);
    return rc;
}

int hst_aio_buffer_alloc(size_t size_bytes, void **buffer)
{
    if (size_bytes == 0 || !buffer)
        return -EINVAL;
    if (size_bytes > SIZE_MAX / 2)
        return -ENOMEM;
    const size_t length = round_up(size_bytes, PAGE_BYTES);
    char *map =
        mmap(NULL, length + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return -ENOMEM;
    const size_t before = (HUGE_BYTES - (uintptr_t)map % HUGE_BYTES) % HUGE_BYTES;
    if (before > 0)
        munmap(map, before);
    munmap(map + before + length, HUGE_BYTES - before);
    map += before;
    int rc = advise(map, length);
    if (rc == 0)
        *buffer = map;
    return rc;
}

void hst_aio_buffer_free(void *buffer, size_t size_bytes)
{
    if (buffer)
        munmap(buffer, round_up(size_bytes, PAGE_BYTES));
}

int hst_aio_buffer_register(struct hst_aio *aio, void *buffer, size_t size_bytes)
{
    if (!aio || !buffer || size_bytes == 0)
        return -EINVAL;
    return aio->ops->buffer_register ? aio->ops->buffer_register(aio, buffer, size_bytes)
                                     : -ENOTSUP;
}

void hst_aio_buffer_unregister(struct hst_aio *aio, void *buffer)
{
    if (aio->ops->buffer_unregister)
        aio->ops->buffer_unregister(aio, buffer);
}

/* Reserved huge pages, or where there are not enough the ordinary way. */
static int map(struct hst_aio_buffer *buffer)
{
    void *memory = MAP_FAILED;
    if (buffer->config.hugetlb && buffer->size_bytes <= SIZE_MAX / 2) {
        buffer->mapped_bytes = round_up(buffer->size_bytes, HUGE_BYTES);
        memory = mmap(NULL, buffer->mapped_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT), -1, 0);
        buffer->hugetlb_error = memory == MAP_FAILED ? -errno : 0;
    }
    if (memory == MAP_FAILED) {
        buffer->mapped_bytes = round_up(buffer->size_bytes, PAGE_BYTES);
        return hst_aio_buffer_alloc(buffer->size_bytes, &buffer->memory);
    }
    int rc = advise(memory, buffer->mapped_bytes);
    if (rc == 0)
        buffer->memory = memory;
    return rc;
}

/* Before the first touch: pages are then taken from the node. */
static int bind_node(const struct hst_aio_buffer *buffer)
{
    enum { WORD_BITS = 8 * sizeof(unsigned long) };
    unsigned long nodes[NODES_MAX / WORD_BITS] = {0};
    const uint32_t node = buffer->config.node;
    if (node >= NODES_MAX)
        return -EINVAL;
    nodes[node / WORD_BITS] = 1ul << node % WORD_BITS;
    const long rc = syscall(SYS_mbind, buffer->memory, buffer->mapped_bytes, MPOL_BIND, nodes,
                            (unsigned long)NODES_MAX, 0);
    return rc < 0 ? -errno : 0;
}

int hst_aio_buffer_open(const struct hst_aio_buffer_config *config, size_t size_bytes,
                        struct hst_aio_buffer *out)
{
    struct hst_aio_buffer buffer = {.size_bytes = size_bytes};
    if (!out || size_bytes == 0 || (config && config->size != sizeof *config))
        return -EINVAL;
    if (config)
        buffer.config = *config;
    int rc = map(&buffer);
    if (!buffer.memory)
        return rc;
    if (buffer.config.bind)
        buffer.bind_error = bind_node(&buffer);
    memset(buffer.memory, 0, buffer.mapped_bytes);
    if (buffer.config.pin) {
        rc = buffer.config.pin(buffer.config.pin_arg, buffer.memory, buffer.mapped_bytes);
        if (rc < 0) {
            munmap(buffer.memory, buffer.mapped_bytes);
            return rc;
        }
    }
    if (buffer.config.aio)
        buffer.register_error =
            hst_aio_buffer_register(buffer.config.aio, buffer.memory, buffer.mapped_bytes);
    *out = buffer;
    return 0;
}

void hst_aio_buffer_close(struct hst_aio_buffer *buffer)
{
    const bool late = buffer->config.aio && buffer->config.aio->broken;
    if (buffer->memory && !late) {
        if (buffer->config.aio && buffer->register_error == 0)
            hst_aio_buffer_unregister(buffer->config.aio, buffer->memory);
        if (buffer->config.pin && buffer->config.unpin)
            buffer->config.unpin(buffer->config.pin_arg, buffer->memory, buffer->mapped_bytes);
        munmap(buffer->memory, buffer->mapped_bytes);
    }
    *buffer = (struct hst_aio_buffer){0};
}

size_t hst_aio_stagger(const size_t *sizes_bytes, size_t count, size_t *offsets)
{
    size_t end_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t wanted = i * STAGGER_BYTES % PAGE_BYTES;
        const size_t page_bytes = end_bytes / PAGE_BYTES * PAGE_BYTES;
        offsets[i] = page_bytes + wanted;
        if (offsets[i] < end_bytes)
            offsets[i] += PAGE_BYTES;
        end_bytes = offsets[i] + sizes_bytes[i];
    }
    return end_bytes;
}
