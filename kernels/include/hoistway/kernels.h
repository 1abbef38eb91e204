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
    HST_DEV_BROKEN_PLUGIN, /* it was found and can not be used: not loadable, other version */
    HST_DEV_NO_DRIVER,     /* the machine has no driver for such a device */
    HST_DEV_OLD_DRIVER,    /* its driver is too old for this build */
    HST_DEV_NO_DEVICE,     /* none, or none with this index */
    HST_DEV_ARCHITECTURE,  /* there is one, but this build has no code for it */
    HST_DEV_LIBRARY,       /* a library that the plugin opens (cuBLASLt) can not be used */
    HST_DEV_MEMORY,        /* out of memory: the text says how much was asked for and is free */
    HST_DEV_EXECUTION,     /* a launch, copy or call failed; native is the device's own code */
    HST_DEV_NAME,          /* no name of a device */
    HST_DEV_LOCKED_MEMORY, /* host memory can not be had or page-locked; the text says the limit */
    HST_DEV_BLAS,          /* OpenBLAS is not found, or can not be used by several threads */
    HST_DEV_CORE,          /* the core of OpenBLAS that was named can not be had */
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
 * ever), -ENODEV (no OpenBLAS, or not with host_math), -ENOTSUP (one that several threads can not
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
void hst_dev_host_free(struct hst_dev *dev, void *memory, size_t size_bytes);

struct hst_dev_usage {
    uint64_t memory_bytes, memory_peak_bytes; /* device memory held now, and at most so far */
    uint64_t host_bytes, host_peak_bytes;
};
void hst_dev_usage(const struct hst_dev *dev, struct hst_dev_usage *usage);
/** New budgets. Errors: -ENOSPC one is below what is held now; both are then as they were. */
int hst_dev_budget(struct hst_dev *dev, uint64_t memory_bytes, uint64_t host_bytes);

/** What is known of a device; 0, -1 (numa_node) or "" where it is not. */
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
    char library_unused[400]; /* files that are there and can not be used, and why: own kernels */
    char absent[32]; /* the library of matrix products that was not found: own ones serve */
};
void hst_dev_info(struct hst_dev *dev, struct hst_dev_info *info);
#define HST_DEV_MATH_BYTES 640
/**
 * What the bits of a device's results depend on beside shapes and values, on one line of at most
 * text_bytes, terminated: "OpenBLAS 0.3.21 SkylakeX, glibc 2.36"; of a GPU its model,
 * multiprocessors, driver and libraries, how algorithms are chosen, and variables of the
 * environment that change that, each value cut at 24 characters. Two devices with the same text
 * give the same bits, on processors with FMA: without it glibc computes some sines and logarithms
 * by other code. text_bytes: HST_DEV_MATH_BYTES is always enough. Thread-safety: safe.
 */
void hst_dev_math(struct hst_dev *dev, char *text, size_t text_bytes);
/**
 * Whether two such texts stand for the same bits: they are the same, or differ alone in two cores
 * of OpenBLAS whose products were compared (0.3.21: Haswell and Zen). Pure. Thread-safety: safe.
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
 * Copies between any two places the device can reach (device memory, its page-locked host memory).
 * No overlap.
 */
int hst_stream_copy(struct hst_stream *stream, void *dst, const void *src, size_t size_bytes);
int hst_stream_zero(struct hst_stream *stream, void *dst, size_t size_bytes);

/* ---- operations ------------------------------------------------------------------------------ */

/**
 * Workspace: device memory that an operation may overwrite; enough is what its *_work_bytes says
 * (never less for smaller shapes).
 */
struct hst_work {
    void *data;
    size_t size_bytes;
};

/** As it lies in memory: element (row, column) at data[row·ld + column]. */
struct hst_matrix {
    void *data;
    size_t ld; /* elements from one row to the next */
    enum hst_dtype dtype;
};

/**
 * C ← [C +] op(A)·op(B), op(A) is m×k, op(B) is k×n, C is m×n.
 *
 * a_transposed  A lies as k×m; b_transposed: B lies as n×k (a weight [out, in] in a forward)
 * accumulate    adds to C, which must then be f32: the only accumulator type
 * batch         so many at once, 0 is 1: the i-th one's matrices begin i·a_step, i·b_step and
 *               i·c_step elements further on, multiples of 16 bytes; of A or B 0, for all have one
 * work          hst_matmul_work_bytes (0 where all three are f32 on the host)
 *
 * A and B have one dtype; C has that dtype or f32. m, n or k of 0 is allowed: an empty sum is 0.
 * Cost: 2·m·n·k FLOPs. Host: one single-threaded BLAS call per fixed block of C, over the whole of
 * K; bf16 and f16 are widened to f32 in the workspace, 2,048 of K at a time, and summed in f32 in
 * rising k; extents and leading dimensions are below 2³¹ (-EINVAL). CUDA: cuBLASLt, or own kernels
 * without a workspace (HOISTWAY_MATMUL). A batch: bytes of so many calls, but from cuBLASLt. A
 * matrix not aligned to 16 bytes makes it slower; cuBLASLt may then leave other bits, too.
 */
