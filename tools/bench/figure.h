/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_FIGURE_H
#define HOISTWAY_TOOLS_BENCH_FIGURE_H
/* A benchmark of a device tells this: one figure at a time, each beside its ceiling. */
#include "base/fail.h"

#include <hoistway/kernels.h>

struct bench_figure {
    const char *group;         /* "memory" */
    const char *name;          /* "rmsnorm 16384x4096 bf16" */
    double value, least, most; /* of the rounds: median and range; 0 where it was not done */
    const char *unit;          /* "B/s", "FLOP/s", "s", "tokens", "B" */
    double ceiling;            /* in the same unit; 0: none is known */
    const char *ceiling_name;
    const char *note;          /* why it was not done; null where it was */
};

/* It says where figures go, and how much is measured. */
struct bench_teller {
    void (*tell)(void *context, const struct bench_figure *figure);
    void *context;
    bool smoke; /* tiny and once: tries every line, measures nothing */
};

/** Seconds of one call, in rounds. */
struct bench_timing {
    double median_s, least_s, most_s;
};

/**
 * Times what `enqueue` puts on the stream: warmed up, then seven rounds of so many calls that a
 * round is far longer than a wait for the stream. smoke: one call. Errors: those of enqueue and of
 * the stream.
 */
int bench_time(struct hst_stream *stream, bool smoke, int (*enqueue)(void *arg), void *arg,
               struct bench_timing *timing);

/** amount per call, as a rate. */
void bench_tell_rate(const struct bench_teller *teller, struct bench_figure *figure, double amount,
                     const struct bench_timing *timing);

/** Bytes per second that a PCI Express link can carry one way; 0 where it is not known. */
double bench_pcie_rate(unsigned generation, unsigned lanes);

/** Bytes per second of copies between page-locked host memory and a device. */
struct bench_copies {
    struct bench_timing to_device, from_device, both; /* both: one copy each way, at once */
    size_t size_bytes;                                /* of one copy */
};
/** Errors: negative errno with *error (E201 to E203). The device's budgets are raised for it. */
int bench_copies(struct hst_dev *dev, bool smoke, struct bench_copies *copies,
                 struct hst_error *error);

#define BENCH_STAGING_BYTES ((size_t)1 << 16)
/**
 * Fills device memory with what `staging` (page-locked) holds, again and again; returns when done.
 * bench_fill: with bf16 numbers of both signs below 1, two of which, read as one f32, are such a
 * number too: what an operation costs depends on them, a card draws less power over zeros.
 */
int bench_spread(struct hst_stream *stream, void *dst, size_t bytes, const void *staging);
int bench_fill(struct hst_stream *stream, void *dst, size_t bytes, void *staging);

/** It passes on what a device tells of itself where a call failed. Returns native. */
int bench_device_failed(struct hst_dev *dev, int native, const char *what, struct hst_error *error);

#endif
