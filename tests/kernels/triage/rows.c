/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on rows of tokens: RMSNorm, a bias, rotary embedding. */
#include "triage.h"
#include <math.h>

static const double eps = 0x1p-17;

/* What an f32 sum of as many terms below 1 may be off by: each addition rounds a partial sum, which
 * is of size √n/3 in most cases and is given √n here, at random. */
static double sum_noise(size_t terms)
{
    return 0x1p-24 * (double)(terms + 8);
}

/* Sampled columns for a sum over all tokens; where those are many, each ninth: the last is the
 * 63rd. */
static size_t column_samples(size_t tokens, size_t columns, size_t *samples)
{
    size_t count = triage_samples(columns, samples), kept = 0;
    if (tokens <= 65536 || count < TRIAGE_SAMPLES)
        return count;
    for (size_t i = 0; i < count; i += 9)
        samples[kept++] = samples[i];
    return kept;
}

/* The rounded sum takes x's place: it is exact in none of the dtypes, so it is read back. */
static void check_rmsnorm_row(struct triage *t, size_t row, struct operand *const o[6])
{
    struct operand *x = o[0], *weight = o[1], *y = o[2], *rstd = o[3], *residual = o[4],
                   *sum = o[5];
    size_t width = x->columns, first = row * width;
    double *in = triage_doubles(width), *out = triage_doubles(width), r, squares = 0;
    double longer = 1 + (double)width / 4096; /* sums of more terms lose more */
    for (size_t i = 0; i < width; i++)
        in[i] = triage_value(x, first + i);
    if (sum) {
        triage_read(t, sum, first, width, out);
        for (size_t i = 0; i < width; i++) {
            in[i] += triage_value(residual, first + i);
            triage_check_exact(sum, first + i, out[i], round_to(sum->dtype, in[i]));
            in[i] = round_to(sum->dtype, in[i]);
        }
    }
    for (size_t i = 0; i < width; i++)
        squares += in[i] * in[i];
    double scale = 1 / sqrt(squares / (double)width + eps);
    triage_read(t, rstd, row, 1, &r);
    triage_check(rstd, row, r, scale, 2e-6 * longer * scale);
    triage_read(t, y, first, width, out);
    for (size_t i = 0; i < width; i++)
        triage_check(y, first + i, out[i], in[i] * scale * triage_value(weight, i), 4e-6 * longer);
}

static void rmsnorm_of(enum triage_size size, enum hst_dtype dtype, bool with_residual)
{
    struct triage *t = triage_begin();
    struct triage_shape shape = triage_shape(size);
    size_t tokens = shape.tokens, width = shape.hidden, samples[TRIAGE_SAMPLES];
    struct operand *o[6] = {
        triage_input(t, "x", tokens, width, dtype), triage_input(t, "weight", 1, width, dtype),
        triage_output(t, "y", tokens, width, dtype), triage_output(t, "rstd", tokens, 1, HST_F32)};
    if (with_residual) {
        o[4] = triage_input(t, "residual", tokens, width, dtype);
        o[5] = triage_output(t, "sum", tokens, width, dtype);
    }
    triage_taken(hst_op_rmsnorm(t->stream,
                                &(struct hst_rmsnorm){.tokens = tokens,
                                                      .width = width,
                                                      .dtype = dtype,
                                                      .eps = (float)eps,
                                                      .x = o[0]->data,
                                                      .weight = o[1]->data,
                                                      .y = o[2]->data,
                                                      .rstd = o[3]->data,
                                                      .residual = with_residual ? o[4]->data : NULL,
                                                      .sum = with_residual ? o[5]->data : NULL}));
    triage_sync(t);
    size_t count = triage_samples(tokens, samples);
    for (size_t i = 0; i < count; i++)
        check_rmsnorm_row(t, samples[i], o);
    triage_end(t);
}

static void rmsnorm(enum triage_size size, enum hst_dtype dtype)
{
    rmsnorm_of(size, dtype, false);
}

static void rmsnorm_residual(enum triage_size size, enum hst_dtype dtype)
{
    rmsnorm_of(size, dtype, true);
}

struct norm_backward {
    struct operand *x, *weight, *dy, *rstd, *dx, *dweight;
};

