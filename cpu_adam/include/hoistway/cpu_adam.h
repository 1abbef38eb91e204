/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_CPU_ADAM_H
#define HOISTWAY_CPU_ADAM_H
/*
 * Optimizer arithmetic on host memory: updates, conversions between formats, norms.
 * No threads, no I/O, no allocation. Every function gives the same bits on every instruction set
 * and for every cut of a range into pieces (norms: cut at multiples of HST_NORM_BLOCK; updates: of
 * their granularity).
 *
 * That holds in the default floating-point environment: round to nearest even, denormals kept
 * (neither flush-to-zero nor denormals-are-zero). Every NaN that is written has one fixed pattern,
 * so NaNs compare too.
 *
 * A step, in the order of the calls:
 *   ops = hst_cpu_adam_ops(HST_CPU_ISA_AUTO), update = hst_update_find(ops, kind)      once
 *   ops->norm2[kind.grads] over all gradients, hst_norm2_sum                           the norm
 *   hst_grad_scale, which refuses with -EOVERFLOW gradients that are not finite or overflow v
 *   hst_adam_coef_init, or hst_plain_coef_init where the optimizer is not Adam's
 *   hst_update_run on each tile
 * The update does not look for gradients that are not finite, or that make v infinite: it is too
 * late when it meets one, for other tiles are updated by then. The norm finds them, before any
 * state is touched.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- scalars of a step ----------------------------------------------------------------------- */

/** The user chooses these. */
struct hst_adam_hyper {
    double lr;           /* ≥ 0, finite */
    double beta1, beta2; /* [0, 1) */
    double eps;          /* > 0 and not 0 as f32, finite */
    double weight_decay; /* ≥ 0, finite; 0 for tensors that are not decayed */
};

/**
 * One step's update needs these. Each number is computed in float64 by +, -, ×, ÷ and sqrt alone
 * (so it is the same with every libm) and rounded once to f32. A β is kept as two f32, hi + lo: one
 * f32 is off by up to 3e-8, which against 1 - β2 = 0.001 would be a bias of 1e-5 in v.
 */
struct hst_adam_coef {
    float grad_scale; /* multiplies every gradient first: clip factor × averaging ÷ loss scale */
    float beta1_hi, beta1_lo, one_minus_beta1;
    float beta2_hi, beta2_lo, one_minus_beta2;
    float inv_sqrt_bias2; /* 1 / sqrt(1 - β2^t) */
    float eps;
    float decay;     /* AdamW: weight_decay·(1 - β1^t): step_size·decay = lr·weight_decay */
    float l2;        /* what is added to the gradient: weight_decay */
    float step_size; /* lr / (1 - β1^t) */
    uint64_t noise;  /* a hash of t, for the rounding of moments to bf16 */
};

/**
 * The coefficients of step t (1 is the first), for Adam and AdamW. grad_scale is finite.
 * Errors: -EINVAL for t = 0, a value out of its range (NaN included) or a coefficient that is not
 * finite in f32; *coef is then untouched. Thread-safety: safe.
 */
int hst_adam_coef_init(const struct hst_adam_hyper *hyper, uint64_t t, float grad_scale,
                       struct hst_adam_coef *coef);

/**
 * The same for optimizers that correct no bias of their moments: every 1 - β^t is 1. SGD's momentum
 * is beta1. A number that an optimizer has none of is anything in its range, as 0 or an eps of 1.
 * Errors, thread-safety: as above.
 */
int hst_plain_coef_init(const struct hst_adam_hyper *hyper, uint64_t t, float grad_scale,
                        struct hst_adam_coef *coef);

struct hst_grad_scale_in {
    double norm;     /* of the gradients as they are stored, with the loss scale in them */
    double factor;   /* > 0: averaging ÷ loss scale; 1 where there is neither */
    double max_norm; /* of the gradients times factor; ≤ 0: clipping is off */
};

/**
 * The largest norm of scaled gradients that an update takes, some 1.837e19. No gradient is larger
 * than the norm, so none has a square beyond 0x1.fc04p127. A v that begins as 0 stays within the
 * largest finite bf16, 0x1.fep127, in every step, however it is rounded to f32 or bf16; m is no
 * larger than a gradient, but for its rounding. (What Adam's l2 adds to a gradient comes on top:
 * weights are to be far smaller.) That is so of Adam: Adagrad's v is a sum over steps and may
 * overflow later, after which the weight is NaN and the next step's norm is refused.
 */
