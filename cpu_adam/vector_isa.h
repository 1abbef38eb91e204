/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_VECTOR_ISA_H
#define HST_CPU_ADAM_VECTOR_ISA_H
/*
 * Updates and sums of squares, a pair of vectors at a time (VECTOR_H says what that is). Why by
 * hand: compilers do not find F16C's conversions, shuffle 16-bit elements more than is needed, and
 * canonicalise every NaN. Here NaNs cost one comparison, of p (formula.h).
 */
#include "kernel.h"
#include "noise.h"
#include "prefetch.h"

enum order { STRAIGHT, EVEN_ODD };

#define F16_OVERFLOW 65520.0f /* the least that rounds to infinity */

#include "codes_lines.h"

#define VECTOR_STRING_(name) #name
#define VECTOR_STRING(name)  VECTOR_STRING_(name)
#include VECTOR_STRING(VECTOR_H)

struct constants {
    floats grad_scale;
    floats beta1_hi, beta1_lo, one_minus_beta1;
    floats beta2_hi, beta2_lo, one_minus_beta2;
    floats inv_sqrt_bias2, eps, decay, l2, minus_step_size;
    words noise_first, noise_second;
};

INLINED floats minus_step_size(const struct constants *k)
{
    return k->minus_step_size;
}

#define FORMULA   INLINED
#define CONSTANTS struct constants
#include "formula.h"

INLINED struct constants constants_of(const struct hst_adam_coef *k, struct noise_key noise)
{
    return (struct constants){
        .grad_scale = all(k->grad_scale),
        .beta1_hi = all(k->beta1_hi),
        .beta1_lo = all(k->beta1_lo),
        .one_minus_beta1 = all(k->one_minus_beta1),
        .beta2_hi = all(k->beta2_hi),
        .beta2_lo = all(k->beta2_lo),
        .one_minus_beta2 = all(k->one_minus_beta2),
        .inv_sqrt_bias2 = all(k->inv_sqrt_bias2),
        .eps = all(k->eps),
        .decay = all(k->decay),
        .l2 = all(k->l2),
        .minus_step_size = all(-k->step_size),
        .noise_first = all_words(noise.first),
        .noise_second = all_words(noise.second),
    };
}

INLINED void update_vector(enum hst_optimizer optimizer, const struct constants *k, floats *p,
                           floats *m, floats *v, floats grad)
{
    const struct element e = element_updated(optimizer, k, (struct element){*p, *m, *v}, grad);
    *p = e.p;
    *m = e.m;
    *v = e.v;
}

INLINED struct pair canonical_pair(struct pair x)
{
    return (struct pair){canonical_each(x.low), canonical_each(x.high)};
}

INLINED enum order order_of(struct hst_update_kind kind)
{
    bool halves = kind.weights == HST_CPU_BF16 &&
                  (kind.moments == HST_CPU_BF16 || kind.moments == HST_CPU_CODE);
    return halves && kind.grads == HST_CPU_BF16 ? EVEN_ODD : STRAIGHT;
}

INLINED struct pair read_numbers(enum order order, enum hst_cpu_type type, const void *x)
{
    return type == HST_CPU_F32    ? load_f32(x)
           : type == HST_CPU_BF16 ? load_upper(order, x)
                                  : load_f16(x);
}

/* noise_at, for the elements of consecutive indices that `x` holds */
INLINED words noise_of(const struct constants *k, words x)
{
    x = differing(x, k->noise_first);
    x = times_words(differing(x, shifted(x, 16)), all_words(NOISE_FIRST));
    x = differing(differing(x, shifted(x, 15)), k->noise_second);
    x = times_words(x, all_words(NOISE_SECOND));
    return differing(x, shifted(x, 15));
}

/* It writes the moments of a pair that begins with this index. */
INLINED void write_noisy(enum hst_optimizer optimizer, enum order order, const struct constants *k,
                         const struct hst_update_arrays *a, struct pair m, struct pair v)
{
    const words index = all_words((uint32_t)a->index);
    const words low = noise_of(k, plus_words(index, low_lanes(order)));
    const words high = noise_of(k, plus_words(index, high_lanes(order)));
    if (HST_OPTIMIZER_HAS_M(optimizer))
        store_upper(order, a->m, plus_words(words_of(m.low), low_halves(low)),
                    plus_words(words_of(m.high), low_halves(high)));
    if (HST_OPTIMIZER_HAS_V(optimizer))
        store_upper(order, a->v, plus_words(words_of(v.low), shifted(low, 16)),
                    plus_words(words_of(v.high), shifted(high, 16)));
}

INLINED void write_moments(struct hst_update_kind kind, const struct constants *k,
                           const struct hst_update_arrays *a, struct pair m, struct pair v)
{
    if (kind.moments == HST_CPU_BF16) {
        write_noisy(kind.optimizer, order_of(kind), k, a, m, v);
        return;
    }
    if (HST_OPTIMIZER_HAS_M(kind.optimizer))
        store_f32(a->m, m);
    if (HST_OPTIMIZER_HAS_V(kind.optimizer))
        store_f32(a->v, v);
}

