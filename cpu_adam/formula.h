/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CPU_ADAM_FORMULA_H
#define HST_CPU_ADAM_FORMULA_H
/*
 * What each optimizer makes of an element, written once for plain C and for the vectors of every
 * instruction set. cpu_adam.h states the same as text, one rounding at a time.
 *
 * Who includes this has defined before
 *   FORMULA      how an inlined function begins there
 *   floats       an f32, or a vector of them
 *   all(x)       the constant x in each of them
 *   times, times_plus, over, root        a·b, fma(a, b, c), a / b and sqrt(a), rounded once each
 *   sign_of(a)   1 with a's sign; of ±0 that 0; of a NaN anything
 *   CONSTANTS    a struct with the numbers of struct hst_adam_coef as floats, by their names
 *   minus_step_size(const CONSTANTS *)   -step_size
 * and <hoistway/cpu_adam.h>.
 *
 * Each formula carries a NaN of m or v into p. So where p has none nothing has, and one comparison
 * finds all. How a NaN is stored is the includer's.
 */

/* Every optimizer: FORM(X, its name, its HST_OPTIMIZER_). */
#define EACH_OPTIMIZER(FORM, X)                                                                    \
    FORM(X, adamw, ADAMW)                                                                          \
    FORM(X, sgd, SGD)                                                                              \
    FORM(X, lion, LION)                                                                            \
    FORM(X, adagrad, ADAGRAD)                                                                      \
    FORM(X, adam, ADAM)

/* Their moments may be bf16. */
#define EACH_OF_BF16_MOMENTS(FORM, X)                                                              \
    FORM(X, adamw, ADAMW)                                                                          \
    FORM(X, sgd, SGD)                                                                              \
    FORM(X, lion, LION)                                                                            \
    FORM(X, adam, ADAM)

/* Their moments may be codes of 8 bits. */
#define EACH_OF_CODED_MOMENTS(FORM, X) FORM(X, adamw, ADAMW)

/* These move with one weight; m or v is anything where an optimizer has none. */
struct element {
    floats p, m, v;
};

FORMULA struct element adam_moments(const CONSTANTS *k, struct element e, floats g)
{
    floats m_rest = times_plus(k->one_minus_beta1, g, times(k->beta1_lo, e.m));
    floats v_rest = times_plus(times(k->one_minus_beta2, g), g, times(k->beta2_lo, e.v));
    e.m = times_plus(k->beta1_hi, e.m, m_rest);
    e.v = times_plus(k->beta2_hi, e.v, v_rest);
    return e;
}

FORMULA floats adam_divisor(const CONSTANTS *k, floats v)
{
    return times_plus(root(v), k->inv_sqrt_bias2, k->eps);
}

FORMULA floats adam_weight(bool decoupled, const CONSTANTS *k, floats p, floats quotient)
{
    floats step = decoupled ? times_plus(k->decay, p, quotient) : quotient;
    return times_plus(minus_step_size(k), step, p);
}

FORMULA struct element by_adam(bool decoupled, const CONSTANTS *k, struct element e, floats g)
{
    if (!decoupled)
        g = times_plus(k->l2, e.p, g);
    e = adam_moments(k, e, g);
    e.p = adam_weight(decoupled, k, e.p, over(e.m, adam_divisor(k, e.v)));
    return e;
}

FORMULA struct element by_sgd(const CONSTANTS *k, struct element e, floats g)
{
    g = times_plus(k->l2, e.p, g);
    e.m = times_plus(k->beta1_hi, e.m, times_plus(k->beta1_lo, e.m, g));
    e.p = times_plus(minus_step_size(k), e.m, e.p);
    return e;
}

/* 0·m carries an m that is not finite into p. */
FORMULA struct element by_lion(const CONSTANTS *k, struct element e, floats g)
{
    floats c_rest = times_plus(k->one_minus_beta1, g, times(k->beta1_lo, e.m));
    floats m_rest = times_plus(k->one_minus_beta2, g, times(k->beta2_lo, e.m));
    floats c = times_plus(k->beta1_hi, e.m, c_rest);
    e.m = times_plus(k->beta2_hi, e.m, m_rest);
    floats step = times_plus(all(0), e.m, sign_of(c));
    e.p = times_plus(minus_step_size(k), times_plus(k->decay, e.p, step), e.p);
    return e;
}

/* 0·v carries a v that is not finite into p. */
FORMULA struct element by_adagrad(const CONSTANTS *k, struct element e, floats g)
{
    g = times_plus(k->l2, e.p, g);
    e.v = times_plus(g, g, e.v);
    floats divisor = times_plus(root(e.v), all(1), k->eps); /* a sum: the product is exact */
    floats step = over(times_plus(all(0), e.v, g), divisor);
    e.p = times_plus(minus_step_size(k), step, e.p);
    return e;
}

FORMULA struct element element_updated(enum hst_optimizer optimizer, const CONSTANTS *k,
                                       struct element e, floats grad)
{
    floats g = times(k->grad_scale, grad);
    switch (optimizer) {
    case HST_OPTIMIZER_SGD:
        return by_sgd(k, e, g);
    case HST_OPTIMIZER_LION:
        return by_lion(k, e, g);
    case HST_OPTIMIZER_ADAGRAD:
        return by_adagrad(k, e, g);
    case HST_OPTIMIZER_ADAMW:
    case HST_OPTIMIZER_ADAM:
        break;
    }
    return by_adam(optimizer == HST_OPTIMIZER_ADAMW, k, e, g);
}

#endif
