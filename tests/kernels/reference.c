/* SPDX-License-Identifier: Apache-2.0 */
/* See reference.h. */
#include "reference.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>

void ref_matmul(size_t m, size_t n, size_t k, const double *a, size_t a_ld, bool a_transposed,
                const double *b, size_t b_ld, bool b_transposed, double *c, size_t c_ld)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            double sum = 0;
            for (size_t p = 0; p < k; p++)
                sum += (a_transposed ? a[p * a_ld + i] : a[i * a_ld + p]) *
                       (b_transposed ? b[j * b_ld + p] : b[p * b_ld + j]);
            c[i * c_ld + j] += sum;
        }
}

void ref_rmsnorm(size_t tokens, size_t width, double eps, const double *x, const double *weight,
                 double *y, double *rstd)
{
    for (size_t t = 0; t < tokens; t++, x += width, y += width) {
        rstd[t] = 1 / sqrt(ref_dot(x, x, width) / (double)width + eps);
        for (size_t i = 0; i < width; i++)
            y[i] = x[i] * rstd[t] * weight[i];
    }
}

/* The heads of one token, at one place. */
static void rotate(size_t heads, size_t head_dim, double *x, const double *cosine,
                   const double *sine)
{
    size_t half = head_dim / 2;
    for (size_t h = 0; h < heads; h++, x += head_dim)
        for (size_t i = 0; i < half; i++) {
            double low = x[i], high = x[i + half];
            x[i] = low * cosine[i] - high * sine[i];
            x[i + half] = high * cosine[i] + low * sine[i];
        }
}

void ref_rope(size_t tokens, size_t seq, size_t heads, size_t head_dim, double *x,
              const double *cosine, const double *sine)
{
    for (size_t t = 0; t < tokens; t++)
        rotate(heads, head_dim, x + t * heads * head_dim, cosine + t % seq * (head_dim / 2),
               sine + t % seq * (head_dim / 2));
}

void ref_rope_placed(size_t tokens, const uint32_t *place, size_t heads, size_t head_dim, double *x,
                     const double *cosine, const double *sine)
{
    for (size_t t = 0; t < tokens; t++)
        rotate(heads, head_dim, x + t * heads * head_dim, cosine + place[t] * (head_dim / 2),
               sine + place[t] * (head_dim / 2));
}

/* The first key that a query sees. */
static size_t first_key(const struct ref_narrow *s, size_t sequence, size_t t)
{
    size_t from = s->first ? s->first[sequence * s->of.seq + t] : 0;
    if (from > t)
        from = t;
    if (s->window && t + 1 > from + s->window)
        from = t + 1 - s->window;
    return from;
}

/* One query of one head: its keys, from `first` on, and values are rows of k and v, `ld` apart. */
static double attend(const struct ref_attention *s, size_t first, size_t position, const double *q,
                     const double *k, const double *v, size_t ld, double *o)
{
    double *score = malloc((position + 1) * sizeof *score), top = -INFINITY, sum = 0;
    for (size_t j = first; j <= position; j++) {
        score[j] = s->scale * ref_dot(q, k + j * ld, s->head_dim);
        top = fmax(top, score[j]);
    }
    for (size_t j = first; j <= position; j++)
        sum += score[j] = exp(score[j] - top);
    for (size_t i = 0; i < s->head_dim; i++)
        o[i] = 0;
    for (size_t j = first; j <= position; j++)
        for (size_t i = 0; i < s->head_dim; i++)
            o[i] += score[j] / sum * v[j * ld + i];
    free(score);
    return top + log(sum);
}

void ref_attention(const struct ref_attention *s, const double *q, const double *k, const double *v,
                   double *o, double *lse)
{
    ref_narrow(&(struct ref_narrow){*s, NULL, 0}, q, k, v, o, lse);
}

void ref_narrow(const struct ref_narrow *shape, const double *q, const double *k, const double *v,
                double *o, double *lse)
{
    const struct ref_attention *s = &shape->of;
    size_t group = s->heads / s->kv_heads, ld = s->kv_heads * s->head_dim;
    for (size_t b = 0; b < s->batch; b++)
        for (size_t h = 0; h < s->heads; h++)
            for (size_t t = 0; t < s->seq; t++) {
                size_t row = ((b * s->seq + t) * s->heads + h) * s->head_dim;
                size_t kv = (b * s->seq * s->kv_heads + h / group) * s->head_dim;
                lse[(b * s->heads + h) * s->seq + t] =
                    attend(s, first_key(shape, b, t), t, q + row, k + kv, v + kv, ld, o + row);
            }
}

static void add_scaled(double *to, double factor, const double *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += factor * x[i];
}

void ref_attention_backward(const struct ref_attention *s, const double *q, const double *k,
                            const double *v, const double *dout, double *dq, double *dk, double *dv)
{
    ref_narrow_backward(&(struct ref_narrow){*s, NULL, 0}, q, k, v, dout, dq, dk, dv);
}

void ref_narrow_backward(const struct ref_narrow *shape, const double *q, const double *k,
                         const double *v, const double *dout, double *dq, double *dk, double *dv)
{
    const struct ref_attention *s = &shape->of;
    size_t n = s->head_dim, rows = s->batch * s->seq, ld = s->kv_heads * n;
    size_t heads = s->heads, seq = s->seq, group = heads / s->kv_heads; /* queries' of a key's */
    assert(heads > 0 && seq > 0 && group > 0);
    double *o = malloc(rows * s->heads * n * sizeof *o);
    double *lse = malloc(rows * s->heads * sizeof *lse);
    ref_narrow(shape, q, k, v, o, lse);
    for (size_t i = 0; i < rows * ld; i++)
        dk[i] = dv[i] = 0;
    for (size_t row = 0; row < rows * s->heads; row++) { /* in the order of q */
        size_t b = row / heads / seq, t = row / heads % seq, h = row % heads;
        size_t from = first_key(shape, b, t);
        size_t at = row * n, kv = (b * seq + from) * ld + h / group * n;
        double delta = ref_dot(dout + at, o + at, n);
        for (size_t i = 0; i < n; i++)
            dq[at + i] = 0;
        for (size_t j = from; j <= t; j++, kv += ld) {
            double score = s->scale * ref_dot(q + at, k + kv, n);
            double weight = exp(score - lse[(b * s->heads + h) * s->seq + t]);
            double slope = s->scale * weight * (ref_dot(dout + at, v + kv, n) - delta);
            add_scaled(dv + kv, weight, dout + at, n);
            add_scaled(dq + at, slope, k + kv, n);
            add_scaled(dk + kv, slope, q + at, n);
        }
    }
    free(o);
    free(lse);
}

void ref_swiglu(size_t count, const double *gate, const double *up, double *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
}

void ref_cross_entropy(size_t tokens, size_t vocab, const double *logits, const double *targets,
                       double *loss)
{
    for (size_t t = 0; t < tokens; t++, logits += vocab) {
        double top = -INFINITY, sum = 0;
        for (size_t j = 0; j < vocab; j++)
            top = fmax(top, logits[j]);
        for (size_t j = 0; j < vocab; j++)
            sum += exp(logits[j] - top);
        loss[t] = top + log(sum) - logits[(size_t)targets[t]];
    }
}

double ref_slope(double (*of)(void *context), void *context, double *variable, double step)
{
    double at = *variable;
    *variable = at + step;
    double above = of(context);
    *variable = at - step;
    double below = of(context);
    *variable = at;
    return (above - below) / (2 * step);
}

double ref_dot(const double *a, const double *b, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}