/* rstd is any number here: the formula does not ask where it comes from. */
static void check_dx(struct triage *t, const struct norm_backward *o, size_t row)
{
    size_t width = o->x->columns, first = row * width;
    double *got = triage_doubles(width), r = triage_value(o->rstd, row), mean = 0;
    for (size_t i = 0; i < width; i++)
        mean += triage_value(o->weight, i) * triage_value(o->dy, first + i) *
                triage_value(o->x, first + i) / (double)width;
    triage_read(t, o->dx, first, width, got);
    for (size_t i = 0; i < width; i++) {
        double x = triage_value(o->x, first + i);
        double own =
            r * (triage_value(o->weight, i) * triage_value(o->dy, first + i) - x * r * r * mean);
        /* all terms are below 1, and so is what an f32 mean is off by beside its own size */
        triage_check(o->dx, first + i, got[i], triage_value(o->dx, first + i) + own, 2e-6);
    }
}

static void check_dweight(struct triage *t, const struct norm_backward *o, size_t column)
{
    size_t width = o->x->columns, tokens = o->x->rows;
    double got, want = triage_value(o->dweight, column);
    for (size_t row = 0; row < tokens; row++)
        want += triage_value(o->dy, row * width + column) *
                triage_value(o->x, row * width + column) * triage_value(o->rstd, row);
    triage_read(t, o->dweight, column, 1, &got);
    triage_check(o->dweight, column, got, want, sum_noise(tokens));
}

static void rmsnorm_backward(enum triage_size size, enum hst_dtype dtype)
{
    struct triage *t = triage_begin();
    struct triage_shape shape = triage_shape(size);
    size_t tokens = shape.tokens, width = shape.hidden, samples[TRIAGE_SAMPLES];
    struct norm_backward o = {
        triage_input(t, "x", tokens, width, dtype),  triage_input(t, "weight", 1, width, dtype),
        triage_input(t, "dy", tokens, width, dtype), triage_positive(t, "rstd", tokens, 1),
        triage_input(t, "dx", tokens, width, dtype), triage_input(t, "dweight", 1, width, HST_F32)};
    struct hst_rmsnorm_backward args = {
        .tokens = tokens,
        .width = width,
        .dtype = dtype,
        .x = o.x->data,
        .weight = o.weight->data,
        .dy = o.dy->data,
        .rstd = o.rstd->data,
        .dx = o.dx->data,
        .dweight = o.dweight->data,
        .accumulate = true,
        .work = triage_work(t, hst_rmsnorm_backward_work_bytes(t->dev, tokens, width))};
    triage_taken(hst_op_rmsnorm_backward(t->stream, &args));
    triage_sync(t);
    size_t count = triage_samples(tokens, samples);
    for (size_t i = 0; i < count; i++)
        check_dx(t, &o, samples[i]);
    count = column_samples(tokens, width, samples);
    for (size_t i = 0; i < count; i++)
        check_dweight(t, &o, samples[i]);
    triage_end(t);
}

static void bias(enum triage_size size, enum hst_dtype dtype)
{
    struct triage *t = triage_begin();
    struct triage_shape shape = triage_shape(size);
    size_t tokens = shape.tokens, width = shape.hidden, samples[TRIAGE_SAMPLES];
    struct operand *x = triage_input(t, "x", tokens, width, dtype);
    struct operand *b = triage_input(t, "bias", 1, width, dtype);
    double *got = triage_doubles(width);
    triage_taken(
        hst_op_bias(t->stream, &(struct hst_bias){tokens, width, dtype, x->data, b->data}));
    triage_sync(t);
    size_t count = triage_samples(tokens, samples);
    for (size_t i = 0; i < count; i++) {
        triage_read(t, x, samples[i] * width, width, got);
        for (size_t c = 0; c < width; c++) {
            size_t at = samples[i] * width + c;
            double want = triage_value(x, at) + triage_value(b, c);
            triage_check_exact(x, at, got[c], round_to(dtype, want));
        }
    }
    triage_end(t);
}

