/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDNN_GRAPH_H
#define HST_CUDNN_GRAPH_H
/*
 * A graph of cuDNN operations as it is written down: tensors, then operations between them, then
 * the whole. The graph owns every descriptor it made. The first failure sticks: from then on
 * nothing is made, null descriptors are passed around, and graph_status says what went wrong; so
 * that a builder reads like the formula it builds.
 */
#include "api.h"

#define GRAPH_DESCRIPTORS 192
#define GRAPH_OPERATIONS  32

typedef cudnnBackendDescriptor_t descriptor;

struct graph {
    const struct cudnn_api *api;
    descriptor owned[GRAPH_DESCRIPTORS]; /* in the order they were made */
    size_t owned_count;
    descriptor operations[GRAPH_OPERATIONS];
    size_t operation_count;
    int64_t next_uid; /* of virtual tensors */
    cudnnStatus_t status;
    const char *what; /* failed, where status is not success */
    /* the last failure that graph_rewind forgot and that says that cuDNN is not whole */
    cudnnStatus_t broken;
    const char *broken_what;
};

/* Dimensions and strides in elements: batch, head, row, column. */
struct extents {
    int64_t dims[4], strides[4];
};

/** An empty graph; uids from first_virtual_uid on are its own. */
void graph_begin(struct graph *graph, const struct cudnn_api *api, int64_t first_virtual_uid);
/** Destroys all it owns, the youngest first. */
void graph_end(struct graph *graph);
/** 0, or the first failure, reported (cudnn_report). */
int graph_status(const struct graph *graph, struct hst_dev_failure *failure);

/* ---- descriptors of any kind ----------------------------------------------------------------- */

descriptor graph_make(struct graph *graph, cudnnBackendDescriptorType_t type, const char *what);
/**
 * Destroys what was made since the graph owned `owned_count` descriptors, and forgets a failure
 * since then that says "not this way"; one that says that memory is short stays. True: go on.
 */
bool graph_rewind(struct graph *graph, size_t owned_count);
void graph_set(struct graph *graph, descriptor d, cudnnBackendAttributeName_t name,
               cudnnBackendAttributeType_t type, int64_t count, const void *values);
void graph_finalize(struct graph *graph, descriptor d);

/* ---- tensors --------------------------------------------------------------------------------- */

/** A tensor in memory, found by its uid when the graph runs. */
descriptor graph_tensor(struct graph *graph, int64_t uid, cudnnDataType_t type,
                        struct extents extents, int64_t align_bytes);
/** One f32 of host memory, read when the graph runs. */
descriptor graph_scalar(struct graph *graph, int64_t uid);
/** A tensor that exists between operations only, packed. */
descriptor graph_virtual(struct graph *graph, cudnnDataType_t type, const int64_t dims[4]);
/** The same with strides. */
descriptor graph_virtual_strided(struct graph *graph, cudnnDataType_t type, struct extents extents);
/** Row-major without gaps. */
struct extents extents_packed(const int64_t dims[4]);
/** The two last axes swapped; the memory is the same. */
struct extents extents_transposed(struct extents extents);

/* ---- operations: y is written; sums and functions are computed in f32 ------------------------ */

void graph_matmul(struct graph *graph, descriptor a, descriptor b, descriptor y);
/** y = mode(x) */
void graph_unary(struct graph *graph, cudnnPointwiseMode_t mode, descriptor x, descriptor y);
/** y = mode(x, b) */
void graph_binary(struct graph *graph, cudnnPointwiseMode_t mode, descriptor x, descriptor b,
                  descriptor y);
/** y = the sum or maximum of x along each axis in which y has extent 1 */
void graph_reduce(struct graph *graph, cudnnReduceTensorOp_t op, descriptor x, descriptor y);
void graph_reshape(struct graph *graph, descriptor x, descriptor y);
/** y = x where row ≥ column, else `masked`; dims of x and y. */
void graph_causal(struct graph *graph, const int64_t dims[4], descriptor x, descriptor masked,
                  descriptor y);

#endif