struct hst_matmul {
    size_t m, n, k, batch, a_step, b_step, c_step;
    struct hst_matrix a, b, c;
    bool a_transposed, b_transposed, accumulate;
    struct hst_work work;
};
int hst_op_matmul(struct hst_stream *stream, const struct hst_matmul *args);
/* reads shapes, dtypes, flags only */
size_t hst_matmul_work_bytes(struct hst_dev *dev, const struct hst_matmul *args);

/**
 * RMSNorm, row by row: r = 1/sqrt(mean(x²) + eps), y = x·r·weight. x, y dtype[tokens, width];
 * weight dtype[width]; rstd f32[tokens], written (r), needed by the backward. y may be x. Source:
 * Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4.
 *
 * With a residual (both pointers or none): s = x + residual, rounded, is written to sum and takes
 * x's place in the formula: the same bits as hst_op_add and then hst_op_rmsnorm. residual, sum
 * dtype[tokens, width]; sum may be x or residual, and is not y.
 */
struct hst_rmsnorm {
    size_t tokens, width;
    enum hst_dtype dtype;
    float eps;
    const void *x, *weight;
    void *y;
    float *rstd;
    const void *residual;
    void *sum;
};
int hst_op_rmsnorm(struct hst_stream *stream, const struct hst_rmsnorm *args);

/**
 * Its backward: dx ← [dx +] r·(weight·dy − x·r²·mean(weight·dy·x)), dweight += Σ over tokens of
 * dy·x·r. dy, x, dx dtype[tokens, width]; dweight f32[width], accumulated, the tokens summed in
 * fixed blocks in order. dx may be dy; accumulate: dx holds another gradient of x (so it is not
 * dy), the sum is rounded once.
 */
struct hst_rmsnorm_backward {
    size_t tokens, width;
    enum hst_dtype dtype;
    const void *x, *weight, *dy;
    const float *rstd;
    void *dx;
    float *dweight;
    bool accumulate;
    struct hst_work work;
};
int hst_op_rmsnorm_backward(struct hst_stream *stream, const struct hst_rmsnorm_backward *args);
size_t hst_rmsnorm_backward_work_bytes(struct hst_dev *dev, size_t tokens, size_t width);

/**
 * A linear layer's bias: x ← x + bias in every row, rounded. x dtype[tokens, width], bias
 * dtype[width].
 */
struct hst_bias {
    size_t tokens, width;
    enum hst_dtype dtype;
    void *x;
    const void *bias;
};
int hst_op_bias(struct hst_stream *stream, const struct hst_bias *args);

/**
 * Its backward: dbias += Σ over tokens of dy, which is x's gradient as well. dy dtype[tokens,
 * width]; dbias f32[width], accumulated, the tokens summed in fixed blocks in order.
 */
struct hst_bias_backward {
    size_t tokens, width;
    enum hst_dtype dtype;
    const void *dy;
    float *dbias;
    struct hst_work work;
};
int hst_op_bias_backward(struct hst_stream *stream, const struct hst_bias_backward *args);
size_t hst_bias_backward_work_bytes(struct hst_dev *dev, size_t tokens, size_t width);

/**
 * Rotary position embedding, in place, row by row, rotate-half form: for i < head_dim/2
 *   (x_i, x_{i+d/2}) ← (x_i·cos − x_{i+d/2}·sin, x_{i+d/2}·cos + x_i·sin), cos and sin at [t mod
 *     seq, i].
 * x dtype[batch·seq, heads, head_dim], head_dim even; cos, sin f32[seq, head_dim/2]. inverse:
 * rotates back, which is the gradient. Source: Su et al. 2021, arXiv:2104.09864, eq. 34.
 */
struct hst_rope {
    size_t batch, seq, heads, head_dim;
    enum hst_dtype dtype;
    void *x;
    const float *cos, *sin;
    bool inverse;
};
int hst_op_rope(struct hst_stream *stream, const struct hst_rope *args);

/**
 * Causal grouped-query attention: o = softmax(scale·q·kᵀ + causal mask)·v, query head h with
 * key-value head h / (heads / kv_heads). Tiled, online softmax: never holds seq² scores. q, o
 * dtype[batch·seq, heads, head_dim]; k, v dtype[batch·seq, kv_heads, head_dim]; lse f32[batch,
 * heads, seq] written: log Σ exp of a query's scaled scores, needed by the backward. kv_heads
 * divides heads. Each sequence of the batch by itself. In bf16 and f16 a device with matrix units
 * may round the softmax's weights (backward: also their gradients) to that type before their
 * products with v, k, q: half an ulp of each term. The host does not.
 * Source: Dao 2023, arXiv:2307.08691, Alg. 1; Ainslie et al. 2023, arXiv:2305.13245.
 */
