/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how drives and copies are measured for a prediction, and how one is told. */
#include "cli/forecast.h"

#include "cli/message/message.h"
#include "cli/options/store.h"

#include <errno.h>
#include <hoistway/ranks.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A probe may write this to each drive, beside what opening it writes: a drive takes some 10 MiB at
   once much faster than it goes on. Less where ranks share drives, or one has little room.
   Requests in flight. */
#define DRIVE_BYTES  ((uint64_t)1 << 30)
#define LESS_BYTES   ((uint64_t)64 << 20)
#define ROOM_LEAST   (4 * DRIVE_BYTES)
#define MEMORY_BYTES ((uint64_t)16 << 20)
#define COPY_BYTES   ((uint64_t)128 << 20) /* host memory of copies, both ways, at most */
#define BESIDE_BYTES (4 * COPY_BYTES)      /* and of the host's update beside them */
#define DEVICE_BYTES ((uint64_t)1 << 30)   /* of a device, before anything is planned, at most */
#define LOCK_BYTES   ((uint64_t)4 << 30)   /* page-locked then, at most */
#define FRESH_S      60.0
#define KNOWN_S      HST_RATES_BETTER_S /* to plan by */

#define OFF_MOST 1.25 /* a step that takes so many times what was predicted refutes it */

/* A gain that is told. */
#define GAIN_LEAST 1.02

static enum hst_aio_backend backend_of(enum hst_io io)
{
    return io == HST_IO_URING     ? HST_AIO_URING
           : io == HST_IO_THREADS ? HST_AIO_THREADS
                                  : HST_AIO_AUTO;
}

/* It says which figures a part has. */
static const struct part {
    unsigned parts;
    enum hst_rate first, last;
} UPDATE = {HST_PROBE_UPDATE, HST_RATE_UPDATE_FP32, HST_RATE_NORM_BF16},
  COMPUTE = {HST_PROBE_COMPUTE, HST_RATE_COMPUTE, HST_RATE_COMPUTE},
  COPIES = {HST_PROBE_COPIES, HST_RATE_H2D, HST_RATE_COPY_BOTH},
  DEVICE = {HST_PROBE_DEVICE, HST_RATE_DEVICE_FP32, HST_RATE_SHARED},
  LOCKING = {HST_PROBE_LOCKING, HST_RATE_LOCK, HST_RATE_LOCK},
  DRIVES = {HST_PROBE_DRIVES, HST_RATE_READ, HST_RATE_MIXED};

struct asked {
    struct hst_probe probe;
    char paths[HST_DRIVES_MAX][PATH_MAX];
    struct hst_probe_drive drives[HST_DRIVES_MAX];
};

static void ask_update(const struct forecast_in *in, struct asked *a)
{
    a->probe = (struct hst_probe){
        .size = sizeof a->probe, .parts = UPDATE.parts, .threads = in->config->threads};
}

/* It asks the host without a handle: with how many threads is then part of the question. */
static void ask_compute(const struct forecast_in *in, struct hst_dev *dev, struct asked *a)
{
    a->probe = (struct hst_probe){.size = sizeof a->probe,
                                  .parts = COMPUTE.parts,
                                  .threads = dev ? 0 : in->config->threads,
                                  .host_math = dev ? NULL : in->config->host_math,
                                  .dev = dev,
                                  .gemms = in->gemms,
                                  .gemm_count = in->gemm_count,
                                  .operations = in->operations,
                                  .operation_count = in->operation_count};
}

static void ask_link(const struct part *part, uint32_t threads, struct hst_dev *dev,
                     uint64_t memory_bytes, struct asked *a)
{
    a->probe = (struct hst_probe){.size = sizeof a->probe,
                                  .parts = part->parts,
                                  .threads = threads,
                                  .dev = dev,
                                  .memory_bytes = memory_bytes};
}

/* Ranks measure at once, each its part of what a node's share: that is no rate of the machine. */
static bool measures_with_others(const struct hst_config *config)
{
    return config->launch && config->launch->ranks > 1;
}

static uint64_t bytes_to_write(const struct hst_config *config, const struct asked *a,
                               uint32_t count)
{
    struct hst_drive drive;
    bool less = measures_with_others(config);
    for (uint32_t d = 0; d < count && !less; d++)
        less = hst_drive_of(a->drives[d].directory, &drive) || drive.free_bytes < ROOM_LEAST;
    return less ? LESS_BYTES : DRIVE_BYTES;
}

