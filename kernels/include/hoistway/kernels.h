/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_KERNELS_H
#define HOISTWAY_KERNELS_H
/*
 * Devices: memory, copies, streams, events and every tensor operation, behind one table, so that a
 * model is written once. The host device is always there; others are plugins that fill the same
 * table (plugin.h).
 *
 * How it fits together:
 *   - A device gives memory within two hard budgets (its own, and page-locked host memory for
 *     copies).
 *   - A stream is an ordered queue. Everything below that takes a stream only enqueues: it checks
 *     its arguments, returns at once, and borrows all memory until the stream has passed it.
 *     Argument structs are copied. An error at execution time is sticky in its stream: later work
 *     on it is skipped, and hst_stream_sync and hst_event_sync return it.
 *   - An event marks a place in a stream; another stream, or the host, waits for it.
 *
 * Numbers: an operation reads f32, bf16 or f16, computes and accumulates in f32, and rounds its
 * output once, to nearest even. f16 ends as IEEE 754 has it: its subnormal numbers are kept, and a
 * result that rounds beyond 65504 (from 65520 on) is an infinity, which a training with a loss
 * scale finds in the norm of its gradients. Results depend on shapes and values alone: never on the
 * number of workers, on alignment (one exception: hst_matmul), or on how the caller groups rows
 * into calls where the text says "row by row".
 *
 * Tensors are row-major and dense unless a leading dimension is given. `tokens` rows are batch ×
 * seq, the sequence running fastest. Data pointers are device memory, aligned to 16 bytes at least;
 * ids and vectors of a few f32 per row (rstd, lse, loss, state) to 4, partial norms to 8, a
 * product's matrices to their element. A count, batch or number of tokens of 0 does nothing;
 * no other extent may be 0 unless it says so. Operands overlap only where the text says so.
 *
 * Errors of every enqueuing function: -EINVAL (shape, pointer, dtype or workspace wrong; nothing is
 * enqueued), -ENOTSUP (this device does not do it), or the stream's sticky error.
 * Thread-safety: a device is safe from any thread; a stream is fed by one thread at a time; an
 * event is recorded by one thread at a time and may be waited for by any.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum hst_dtype { HST_F32 = 1, HST_BF16 = 2, HST_F16 = 3 };

/** Bytes of one element: 4, 2, 2; 0 for anything else. */
size_t hst_dtype_bytes(enum hst_dtype dtype);

/* ---- devices --------------------------------------------------------------------------------- */

/**
 * Threads that belong to the device's owner, on which the host device runs the pieces of one
 * operation.
 */
struct hst_parallel {
    /**
     * Calls body(arg, i, worker) once for each i in [0, count), worker in [0, width), and returns
     * when all have returned; bodies of one call that run at once have different workers (each has
     * its part of the workspace). Called from stream threads, from several at once.
     */
    void (*run)(void *context, size_t count, void (*body)(void *arg, size_t index, unsigned worker),
                void *arg);
    void *context;
    unsigned width; /* pieces at work at once, at most; > 0 */
};

struct hst_dev_config {
    size_t size;                         /* sizeof(struct hst_dev_config) */
    uint64_t memory_bytes;               /* budget of device memory; 0: none may be allocated */
    uint64_t host_bytes;                 /* budget of page-locked host memory; 0: none */
    const struct hst_parallel *parallel; /* host: copied; null: on the stream's thread alone */
    unsigned index;                      /* which device of its kind */
    /*
     * Host device: the core of OpenBLAS whose kernels make its products ("Haswell", "SkylakeX", in
     * any case of letters), so that they have the same bits on every processor with that core's
     * instructions; null: OpenBLAS's own choice. A process has one: what it began with stays.
     * Alone or behind a comma ("Haswell,fma") the kernel that makes GEMMs of bf16: "amx", which has
     * bits of its own, "vdpbf16ps" or "fma", which have the same, or "blas", which widens bf16 for
     * OpenBLAS. Without a word of it: "amx" where the processor has it and the system lets a
     * process use it, else the quicker one of the next two; "blas" where the processor has no
     * AVX-512. A core that is named counts as the processor. Opening a host device asks the system
     * for AMX once a process; from then on sigaltstack refuses stacks that are too small for it.
     */
    const char *host_math;
};

enum hst_dev_flag {
    HST_DEV_HOST_MEMORY = 1u << 0, /* operations read and write host memory directly */
};

