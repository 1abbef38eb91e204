/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between page-locked host memory and a device, each way and both ways at once: what an
 * engine that keeps states on the host can move. Large enough that starting them does not count.
 */
#include "machine/probe.h"

#include "engine_state.h"

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
    bool host = !c.dev || hst_dev_flags(c.dev) & HST_DEV_HOST_MEMORY;
    int opened = host ? 0 : open_copies(&c, probe->memory_bytes);
    for (size_t i = 0; i < COUNT; i++) {
        struct hst_figure *figure = &probe->out->figures[cases[i].rate];
        const struct probe_work work = {cases[i].begin, finish, &c,
                                        cases[i].ways * (double)c.bytes};
        if (host) {
            probe_fail(figure, "nothing is copied: the device works in host memory");
            continue;
        }
        int rc = opened ? opened : probe_rate(&work, clock_seconds() + COPIES_S / COUNT, figure);
        if (opened == -ENOSPC)
            probe_fail(figure, "the device's budgets leave too little to copy");
        else if (rc)
            probe_fail(figure, "%s: %s", opened ? "no memory to copy" : "a copy failed",
                       strerror(-rc));
        else
            snprintf(figure->how, sizeof figure->how, "%zu MiB page-locked, %s%.40s", c.bytes >> 20,
                     cases[i].ways > 1 ? "each way, " : "", hst_dev_name(c.dev));
    }
    close_memory(&c);
    hst_stream_destroy(&c.out);
    hst_stream_destroy(&c.in);
}