#define HST_GRAD_NORM_MOST 0x1.fep63

/**
 * The number that every gradient is multiplied with: factor × min(1, max_norm / (norm·factor +
 * 1e-6)), computed in float64 in this order, rounded once to f32; with clipping off, factor.
 *
 * Errors, *scale being untouched: -EOVERFLOW where the norm is not finite, and so some gradient is
 * not (a normal event under a loss scale: leave out the step and lower the scale), or where norm ×
 * scale is beyond HST_GRAD_NORM_MOST, so that v might become infinite. -EINVAL for a NaN max_norm
 * or a factor that is not a finite number > 0. (PyTorch's clip gives 0 for an infinite norm, which
 * would apply a zero gradient in silence.) Thread-safety: safe.
 */
int hst_grad_scale(const struct hst_grad_scale_in *in, float *scale);

/** Elements per partial of a norm. */
#define HST_NORM_BLOCK 4096u

/**
 * Sum of partials in rising order, 0 for none; the one order in which norms of larger things are
 * put together; the norm is its square root.
 * Errors: none; a non-finite partial makes the sum non-finite. Thread-safety: safe.
 */
double hst_norm2_sum(const double *partial, size_t count);

/* ---- updates --------------------------------------------------------------------------------- */

/** Numbers in arrays; bf16 and f16 (IEEE binary16) values are uint16_t bit patterns. */
enum hst_cpu_type {
    HST_CPU_F32,
    HST_CPU_BF16,
    HST_CPU_F16,
    HST_CPU_CODE /* of moments alone: 8 bits, and a scale for each HST_CODE_BLOCK of them */
};
#define HST_CPU_TYPES 3 /* without codes */

/** Elements that share a scale. */
#define HST_CODE_BLOCK 256u

/** An engine (hst_config.optimizer) has all but ADAM. */
enum hst_optimizer {
    HST_OPTIMIZER_ADAMW = 0,
    HST_OPTIMIZER_SGD, /* with momentum */
    HST_OPTIMIZER_LION,
    HST_OPTIMIZER_ADAGRAD,
    HST_OPTIMIZER_ADAM = 255
};

/** They say whether an element has the moment m, and v. Constant expressions of a constant. */
#define HST_OPTIMIZER_HAS_M(optimizer) ((optimizer) != HST_OPTIMIZER_ADAGRAD)
#define HST_OPTIMIZER_HAS_V(optimizer)                                                             \
    ((optimizer) != HST_OPTIMIZER_SGD && (optimizer) != HST_OPTIMIZER_LION)

/**
 * Which update. What exists: any optimizer and type of gradient, with
 *   weights f32,  moments f32
 *   weights bf16, moments f32 or bf16: split master, an i16 remainder beside each weight
 *   weights f16,  moments f32: an f32 master beside each weight
 * but for Adagrad's moments, which are f32; and
 *   AdamW, weights bf16, moments in codes of 8 bits, gradients bf16
 */
struct hst_update_kind {
    enum hst_optimizer optimizer;
    enum hst_cpu_type weights, moments, grads;
};

/**
 * The arrays of one range, n elements each; those that an update has no bytes for are null. Of the
 * scales there is one for each block of codes, the last block being shorter. Formats to come that
 * need more add theirs at the end.
 *
 * index says which element of the model the range begins with, counted over all tensors. Rounding
 * to bf16 takes its noise from it, so that results do not depend on how ranges are cut; it may be
 * any number as long as each element keeps its own. Updates with f32 moments do not look at it.
 */
struct hst_update_arrays {
    void *weights;
    void *master; /* i16 remainder or f32 master: what the weight's own bits lack */
    void *m, *v;
    const void *grads;
    uint64_t index;
    float *m_scales, *v_scales; /* [⌈n/256⌉], beside moments in codes; else null */
    /* Memory is asked for so many elements ahead of those that are updated, as far as the range
       goes; 0: HST_AHEAD_USUAL. What is faster depends on the machine; no bit does */
    uint32_t ahead;
};
#define HST_AHEAD_USUAL 512u
#define HST_AHEAD_NONE  UINT32_MAX

/** Bytes per element of each array; 0: there is no such array. */
struct hst_update_bytes {
    uint8_t weights, master, m, v, grads;
};

