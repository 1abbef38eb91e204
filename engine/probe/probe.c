/* SPDX-License-Identifier: Apache-2.0 */
/* A probe from beginning to end: what was not given is opened, the parts run one after another, so
 * that none disturbs another, and what was opened is closed. */
#include "probe/probe.h"

#include "base/clock.h"
#include "machine/machine.h"
#include "machine/workers.h"
#include "probe/contention.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MIB             (UINT64_C(1) << 20)
#define MEMORY_BYTES    (640 * MIB)
#define MEMORY_SHARE    8u /* of what is free, one part in so many */
#define DRIVE_BYTES_MIN (20 * MIB)
#define EXTENT_MAX      ((size_t)1 << 31)
/* Workers are for these parts. */
#define WORKED_PARTS                                                                               \
    ((unsigned)HST_PROBE_MEMORY | HST_PROBE_UPDATE | HST_PROBE_COMPUTE | HST_PROBE_DEVICE)
#define ALL_PARTS                                                                                  \
    (WORKED_PARTS | HST_PROBE_DRIVES | HST_PROBE_COPIES | HST_PROBE_LOCKING | HST_PROBE_BUSY)

/* ---- what was asked ---- */

static bool gemm_is_valid(const struct hst_gemm *p)
{
    return p->m > 0 && p->n > 0 && p->k > 0 && p->m < EXTENT_MAX && p->n < EXTENT_MAX &&
           p->k < EXTENT_MAX && hst_dtype_bytes(p->dtype) > 0;
}

static bool operation_is_valid(const struct hst_operation *o)
{
    return o->enqueue && o->what && o->what[0] && isfinite(o->amount) && o->amount > 0 &&
           strlen(o->what) <= HST_OPERATION_TEXT_MAX && !strchr(o->what, '\n');
}

int probe_check(const struct hst_probe *in)
{
    if (!in || in->size != sizeof *in || in->parts & ~ALL_PARTS ||
        in->drive_count > HST_DRIVES_MAX || in->gemm_count > HST_GEMMS_MAX ||
        (in->drive_count && !in->drives) || (in->gemm_count && !in->gemms) ||
        in->operation_count > HST_OPERATIONS_MAX || (in->operation_count && !in->operations) ||
        (in->drive_bytes && in->drive_bytes < DRIVE_BYTES_MIN) ||
        (in->parallel && (!in->parallel->run || in->parallel->width == 0)))
        return -EINVAL;
    for (uint32_t i = 0; i < in->drive_count; i++)
        if (!in->drives[i].directory)
            return -EINVAL;
    for (uint32_t i = 0; i < in->gemm_count; i++)
        if (!gemm_is_valid(&in->gemms[i]))
            return -EINVAL;
    for (uint32_t i = 0; i < in->operation_count; i++)
        if (!operation_is_valid(&in->operations[i]))
            return -EINVAL;
    return 0;
}

static uint64_t memory_limit(const struct hst_probe *in)
{
    struct machine_memory memory;
    uint64_t left = machine_memory(&memory) ? 0 : machine_memory_left(&memory) / MEMORY_SHARE;
    uint64_t limit = in->memory_bytes ? in->memory_bytes : MEMORY_BYTES;
    return !in->memory_bytes && left < limit ? left : limit;
}

/* ---- what was not given ---- */

/* On the caller's thread alone: where no workers could be started. */
static void run_alone(void *context, size_t count,
                      void (*body)(void *arg, size_t index, unsigned worker), void *arg)
{
    (void)context;
    for (size_t i = 0; i < count; i++)
        body(arg, i, 0);
}

static void open_workers(struct probe *probe)
{
    if (probe->in->parallel) {
        probe->parallel = *probe->in->parallel;
        return;
    }
    unsigned width = probe->in->threads ? probe->in->threads : machine_cores();
    probe->parallel = (struct hst_parallel){.run = run_alone, .width = 1};
    if (workers_create(width, &probe->workers) == 0)
        probe->parallel =
            (struct hst_parallel){.run = workers_run, .context = probe->workers, .width = width};
}

