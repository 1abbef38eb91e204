/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page-locking: the device's own host memory, mapped, zeroed and locked in one call and let go
 * again, as an engine takes its arena. Several threads zero what is large, so it is measured as
 * large as the time allows.
 */
#include "probe/probe.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LEAST_BYTES ((size_t)2 << 20)
#define BEGIN_BYTES ((size_t)64 << 20)
#define LOCKING_S   0.4
#define MEMORY_PART 8u /* of what is free, one part in so many */
enum { ROUNDS = 5 };

static int lock_once(struct hst_dev *dev, size_t bytes, double *seconds)
{
    void *memory = NULL;
    double start = clock_seconds();
    int rc = hst_dev_host_alloc(dev, bytes, &memory);
    *seconds = clock_seconds() - start;
    if (rc == 0)
        hst_dev_host_free(dev, memory, bytes);
    return rc;
}

static size_t whole(double bytes)
{
    return (size_t)(bytes / LEAST_BYTES) * LEAST_BYTES;
}

/* Half of it, and so on, where the device's budget has not so much. */
static int lock_most(struct hst_dev *dev, size_t *bytes, double *seconds)
{
    int rc = -ENOSPC;
    for (; rc == -ENOSPC && *bytes >= LEAST_BYTES; *bytes = rc ? whole((double)*bytes / 2) : *bytes)
        rc = lock_once(dev, *bytes, seconds);
    return rc;
}

/* It is what may be locked at once, beside the device's budget. */
static size_t most_bytes(const struct probe *probe)
{
    struct machine_memory memory;
    uint64_t left = machine_memory(&memory) ? 0 : machine_memory_left(&memory) / MEMORY_PART;
    return whole((double)(left < probe->memory_bytes ? left : probe->memory_bytes));
}

/* The first call, which is not counted, tells how much can be locked in time; where the budget has
 * not so much, it stays at that. */
static int measure(struct hst_dev *dev, size_t most, size_t *bytes, struct hst_figure *figure)
{
    double rates[ROUNDS], seconds, until = clock_seconds() + LOCKING_S;
    uint32_t rounds = 0;
    *bytes = most < BEGIN_BYTES ? most : BEGIN_BYTES;
    int rc = lock_most(dev, bytes, &seconds);
    const size_t sure = *bytes;
    double wish = rc ? 0 : (double)sure * probe_growth(seconds, LOCKING_S / 2);
    if (wish > (double)sure)
        *bytes = wish < (double)most ? whole(wish) : most;
    while (rc == 0 && rounds < ROUNDS && (rounds == 0 || clock_seconds() < until)) {
        rc = lock_once(dev, *bytes, &seconds);
        if (rc == -ENOSPC && *bytes > sure) {
            *bytes = sure;
            rc = 0;
            continue;
        }
        rates[rounds++] = (double)*bytes / fmax(seconds, 1e-9);
    }
    if (rc == 0)
        probe_median(figure, rates, rounds);
    return rc;
}

void probe_locking(struct probe *probe)
{
    struct hst_figure *figure = &probe->out->figures[HST_RATE_LOCK];
    if (!probe_is_apart(probe)) {
        probe_fail(figure, "nothing is page-locked: the device works in host memory");
        return;
    }
    size_t bytes, most = most_bytes(probe);
    int rc = measure(probe->dev, most, &bytes, figure);
    if (rc == -ENOSPC)
        probe_fail(figure, "budgets or free memory leave too little to lock");
    else if (rc)
        probe_fail(figure, "memory cannot be page-locked: %s", strerror(-rc));
    else
        snprintf(figure->how, sizeof figure->how, "%zu MiB mapped, zeroed and locked, %.40s",
                 bytes >> 20, hst_dev_name(probe->dev));
}