/**
 * One update: a row of a table. The exact rounding order, each operation in f32:
 *
 *   AdamW  g = grad_scale·grad
 *   Adam   g = fma(l2, p, grad_scale·grad)
 *   both   m ← fma(β1_hi, m, fma(1-β1, g, β1_lo·m))
 *          v ← fma(β2_hi, v, fma((1-β2)·g, g, β2_lo·v))
 *          q = fma(sqrt(v), inv_sqrt_bias2, eps)
 *   AdamW  p ← fma(-step_size, fma(decay, p, m / q), p)
 *   Adam   p ← fma(-step_size, m / q, p)
 *
 *   SGD    g = fma(l2, p, grad_scale·grad)
 *          m ← fma(β1_hi, m, fma(β1_lo, m, g))
 *          p ← fma(-step_size, m, p)
 *
 *   Lion   g = grad_scale·grad
 *          c = fma(β1_hi, m, fma(1-β1, g, β1_lo·m))
 *          m ← fma(β2_hi, m, fma(1-β2, g, β2_lo·m))
 *          u = fma(0, m, sign(c)), where sign(c) is c's sign of 1, or c if that is 0
 *          p ← fma(-step_size, fma(decay, p, u), p)
 *
 *   Adagrad  g = fma(l2, p, grad_scale·grad)
 *          v ← fma(g, g, v)
 *          p ← fma(-step_size, fma(0, v, g) / (sqrt(v) + eps), p)
 *
 * p is the master: the f32 weight; join(weight, remainder); the f32 master of an f16 weight. Each
 * of m, v and p is rounded once at its own size; of Adam's every other rounding is scaled down by
 * 1-β1, 1-β2 or step_size. A NaN in p, m or v is written as 0x7fc00000 (p in bf16: weight 0x7fc0,
 * remainder 0). An infinite v, or an infinite p, becomes NaN in its next update: it does not stay
 * hidden behind m / inf = 0. Nor does an infinite m of Lion behind its sign, or v of Adagrad, which
 * only grows: 0 times it is then NaN, else 0.
 *
 * Then they are stored. f32: as they are. Weights bf16: split (see hst_cpu_adam_ops). Weights f16:
 * the master rounded to the nearest, ties to even; from 65520 on that is infinity, see
 * hst_update_run. Moments bf16 (p is computed from what they were in f32): the upper half of bits +
 * (noise & 0xffff), for v bits + (noise >> 16). So they are rounded up or down with the probability
 * that the cut off bits say: to the nearest, v would not follow changes below 1/512, and 1-β2 is
 * less than that. The noise is a hash of t and of the element's index, and depends on nothing else:
 * equal weights are rounded independently of each other, and so are the steps of one weight. A
 * finite moment beyond 0x1.fep127 can be stored as infinity; hst_grad_scale refuses the gradients
 * that lead there.
 *
 * With k = mix(mix(t) + (index >> 32)), mix being the finaliser of splitmix64 after its increment
 * (Steele et al. 2014, doi:10.1145/2660193.2660195), the noise is, modulo 2^32:
 *
 *   x = index ^ k             x = (x ^ (x >> 16))·0x21f0aaad
 *   x = x ^ (x >> 15)         x = (x ^ (k >> 32))·0xd35a2d97         noise = x ^ (x >> 15)
 *
 * This is hash-prospector's best permutation of 32 bits in two rounds, with a key of the step in
 * each of them (Wellons 2018, nullprogram.com/blog/2018/07/31, github.com/skeeto/hash-prospector).
 *
 * Moments in codes (p is computed from what they were in f32): a block of 256 elements has a scale
 * s, and each element a code c, of 8 bits for v, of 7 bits below a sign for m. With i the place of
 * c's highest bit, and D = 8 for v, 7 for m, the element is s·z, where
 *
 *   z = 8^(i-D+1)·(1/8 + 7/8·(c + 0.5 - 2^i) / 2^i)          c > 0; f32 holds it exactly
 *   z = 0 for m, 2^-25 for v                                 c = 0
 *
 * So 0 to 1 is cut into D segments, each an eighth of the one above, a segment into 2^i equal
 * intervals, and a code stands for the middle of its own. In v's highest segment z is off by at
 * most 0.4 % at the upper end and 3 % at the lower, by twice as much for m, and by twice as much in
 * each segment below. The code that is stored is that of the interval which holds the number; next
 * to the end of a segment this need not be the nearest.
 *
 * s is the block's largest magnitude ÷ the largest z, so that this one is kept, whatever its sign.
 * A block whose s would be below 2^-126 (all zeros, or denormals) has s = 0 and codes 0; one in
 * which some number is not finite, or s would not be, has s = NaN and codes 0, and so all of its
 * weights become NaN in the next update.
 *
 * v's code 0 is not zero, since m / sqrt(v) would then leave every bound where m is not 0: no v is
 * kept at less than half of what it is. What changes less in a step than half an interval is lost,
 * which noise, as for bf16, would keep; what a whole block has in common is in the scale and stays.
 *
 * In f32: s = largest·(1 / z's largest), the factor rounded once; y = fma(|x|, 1/s, 2^-31); the
 * code is the whole part of the least, over i, of fma(8/7·2^i·8^(D-1-i), y, 6/7·2^i), each constant
 * being rounded once. Ranges begin, and are cut, at multiples of 256 elements; the last block of
 * one may be shorter.
 *
 * Source: Kingma & Ba 2015, arXiv:1412.6980, Alg. 1; Loshchilov & Hutter 2019, arXiv:1711.05101,
 * Alg. 2, both in PyTorch's form: eps is added after the bias correction of v. There AdamW shrinks
 * the weight before the step, p ← (1 - lr·wd)·p - step; here both are subtracted at once, the same
 * value with one rounding, and 1 - lr·wd, which f32 cannot hold (1 - 1e-7 is off by 19 % of the
 * decay), is never formed.
 * SGD: Sutskever et al. 2013, proceedings.mlr.press/v28/sutskever13, eq. 1, in PyTorch's form (the
 * rate is no part of m), without dampening and Nesterov's look ahead. m begins as 0, so the first
 * one is the gradient.
 * Lion: Chen et al. 2023, arXiv:2302.06675, Alg. 2; p has the decay's rounding as in AdamW.
 * Adagrad: Duchi et al. 2011, jmlr.org/papers/v12/duchi11a, in PyTorch's form: eps is added after
 * the root. v begins as 0, and the rate does not decay.
 * Moments in bf16: Zamirai et al. 2020, arXiv:2010.06192 (stochastic rounding).
 * Moments in codes: Dettmers et al. 2022, arXiv:2110.02861, section 2 (block-wise dynamic
 * quantization), with the blocks of bitsandbytes and the map of its create_dynamic_map, but that
 * its segments are tenths of each other, and their lines are found by comparing. There 1 is one
 * more number of the map, of m's for one sign alone, where here the scale is larger. There v's map
 * has seven segments, the same numbers of intervals, and 0 below 10^-7; here an eighth of one code,
 * and no 0.
 */
