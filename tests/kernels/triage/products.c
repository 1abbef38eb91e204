/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products as a model forms them, of tokens × in and a weight [out, in]: forward y = x·Wᵀ
 * (NT), dx = dy·W (NN) and dW += dyᵀ·x (TN), the last two into f32 sums.
 */
#include "triage.h"
#include <math.h>

struct product {
    size_t m, n, k;
    bool a_transposed, b_transposed, accumulate;
    struct operand *a, *b, *c;
};

/*
 * In f32 each of k additions rounds a partial sum, which is of size √k/3: k·2^-24 leaves room for
 * unlucky ones. Matrix units cut instead of rounding, always towards 0, once in 8 of k: half an ulp
 * each time of a partial sum below √k. Products of the bf16 numbers here are multiples of 2^-14, so
 * that f32 holds every sum of them exactly, but for what C held before. A product too few is one of
 * size 1/4.
 */
static double product_noise(const struct product *p)
{
    double k = (double)p->k, rounded = 0x1p-24 * (k + 8), cut = 0x1p-24 * (k / 8 + 8) * sqrt(k);
    bool uncut = p->a->dtype == HST_F32 || (p->a->dtype == HST_BF16 && !p->accumulate);
    return uncut ? rounded : fmax(rounded, cut);
}

static void check_element(struct triage *t, const struct product *p, size_t row, size_t column)
{
    size_t at = row * p->n + column;
    double want = p->accumulate ? triage_value(p->c, at) : 0, got;
    for (size_t i = 0; i < p->k; i++)
        want += triage_value(p->a, p->a_transposed ? i * p->m + row : row * p->k + i) *
                triage_value(p->b, p->b_transposed ? column * p->k + i : i * p->n + column);
    triage_read(t, p->c, at, 1, &got);
    triage_check(p->c, at, got, want, product_noise(p));
}

/* The corners, elements of the last row and of the last column, and as many between. */
static void check_elements(struct triage *t, const struct product *p)
{
    size_t rows[TRIAGE_SAMPLES], columns[TRIAGE_SAMPLES];
    size_t r = triage_samples(p->m, rows), c = triage_samples(p->n, columns);
    check_element(t, p, 0, p->n - 1);
    check_element(t, p, p->m - 1, 0);
    for (size_t i = 0; i < TRIAGE_SAMPLES; i++)
        check_element(t, p, rows[i % r], columns[i * 29 % TRIAGE_SAMPLES % c]);
    for (size_t i = 0; i < TRIAGE_SAMPLES / 4; i++) {
        check_element(t, p, p->m - 1, columns[i * 4 % c]);
        check_element(t, p, rows[i * 4 % r], p->n - 1);
    }
}

static void form(struct triage *t, const struct product *p)
{
    size_t a_ld = p->a_transposed ? p->m : p->k, b_ld = p->b_transposed ? p->k : p->n;
    struct hst_matmul args = {.m = p->m,
                              .n = p->n,
                              .k = p->k,
                              .a = {p->a->data, a_ld, p->a->dtype},
                              .b = {p->b->data, b_ld, p->b->dtype},
                              .c = {p->c->data, p->n, p->c->dtype},
                              .a_transposed = p->a_transposed,
                              .b_transposed = p->b_transposed,
                              .accumulate = p->accumulate};
    args.work = triage_work(t, hst_matmul_work_bytes(t->dev, &args));
    triage_taken(hst_op_matmul(t->stream, &args));
    triage_sync(t);
}

static void products(size_t tokens, size_t in, size_t out, enum hst_dtype dtype)
{
    struct triage *t = triage_begin();
    struct operand *x = triage_input(t, "x", tokens, in, dtype);
    struct operand *w = triage_input(t, "W", out, in, dtype);
    struct operand *dy = triage_input(t, "dy", tokens, out, dtype);
    const struct product all[3] = {
        {tokens, out, in, false, true, false, x, w, triage_output(t, "y", tokens, out, dtype)},
        {tokens, in, out, false, false, false, dy, w, triage_output(t, "dx", tokens, in, HST_F32)},
        {out, in, tokens, true, false, true, dy, x, triage_input(t, "dW", out, in, HST_F32)}};
    for (size_t i = 0; i < 3; i++) {
        form(t, &all[i]);
        check_elements(t, &all[i]);
    }
    triage_end(t);
}

static void matmul_small_of(enum triage_size size, enum hst_dtype dtype)
{
    struct triage_shape s = triage_shape(size);
    products(s.tokens, s.hidden, s.ffn, dtype);
}

static void matmul_attention_of(enum triage_size size, enum hst_dtype dtype)
{
    struct triage_shape s = triage_shape(size);
    products(s.tokens, s.hidden, s.hidden, dtype);
}

static void matmul_up_of(enum triage_size size, enum hst_dtype dtype)
{
    struct triage_shape s = triage_shape(size);
    products(s.tokens, s.hidden, s.ffn, dtype);
}

static void matmul_down_of(enum triage_size size, enum hst_dtype dtype)
{
    struct triage_shape s = triage_shape(size);
    products(s.tokens, s.ffn, s.hidden, dtype);
}

static void matmul_head_of(enum triage_size size, enum hst_dtype dtype)
{
    struct triage_shape s = triage_shape(size);
    products(s.tokens, s.hidden, s.vocab, dtype);
}

/* A y and a dy of more than 2^31 elements; few columns of x, so that it costs little. */
static void matmul_beyond_of(enum triage_size size, enum hst_dtype dtype)
{
    struct triage_shape s = triage_shape(size);
    products(s.rows_of_logits, 64, s.vocab, dtype);
}

#define PRODUCT_TESTS(OP, CASE, SIZE)                                                              \
    TRIAGE_TEST(OP##_f32, CASE, SIZE, HST_F32)                                                     \
    TRIAGE_TEST(OP##_bf16, CASE, SIZE, HST_BF16)                                                   \
    TRIAGE_TEST(OP##_f16, CASE, SIZE, HST_F16)
#define PRODUCT_LIST(OP)                                                                           \
    cmocka_unit_test(OP##_f32), cmocka_unit_test(OP##_bf16), cmocka_unit_test(OP##_f16)

PRODUCT_TESTS(matmul_small, matmul_small_of, TRIAGE_SMALL)
PRODUCT_TESTS(matmul_attention_real_shape, matmul_attention_of, TRIAGE_REAL)
PRODUCT_TESTS(matmul_up_real_shape, matmul_up_of, TRIAGE_REAL)
PRODUCT_TESTS(matmul_down_real_shape, matmul_down_of, TRIAGE_REAL)
PRODUCT_TESTS(matmul_head_real_shape, matmul_head_of, TRIAGE_REAL)
TRIAGE_TEST(matmul_beyond_2_31_bf16, matmul_beyond_of, TRIAGE_BEYOND, HST_BF16)

struct triage_tests triage_product_tests(void)
{
    static const struct CMUnitTest tests[] = {
        PRODUCT_LIST(matmul_small),           PRODUCT_LIST(matmul_attention_real_shape),
        PRODUCT_LIST(matmul_up_real_shape),   PRODUCT_LIST(matmul_down_real_shape),
        PRODUCT_LIST(matmul_head_real_shape), cmocka_unit_test(matmul_beyond_2_31_bf16),
    };
    return (struct triage_tests){tests, sizeof tests / sizeof *tests};
}