struct hst_attention {
    size_t batch, seq, heads, kv_heads, head_dim;
    enum hst_dtype dtype;
    float scale;
    const void *q, *k, *v;
    void *o;
    float *lse;
    struct hst_work work;
};
int hst_op_attention(struct hst_stream *stream, const struct hst_attention *args);

/**
 * Its backward. `dout`, dq as q; dk, dv as k; written, not accumulated; no overlap. Source: Dao
 * 2023, Alg. 2.
 */
struct hst_attention_backward {
    /* the forward's arguments: q, k, v, o, lse are read; work is the backward's */
    struct hst_attention forward;
    const void *dout;
    void *dq, *dk, *dv;
};
int hst_op_attention_backward(struct hst_stream *stream, const struct hst_attention_backward *args);
/** Enough for the forward and the backward of that shape. */
size_t hst_attention_work_bytes(struct hst_dev *dev, const struct hst_attention *args);

/**
 * SwiGLU, element by element: out = gate·sigmoid(gate)·up. dtype[count] each; out may be gate or
 * up. Source: Shazeer 2020, arXiv:2002.05202.
 */
struct hst_swiglu {
    size_t count;
    enum hst_dtype dtype;
    const void *gate, *up;
    void *out;
};
int hst_op_swiglu(struct hst_stream *stream, const struct hst_swiglu *args);
/**
 * Its backward: dgate = dout·up·σ(gate)·(1 + gate·(1−σ(gate))), dup = dout·gate·σ(gate). dgate may
 * be gate, dup may be up.
 */
struct hst_swiglu_backward {
    size_t count;
    enum hst_dtype dtype;
    const void *gate, *up, *dout;
    void *dgate, *dup;
};
int hst_op_swiglu_backward(struct hst_stream *stream, const struct hst_swiglu_backward *args);

/** out = a + b, dtype[count] each; out may be a or b. */
struct hst_add {
    size_t count;
    enum hst_dtype dtype;
    const void *a, *b;
    void *out;
};
int hst_op_add(struct hst_stream *stream, const struct hst_add *args);

/**
 * Converts count elements between any two types, to nearest even. NaN stays NaN; one that is
 * narrowed keeps its sign and the upper part of its payload and is made quiet. Equal types copy. No
 * overlap.
 */
struct hst_cast {
    size_t count;
    enum hst_dtype src_dtype, dst_dtype;
    const void *src;
    void *dst;
};
int hst_op_cast(struct hst_stream *stream, const struct hst_cast *args);

/*
 * A vocabulary's matrix may be larger than the memory that is there for it. The operations at a
 * model's two ends therefore also take it in blocks of rows, one call each, and all blocks together
 * leave the bytes that one call with the whole matrix leaves.
 */

/**
 * out[t] = weight[ids[t]]: ids u32[tokens] < vocab; weight dtype[vocab, width]; out dtype[tokens,
 * width]. An id out of range: on the host -EDOM, sticky, with nothing written; on a device that can
 * not tell in time, the row is NaN (and so is the loss), nothing outside is read.
 *
 * By blocks (rows > 0): weight dtype[rows, width] holds the rows [first_row, first_row + rows) of
 * the vocabulary, which may be any that lie in it. The rows of out whose ids lie elsewhere in the
 * vocabulary are left as they are; out of range is what is beyond vocab, in every call.
 */
struct hst_embedding {
    size_t tokens, vocab, width;
    enum hst_dtype dtype;
    const uint32_t *ids;
    const void *weight;
    void *out;
    size_t first_row, rows; /* the block that weight holds; rows 0: all of vocab, first_row is 0 */
};
int hst_op_embedding(struct hst_stream *stream, const struct hst_embedding *args);
/**
 * dweight f32[vocab, width] += the rows of dout dtype[tokens, width] at their ids, in rising token
 * order, one addition each: the same bits on every device. An id out of range: as above, but the
 * row of dout is then left out.
 *
 * By blocks (rows > 0): dweight f32[rows, width] holds the rows [first_row, first_row + rows), and
 * the rows of dout whose ids lie elsewhere are left out. Cost: each block looks at all ids, on CUDA
 * with the sort of them that the whole takes; of dout it reads what it adds.
 *
 * With skips, the row of skip_id (of the whole vocabulary) gets nothing, as an embedding's padding
 * does in other programs. A skip_id out of range skips nothing.
 */