/* A directory that is still to be made is on the drive of its parent. host: computes beside it. */
static void ask_drives(const struct hst_config *config, bool host, struct asked *a)
{
    struct store_list list = {.rest = config->store};
    const bool busy = host && !measures_with_others(config); /* who keep each other busy */
    uint32_t count = 0;
    memset(a->drives, 0, sizeof a->drives);
    for (; count < HST_DRIVES_MAX && store_next(&list); count++) {
        bool there = access(list.directory, F_OK) == 0;
        snprintf(a->paths[count], PATH_MAX, "%s", there ? list.directory : dirname(list.directory));
        a->drives[count].directory = a->paths[count];
    }
    a->probe = (struct hst_probe){.size = sizeof a->probe,
                                  .parts = DRIVES.parts | (busy ? (unsigned)HST_PROBE_BUSY : 0),
                                  .backend = backend_of(config->io),
                                  .drives = a->drives,
                                  .drive_count = count,
                                  .drive_bytes = bytes_to_write(config, a, count),
                                  .memory_bytes = count * MEMORY_BYTES};
}

/* The figures of one part among those of the others; the oldest dates all. */
static void add(struct hst_rates *rates, const struct part *part, const struct hst_rates *got)
{
    if (rates->taken_ms == 0 || got->taken_ms < rates->taken_ms)
        rates->taken_ms = got->taken_ms;
    rates->seconds += got->seconds;
    for (int r = (int)part->first; r <= (int)part->last; r++) {
        rates->figures[r] = got->figures[r];
        rates->figure_ms[r] = got->figure_ms[r];
    }
    if (got->note[0])
        memcpy(rates->note, got->note, sizeof rates->note);
    if (got->disturbed[0])
        memcpy(rates->disturbed, got->disturbed, sizeof rates->disturbed);
    if (part->parts & HST_PROBE_UPDATE)
        memcpy(rates->ahead, got->ahead, sizeof rates->ahead);
    if (part->parts & HST_PROBE_DRIVES) {
        rates->drive_count = got->drive_count;
        rates->figures[HST_RATE_MIXED_BUSY] = got->figures[HST_RATE_MIXED_BUSY];
        rates->figure_ms[HST_RATE_MIXED_BUSY] = got->figure_ms[HST_RATE_MIXED_BUSY];
        memcpy(rates->drives, got->drives, sizeof rates->drives);
    }
    if (part->parts & HST_PROBE_COMPUTE) {
        rates->gemm_count = got->gemm_count;
        rates->operation_count = got->operation_count;
        memcpy(rates->gemms, got->gemms, sizeof rates->gemms);
        memcpy(rates->operations, got->operations, sizeof rates->operations);
    }
}

/* Measured where `age_s` says that it is too old; with `measure` false it is found or not. Of
 * several ranks nothing is looked for, or kept, in the cache. */
