/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_HOST_H
#define HST_KERNELS_HOST_H
/*
 * The host device's own objects. `struct host_math` is the seam between what is compiled once
 * (streams, memory, dispatch) and what is compiled once per instruction set (host/ops/).
 */
#include "base/book.h"
#include "base/object.h"
#include "gemm_bf16.h"
#include <pthread.h>

struct host_dev;

/* One operation, run to its end on a stream's thread. Returns 0 or the stream's next sticky error.
 */
typedef int host_op(struct host_dev *dev, const void *args);

/* Every operation in one instruction set. */
struct host_math {
    const char *isa;
    host_op *matmul, *rmsnorm, *rmsnorm_backward, *rope, *attention, *attention_backward, *swiglu,
        *swiglu_backward, *add, *bias, *bias_backward, *cast, *embedding, *embedding_backward,
        *cross_entropy, *sum_ways, *quantise, *dequantise;
};
extern const struct host_math host_math_baseline, host_math_avx2, host_math_avx512;

/* The sets this processor and kernel can run, best first, null at the end. */
const struct host_math *const *host_math_usable(void);

struct host_dev {
    struct hst_dev base;
    const struct host_math *math;
    struct hst_parallel
        parallel; /* run is null where the device works on the stream's thread alone */
    host_gemm_bf16_function *gemm_bf16; /* null: bf16 is widened for OpenBLAS */
    _Atomic bool bf16_asked;            /* a workspace for GEMMs of bf16 was asked for */
    struct book book;
    pthread_mutex_t lock; /* guards everything below */
    unsigned stream_count, event_count;
};

/*
 * As hst_dev_host_open, with the instruction set given, for tests that compare the sets. *failure
 * is written where OpenBLAS is the reason.
 */
int host_dev_open(const struct hst_dev_config *config, const struct host_math *math,
                  struct hst_dev **dev, struct hst_dev_failure *failure);

/* Memory and life (host/device.c). */
void host_dev_close(struct hst_dev *dev);
void host_dev_usage(const struct hst_dev *dev, struct hst_dev_usage *usage);
int host_dev_budget(struct hst_dev *dev, uint64_t memory_bytes, uint64_t host_bytes);
void host_dev_info(struct hst_dev *dev, struct hst_dev_info *info);
void host_dev_math(struct hst_dev *dev, char *text, size_t text_bytes);
void host_dev_failure(struct hst_dev *dev, struct hst_dev_failure *failure);
int host_dev_mem_alloc(struct hst_dev *dev, size_t size_bytes, void **memory);
void host_dev_mem_free(struct hst_dev *dev, void *memory, size_t size_bytes);
int host_dev_host_alloc(struct hst_dev *dev, size_t size_bytes,
                        const struct hst_host_pages *pages, void **memory);
void host_dev_host_free(struct hst_dev *dev, void *memory, size_t size_bytes);

/* Calls body for each index below count on the device's workers. */
void host_split(struct host_dev *dev, size_t count,
                void (*body)(void *arg, size_t index, unsigned worker), void *arg);

/* C ← alpha·op(A)·op(B) + beta·C in f32, row-major, on this thread. Any extent may be 0. */
struct host_gemm {
    size_t m, n, k;
    const float *a, *b;
    float *c;
    size_t a_ld, b_ld, c_ld;
    float alpha, beta;
    bool a_transposed, b_transposed;
};
void host_gemm(const struct host_gemm *args);

/* Streams and events (host/stream.c). */
int host_stream_create(struct hst_dev *dev, const char *name, struct hst_stream **stream);
void host_stream_destroy(struct hst_stream *stream);
int host_stream_sync(struct hst_stream *stream);
int host_stream_wait(struct hst_stream *stream, struct hst_event *event);
int host_event_create(struct hst_dev *dev, struct hst_event **event);
int host_event_create_timed(struct hst_dev *dev, struct hst_event **event);
int host_event_seconds(struct hst_event *begin, struct hst_event *end, double *seconds);
void host_event_destroy(struct hst_event *event);
int host_event_record(struct hst_event *event, struct hst_stream *stream);
int host_event_query(struct hst_event *event);
int host_event_fd(struct hst_event *event);
int host_event_sync(struct hst_event *event);
/* Copies args and queues op; blocks while the ring is full. Returns 0 or the sticky error. */
int host_enqueue(struct hst_stream *stream, host_op *op, const void *args, size_t args_bytes);

/* The sum of ways, on this thread (host/sum_ways.c). */
void host_sum_ways(const struct hst_sum_ways *args);

/* Quantised values, on this thread (host/quantise.c). */
void host_quantise(const struct hst_quantise *args);
void host_dequantise(const struct hst_dequantise *args);

/* The operations' part of the table (host/table.c), and what they need of workspace. */
extern const struct hst_dev_ops host_ops;
size_t host_matmul_work_bytes(struct hst_dev *dev, const struct hst_matmul *args);
size_t host_rmsnorm_backward_work_bytes(struct hst_dev *dev, size_t tokens, size_t width);
size_t host_bias_backward_work_bytes(struct hst_dev *dev, size_t tokens, size_t width);
size_t host_attention_work_bytes(struct hst_dev *dev, const struct hst_attention *args);

static inline struct host_dev *host_dev_of(struct hst_dev *dev)
{
    return (struct host_dev *)dev;
}
#endif