/** Why a device does not open, or what it last reported. */
enum hst_dev_why {
    HST_DEV_OK = 0,
    HST_DEV_NO_PLUGIN,     /* no such plugin was found; text lists where it was looked for */
    HST_DEV_BROKEN_PLUGIN, /* it was found and cannot be used: not loadable, other version */
    HST_DEV_NO_DRIVER,     /* the machine has no driver for such a device */
    HST_DEV_OLD_DRIVER,    /* its driver is too old for this build */
    HST_DEV_NO_DEVICE,     /* none, or none with this index */
    HST_DEV_ARCHITECTURE,  /* there is one, but this build has no code for it */
    HST_DEV_LIBRARY,       /* a library that the plugin opens (cuBLASLt) cannot be used */
    HST_DEV_MEMORY,        /* out of memory: the text says how much was asked for and is free */
    HST_DEV_EXECUTION,     /* a launch, copy or call failed; native is the device's own code */
    HST_DEV_NAME,          /* no name of a device */
    HST_DEV_LOCKED_MEMORY, /* host memory cannot be had or page-locked; the text says the limit */
    HST_DEV_BLAS,          /* OpenBLAS is not found, or cannot be used by several threads */
    HST_DEV_CORE,          /* the core of OpenBLAS that was named cannot be had */
    HST_DEV_ADDRESS_SPACE, /* OpenBLAS needs more address space than there is */
    HST_DEV_ENVIRONMENT,   /* a variable of the environment chooses what there is not */
    HST_DEV_HIDDEN,        /* CUDA_VISIBLE_DEVICES names nothing that is there */
    HST_DEV_MIXED_DRIVER,  /* the driver's library is not that of the driver that runs */
    HST_DEV_NOT_READY,     /* a service that the cards need has not started */
    HST_DEV_IN_USE,        /* another process has the card for itself, or no process may have it */
    HST_DEV_CARD,          /* the card's memory has failed (ECC): it has to be reset */
};
struct hst_dev_failure {
    enum hst_dev_why why;
    int native;     /* the device's own code (cudaError_t), 0 where it has none */
    char text[400]; /* what, the value seen, why; one line, without a fix and without a newline */
};

/** One thing to do about it, behind "Fix: " or alone. Ownership: static. Pure. */
const char *hst_dev_fix(enum hst_dev_why why);

struct hst_dev;    /* begins with `const struct hst_dev_ops *ops` in every implementation */
struct hst_stream; /* begins with `struct hst_dev *dev` */
struct hst_event;  /* begins with `struct hst_dev *dev` */
struct hst_dev_ops;

/**
 * Opens the host device (index 0 alone exists), and with the first one of a process OpenBLAS: the
 * library of that name (libopenblas.so.0) that is in the process already, else of the first folder
 * that has one of: those of the environment's HOISTWAY_BLAS_PATH (colon-separated, absolute;
 * ignored in a set-user-ID program), openblas-openmp beside the library that this code is in or in
 * ../lib of it, the folder that this was built with, and where the system's loader looks. It stays
 * loaded until the process ends, held at one thread.
 * Errors: -EINVAL, -ENOMEM (also: too little address space, for which OpenBLAS would wait for
 * ever), -ENODEV (no OpenBLAS, or not with host_math), -ENOTSUP (one that several threads cannot
 * call); hst_dev_open tells them apart. The caller destroys it. Starts no thread. OpenBLAS takes a
 * core's name from the environment alone: the first call in a process sets and resets
 * OPENBLAS_CORETYPE where host_math is given, or where OpenBLAS took its oldest kernels for a
 * processor that it does not know. Let it come before other threads read the environment or use
 * OpenBLAS.
 */
int hst_dev_host_open(const struct hst_dev_config *config, struct hst_dev **dev);
/**
 * Opens a device by name: "host", or "KIND" or "KIND:INDEX" ("cuda:1") of a plugin, which sets
 * config->index. A plugin is libhoistway-KIND.so, KIND being lower-case letters; it is looked for
 * in each folder of the environment's HOISTWAY_PLUGIN_PATH (colon-separated, absolute; ignored in
 * a set-user-ID program), beside the library that this code is in, and in the folder that
 * libraries were installed to; nowhere else, so never in the working directory. A plugin stays
 * loaded until the process ends.
 * Errors: -EINVAL (name, config), -ENODEV (plugin, driver, device, library), -ENOMEM; *failure (may
 * be null) says why. Thread-safety: safe. Cost: a CUDA device some 0.2 s, in the first call.
 */