static void bias_backward(enum triage_size size, enum hst_dtype dtype)
{
    struct triage *t = triage_begin();
    struct triage_shape shape = triage_shape(size);
    size_t tokens = shape.tokens, width = shape.hidden, samples[TRIAGE_SAMPLES];
    struct operand *dy = triage_input(t, "dy", tokens, width, dtype);
    struct operand *dbias = triage_input(t, "dbias", 1, width, HST_F32);
    struct hst_bias_backward args = {tokens, width, dtype, dy->data, dbias->data, {0}};
    args.work = triage_work(t, hst_bias_backward_work_bytes(t->dev, tokens, width));
    triage_taken(hst_op_bias_backward(t->stream, &args));
    triage_sync(t);
    size_t count = column_samples(tokens, width, samples);
    for (size_t i = 0; i < count; i++) {
        double got, want = triage_value(dbias, samples[i]);
        for (size_t row = 0; row < tokens; row++)
            want += triage_value(dy, row * width + samples[i]);
        triage_read(t, dbias, samples[i], 1, &got);
        triage_check(dbias, samples[i], got, want, sum_noise(tokens));
    }
    triage_end(t);
}

struct rope {
    struct operand *x, *cosine, *sine;
    size_t seq, heads, head_dim;
    double sign;
};

/* cos and sin are any numbers of [-1, 1) here, so that a place taken for another shows. */
static void check_rope_row(struct triage *t, const struct rope *o, size_t row)
{
    size_t half = o->head_dim / 2, width = o->heads * o->head_dim;
    double *got = triage_doubles(width);
    triage_read(t, o->x, row * width, width, got);
    for (size_t i = 0; i < o->heads * half; i++) {
        size_t low = i / half * o->head_dim + i % half, angle = row % o->seq * half + i % half;
        double c = triage_value(o->cosine, angle), s = o->sign * triage_value(o->sine, angle);
        double a = triage_value(o->x, row * width + low);
        double b = triage_value(o->x, row * width + low + half);
        triage_check(o->x, row * width + low, got[low], a * c - b * s, 0x1p-22);
        triage_check(o->x, row * width + low + half, got[low + half], b * c + a * s, 0x1p-22);
    }
}

static void rope_of(enum triage_size size, enum hst_dtype dtype, bool inverse)
{
    struct triage *t = triage_begin();
    struct triage_shape shape = triage_shape(size);
    size_t half = shape.head_dim / 2, width = shape.heads * shape.head_dim;
    size_t samples[TRIAGE_SAMPLES];
    struct rope o = {triage_input(t, "x", shape.tokens, width, dtype),
                     triage_input(t, "cos", shape.seq, half, HST_F32),
                     triage_input(t, "sin", shape.seq, half, HST_F32),
                     shape.seq,
                     shape.heads,
                     shape.head_dim,
                     inverse ? -1 : 1};
    triage_taken(hst_op_rope(
        t->stream, &(struct hst_rope){shape.batch, shape.seq, shape.heads, shape.head_dim, dtype,
                                      o.x->data, o.cosine->data, o.sine->data, inverse, NULL}));
    triage_sync(t);
    size_t count = triage_samples(shape.tokens, samples);
    for (size_t i = 0; i < count; i++)
        check_rope_row(t, &o, samples[i]);
    triage_end(t);
}

static void rope(enum triage_size size, enum hst_dtype dtype)
{
    rope_of(size, dtype, false);
}

static void rope_inverse(enum triage_size size, enum hst_dtype dtype)
{
    rope_of(size, dtype, true);
}

TRIAGE_TESTS(rmsnorm)
TRIAGE_TESTS(rmsnorm_residual)
TRIAGE_TESTS(rmsnorm_backward)
TRIAGE_TESTS(bias)
TRIAGE_TESTS(bias_backward)
TRIAGE_TESTS(rope)
TRIAGE_TESTS(rope_inverse)

struct triage_tests triage_row_tests(void)
{
    static const struct CMUnitTest tests[] = {
        TRIAGE_LIST(rmsnorm),      TRIAGE_LIST(rmsnorm_residual), TRIAGE_LIST(rmsnorm_backward),
        TRIAGE_LIST(bias),         TRIAGE_LIST(bias_backward),    TRIAGE_LIST(rope),
        TRIAGE_LIST(rope_inverse),
    };
    return (struct triage_tests){tests, sizeof tests / sizeof *tests};
}
