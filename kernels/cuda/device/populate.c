/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel zeroes a page when it is first touched, on the thread that touches it, which moves a
 * few gigabytes a second. So several threads do it, each with a range of its own.
 */
#include "populate.h"

#include "base/book.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mman.h>

enum { THREADS_MOST = 16 };

struct part {
    char *memory;
    size_t size_bytes;
    int error;
};

/* A kernel before 5.14 has it done by a write to each page. */
static void *populate_part(void *arg)
{
    struct part *part = arg;
    if (madvise(part->memory, part->size_bytes, MADV_POPULATE_WRITE) == 0)
        return NULL;
    if (errno != EINVAL) {
        part->error = -errno;
        return NULL;
    }
    for (size_t at = 0; at < part->size_bytes; at += 4096)
        ((volatile char *)part->memory)[at] = 0;
    return NULL;
}

/* It counts those that this thread may use, beside the one that it is on. */
static size_t more_processors(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > 1 ? (size_t)count - 1 : 0;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

int cuda_populate(void *memory, size_t size_bytes)
{
    struct part parts[THREADS_MOST];
    pthread_t threads[THREADS_MOST];
    bool started[THREADS_MOST] = {false};
    size_t more = least(size_bytes / POPULATE_PART, more_processors());
    size_t most = 1 + least(more, THREADS_MOST - 1);
    size_t each = (size_bytes / most / HUGE_PAGE_BYTES + 1) * HUGE_PAGE_BYTES, count = 0;
    for (size_t at = 0; at < size_bytes; at += each)
        parts[count++] = (struct part){(char *)memory + at, least(each, size_bytes - at), 0};
    for (size_t i = 1; i < count; i++)
        started[i] = pthread_create(&threads[i], NULL, populate_part, &parts[i]) == 0;
    int rc = 0;
    for (size_t i = 0; i < count; i++) {
        if (started[i])
            (void)pthread_join(threads[i], NULL);
        else
            (void)populate_part(&parts[i]);
        rc = rc ? rc : parts[i].error;
    }
    return rc;
}