static bool get(const struct hst_config *config, const struct asked *a, const struct part *part,
                double age_s, bool measure, struct hst_rates *rates)
{
    struct hst_rates got;
    struct hst_probe probe = a->probe;
    probe.stopped = config->stopped;
    probe.stopped_context = config->stopped_context;
    int rc = measures_with_others(config) ? measure ? hst_probe(&probe, &got) : -ENOENT
             : measure                    ? hst_rates_get(&probe, NULL, age_s, &got)
                                          : hst_rates_find(&probe, NULL, age_s, &got);
    if (rc == 0 && measures_with_others(config)) /* they are the other work */
        got.disturbed[0] = '\0';
    if (rc == 0)
        add(rates, part, &got);
    return rc == 0;
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

void forecast_measure(const struct hst_config *config, const char *device,
                      const struct hst_memory *memory, bool anew, struct hst_rates *rates)
{
    const double age_s = anew ? 0 : FRESH_S;
    struct asked a;
    memset(rates, 0, sizeof *rates);
    if (memory->total[HST_TIER_NVME] > 0) {
        ask_drives(config, strcmp(device, "host") == 0, &a);
        (void)get(config, &a, &DRIVES, age_s, true, rates);
    }
    if (!copies(memory))
        return;
    /* a handle of the probe's own: what the engine's holds at most stays the training's */
    const struct hst_dev_config limits = {.size = sizeof limits,
                                          .memory_bytes = left_of(memory, HST_TIER_HBM),
                                          .host_bytes = left_of(memory, HST_TIER_DRAM)};
    struct hst_dev *dev = NULL;
    if (hst_dev_open(device, &limits, &dev, NULL))
        return;
    ask_link(&COPIES, 0, dev, COPY_BYTES, &a);
    (void)get(config, &a, &COPIES, age_s, true, rates);
    ask_link(&DEVICE, config->threads, dev, BESIDE_BYTES, &a); /* as it was planned with */
    (void)get(config, &a, &DEVICE, KNOWN_S, false, rates);
    hst_dev_close(&dev);
}

/* It says of what is not there what to do about it. */
static void tell_missing(struct hst_rates *rates, const struct part *part, const char *fix)
{
    for (int r = (int)part->first; r <= (int)part->last; r++)
        if (rates->figures[r].value <= 0 && !rates->figures[r].how[0])
            snprintf(rates->figures[r].how, sizeof rates->figures[r].how, "%s", fix);
}

void forecast_find(const struct forecast_in *in, enum forecast_how how, struct hst_rates *rates)
{
    const struct hst_dev_config config = {
        .size = sizeof config, .memory_bytes = DEVICE_BYTES, .host_bytes = LOCK_BYTES};
    const double age_s = how == FORECAST_PROBE ? 0 : KNOWN_S;
    const bool measure = how != FORECAST_CACHED;
    struct hst_dev *dev = NULL;
    struct asked a;
    memset(rates, 0, sizeof *rates);
    ask_update(in, &a);
    if (!get(in->config, &a, &UPDATE, age_s, measure, rates) && !measure)
        return; /* nobody has planned here: no device need be opened to find that out */
    if (in->gpu && hst_dev_open(in->device, &config, &dev, NULL))
        dev = NULL;
    if (!in->gpu || dev) {
        ask_compute(in, dev, &a);
        (void)get(in->config, &a, &COMPUTE, age_s, measure, rates);
    }
    if (dev) {
        ask_link(&COPIES, 0, dev, COPY_BYTES, &a);
        (void)get(in->config, &a, &COPIES, age_s, measure, rates);
        ask_link(&DEVICE, in->config->threads, dev, BESIDE_BYTES, &a);
        (void)get(in->config, &a, &DEVICE, age_s, measure, rates);
        ask_link(&LOCKING, 0, dev, LOCK_BYTES, &a);
        (void)get(in->config, &a, &LOCKING, age_s, measure, rates);
        hst_dev_close(&dev);
    }
    if (in->config->store) {
        ask_drives(in->config, !in->gpu, &a);
        (void)get(in->config, &a, &DRIVES, age_s, how >= FORECAST_MEASURED, rates);
    }
    tell_missing(rates, &DRIVES,
                 in->config->store ? "none of the last week are in the cache. Fix: --probe once, "
                                     "which writes 1 GiB at most to each drive"
                                   : "without --store no drives are named. Fix: --store DIR, or "
                                     "--rates FILE");
}

void forecast_tell_disturbed(const struct hst_rates *rates, const char *file)
{
    if (rates->disturbed[0] && file)
        cli_warn(CLI_DISTURBED,
                 "%s while the rates of '%.200s' were measured: they may be too low. Fix: end what "
                 "else runs on that machine, then plan --probe --save-rates FILE there.",
                 rates->disturbed, file);
    else if (rates->disturbed[0])
        cli_warn(CLI_DISTURBED,
                 "%s while rates were measured: they may be too low. They serve for ten minutes at "
                 "most, and replace no better ones of the last week. Fix: end what else runs here, "
                 "then plan --probe.",
                 rates->disturbed);
}

bool forecast_is_off(double predicted_s, const double *steps_s, unsigned count)
{
    unsigned slower = 0, faster = 0;
    for (unsigned i = 0; predicted_s > 0 && i < count; i++) {
        slower += steps_s[i] > predicted_s * OFF_MOST;
        faster += steps_s[i] * OFF_MOST < predicted_s;
    }
    return count > 0 && (slower == count || faster == count);
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
                        "bounded by %s: a step took %.3g s, %.3g s predicted (%+.1f %%)",
                        p->bound_by, measured_s, p->step_s, 100 * (measured_s / p->step_s - 1));
    /* A step that was faster than the bound shows that rates were better than when measured. */
    if (measured_s >= p->bound_s)
        used += snprintf(dst + used, FORECAST_TEXT_BYTES - (size_t)used, ", at least %.3g s",
                         p->bound_s);
    used += snprintf(dst + used, FORECAST_TEXT_BYTES - (size_t)used, "; ");
    double gain = p->help_count ? p->step_s / p->helps[0].step_s : 1;
    if (gain >= GAIN_LEAST)
        snprintf(dst + used, FORECAST_TEXT_BYTES - (size_t)used,
                 "%s twice as fast would make it %.2f times as fast", p->helps[0].what, gain);
    else
        snprintf(dst + used, FORECAST_TEXT_BYTES - (size_t)used,
                 "no part of the machine alone would make it faster");
    return dst;
}