INLINED struct pair read_masters(enum order order, enum hst_cpu_type type,
                                 const struct hst_update_arrays *a)
{
    if (type == HST_CPU_BF16)
        return load_joined(order, a->weights, a->master);
    return load_f32(type == HST_CPU_F32 ? a->weights : a->master);
}

INLINED void write_masters(enum order order, enum hst_cpu_type type,
                           const struct hst_update_arrays *a, struct pair p)
{
#ifdef CODES_BY_64
    if (type == HST_CPU_BF16 && order == EVEN_ODD) {
        store_split(a->weights, a->master, words_of(p.low), words_of(p.high));
        return;
    }
#endif
    if (type == HST_CPU_BF16) {
        words low = words_of(p.low), high = words_of(p.high), half = all_words(0x8000);
        store_upper(order, a->weights, plus_words(low, half), plus_words(high, half));
        store_lower(order, a->master, low, high);
        return;
    }
    store_f32(type == HST_CPU_F32 ? a->weights : a->master, p);
    if (type == HST_CPU_F16)
        store_f16(a->weights, p);
}

INLINED size_t update_pair(struct hst_update_kind kind, const struct constants *k,
                           const struct hst_update_arrays *a)
{
    const enum order order = order_of(kind);
    struct pair p = read_masters(order, kind.weights, a);
    struct pair g = read_numbers(order, kind.grads, a->grads);
    struct pair m = {all(0), all(0)}, v = {all(0), all(0)};
    unsigned not_finite = 0;

    if (HST_OPTIMIZER_HAS_M(kind.optimizer))
        m = read_numbers(order, kind.moments, a->m);
    if (HST_OPTIMIZER_HAS_V(kind.optimizer))
        v = read_numbers(order, kind.moments, a->v);
    update_vector(kind.optimizer, k, &p.low, &m.low, &v.low, g.low);
    update_vector(kind.optimizer, k, &p.high, &m.high, &v.high, g.high);
    if (kind.weights == HST_CPU_F16)
        not_finite = count_beyond(p, F16_OVERFLOW);
    if (kind.weights == HST_CPU_F16 ? not_finite != 0 : some_nan(p)) {
        p = canonical_pair(p);
        m = canonical_pair(m);
        v = canonical_pair(v);
    }
    write_masters(order, kind.weights, a, p);
    write_moments(kind, k, a, m, v);
    return not_finite;
}

enum { PAIR = 2 * LANES };

/* n < PAIR elements: a whole pair elsewhere, padded with zeros, which stay finite. */
INLINED size_t update_rest(struct hst_update_kind kind, const struct constants *k,
                           const struct hst_update_arrays *a, size_t n)
{
    const struct hst_update_bytes b = bytes_of(kind);
    _Alignas(64) char weights[PAIR * 4] = {0}, master[PAIR * 4] = {0};
    _Alignas(64) char m[PAIR * 4] = {0}, v[PAIR * 4] = {0}, grads[PAIR * 4] = {0};

    memcpy(weights, a->weights, n * b.weights);
    memcpy(master, a->master, n * b.master);
    memcpy(m, a->m, n * b.m);
    memcpy(v, a->v, n * b.v);
    memcpy(grads, a->grads, n * b.grads);
    const struct hst_update_arrays padded = {
        .weights = weights, .master = master, .m = m, .v = v, .grads = grads, .index = a->index};
    size_t not_finite = update_pair(kind, k, &padded);
    memcpy(a->weights, weights, n * b.weights);
    memcpy(a->master, master, n * b.master);
    memcpy(a->m, m, n * b.m);
    memcpy(a->v, v, n * b.v);
    return not_finite;
}

INLINED size_t update_some(struct hst_update_kind kind, const struct constants *k,
                           const struct hst_update_arrays *a, size_t n)
{
    size_t not_finite = 0, i = 0;

    for (; n - i >= PAIR; i += PAIR) {
        const struct hst_update_arrays here = arrays_at(kind, a, i);
        not_finite += update_pair(kind, k, &here);
    }
    if (i < n) {
        const struct hst_update_arrays here = arrays_at(kind, a, i);
        not_finite += update_rest(kind, k, &here, n - i);
    }
    return not_finite;
}

#include "codes_isa.h"

/* n < PAIR elements, with zeros behind them, whose squares change no sum. */
INLINED struct pair read_rest(enum hst_cpu_type type, const void *x, size_t n)
{
    _Alignas(64) char padded[PAIR * 4] = {0};

    memcpy(padded, x, n * (size_t)TYPE_BYTES(type));
    return read_numbers(STRAIGHT, type, padded);
}

/* Adds x² to the lanes of a norm, element i to lane i mod NORM_LANES. */
INLINED void add_squares(enum hst_cpu_type type, const void *x, size_t n, double *lane)
{
    struct sums sums = load_sums(lane);
    size_t whole = n - n % PAIR;

    for (size_t i = 0; i < whole; i += PAIR) {
        const char *here = (const char *)x + (size_t)TYPE_BYTES(type) * i;
        sums_add_squares(&sums, read_numbers(STRAIGHT, type, here));
    }
    if (whole < n) {
        const char *rest = (const char *)x + (size_t)TYPE_BYTES(type) * whole;
        sums_add_squares(&sums, read_rest(type, rest, n - whole));
    }
    store_sums(lane, &sums);
}

#endif