struct hst_update {
    struct hst_update_kind kind;
    const char *name; /* "adamw weights bf16 moments f32 grads bf16" */
    struct hst_update_bytes bytes;
    uint8_t read_bytes, written_bytes; /* traffic per element, scales left out */
    uint32_t granularity; /* ranges begin, and are cut, at multiples of it: 1, HST_CODE_BLOCK */

    /** The kernel, which checks nothing: see hst_update_run. Returns its count. */
    size_t (*kernel)(const struct hst_adam_coef *coef, const struct hst_update_arrays *arrays,
                     size_t n);

    /**
     * First values: writes weights and master of f32 x[n]; where weights are f32, x may be the
     * weights themselves. Moments begin as zero bytes. Errors: none. Thread-safety: safe on
     * disjoint ranges.
     */
    void (*set_weights)(const float *x, void *weights, void *master, size_t n);
};

/**
 * The update on one contiguous range, in place. weights, master, m, v read and written (weights of
 * f16: written alone), grads read. n elements, 0 allowed. Pointers are aligned to their element (64
 * bytes is faster; faster still where the arrays begin at different distances from a 4 KiB
 * boundary: 1,088 B apart), arrays do not overlap.
 *
 * Returns the number of f16 weights that are not finite now, at most INT_MAX (so 0 in all other
 * formats): masters beyond 65504 or themselves not finite. The next forward will meet them; nothing
 * is undone.
 * Errors, no array being touched: -EINVAL for a null, misaligned or overlapping array, an array
 * that the update has no bytes for, more bytes than there are addresses, or coefficients that
 * hst_adam_coef_init did not give (eps not > 0, a number that is not finite).
 * Ownership: borrows all, keeps none. Thread-safety: safe on disjoint ranges.
 * Cost: update->read_bytes + written_bytes per element, at the speed of memory.
 */
int hst_update_run(const struct hst_update *update, const struct hst_adam_coef *coef,
                   const struct hst_update_arrays *arrays, size_t n);

