/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between page-locked host memory and a device, each way and both ways at once: what an
 * engine that keeps states on the host can move. Large enough that starting them does not count.
 */
#include "probe/probe.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define COPY_BYTES  ((size_t)64 << 20)
#define LEAST_BYTES ((size_t)1 << 20)
#define COPIES_S    0.25

struct copies {
    struct hst_dev *dev;
    struct hst_stream *in, *out;
    void *device[2], *host[2];
    size_t bytes;
};

void *probe_device_memory(struct hst_dev *dev, size_t most_bytes, size_t *bytes)
{
    struct hst_dev_info info;
    void *memory = NULL;
    /* within what is free: a device remembers a refusal as its first failure */
    hst_dev_info(dev, &info);
    if (info.memory_free_bytes && most_bytes > info.memory_free_bytes / 2)
        most_bytes = (size_t)info.memory_free_bytes / 2 / 4096 * 4096;
    for (*bytes = most_bytes; *bytes >= LEAST_BYTES; *bytes = *bytes / 2 / 4096 * 4096)
        if (hst_dev_mem_alloc(dev, *bytes, &memory) == 0)
            return memory;
    return NULL;
}

static int to_device(void *arg)
{
    struct copies *c = arg;
    return hst_stream_copy(c->in, c->device[0], c->host[0], c->bytes);
}

static int from_device(void *arg)
{
    struct copies *c = arg;
    return hst_stream_copy(c->out, c->host[1], c->device[1], c->bytes);
}

static int both_ways(void *arg)
{
    int rc = from_device(arg);
    return rc ? rc : to_device(arg);
}

static int finish(void *arg)
{
    struct copies *c = arg;
    int in = hst_stream_sync(c->in), out = hst_stream_sync(c->out);
    return in ? in : out;
}

/* Two buffers on each side, of one size: as large as the budgets allow. */
static int open_memory(struct copies *c, size_t bytes)
{
    int rc = 0;
    c->bytes = bytes;
    for (int i = 0; i < 2; i++) {
        rc = rc ? rc : hst_dev_mem_alloc(c->dev, bytes, &c->device[i]);
        rc = rc ? rc : hst_dev_host_alloc(c->dev, bytes, &c->host[i]);
    }
    return rc;
}

static void close_memory(struct copies *c)
{
    for (int i = 0; i < 2; i++) {
        if (c->device[i])
            hst_dev_mem_free(c->dev, c->device[i], c->bytes);
        if (c->host[i])
            hst_dev_host_free(c->dev, c->host[i], c->bytes);
        c->device[i] = c->host[i] = NULL;
    }
}

static int open_copies(struct copies *c, uint64_t most_bytes)
{
    int rc = hst_stream_create(c->dev, "hst-probe-in", &c->in);
    rc = rc ? rc : hst_stream_create(c->dev, "hst-probe-out", &c->out);
    if (rc)
        return rc;
    rc = -ENOSPC;
    for (size_t bytes = COPY_BYTES; bytes >= LEAST_BYTES && rc; bytes /= 2) {
        if (2 * bytes > most_bytes)
            continue;
        rc = open_memory(c, bytes);
        if (rc)
            close_memory(c);
    }
    return rc;
}

bool probe_is_apart(const struct probe *probe)
{
    return probe->dev && !(hst_dev_flags(probe->dev) & HST_DEV_HOST_MEMORY);
}

static void close_copies(struct copies *c)
{
    close_memory(c);
    hst_stream_destroy(&c->out);
    hst_stream_destroy(&c->in);
}

static const char APART[] = "nothing is copied: the device works in host memory";
static const char LITTLE[] = "the device's budgets leave too little to copy";

