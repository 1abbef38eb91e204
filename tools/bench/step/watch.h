/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_STEP_WATCH_H
#define HOISTWAY_TOOLS_BENCH_STEP_WATCH_H
/*
 * A stream that stands in front of another one: what is enqueued to it goes on to that one, is
 * written down with the work it has to do, and has an event of the device behind it. So a model's
 * own code is timed operation by operation, and none of its operations can be forgotten.
 */
#include <hoistway/kernels.h>

/* An operation that was enqueued. */
struct watched {
    char name[64];       /* "product 8192x4096x4096"; operations of one name do the same work */
    bool computes;       /* GEMMs and attention: what bounds it are FLOPs, else bytes */
    double bytes, flops; /* each operand once; 0 FLOPs where bytes bound it */
};

struct watch;

/** Errors: -ENOMEM, those of hst_event_create_timed. The stream must outlive the watch. */
int watch_open(struct hst_dev *dev, struct hst_stream *stream, struct watch **watch);
void watch_close(struct watch **watch);

/** It is the stream that stands in front: for operations, copies and zeroing. */
struct hst_stream *watch_front(struct watch *watch);
/** Forgets what was seen; from now on time counts. Errors: those of the stream. */
int watch_begin(struct watch *watch);
/** It returns what was seen since, in its order. */
const struct watched *watch_seen(const struct watch *watch, size_t *count);
/**
 * Waits for the stream, then writes seconds[count], of each operation, and the seconds of all.
 * Errors: those of the stream.
 */
int watch_seconds(struct watch *watch, double *seconds, double *all_s);

/* It tells what an operation has to do. Pure. */
struct watched watched_copy(size_t size_bytes);
struct watched watched_zero(size_t size_bytes);
struct watched watched_matmul(const struct hst_matmul *a);
struct watched watched_rmsnorm(const struct hst_rmsnorm *a);
struct watched watched_rmsnorm_backward(const struct hst_rmsnorm_backward *a);
struct watched watched_bias(const struct hst_bias *a);
struct watched watched_bias_backward(const struct hst_bias_backward *a);
struct watched watched_rope(const struct hst_rope *a);
struct watched watched_attention(const struct hst_attention *a);
struct watched watched_attention_backward(const struct hst_attention_backward *a);
struct watched watched_swiglu(const struct hst_swiglu *a);
struct watched watched_swiglu_backward(const struct hst_swiglu_backward *a);
struct watched watched_add(const struct hst_add *a);
struct watched watched_cast(const struct hst_cast *a);
struct watched watched_embedding(const struct hst_embedding *a);
struct watched watched_embedding_backward(const struct hst_embedding_backward *a);
struct watched watched_cross_entropy(const struct hst_cross_entropy *a);
struct watched watched_norm2(const struct hst_norm2 *a);
struct watched watched_optimize(const struct hst_optimize *a);

#endif