struct hst_embedding_backward {
    size_t tokens, vocab, width;
    enum hst_dtype dtype;
    const uint32_t *ids;
    const void *dout;
    float *dweight;
    struct hst_work work;
    size_t first_row, rows; /* the block that dweight holds; rows 0: all of vocab, first_row is 0 */
    bool skips;
    uint32_t skip_id;
};
int hst_op_embedding_backward(struct hst_stream *stream, const struct hst_embedding_backward *args);
/* the same for all blocks: vocab is the whole vocabulary */
size_t hst_embedding_backward_work_bytes(struct hst_dev *dev, size_t tokens, size_t vocab);

/** Columns that a sum over the vocabulary is put together from, and that its blocks consist of. */
#define HST_VOCAB_BLOCK 8192

/**
 * Cross-entropy over one chunk of logits, row by row, in place.
 *   loss[t] = log Σ_j exp(logits[t, j]) − logits[t, target[t]]      (maximum subtracted first)
 *   logits[t, j] ← grad_scale·(softmax(logits[t])_j − [j = target[t]])   where want_grad
 * logits dtype[tokens, vocab], read, overwritten where want_grad; targets u32[tokens] < vocab; loss
 * f32[tokens]. A target out of range: as with hst_embedding, loss and row are NaN. Rows of one
 * chunk: at most 1,024 by the callers' convention, so that the whole logits are never held.
 *
 * The sum is always put together from blocks of HST_VOCAB_BLOCK columns, the last one being what is
 * left: of each its maximum and the sum of exp(logit − maximum), joined in rising order from
 * (−∞, 0) on, top and sum being what was joined before:
 *   above = max(top, block's top)          (0 in its place below, where that is −∞)
 *   sum ← sum·exp(top − above) + block's sum·exp(block's top − above)          top ← above
 *
 * By blocks (columns > 0): logits dtype[tokens, columns] are the columns [first_column,
 * first_column + columns). first_column is a multiple of HST_VOCAB_BLOCK; so is columns, or the
 * block ends at vocab. targets are in the whole vocabulary, in every call the same.
 *   - First without want_grad, in rising order, all of them: each block joins what it has to state
 *     f32[tokens, 3], a row's (top, sum, its target's logit once that was met, NaN before). The
 *     block at column 0 begins state anew, whatever it held; the one that ends at vocab writes
 *     loss, which the others do not touch (it may be null). logits are read only.
 *   - Then with want_grad, in any order: logits become gradients by state, which is read only; loss
 *     is not touched (it may be null). The logits are to be those of the first pass.
 * state is null where columns is 0.
 *
 * Cost, in elements: 1 read for the loss; 2 read and 1 written for loss and gradient, the second
 * read being from a cache where rows are short; by blocks 2 read and 1 written in the two calls.
 */
struct hst_cross_entropy {
    size_t tokens, vocab;
    enum hst_dtype dtype;
    void *logits;
    const uint32_t *targets;
    float *loss;
    float grad_scale;
    bool want_grad;
    /* the block that logits hold; columns 0: all of vocab, first_column is 0 */
    size_t first_column, columns;
    float *state;
};
int hst_op_cross_entropy(struct hst_stream *stream, const struct hst_cross_entropy *args);

/* ---- the optimizer, for states that live on the device (on the host: hoistway/cpu_adam.h) ---- */

/**
 * Σx² of each block of 4,096 elements from x on, the last block being shorter: partial
 * f64[⌈count/4096⌉], in the order that hst_cpu_adam_ops.norm2 states, to the bit. x
 * dtype[count]. The host: -ENOTSUP.
 */
struct hst_norm2 {
    size_t count;
    enum hst_dtype dtype;
    const void *x;
    double *partial;
};
int hst_op_norm2(struct hst_stream *stream, const struct hst_norm2 *args);

/**
 * AdamW, in place, element by element, to the bit what hst_update_run does (moments f32, gradients
 * of the weights' dtype) with the same coefficients (which are a copy of struct hst_adam_coef's).
 * weight, grad dtype[count]; m, v f32[count]; remainder i16[count] where dtype is bf16, else null;
 * master f32[count] where dtype is f16, else null: it is updated as a weight of f32 is, and weight,
 * which is not read, becomes the f16 nearest to it, ties to even, infinity from 65520 on, a NaN
 * 0x7e00. The host: -ENOTSUP. Source: Loshchilov & Hutter 2019, arXiv:1711.05101, Alg. 2.
 */
struct hst_adamw {
    size_t count;
    enum hst_dtype dtype;
    void *weight;
    int16_t *remainder;
    float *master;
    float *m, *v;
    const void *grad;
    float grad_scale;
    float beta1_hi, beta1_lo, one_minus_beta1;
    float beta2_hi, beta2_lo, one_minus_beta2;
    float inv_sqrt_bias2, eps, decay, step_size;
};
int hst_op_adamw(struct hst_stream *stream, const struct hst_adamw *args);

#ifdef __cplusplus
}
#endif
#endif