void probe_copies(struct probe *probe)
{
    static const struct {
        enum hst_rate rate;
        int (*begin)(void *arg);
        double ways;
    } cases[] = {{HST_RATE_H2D, to_device, 1},
                 {HST_RATE_D2H, from_device, 1},
                 {HST_RATE_COPY_BOTH, both_ways, 2}};
    enum { COUNT = sizeof cases / sizeof *cases };
    struct copies c = {.dev = probe->dev};
    bool host = !probe_is_apart(probe);
    int opened = host ? 0 : open_copies(&c, probe->memory_bytes);
    for (size_t i = 0; i < COUNT; i++) {
        struct hst_figure *figure = &probe->out->figures[cases[i].rate];
        const struct probe_work work = {cases[i].begin, finish, &c,
                                        cases[i].ways * (double)c.bytes};
        if (host) {
            probe_fail(figure, APART);
            continue;
        }
        int rc = opened ? opened : probe_rate(&work, clock_seconds() + COPIES_S / COUNT, figure);
        if (opened == -ENOSPC)
            probe_fail(figure, LITTLE);
        else if (rc)
            probe_fail(figure, "%s: %s", opened ? "no memory to copy" : "a copy failed",
                       strerror(-rc));
        else
            snprintf(figure->how, sizeof figure->how, "%zu MiB page-locked, %s%.40s", c.bytes >> 20,
                     cases[i].ways > 1 ? "each way, " : "", hst_dev_name(c.dev));
    }
    close_copies(&c);
}

/* ---- what host memory carries ---- */

/* Copies each way of a round: a slice of the update that ends after them is short beside that. */
enum { SHARED_ROUNDS = 5, SHARED_COPIES = 8 };
#define SHARED_S 0.15

static int are_made(struct hst_event *const passed[2])
{
    for (int i = 0; i < 2; i++) {
        int rc = hst_event_query(passed[i]);
        if (rc <= 0)
            return rc;
    }
    return 1;
}

/* Bytes per second that pass through host memory until the copies are made, both of them, while the
 * workers update. */
static int shared_round(struct copies *c, struct probe_load *load,
                        struct hst_event *const passed[2], double *rate)
{
    double start = clock_seconds(), bytes = 2 * SHARED_COPIES * (double)c->bytes;
    int rc = 0, made = 0;
    for (int i = 0; i < SHARED_COPIES && rc == 0; i++)
        rc = both_ways(c);
    rc = rc ? rc : hst_event_record(passed[0], c->in);
    rc = rc ? rc : hst_event_record(passed[1], c->out);
    while (rc == 0 && made == 0) {
        bytes += probe_load_slice(load);
        made = are_made(passed);
    }
    *rate = bytes / (clock_seconds() - start);
    return rc ? rc : made < 0 ? made : 0;
}

static int shared_rounds(struct copies *c, struct probe_load *load, struct hst_figure *figure)
{
    struct hst_event *passed[2] = {NULL, NULL};
    double rates[SHARED_ROUNDS], until = clock_seconds() + SHARED_S;
    uint32_t rounds = 0;
    int rc = hst_event_create(c->dev, &passed[0]);
    rc = rc ? rc : hst_event_create(c->dev, &passed[1]);
    rc = rc ? rc : shared_round(c, load, passed, &rates[0]); /* not counted: it warms up */
    while (rc == 0 && rounds < SHARED_ROUNDS && (rounds == 0 || clock_seconds() < until))
        rc = shared_round(c, load, passed, &rates[rounds++]);
    int late = finish(c);
    rc = rc ? rc : late;
    hst_event_destroy(&passed[1]);
    hst_event_destroy(&passed[0]);
    if (rc == 0)
        probe_median(figure, rates, rounds);
    return rc;
}

void probe_shared(struct probe *probe)
{
    struct hst_figure *figure = &probe->out->figures[HST_RATE_SHARED];
    struct copies c = {.dev = probe->dev};
    if (!probe_is_apart(probe)) {
        probe_fail(figure, APART);
        probe_half_fail(probe, "the device works in host memory: all threads update");
        return;
    }
    int opened = open_copies(&c, probe->memory_bytes / 2);
    uint64_t left = opened ? 0 : probe->memory_bytes - 2 * (uint64_t)c.bytes;
    struct probe_load *load = probe_load_open(probe, left);
    int rc = opened ? opened : load ? shared_rounds(&c, load, figure) : -ENOSPC;
    if (load)
        probe_half(load);
    else
        probe_half_fail(probe, LITTLE);
    if (rc == -ENOSPC)
        probe_fail(figure, LITTLE);
    else if (rc)
        probe_fail(figure, "%s: %s", opened ? "no memory to copy" : "a copy failed", strerror(-rc));
    else
        snprintf(figure->how, sizeof figure->how,
                 "AdamW in bf16 beside copies of %zu MiB each way, %.40s", c.bytes >> 20,
                 hst_dev_name(c.dev));
    probe_load_close(&load);
    close_copies(&c);
}
