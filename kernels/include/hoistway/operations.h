/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_OPERATIONS_H
#define HOISTWAY_OPERATIONS_H
/* Every tensor operation. What holds for all of them is in kernels.h, which includes this. */
#include <hoistway/kernels.h>

#ifdef __cplusplus
extern "C" {
#endif

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
 * fixed blocks in order, or null: of a weight that is frozen, and dx has the same bits. dx may be
 * dy; accumulate: dx holds another gradient of x (so it is not dy), the sum is rounded once.
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
 *   (x_i, x_{i+d/2}) ← (x_i·cos − x_{i+d/2}·sin, x_{i+d/2}·cos + x_i·sin), cos and sin at [place,
 *     i].
 * x dtype[batch·seq, heads, head_dim], head_dim even; cos, sin f32[seq, head_dim/2]. inverse:
 * rotates back, which is the gradient. A row's place is t mod seq, or position[t]: u32[batch·seq],
 * each < seq (not checked). Source: Su et al. 2021, arXiv:2104.09864, eq. 34.
 */
struct hst_rope {
    size_t batch, seq, heads, head_dim;
    enum hst_dtype dtype;
    void *x;
    const float *cos, *sin;
    bool inverse;
    const uint32_t *position; /* null: t mod seq */
};
int hst_op_rope(struct hst_stream *stream, const struct hst_rope *args);

/**
 * Causal grouped-query attention: o = softmax(scale·q·kᵀ + causal mask)·v, query head h with
 * key-value head h / (heads / kv_heads). Tiled, online softmax: never holds seq² scores. q, o
 * dtype[batch·seq, heads, head_dim]; k, v dtype[batch·seq, kv_heads, head_dim]; lse f32[batch,
 * heads, seq] written: log Σ exp of a query's scaled scores, needed by the backward. kv_heads
 * divides heads. Each sequence of the batch by itself. In bf16 and f16 a device with matrix units
 * may round the softmax's weights (backward: also their gradients) to that type before their
 * products with v, k, q: half an ulp of each term. The host does so in bf16 by AMX alone, and there
 * what is below 2^-126 counts as zero in products.
 *
 * first and window narrow what a query sees. The query at place t of its sequence sees the tokens j
 * with from(t) ≤ j ≤ t: from(t) is the greater of min(first[t], t) and, with a window, t − window +
 * 1. first u32[batch·seq] gives each token a place of its own sequence, and within a sequence it
 * does not fall: documents lie one after another, padding sees itself alone. Where it falls, the
 * sequence's results are any numbers. With either, seq is below 2³¹, and the backward takes what
 * the forward had. Tiles of scores in which no query sees a key cost nothing. A document that
 * begins at a multiple of 64 gives the bits that it gives alone, on the host if its length is one
 * too; elsewhere tiles are cut at other places, and sums of f32 have another order.
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
    const uint32_t *first; /* null: 0 for all */
    size_t window;         /* tokens that a query sees, itself among them; 0: all before it */
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
/** Enough for the forward and the backward of that shape. Where a library that serves it cannot
 * tell, hst_dev_failure says why, and it may be too little. */
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
 * width]. An id out of range: on the host -EDOM, sticky, with nothing written; on a device that
 * cannot tell in time, the row is NaN (and so is the loss), nothing outside is read.
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
/** The target of a token of which nothing is learned. A vocabulary has at most so many ids. */
#define HST_NO_TARGET UINT32_MAX

/**
 * Cross-entropy over one chunk of logits, row by row, in place.
 *   loss[t] = log Σ_j exp(logits[t, j]) − logits[t, target[t]]      (maximum subtracted first)
 *   logits[t, j] ← grad_scale·(softmax(logits[t])_j − [j = target[t]])   where want_grad
 * logits dtype[tokens, vocab], read, overwritten where want_grad; vocab < 2³¹; targets u32[tokens],
 * below vocab or HST_NO_TARGET; loss f32[tokens]. Any other target out of range: as with
 * hst_embedding, loss and row are NaN. Rows of one chunk: at most 1,024 by the callers' convention,
 * so that the whole logits are never held.
 *
 * Nothing is learned where the target is HST_NO_TARGET: loss[t] = +0, the row's gradient is +0
 * everywhere, whatever its logits are. They are not read.
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
 *     loss, which the others do not touch (it may be null). logits are read only. The state of a
 *     row without a target is not touched, and is not read in the second pass.
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
 * One step of an optimizer, in place, element by element, to the bit what hst_update_run does
 * (gradients of the weights' dtype) with the same coefficients, which are a copy of struct
 * hst_adam_coef's. optimizer is a number of its enum hst_optimizer. weight, grad dtype[count]; m, v
 * f32[count], null where that optimizer has none. Of AdamW in bf16 m and v may be codes u8[count],
 * with m_scales, v_scales f32[⌈count/256⌉], which are null else. remainder i16[count] where
 * dtype is bf16, else null; master f32[count] where dtype is f16, else null: it is updated as a
 * weight of f32 is, and weight, which is not read, becomes the f16 nearest to it, ties to even,
 * infinity from 65520 on, a NaN 0x7e00. -EINVAL also for an optimizer that the device has not; the
 * host: -ENOTSUP.
 */
struct hst_optimize {
    size_t count;
    enum hst_dtype dtype;
    uint32_t optimizer;
    void *weight;
    int16_t *remainder;
    float *master;
    void *m, *v;
    const void *grad;
    float grad_scale;
    float beta1_hi, beta1_lo, one_minus_beta1;
    float beta2_hi, beta2_lo, one_minus_beta2;
    float inv_sqrt_bias2, eps, decay, l2, step_size;
    float *m_scales, *v_scales;
};
int hst_op_optimize(struct hst_stream *stream, const struct hst_optimize *args);

#ifdef __cplusplus
}
#endif
#endif
