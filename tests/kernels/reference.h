/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_KERNELS_REFERENCE_H
#define HST_TESTS_KERNELS_REFERENCE_H
/*
 * Every operation's forward in float64, as plainly as its formula reads, and the slope of any
 * function by central differences: the backwards are checked against slopes of these forwards, so
 * no formula of a gradient is written twice. But attention's, whose tiles are worth a look at every
 * element: its backward here is itself checked against slopes (test_attention.c).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void ref_matmul(size_t m, size_t n, size_t k, const double *a, size_t a_ld, bool a_transposed,
                const double *b, size_t b_ld, bool b_transposed, double *c, size_t c_ld);
void ref_rmsnorm(size_t tokens, size_t width, double eps, const double *x, const double *weight,
                 double *y, double *rstd);
void ref_rope(size_t tokens, size_t seq, size_t heads, size_t head_dim, double *x,
              const double *cosine, const double *sine);
/** The same with a place of each token's own. */
void ref_rope_placed(size_t tokens, const uint32_t *place, size_t heads, size_t head_dim, double *x,
                     const double *cosine, const double *sine);
struct ref_attention {
    size_t batch, seq, heads, kv_heads, head_dim;
    double scale;
};
void ref_attention(const struct ref_attention *shape, const double *q, const double *k,
                   const double *v, double *o, double *lse);
/** The gradients of Σ o·dout; dq as q, dk and dv as k. */
void ref_attention_backward(const struct ref_attention *shape, const double *q, const double *k,
                            const double *v, const double *dout, double *dq, double *dk,
                            double *dv);
/** Attention as hst_attention.first (may be null) and window narrow it. */
struct ref_narrow {
    struct ref_attention of;
    const uint32_t *first;
    size_t window;
};
void ref_narrow(const struct ref_narrow *shape, const double *q, const double *k, const double *v,
                double *o, double *lse);
void ref_narrow_backward(const struct ref_narrow *shape, const double *q, const double *k,
                         const double *v, const double *dout, double *dq, double *dk, double *dv);
void ref_swiglu(size_t count, const double *gate, const double *up, double *out);
void ref_cross_entropy(size_t tokens, size_t vocab, const double *logits, const double *targets,
                       double *loss);

/** d of(context) / d *variable, with of called at *variable ± step. */
double ref_slope(double (*of)(void *context), void *context, double *variable, double step);
double ref_dot(const double *a, const double *b, size_t count);
#endif
