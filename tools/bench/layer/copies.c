/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between page-locked host memory and a device, each way and both ways at once: what an
 * engine that keeps states on the host can move. Large enough that starting them does not count.
 */
#include "bench/figure.h"

#define COPY_BYTES  ((size_t)256 << 20)
#define SMOKE_BYTES ((size_t)1 << 20)

struct copies {
    struct hst_dev *dev;
    struct hst_stream *in, *out;
    struct hst_event *passed;
    void *device[2], *host[2];
    size_t size_bytes;
};

static int to_device(void *arg)
{
    struct copies *c = arg;
    return hst_stream_copy(c->in, c->device[0], c->host[0], c->size_bytes);
}

static int from_device(void *arg)
{
    struct copies *c = arg;
    return hst_stream_copy(c->out, c->host[1], c->device[1], c->size_bytes);
}

/* One stream ends when both copies have: its sync then stands for the two. */
static int both_ways(void *arg)
{
    struct copies *c = arg;
    int rc = from_device(c);
    rc = rc ? rc : to_device(c);
    rc = rc ? rc : hst_event_record(c->passed, c->out);
    return rc ? rc : hst_stream_wait(c->in, c->passed);
}

static int open_copies(struct copies *c)
{
    int rc = 0;
    for (int i = 0; i < 2 && !rc; i++) {
        rc = hst_dev_mem_alloc(c->dev, c->size_bytes, &c->device[i]);
        rc = rc ? rc : hst_dev_host_alloc(c->dev, c->size_bytes, &c->host[i]);
    }
    rc = rc ? rc : hst_stream_create(c->dev, "bench-in", &c->in);
    rc = rc ? rc : hst_stream_create(c->dev, "bench-out", &c->out);
    return rc ? rc : hst_event_create(c->dev, &c->passed);
}

static void close_copies(struct copies *c)
{
    if (c->passed)
        hst_event_destroy(&c->passed);
    if (c->out)
        hst_stream_destroy(&c->out);
    if (c->in)
        hst_stream_destroy(&c->in);
    for (int i = 0; i < 2; i++) {
        if (c->device[i])
            hst_dev_mem_free(c->dev, c->device[i], c->size_bytes);
        if (c->host[i])
            hst_dev_host_free(c->dev, c->host[i], c->size_bytes);
    }
}

int bench_copies(struct hst_dev *dev, bool smoke, struct bench_copies *copies,
                 struct hst_error *error)
{
    struct copies c = {.dev = dev, .size_bytes = smoke ? SMOKE_BYTES : COPY_BYTES};
    struct hst_dev_usage usage;
    hst_dev_usage(dev, &usage);
    int rc = hst_dev_budget(dev, usage.memory_bytes + 2 * c.size_bytes,
                            usage.host_bytes + 2 * c.size_bytes);
    rc = rc ? rc : open_copies(&c);
    rc = rc ? rc : bench_time(c.in, smoke, to_device, &c, &copies->to_device);
    rc = rc ? rc : bench_time(c.out, smoke, from_device, &c, &copies->from_device);
    rc = rc ? rc : bench_time(c.in, smoke, both_ways, &c, &copies->both);
    copies->size_bytes = c.size_bytes;
    close_copies(&c);
    return rc ? bench_device_failed(dev, rc, "copying", error) : 0;
}

double bench_pcie_rate(unsigned generation, unsigned lanes)
{
    /*
     * Bits per second and lane after coding (8b/10b, from generation 3 on 128b/130b; generation 6
     * sends 242 of 256 bytes of a flit as data). Packet headers take some 5 to 10 % more.
     */
    static const double bits[] = {0,
                                  2.5e9 * 8 / 10,
                                  5e9 * 8 / 10,
                                  8e9 * 128 / 130,
                                  16e9 * 128 / 130,
                                  32e9 * 128 / 130,
                                  64e9 * 242 / 256};
    if (generation >= sizeof bits / sizeof *bits)
        return 0;
    return bits[generation] / 8 * lanes;
}
