/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how drives are measured for a prediction, and how one is told. */
#include "cli/forecast.h"

#include "cli/store.h"

#include <stdio.h>
#include <string.h>

/* What a probe may write to each drive, beside what opening it writes; requests in flight. */
#define DRIVE_BYTES  ((uint64_t)64 << 20)
#define MEMORY_BYTES ((uint64_t)16 << 20)
#define FRESH_S      60.0

/* A gain that is told. */
#define GAIN_LEAST 1.02

static enum hst_aio_backend backend_of(enum hst_io io)
{
    return io == HST_IO_URING     ? HST_AIO_URING
           : io == HST_IO_THREADS ? HST_AIO_THREADS
                                  : HST_AIO_AUTO;
}

void forecast_measure(const struct hst_config *config, const struct hst_memory *memory,
                      struct hst_rates *rates)
{
    char paths[HST_DRIVES_MAX][PATH_MAX];
    struct hst_probe_drive drives[HST_DRIVES_MAX] = {{0}};
    struct store_list list = {.rest = config->store};
    struct hst_probe probe = {.size = sizeof probe,
                              .parts = HST_PROBE_DRIVES,
                              .drives = drives,
                              .backend = backend_of(config->io),
                              .drive_bytes = DRIVE_BYTES};
    memset(rates, 0, sizeof *rates);
    if (memory->total[HST_TIER_NVME] == 0)
        return;
    while (probe.drive_count < HST_DRIVES_MAX && store_next(&list)) {
        snprintf(paths[probe.drive_count], PATH_MAX, "%s", list.directory);
        drives[probe.drive_count].directory = paths[probe.drive_count];
        probe.drive_count++;
    }
    probe.memory_bytes = probe.drive_count * MEMORY_BYTES;
    if (hst_rates_get(&probe, NULL, FRESH_S, rates))
        memset(rates, 0, sizeof *rates);
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