int hst_dev_open(const char *name, const struct hst_dev_config *config, struct hst_dev **dev,
                 struct hst_dev_failure *failure);

/** A CUDA GPU that is not here: what a plan for it has to know. */
struct hst_dev_planned {
    uint64_t memory_bytes;  /* > 0 */
    unsigned compute_major; /* 9: of 9.0; 0: not known, and no workspace is then too small */
};
/**
 * Opens a device that tells how much memory its operations need, by the formulas of the CUDA
 * plugin, and no more: without a GPU, a driver or NVIDIA's libraries. Streams of it do nothing;
 * memory and operations are -ENOTSUP. Where a library has less than its formula the plan has room
 * to spare. HOISTWAY_MATMUL=own counts for it, too. Errors: -EINVAL, -ENOMEM.
 */
int hst_dev_planned_open(const struct hst_dev_planned *planned, struct hst_dev **dev);

/** Frees the device; streams, events and memory must be gone (asserted). Sets *dev to null. */
void hst_dev_close(struct hst_dev **dev);

const char *hst_dev_name(const struct hst_dev *dev); /* "host", … */
unsigned hst_dev_flags(const struct hst_dev *dev);   /* enum hst_dev_flag */

/**
 * Device memory, zeroed, aligned to 2 MiB; the budget counts size_bytes as given. Errors: -ENOSPC
 * beyond the budget, -ENOMEM the machine has none left, -EINVAL.
 */
int hst_dev_mem_alloc(struct hst_dev *dev, size_t size_bytes, void **memory);
void hst_dev_mem_free(struct hst_dev *dev, void *memory, size_t size_bytes);
/**
 * Host memory that copies run from and to at full speed (page-locked where the device needs it),
 * zeroed, aligned to 2 MiB. Errors: as above.
 */
int hst_dev_host_alloc(struct hst_dev *dev, size_t size_bytes, void **memory);
/** It may put other pages, zeroed and of 4 KiB, in the place of some of the memory's, which is
 * mapped and has not been touched or locked. It returns 0, or an error, which the allocation ends
 * with. */
struct hst_host_pages {
    int (*place)(void *context, void *memory);
    void *context;
};
/** The same, of pages that another process shares (pages may be null: of none). */
int hst_dev_host_alloc_of(struct hst_dev *dev, size_t size_bytes,
                          const struct hst_host_pages *pages, void **memory);
void hst_dev_host_free(struct hst_dev *dev, void *memory, size_t size_bytes);

struct hst_dev_usage {
    uint64_t memory_bytes, memory_peak_bytes; /* device memory held now, and at most so far */
    uint64_t host_bytes, host_peak_bytes;
};
void hst_dev_usage(const struct hst_dev *dev, struct hst_dev_usage *usage);
/** Of so much device memory what is to be left to libraries, for code that they load when it is
 * first called: 512 MiB, of less than twice as much half. Pure. */
uint64_t hst_dev_left_bytes(uint64_t memory_bytes);
/** The budget of device memory where nobody says one, of so much that is free: nine tenths, or all
 * but hst_dev_left_bytes, whichever is less. Pure. */
uint64_t hst_dev_usual_bytes(uint64_t free_bytes);
/** New budgets; attention's workspace follows the first. -ENOSPC below what is held: no change. */
int hst_dev_budget(struct hst_dev *dev, uint64_t memory_bytes, uint64_t host_bytes);