/**
 * The same, from the arrays of `from` into those of `into`; gradients and index are those of
 * `from`. An array
 * that is one in both is updated in place; all others do not overlap. What is written elsewhere
 * goes there past the cache.
 *
 * Returns, errors, ownership, thread-safety: as hst_update_run; into->grads and into->index are not
 * looked at.
 * Cost: the same bytes as in place, and a copy within the cache.
 */
int hst_update_run_into(const struct hst_update *update, const struct hst_adam_coef *coef,
                        const struct hst_update_arrays *from, const struct hst_update_arrays *into,
                        size_t n);

/** The arrays from their element `first` on, a multiple of the granularity; index included.
 * Thread-safety: safe. */
struct hst_update_arrays hst_update_arrays_at(const struct hst_update *update,
                                              const struct hst_update_arrays *arrays, size_t first);

/* ---- tables ---------------------------------------------------------------------------------- */

/**
 * The table of kernels of one instruction set. All tables give the same bits.
 *
 * Common to the functions: n elements, 0 allowed; pointers aligned to their element; arrays must
 * not overlap. Errors: none. Ownership: borrows all, keeps none. Thread-safety: safe on disjoint
 * ranges.
 */
struct hst_cpu_adam_ops {
    const char *name; /* "c", "avx2", "avx512", "neon" */

    const struct hst_update *updates; /* [update_count], the same order in every table */
    size_t update_count;

    /**
     * Split master: weight = bf16 nearest to x, ties away from zero, remainder = bits(x) - (weight
     * << 16), which always fits an i16. A NaN becomes weight 0x7fc0, remainder 0. join(split(x)) ==
     * x for every bit pattern that is not a NaN.
     */
    void (*split_f32)(const float *x, uint16_t *weight, int16_t *remainder, size_t n);
    void (*join_f32)(const uint16_t *weight, const int16_t *remainder, float *x, size_t n);

    /** Exact, NaN patterns included. */
    void (*f32_from_bf16)(const uint16_t *x, float *y, size_t n);

    /** Nearest, ties to even; a NaN becomes 0x7fc0 with its sign. */
    void (*bf16_from_f32)(const float *x, uint16_t *y, size_t n);

    /** Exact; a NaN keeps its sign and payload and becomes quiet. */
    void (*f32_from_f16)(const uint16_t *x, float *y, size_t n);

    /** Nearest, ties to even, infinity from ±65520 on; a NaN becomes 0x7e00 with its sign. */
    void (*f16_from_f32)(const float *x, uint16_t *y, size_t n);

    /**
     * It gives, by type of x, Σx² of each block of HST_NORM_BLOCK elements from x on, the last
     * block being shorter: f64 partials [⌈n/4096⌉]. Inside a block: 16 f64 lanes that start at 0,
     * element i into lane i mod 16, lane ← lane + x·x (the product of two f32 is exact in f64, the
     * sum is rounded), one addition per element in rising i, then lanes added as a tree: lane j ←
     * lane j + lane j+8 for j < 8, then +4 for j < 4, +2, +1; lane 0 is the partial. A partial is
     * finite if and only if its elements are: no square of an f32 overflows in f64. A NaN partial
     * is 0x7ff8000000000000.
     */
    void (*norm2[HST_CPU_TYPES])(const void *x, size_t n, double *partial);
};

enum hst_cpu_isa {
    HST_CPU_ISA_AUTO = 0,
    HST_CPU_ISA_C = 1,
    HST_CPU_ISA_AVX2 = 2,
    HST_CPU_ISA_AVX512 = 3,
    HST_CPU_ISA_NEON = 4,
    HST_CPU_ISA_AVX512VBMI = 5 /* AVX512 with VBMI and VBMI2: moments in codes are faster */
};

/**
 * The table for an instruction set; HST_CPU_ISA_AUTO is the best that this CPU and its operating
 * system support (CPUID and XGETBV feature bits, never the model).
 * Returns null where the set asked for is not supported or not built; never null for AUTO and C.
 * The table is static and immutable. Each call asks the CPU again (microseconds under a
 * hypervisor): ask once and keep the table.
 * Thread-safety: safe.
 */
const struct hst_cpu_adam_ops *hst_cpu_adam_ops(enum hst_cpu_isa isa);

/**
 * The update of that kind, as immutable as its table; null where there is none. Thread-safety:
 * safe.
 */
const struct hst_update *hst_update_find(const struct hst_cpu_adam_ops *ops,
                                         struct hst_update_kind kind);

#ifdef __cplusplus
}
#endif
#endif
