/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page-locking, timed by the clock around each call. The first two kinds lock pages that are there
 * already, so that they cost what the driver takes for a page; the device's own memory is made in
 * the call, as when an engine starts.
 */
#include "bench/layer/locking.h"
#include "base/now.h"

#include <errno.h>
#include <fcntl.h>
#include <hoistway/measure.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE  ((uint64_t)2 << 20)
#define SHARE      4u /* of what is available, one part in so many */
#define ROUNDS_MAX 9u

struct locker {
    struct hst_dev *dev;
    unsigned rounds;
    struct bench_locking *out;
};

const char *bench_pages_name(enum bench_pages pages)
{
    static const char *const names[] = {"4 KiB pages", "huge pages", "the device's own"};
    return names[pages];
}

uint64_t bench_locking_bytes(uint64_t most, uint64_t available)
{
    uint64_t bytes = available / SHARE < most ? available / SHARE : most;
    bytes = bytes / HUGE_PAGE * HUGE_PAGE;
    return bytes ? bytes : HUGE_PAGE;
}

/* 0: the system does not tell. */
static uint64_t available_bytes(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && kib == 0 && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) != 1)
            kib = 0;
    if (file)
        fclose(file);
    return 1024 * (uint64_t)kib;
}

/* The system gives what madvise asks for where the system's choice is not "never". */
static bool gives_huge_pages(void)
{
    char text[128] = "";
    int file = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    return got > 0 && !strstr(text, "[never]");
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct bench_timing timing_of(double *seconds, unsigned rounds)
{
    qsort(seconds, rounds, sizeof *seconds, by_value);
    return (struct bench_timing){seconds[rounds / 2], seconds[0], seconds[rounds - 1]};
}

static int lock_pages(const struct locker *l, void **memory)
{
    return hst_dev_host_lock(l->dev, *memory, l->out->size_bytes);
}

static int unlock_pages(const struct locker *l, void **memory)
{
    return hst_dev_host_unlock(l->dev, *memory, l->out->size_bytes);
}

static int take_own(const struct locker *l, void **memory)
{
    return hst_dev_host_alloc(l->dev, l->out->size_bytes, memory);
}

static int give_own(const struct locker *l, void **memory)
{
    hst_dev_host_free(l->dev, *memory, l->out->size_bytes);
    return 0;
}

static int time_rounds(const struct locker *l, enum bench_pages pages, void *memory)
{
    const bool own = pages == BENCH_PAGES_OWN;
    double lock[ROUNDS_MAX], unlock[ROUNDS_MAX];
    for (unsigned r = 0; r < l->rounds; r++) {
        double begin = now_s();
        int rc = own ? take_own(l, &memory) : lock_pages(l, &memory);
        double locked = now_s();
        rc = rc ? rc : own ? give_own(l, &memory) : unlock_pages(l, &memory);
        if (rc)
            return rc;
        lock[r] = locked - begin;
        unlock[r] = now_s() - locked;
    }
    l->out->lock[pages] = timing_of(lock, l->rounds);
    l->out->unlock[pages] = timing_of(unlock, l->rounds);
    return 0;
}

/* It times these pages, each written to before it is locked. */
static int time_mapped(const struct locker *l, enum bench_pages pages)
{
    const size_t size = l->out->size_bytes, mapped = size + HUGE_PAGE;
    char *start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return -ENOMEM;
    char *memory = start + -(uintptr_t)start % HUGE_PAGE;
    (void)madvise(memory, size, pages == BENCH_PAGES_HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(memory, 1, size);
    int rc = time_rounds(l, pages, memory);
    munmap(start, mapped);
    return rc;
}

/* The first kind finds out how much can be locked. */
static int time_small(struct locker *l, uint64_t most_bytes)
{
    int rc = -ENOMEM;
    for (uint64_t bytes = most_bytes; bytes >= HUGE_PAGE && rc == -ENOMEM;
         bytes = bytes / 2 / HUGE_PAGE * HUGE_PAGE) {
        l->out->size_bytes = bytes;
        rc = time_mapped(l, BENCH_PAGES_SMALL);
    }
    return rc;
}

static int time_own(const struct locker *l)
{
    struct hst_dev_usage usage;
    hst_dev_usage(l->dev, &usage);
    int rc = hst_dev_budget(l->dev, usage.memory_bytes, usage.host_bytes + l->out->size_bytes);
    return rc ? rc : time_rounds(l, BENCH_PAGES_OWN, NULL);
}

int bench_locking(struct hst_dev *dev, uint64_t most_bytes, unsigned rounds,
                  struct bench_locking *locking, struct hst_error *error)
{
    struct locker l = {dev, rounds < ROUNDS_MAX ? rounds : ROUNDS_MAX, locking};
    *locking = (struct bench_locking){0};
    int rc = time_small(&l, bench_locking_bytes(most_bytes, available_bytes()));
    if (rc == -ENOTSUP) {
        locking->size_bytes = 0;
        for (int i = 0; i < BENCH_PAGES_KINDS; i++)
            locking->missing[i] = "the device locks no pages";
        return 0;
    }
    if (!rc && !gives_huge_pages())
        locking->missing[BENCH_PAGES_HUGE] = "the system gives no huge pages";
    else if (!rc)
        rc = time_mapped(&l, BENCH_PAGES_HUGE);
    rc = rc ? rc : time_own(&l);
    return rc ? bench_device_failed(dev, rc, "page-locking memory", error) : 0;
}