/** It holds what is known of a device; 0, -1 (numa_node) or "" where it is not. */
struct hst_dev_info {
    char model[64];                                 /* "NVIDIA H200" */
    char pci[16];                                   /* "0000:3b:00.0" */
    int numa_node;                                  /* of host memory near it; -1 unknown or none */
    uint64_t memory_total_bytes, memory_free_bytes; /* free: now, in all processes */
    unsigned compute_major, compute_minor, multiprocessors; /* 9, 0 are of 9.0 */
    unsigned driver_version, runtime_version;               /* CUDA's, 13000 is 13.0 */
    /* PCI Express generation and lanes: of the link now (an idle GPU may lower it) and at most */
    unsigned pcie_generation, pcie_lanes, pcie_generation_max, pcie_lanes_max;
    char libraries[96];       /* "cuBLASLt 13.1.0, cuDNN 9.19.0", "own products" */
    char library_files[512];  /* of these, in that order, commas between; cut at the end */
    char library_unused[400]; /* files that are there and cannot be used, and why: own kernels */
    char absent[32]; /* the library of matrix products that was not found: own ones serve */
    unsigned plans;  /* of cuDNN's, built when a shape was asked for first */
    double plans_s;  /* how long that took */
};
void hst_dev_info(struct hst_dev *dev, struct hst_dev_info *info);
#define HST_DEV_MATH_BYTES 640
/**
 * It tells what the bits of a device's results depend on beside shapes and values, on one line of
 * at most text_bytes, terminated: "OpenBLAS 0.3.21 SkylakeX, glibc 2.36", with "own GEMMs of bf16"
 * (or "own GEMMs of bf16 by AMX, attention by AMX") between them where a workspace for such was
 * asked for and OpenBLAS does not make them; of a GPU its model, multiprocessors, driver and
 * libraries, how algorithms are chosen, variables of the environment that change that, each value
 * cut at 24 characters, and attention's workspace where the budget decides who serves. Two devices
 * with the same text give the same bits,
 * on processors with FMA: without it glibc computes some sines and logarithms by other code.
 * text_bytes: HST_DEV_MATH_BYTES is always enough. Thread-safety: safe.
 */
void hst_dev_math(struct hst_dev *dev, char *text, size_t text_bytes);
/**
 * It tells whether two such texts stand for the same bits: they are the same, or differ alone in
 * two cores of OpenBLAS whose products were compared (0.3.21: Haswell and Zen). Pure.
 * Thread-safety: safe.
 */
bool hst_dev_math_equal(const char *a, const char *b);
/**
 * A function of the OpenBLAS that host devices use ("cblas_sgemm"), to measure it with nothing in
 * between; null where it has none of that name, or before a host device was opened.
 * Thread-safety: safe.
 */
void *hst_dev_host_blas(const char *name);
/**
 * The first failure that the device itself reported since it was opened (why is HST_DEV_OK where
 * there is none): the story behind an -EIO or -ENOMEM of a call or a stream.
 */
void hst_dev_failure(struct hst_dev *dev, struct hst_dev_failure *failure);

/* ---- streams and events ---------------------------------------------------------------------- */

/**
 * A stream; on the host device one ordered worker thread named `name` (at most 15 characters).
 * Errors: -EINVAL, -ENOMEM, -EAGAIN.
 */
int hst_stream_create(struct hst_dev *dev, const char *name, struct hst_stream **stream);
/** Waits for what is queued, then frees. */
void hst_stream_destroy(struct hst_stream **stream);
/** Waits until the stream is empty. Returns 0 or the stream's sticky error. */
int hst_stream_sync(struct hst_stream *stream);
/** The device's own stream object (cudaStream_t), null on the host. */
void *hst_stream_native(struct hst_stream *stream);

int hst_event_create(struct hst_dev *dev, struct hst_event **event);
void hst_event_destroy(struct hst_event **event);
/**
 * Marks what is now in the stream; a later record moves the mark (on a failed stream too, whose
 * error is returned).
 */
int hst_event_record(struct hst_event *event, struct hst_stream *stream);
/**
 * Work enqueued to `stream` from now on waits until the mark is passed. An event never recorded is
 * passed; if the stream that it was recorded in has failed by then, `stream` fails with the same
 * error.
 */
int hst_stream_wait(struct hst_stream *stream, struct hst_event *event);
/** 1 passed, 0 not yet, or the sticky error of the stream it was recorded in. */
int hst_event_query(struct hst_event *event);
/** Waits for the mark. Returns 0 or the sticky error of the stream it was recorded in. */
int hst_event_sync(struct hst_event *event);
/**
 * A descriptor that polls readable once the mark is passed, for who waits for other things too.
 * It is the stream's, and tells of the event that was asked for last: never read, write or close
 * it. One thread at a time asks for events of a stream. Errors: -ENOTSUP where the device has none,
 * as GPUs, or the event was never recorded; -EMFILE.
 */
int hst_event_fd(struct hst_event *event);

/**
 * Copies between any two places the device can reach (device memory, its page-locked host memory).
 * No overlap.
 */
int hst_stream_copy(struct hst_stream *stream, void *dst, const void *src, size_t size_bytes);
int hst_stream_zero(struct hst_stream *stream, void *dst, size_t size_bytes);

#ifdef __cplusplus
}
#endif

#include <hoistway/operations.h>
#include <hoistway/quantise.h>
#include <hoistway/ways.h>
#endif
