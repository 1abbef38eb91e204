/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how drives and copies are measured for a prediction, and how one is told. */
#include "cli/forecast.h"

#include "cli/store.h"

#include <stdio.h>
#include <string.h>

/* What a probe may write to each drive, beside what opening it writes; requests in flight. */
#define DRIVE_BYTES  ((uint64_t)64 << 20)
#define MEMORY_BYTES ((uint64_t)16 << 20)
#define COPY_BYTES   ((uint64_t)128 << 20) /* host memory of copies, both ways, at most */
#define FRESH_S      60.0

/* A gain that is told. */
#define GAIN_LEAST 1.02

static enum hst_aio_backend backend_of(enum hst_io io)
{
    return io == HST_IO_URING     ? HST_AIO_URING
           : io == HST_IO_THREADS ? HST_AIO_THREADS
                                  : HST_AIO_AUTO;
}

static void add_drives(const struct hst_config *config, char paths[HST_DRIVES_MAX][PATH_MAX],
                       struct hst_probe_drive *drives, struct hst_probe *probe)
{
    struct store_list list = {.rest = config->store};
    while (probe->drive_count < HST_DRIVES_MAX && store_next(&list)) {
        snprintf(paths[probe->drive_count], PATH_MAX, "%s", list.directory);
        drives[probe->drive_count].directory = paths[probe->drive_count];
        probe->drive_count++;
    }
    probe->drives = drives;
    probe->parts |= HST_PROBE_DRIVES;
    probe->memory_bytes += probe->drive_count * MEMORY_BYTES;
}

/* On a device, what is not at home there is copied in each step. */
static bool copies(const struct hst_memory *memory)
{
    uint64_t elsewhere = 0;
    for (int c = 0; c < HST_CLASS_BUFFERS; c++)
        elsewhere += memory->bytes[c][HST_TIER_DRAM] + memory->bytes[c][HST_TIER_NVME];
    return memory->total[HST_TIER_HBM] > 0 && elsewhere > 0;
}

static uint64_t left_of(const struct hst_memory *memory, enum hst_tier tier)
{
    return memory->budget[tier] - memory->total[tier];
}

/* A handle of the probe's own: what the engine's holds at most stays the training's. */
static void add_copies(const char *device, const struct hst_memory *memory, struct hst_probe *probe)
{
    const struct hst_dev_config config = {.size = sizeof config,
                                          .memory_bytes = left_of(memory, HST_TIER_HBM),
                                          .host_bytes = left_of(memory, HST_TIER_DRAM)};
    if (hst_dev_open(device, &config, &probe->dev, NULL))
        return;
    probe->parts |= HST_PROBE_COPIES;
    probe->memory_bytes += COPY_BYTES;
}

void forecast_measure(const struct hst_config *config, const char *device,
                      const struct hst_memory *memory, struct hst_rates *rates)
{
    char paths[HST_DRIVES_MAX][PATH_MAX];
    struct hst_probe_drive drives[HST_DRIVES_MAX] = {{0}};
    struct hst_probe probe = {
        .size = sizeof probe, .backend = backend_of(config->io), .drive_bytes = DRIVE_BYTES};
    memset(rates, 0, sizeof *rates);
    if (memory->total[HST_TIER_NVME] > 0)
        add_drives(config, paths, drives, &probe);
    if (copies(memory))
        add_copies(device, memory, &probe);
    if (probe.parts && hst_rates_get(&probe, NULL, FRESH_S, rates))
        memset(rates, 0, sizeof *rates);
    hst_dev_close(&probe.dev);
}

const char *forecast_text(const struct hst_prediction *p, double measured_s,
                          char dst[FORECAST_TEXT_BYTES])
{
    if (p->step_s <= 0) {
        snprintf(dst, FORECAST_TEXT_BYTES, "a step took %.3g s; not predicted: %s", measured_s,
                 p->why);
        return dst;
    }
    int used = snprintf(dst, FORECAST_TEXT_BYTES,
                        "bounded by %s: a step took %.3g s, %.3g s predicted (%+.1f %%), at least "
                        "%.3g s; ",
                        p->bound_by, measured_s, p->step_s, 100 * (measured_s / p->step_s - 1),
                        p->bound_s);
    double gain = p->help ? p->step_s / p->help_step_s : 1;
    if (gain >= GAIN_LEAST)
        snprintf(dst + used, FORECAST_TEXT_BYTES - (size_t)used,
                 "%s twice as fast would make it %.2f times as fast", p->help, gain);
    else
        snprintf(dst + used, FORECAST_TEXT_BYTES - (size_t)used,
                 "no part of the machine alone would make it faster");
    return dst;
}
