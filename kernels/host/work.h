/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_HOST_WORK_H
#define HST_KERNELS_HOST_WORK_H
/*
 * The extents that both an operation and the size of its workspace are made of. All are part of the
 * numbers, but for products by AMX: changing one may change the last bits of results, never who
 * computes them.
 */
#include <hoistway/kernels.h>

enum {
    MATMUL_BLOCK = 512,      /* C in blocks of at most this many rows and columns */
    MATMUL_WIDE_BLOCK = 256, /* of operands widened for OpenBLAS at most this many, … */
    MATMUL_WIDE_K = 2048,    /* … each from this much of K at a time */
    RMSNORM_ROWS_SUMMED = 32,
    BIAS_ROWS_SUMMED = 64,
    ATTENTION_QUERIES = 64, /* a tile of scores: this many queries … */
    ATTENTION_KEYS = 64, /* … by this many keys before them, a divisor of the queries; or … */
    ATTENTION_DIAGONAL = 32, /* … by this many of their own positions */
};

/* Bytes of one worker's part of the workspace: the same for bf16 whoever makes its GEMMs, so that
   what was planned on one processor holds on another. */
size_t host_matmul_worker_bytes(const struct hst_matmul *args);

/* It says where the parts of one worker's attention workspace lie, in floats from its start. */
struct attention_work {
    size_t scores, dscores;       /* keys × ATTENTION_QUERIES */
    size_t q_turned, dout_turned; /* head_dim × ATTENTION_QUERIES */
    size_t q, dout, out; /* queries × head_dim; out is o in the forward and dq in the backward */
    size_t k, v;         /* keys × head_dim */
    size_t pack; /* of an own kernel of bf16: where q, dout, k and v would be widened copies */
    size_t dk, dv;       /* seq × head_dim */
    size_t row_max, row_sum, row_shrink; /* ATTENTION_QUERIES */
    size_t floats;                       /* all of it, a whole number of cache lines */
};
struct attention_work host_attention_layout(const struct hst_attention *args);
#endif
