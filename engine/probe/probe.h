/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PROBE_H
#define HOISTWAY_ENGINE_PROBE_H
/* Between the files of a probe: probe.c begins and ends it, each of the others measures a part. */
#include "machine/machine.h"
#include "optimizer/optimizer.h"

/** A probe under way. */
struct probe {
    const struct hst_probe *in;
    struct hst_parallel parallel; /* of the caller, or own */
    struct workers *workers;      /* own; null: the caller's are used, or none could be started */
    struct hst_dev *dev;          /* of the caller, or own; null: none could be had */
    uint64_t memory_bytes;        /* host memory at a time, at most */
    uint64_t cache_bytes;         /* last-level caches; 0: not told */
    struct hst_rates *out;
    bool ended; /* by who asked for it */
};

/* probe.c */

/** It checks what hst_probe would refuse: 0 or -EINVAL. */
int probe_check(const struct hst_probe *in);

/* rates.c */

/** To the whole numbers that hst_rates_format writes: a figure reads the same from a cache. */
void rates_round(struct hst_rates *rates);

/* probe_burn.c */
#define PROBE_BURN_S 0.5
/** Products on a device with memory of its own for PROBE_BURN_S; nothing on the host. */
void probe_burn(struct probe *probe);

/* probe_products.c */
#define PROBE_WARM_S 1.0 /* on the host, of a model's own GEMMs, before they are measured */

/* probe_time.c */

/** It tells whether who asked for the probe has ended it. */
bool probe_is_stopped(struct probe *probe);
/** Something that is measured by doing it again and again. */
struct probe_work {
    int (*begin)(void *arg);  /* once: does it, or enqueues it */
    int (*finish)(void *arg); /* waits for all that was begun; null: nothing to wait for */
    void *arg;
    double amount; /* of one time: bytes, elements, FLOP */
};
/**
 * Warms up, then measures rounds until there are enough of them or `deadline_s` (of clock_seconds)
 * has passed; at least one. figure->how is left alone. Errors: those of the work; *figure is then
 * untouched.
 */
int probe_rate(const struct probe_work *work, double deadline_s, struct hst_figure *figure);
#define PROBE_TURNS_MAX HST_GEMMS_MAX
/**
 * Measures so many works by turns, each as probe_rate does: a round of one, a round of the next.
 * What slows the machine for a while slows none of them alone. Those whose rcs[i] is not 0 are left
 * out; where it is not 0 afterwards, the work has failed and figures[i] is left alone.
 */
void probe_by_turns(struct probe *probe, const struct probe_work *works, uint32_t count,
                    double deadline_s, struct hst_figure *figures, int *rcs);
/** A part grows until so many times of it take its share of the time, or it is whole. */
#define PROBE_SHARE_ROUNDS 6
/** A part that took `seconds` is to be so many times as large to take `wish_s`: at most 64. */
double probe_growth(double seconds, double wish_s);
/** Warms up, then *seconds of one time. Errors: those of the work. */
int probe_once(const struct probe_work *work, double *seconds);
/** Sets value, least and most of a figure from the rates of its rounds, which are sorted. */
void probe_median(struct hst_figure *figure, double *rates, uint32_t rounds);
/** A figure that is not there, and why. */
void probe_fail(struct hst_figure *figure, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* probe_memory.c */
void probe_memory(struct probe *probe);
/** Coefficients of an ordinary step. */
struct optimizer_coef probe_coef(const struct optimizer *optimizer);
/**
 * Touches memory with all workers, each byte with 0x3c (as f32 and as bf16 0.0115), from its
 * beginning until it is done or deadline_s has passed. Returns the bytes touched.
 */
size_t probe_touch(const struct probe *probe, void *memory, size_t bytes, double deadline_s);

/** The host's update in bf16, slice by slice, on memory of its own. */
struct probe_load;
/** Null: that memory cannot be had. most_bytes: of it. */
struct probe_load *probe_load_open(struct probe *probe, uint64_t most_bytes);
/** Updates one slice. Returns the bytes that it moved through memory. */
double probe_load_slice(struct probe_load *load);
/** HALF_FP32, HALF_BF16, on the load's memory; or why not. */
void probe_half(struct probe_load *load);
void probe_half_fail(struct probe *probe, const char *why);
void probe_load_close(struct probe_load **load);

/* probe_drives.c */
void probe_drives(struct probe *probe);

/* probe_gemms.c */
void probe_gemms(struct probe *probe);
/** Numbers of both signs below 1 in a device's memory; returns when they are there. */
int probe_fill(struct hst_dev *dev, struct hst_stream *stream, char *memory, size_t bytes);
/** The product with its longest extents halved until it fits into both limits, or is tiny. Pure. */
struct hst_gemm gemm_cut(const struct hst_gemm *product, double most_flops,
                               double most_bytes);

/* probe_operations.c */
/** operations[], each for itself. */
void probe_operations(struct probe *probe, const struct hst_room *room);

/* probe_copies.c */
void probe_copies(struct probe *probe);
/** SHARED. */
void probe_shared(struct probe *probe);
/** The host's memory is not the device's. */
bool probe_is_apart(const struct probe *probe);
/** Device memory of `most` bytes, or of as large a part of it as is to be had; null: none. */
void *probe_device_memory(struct hst_dev *dev, size_t most_bytes, size_t *bytes);

/* probe_locking.c */
void probe_locking(struct probe *probe);

/* probe_device.c */
void probe_device(struct probe *probe);

#endif