static struct hst_dev *open_host(struct probe *probe)
{
    struct hst_dev *dev = NULL;
    const struct hst_dev_config config = {
        .size = sizeof config, .parallel = &probe->parallel, .host_math = probe->in->host_math};
    return hst_dev_host_open(&config, &dev) ? NULL : dev;
}

/* ---- all of it ---- */

static uint64_t cache_bytes(void)
{
    struct hst_topology machine;
    return topology_processors(&machine) ? 0 : machine.cache_bytes;
}

/* Once said, it stays: what was cut short has no figures. */
static bool runs(struct probe *probe, unsigned parts)
{
    return (probe->in->parts & parts) && !probe_is_stopped(probe);
}

static void run_parts(struct probe *probe)
{
    unsigned parts = probe->in->parts;
    if (parts & (HST_PROBE_MEMORY | HST_PROBE_UPDATE | HST_PROBE_DEVICE))
        probe->cache_bytes = cache_bytes();
    if (runs(probe, HST_PROBE_MEMORY | HST_PROBE_UPDATE))
        probe_memory(probe);
    if (runs(probe, HST_PROBE_DRIVES))
        probe_drives(probe);
    if (runs(probe, (unsigned)HST_PROBE_COMPUTE | HST_PROBE_COPIES | HST_PROBE_DEVICE))
        probe_burn(probe);
    if (runs(probe, HST_PROBE_COMPUTE))
        probe_gemms(probe);
    if (runs(probe, HST_PROBE_COPIES))
        probe_copies(probe);
    if (runs(probe, HST_PROBE_LOCKING))
        probe_locking(probe);
    if (runs(probe, HST_PROBE_DEVICE)) {
        probe_device(probe);
        probe_shared(probe);
    }
}

/* The workers are still there: what they waited counts. The kernel's own threads that help a drive
 * are others, but do not disturb it. */
static void judge(const struct probe *probe, const struct contention *begin)
{
    const struct contention end = contention_now();
    const struct contention c = contention_between(begin, &end);
    const bool worked = probe->in->parts & WORKED_PARTS;
    (void)contention_disturbs(&c, worked, probe->out->disturbed, sizeof probe->out->disturbed);
}

static void date(struct hst_rates *rates)
{
    rates->taken_ms = clock_wall_ms();
    for (int r = 0; r < HST_RATE_COUNT; r++)
        rates->figure_ms[r] = rates->figures[r].value > 0 ? rates->taken_ms : 0;
}

int hst_probe(const struct hst_probe *in, struct hst_rates *rates)
{
    struct hst_probe asked;
    int rc = rates ? probe_check(in) : -EINVAL;
    if (rc)
        return rc;
    double start = clock_seconds();
    asked = *in;
    asked.parts = in->parts ? in->parts : ALL_PARTS;
    *rates = (struct hst_rates){.drive_count = in->drive_count,
                                .gemm_count = in->gemm_count,
                                .operation_count = in->operation_count};
    struct probe probe = {
        .in = &asked, .dev = in->dev, .memory_bytes = memory_limit(in), .out = rates};
    if (asked.parts & WORKED_PARTS)
        open_workers(&probe);
    struct hst_dev *host = asked.parts & HST_PROBE_COMPUTE && !in->dev ? open_host(&probe) : NULL;
    probe.dev = host ? host : in->dev;
    const struct contention begin = contention_now();
    run_parts(&probe);
    judge(&probe, &begin);
    hst_dev_close(&host);
    workers_destroy(&probe.workers);
    date(rates);
    rates_round(rates);
    rates->seconds = clock_seconds() - start;
    if (!probe_is_stopped(&probe))
        return 0;
    *rates = (struct hst_rates){0};
    return -ECANCELED;
}
