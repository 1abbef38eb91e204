/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for I/O. Huge pages make a 1 MiB transfer one segment for the drive instead of hundreds,
 * which is worth more than any setting of a queue. MADV_DONTFORK, because a page that a child
 * shares may be copied away from under a transfer; MADV_DONTDUMP, because what lies here are
 * weights.
 */
#include "hoistway/aio.h"

#include <errno.h>
#include <sys/mman.h>

enum { HUGE_BYTES = 2 << 20, PAGE_BYTES = 4096 };

static size_t mapped_bytes(size_t size_bytes)
{
    return (size_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

int hst_aio_buffer_alloc(size_t size_bytes, void **buffer)
{
    if (size_bytes == 0 || !buffer)
        return -EINVAL;
    if (size_bytes > SIZE_MAX / 2)
        return -ENOMEM;
    const size_t length = mapped_bytes(size_bytes);
    char *map =
        mmap(NULL, length + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return -ENOMEM;
    const size_t before = (HUGE_BYTES - (uintptr_t)map % HUGE_BYTES) % HUGE_BYTES;
    if (before > 0)
        munmap(map, before);
    munmap(map + before + length, HUGE_BYTES - before);
    map += before;

    madvise(map, length, MADV_HUGEPAGE); /* advice: a kernel built without huge pages refuses */
    if (madvise(map, length, MADV_DONTFORK) < 0 || madvise(map, length, MADV_DONTDUMP) < 0) {
        int rc = -errno;
        munmap(map, length);
        return rc;
    }
    *buffer = map;
    return 0;
}

void hst_aio_buffer_free(void *buffer, size_t size_bytes)
{
    if (buffer)
        munmap(buffer, mapped_bytes(size_bytes));
}
