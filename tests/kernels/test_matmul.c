/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of every layout and dtype against float64 sums. */
#include "reference.h"
#include "suite.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct shape {
    size_t m, n, k;
    enum hst_dtype in, out;
    bool a_transposed, b_transposed, accumulate;
    size_t pad;   /* leading dimensions beyond the rows' width */
    size_t shift; /* where matrices begin */
};

static void *place(const struct tensor *tensor, size_t element)
{
    return (char *)tensor->data + element * hst_dtype_bytes(tensor->dtype);
}

static void product_case(struct suite *s, const void *parameters)
{
    const struct shape *p = parameters;
    size_t a_rows = p->a_transposed ? p->k : p->m, a_ld = (p->a_transposed ? p->m : p->k) + p->pad;
    size_t b_rows = p->b_transposed ? p->n : p->k, b_ld = (p->b_transposed ? p->k : p->n) + p->pad;
    size_t c_ld = p->n + p->pad;
    struct tensor *a = tensor_random(s, a_rows * a_ld + p->shift, p->in, 1);
    struct tensor *b = tensor_random(s, b_rows * b_ld + p->shift, p->in, 1);
    struct tensor *c = tensor_random(s, p->m * c_ld + p->shift, p->out, 1);
    double *want = malloc(c->count * sizeof *want + 1);
    assert_non_null(want);
    memcpy(want, c->values, c->count * sizeof *want);
    for (size_t i = 0; i < p->m * p->n && !p->accumulate; i++) {
        want[p->shift + i / p->n * c_ld + i % p->n] = 0;
        c->values[p->shift + i / p->n * c_ld + i % p->n] = NAN; /* must not matter */
    }
    tensor_write(s, c);
    struct hst_matmul args = {.m = p->m,
                              .n = p->n,
                              .k = p->k,
                              .a = {place(a, p->shift), a_ld, p->in},
                              .b = {place(b, p->shift), b_ld, p->in},
                              .c = {place(c, p->shift), c_ld, p->out},
                              .a_transposed = p->a_transposed,
                              .b_transposed = p->b_transposed,
                              .accumulate = p->accumulate};
    args.work = suite_work(s, hst_matmul_work_bytes(s->dev, &args));
    assert_int_equal(hst_op_matmul(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, c);
    ref_matmul(p->m, p->n, p->k, a->values + p->shift, a_ld, p->a_transposed, b->values + p->shift,
               b_ld, p->b_transposed, want + p->shift, c_ld);
    /* Each of k additions rounds a partial sum, which is of size √k/3: k·2^-24 leaves room for
       unlucky ones. Tensor cores cut off instead, once in eight terms, half a unit of the sum in
       the mean and always towards 0: k/8·2^-24 of √k. The columns beyond n are in want as they
       were: they must not change. */
    bool cuts = p->in != HST_F32 && !(hst_dev_flags(s->dev) & HST_DEV_HOST_MEMORY);
    double cut = cuts ? sqrt((double)p->k) / 8 : 1;
    expect_close("c", c, want, 0x1p-24 * (double)(p->k + 8) * fmax(1, cut));
    free(want);
}

/* What is offered. */
static const struct {
    enum hst_dtype in, out;
} pairs[] = {{HST_F32, HST_F32},
             {HST_BF16, HST_BF16},
             {HST_BF16, HST_F32},
             {HST_F16, HST_F16},
             {HST_F16, HST_F32}};
enum { PAIRS = sizeof pairs / sizeof *pairs };

static void every_layout_and_dtype_matches(void **state)
{
    (void)state;
    static const struct {
        size_t m, n, k, pad;
    } sizes[] = {{1, 1, 1, 0},     {5, 7, 3, 0},     {16, 16, 16, 4},   {33, 65, 129, 3},
                 {257, 31, 64, 0}, {64, 300, 17, 8}, {128, 128, 128, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t pair = 0; pair < PAIRS; pair++)
            for (int bits = 0; bits < 4; bits++)
                suite_run(product_case, &(struct shape){sizes[i].m, sizes[i].n, sizes[i].k,
                                                        pairs[pair].in, pairs[pair].out, bits & 1,
                                                        bits & 2, false, sizes[i].pad, 0});
}

/* Where vectors would do but for the place: by leading dimensions of whole vectors. */
static void matrices_begin_at_any_element(void **state)
{
    (void)state;
    for (size_t pair = 0; pair < PAIRS; pair++)
        for (int bits = 0; bits < 4; bits++)
            for (size_t shift = 1; shift <= 4; shift *= 2)
                suite_run(product_case,
                          &(struct shape){72, 136, 40, pairs[pair].in, pairs[pair].out, bits & 1,
                                          bits & 2, pairs[pair].out == HST_F32, 0, shift});
}

static void accumulating_adds_to_an_f32_c(void **state)
{
    (void)state;
    for (size_t i = 0; i < DTYPES; i++)
        for (size_t k = 1; k < 200; k += 99)
            suite_run(product_case, &(struct shape){70, 40, k, suite_dtypes[i], HST_F32, true,
                                                    false, true, 5, 0});
}

static void many_blocks_and_a_deep_k_match(void **state)
{
    (void)state;
    suite_run(product_case,
              &(struct shape){1030, 530, 24, HST_F32, HST_F32, false, true, false, 0, 0});
    for (enum hst_dtype in = HST_BF16; in <= HST_F16; in++) {
        suite_run(product_case, &(struct shape){520, 530, 24, in, in, true, true, false, 0, 0});
        suite_run(product_case, &(struct shape){20, 30, 4100, in, in, true, false, false, 0, 0});
        suite_run(product_case, &(struct shape){520, 530, 1030, in, in, false, false, false, 0, 0});
        suite_run(product_case,
                  &(struct shape){20, 30, 4100, in, HST_F32, false, true, true, 0, 0});
    }
}

/* Three at once, one operand being the same for all; C's have a gap between them. */
struct batch {
    struct shape shape;
    bool one_a, one_b;
};
enum { BATCH = 3 };

static size_t whole_vectors(size_t elements)
{
    return (elements + 7) / 8 * 8;
}

/* Where no library chooses by the shape, a batch leaves what single calls leave. */
static void expect_bytes_of_single_calls(struct suite *s, struct hst_matmul args,
                                         const struct tensor *start, const struct tensor *got)
{
    struct hst_dev_info info;
    struct tensor *c = tensor_empty(s, got->count, got->dtype);
    hst_dev_info(s->dev, &info);
    if (strstr(info.libraries, "cuBLASLt"))
        return;
    memcpy(c->values, start->values, c->count * sizeof *c->values);
    tensor_write(s, c);
    char *from_c = c->data, *from_a = args.a.data, *from_b = args.b.data;
    size_t in = hst_dtype_bytes(args.a.dtype), out = hst_dtype_bytes(args.c.dtype);
    args.batch = 0;
    for (size_t i = 0; i < BATCH; i++) {
        args.a.data = from_a + i * args.a_step * in;
        args.b.data = from_b + i * args.b_step * in;
        args.c.data = from_c + i * args.c_step * out;
        assert_int_equal(hst_op_matmul(s->stream, &args), 0);
    }
    suite_sync(s);
    tensor_read(s, c);
    assert_memory_equal(c->values, got->values, c->count * sizeof *c->values);
}

static void batch_case(struct suite *s, const void *parameters)
{
    const struct batch *b = parameters;
    const struct shape *p = &b->shape;
    size_t a_ld = (p->a_transposed ? p->m : p->k) + p->pad, c_ld = p->n + p->pad;
    size_t b_ld = (p->b_transposed ? p->k : p->n) + p->pad;
    size_t a_step = whole_vectors((p->a_transposed ? p->k : p->m) * a_ld);
    size_t b_step = whole_vectors((p->b_transposed ? p->n : p->k) * b_ld);
    size_t c_step = whole_vectors(p->m * c_ld + 1);
    struct tensor *x = tensor_random(s, BATCH * a_step + 8, p->in, 1);
    struct tensor *y = tensor_random(s, BATCH * b_step + 8, p->in, 1);
    struct tensor *c = tensor_random(s, BATCH * c_step, p->out, 1);
    struct tensor *start = tensor_random(s, BATCH * c_step, p->out, 1);
    double *want = malloc(c->count * sizeof *want);
    assert_non_null(want);
    memcpy(want, c->values, c->count * sizeof *want);
    memcpy(start->values, c->values, c->count * sizeof *want);
    struct hst_matmul args = {.m = p->m,
                              .n = p->n,
                              .k = p->k,
                              .a = {x->data, a_ld, p->in},
                              .b = {y->data, b_ld, p->in},
                              .c = {c->data, c_ld, p->out},
                              .a_transposed = p->a_transposed,
                              .b_transposed = p->b_transposed,
                              .accumulate = p->accumulate,
                              .batch = BATCH,
                              .a_step = b->one_a ? 0 : a_step,
                              .b_step = b->one_b ? 0 : b_step,
                              .c_step = c_step};
    args.work = suite_work(s, hst_matmul_work_bytes(s->dev, &args));
    assert_int_equal(hst_op_matmul(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, c);
    for (size_t i = 0; i < BATCH; i++) {
        double *to = want + i * c_step;
        for (size_t j = 0; j < p->m * p->n && !p->accumulate; j++)
            to[j / p->n * c_ld + j % p->n] = 0;
        ref_matmul(p->m, p->n, p->k, x->values + i * args.a_step, a_ld, p->a_transposed,
                   y->values + i * args.b_step, b_ld, p->b_transposed, to, c_ld);
    }
    expect_close("c", c, want, 0x1p-24 * (double)(p->k + 8));
    expect_bytes_of_single_calls(s, args, start, c);
    free(want);
}

static void a_batch_is_so_many_products(void **state)
{
    (void)state;
    for (size_t pair = 0; pair < PAIRS; pair++)
        for (int bits = 0; bits < 4; bits++) {
            const struct shape shape = {37,       72,       40,    pairs[pair].in, pairs[pair].out,
                                        bits & 1, bits & 2, false, bits,           0};
            suite_run(batch_case, &(struct batch){shape, true, false});
            suite_run(batch_case, &(struct batch){shape, false, true});
        }
    for (size_t i = 0; i < DTYPES; i++) {
        const struct shape large = {300,  280, 24, suite_dtypes[i], HST_F32, true, false,
                                    true, 0,   0};
        const struct shape empty = {9, 20, 0, suite_dtypes[i], HST_F32, false, true, false, 2, 0};
        suite_run(batch_case, &(struct batch){large, false, true});
        suite_run(batch_case, &(struct batch){large, false, false});
        suite_run(batch_case, &(struct batch){empty, false, true});
    }
}

static void an_empty_sum_is_zero(void **state)
{
    (void)state;
    for (int form = 0; form < 2 * DTYPES; form++) {
        enum hst_dtype dtype = suite_dtypes[form % DTYPES];
        suite_run(product_case,
                  &(struct shape){9, 20, 0, dtype, dtype, form / DTYPES, true, false, 2, 0});
    }
    suite_run(product_case, &(struct shape){9, 20, 0, HST_F32, HST_F32, false, true, true, 0, 0});
}

/* 16 products of 100·100: beyond f16, not beyond f32. */
static void overflow_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    struct tensor *a = tensor_filled(s, 256, HST_F16, 100),
                  *b = tensor_filled(s, 256, HST_F16, 100);
    for (size_t i = 128; i < 256; i++)
        a->values[i] = -100;
    tensor_write(s, a);
    for (enum hst_dtype out = HST_F32; out <= HST_F16; out += HST_F16 - HST_F32) {
        struct tensor *c = tensor_empty(s, 256, out);
        struct hst_matmul args = {.m = 16,
                                  .n = 16,
                                  .k = 16,
                                  .a = {a->data, 16, HST_F16},
                                  .b = {b->data, 16, HST_F16},
                                  .c = {c->data, 16, out}};
        args.work = suite_work(s, hst_matmul_work_bytes(s->dev, &args));
        assert_int_equal(hst_op_matmul(s->stream, &args), 0);
        suite_sync(s);
        tensor_read(s, c);
        for (size_t i = 0; i < 256; i++)
            assert_true(c->values[i] ==
                        (out == HST_F32 ? 160000.0 : INFINITY) * (i < 128 ? 1 : -1));
    }
}

static void a_sum_beyond_f16_is_infinite_in_f16_alone(void **state)
{
    (void)state;
    suite_run(overflow_case, NULL);
}

static void nothing_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    struct hst_matmul args = {.m = 0,
                              .n = 5,
                              .k = 5,
                              .a = {NULL, 5, HST_F32},
                              .b = {NULL, 5, HST_F32},
                              .c = {NULL, 5, HST_F32}};
    assert_int_equal(hst_op_matmul(s->stream, &args), 0);
    args.m = 5;
    args.n = 0;
    assert_int_equal(hst_op_matmul(s->stream, &args), 0);
    suite_sync(s);
    tensor_read(s, tensor_filled(s, 1, HST_F32, 1));
}

static void a_product_without_rows_or_columns_does_nothing(void **state)
{
    (void)state;
    suite_run(nothing_case, NULL);
}

/* Operands that are subnormal count as what they are, or as zero: by 16 of at most 2^-126 each. */
static void subnormal_case(struct suite *s, const void *parameters)
{
    enum { SIDE = 16 };
    (void)parameters;
    struct tensor *a = tensor_random(s, SIDE * SIDE, HST_BF16, 0x1p-127);
    struct tensor *b = tensor_random(s, SIDE * SIDE, HST_BF16, 1);
    for (enum hst_dtype out = HST_F32; out <= HST_BF16; out++) {
        struct tensor *c = tensor_empty(s, SIDE * SIDE, out);
        double want[SIDE * SIDE] = {0};
        struct hst_matmul args = {.m = SIDE,
                                  .n = SIDE,
                                  .k = SIDE,
                                  .a = {a->data, SIDE, HST_BF16},
                                  .b = {b->data, SIDE, HST_BF16},
                                  .c = {c->data, SIDE, out}};
        args.work = suite_work(s, hst_matmul_work_bytes(s->dev, &args));
        assert_int_equal(hst_op_matmul(s->stream, &args), 0);
        suite_sync(s);
        tensor_read(s, c);
        ref_matmul(SIDE, SIDE, SIDE, a->values, SIDE, false, b->values, SIDE, false, want, SIDE);
        expect_close("c", c, want, SIDE * 0x1p-126);
    }
}

static void subnormal_bf16_counts_as_itself_or_as_zero(void **state)
{
    (void)state;
    suite_run(subnormal_case, NULL);
}

struct placed {
    enum hst_dtype dtype;
    size_t shift;
};

/* cuBLASLt may choose by alignment, up to 16 bytes. */
static bool place_may_matter(struct suite *s, const struct placed *p)
{
    char math[HST_DEV_MATH_BYTES];
    hst_dev_math(s->dev, math, sizeof math);
    return strstr(math, "cuBLASLt") && p->shift * hst_dtype_bytes(p->dtype) % 16;
}

/* The same numbers, once at 64 bytes and once some elements beyond: the same bytes come out. */
static void alignment_case(struct suite *s, const void *parameters)
{
    enum { M = 72, N = 96, K = 136 };
    const struct placed *p = parameters;
    struct tensor *a = tensor_random(s, M * K + p->shift, p->dtype, 1), *c[2];
    struct tensor *b = tensor_random(s, N * K + p->shift, p->dtype, 1);
    for (size_t i = 0; i < 2; i++) {
        const size_t shift = i * p->shift;
        c[i] = tensor_filled(s, M * N + p->shift, p->dtype, 0);
        if (shift) {
            memmove(a->values + shift, a->values, (size_t)M * K * sizeof(double));
            memmove(b->values + shift, b->values, (size_t)N * K * sizeof(double));
            tensor_write(s, a);
            tensor_write(s, b);
        }
        struct hst_matmul args = {.m = M,
                                  .n = N,
                                  .k = K,
                                  .b_transposed = true,
                                  .a = {place(a, shift), K, p->dtype},
                                  .b = {place(b, shift), K, p->dtype},
                                  .c = {place(c[i], shift), N, p->dtype}};
        args.work = suite_work(s, hst_matmul_work_bytes(s->dev, &args));
        assert_int_equal(hst_op_matmul(s->stream, &args), 0);
        suite_sync(s);
        tensor_read(s, c[i]);
    }
    if (!place_may_matter(s, p))
        assert_memory_equal(c[0]->values, c[1]->values + p->shift, (size_t)M * N * sizeof(double));
}

static void alignment_leaves_the_bytes_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < DTYPES; i++)
        for (size_t shift = 1; shift <= 8; shift *= 2)
            suite_run(alignment_case, &(struct placed){suite_dtypes[i], shift});
}

static void workspace_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    size_t last = 0;
    for (size_t x = 1; x < 1200; x += 7) {
        struct hst_matmul args = {.m = x,
                                  .n = x + 3,
                                  .k = 2 * x,
                                  .a.dtype = HST_BF16,
                                  .b.dtype = HST_BF16,
                                  .c.dtype = HST_BF16};
        size_t bytes = hst_matmul_work_bytes(s->dev, &args);
        assert_true(bytes >= last);
        last = bytes;
    }
    tensor_read(s, tensor_filled(s, 1, HST_F32, 1));
}

static void workspace_never_shrinks_as_shapes_grow(void **state)
{
    (void)state;
    suite_run(workspace_case, NULL);
}

static void refusals_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    struct tensor *t = tensor_filled(s, 1024, HST_F32, 3);
    const struct hst_matmul good = {.m = 4,
                                    .n = 4,
                                    .k = 4,
                                    .a = {t->data, 4, HST_BF16},
                                    .b = {t->data, 4, HST_BF16},
                                    .c = {t->data, 4, HST_BF16},
                                    .work = {t->data, 4096}};
    struct hst_matmul bad[19];
    for (size_t i = 0; i < 19; i++)
        bad[i] = good;
    for (size_t i = 14; i < 19; i++) {
        bad[i].batch = 2;
        bad[i].a_step = bad[i].b_step = bad[i].c_step = 16;
    }
    bad[0].a.data = NULL;
    bad[1].b.data = (char *)t->data + 1;
    bad[2].c.data = NULL;
    bad[3].a.ld = 3;
    bad[4].b.ld = 3;
    bad[5].c.ld = 3;
    bad[6].a.dtype = HST_F32;
    bad[7].c.dtype = 7;
    bad[8].accumulate = true;
    bad[9].work.size_bytes = hst_matmul_work_bytes(s->dev, &good) - 1;
    bad[10].work.data = NULL;
    bad[11].m = SIZE_MAX / 2;
    bad[12].k = SIZE_MAX;
    bad[13].a.dtype = bad[13].b.dtype = bad[13].c.dtype = 0;
    bad[14].a_step = 17;
    bad[15].b_step = 17;
    bad[16].c_step = 17;
    bad[17].c_step = 8; /* the second C begins in the first */
    bad[18].batch = SIZE_MAX / 16;
    bool works = hst_matmul_work_bytes(s->dev, &good) > 0; /* else 9 and 10 are as good */
    for (size_t i = 0; i < 19; i++)
        if (works || (i != 9 && i != 10))
            assert_int_equal(hst_op_matmul(s->stream, &bad[i]), -EINVAL);
    assert_int_equal(hst_op_matmul(s->stream, NULL), -EINVAL);
    assert_int_equal(hst_op_matmul(NULL, &good), -EINVAL);
    expect_everywhere(s, t, 3);
}

static void wrong_arguments_are_refused_and_touch_nothing(void **state)
{
    (void)state;
    suite_run(refusals_case, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_and_dtype_matches),
        cmocka_unit_test(matrices_begin_at_any_element),
        cmocka_unit_test(accumulating_adds_to_an_f32_c),
        cmocka_unit_test(many_blocks_and_a_deep_k_match),
        cmocka_unit_test(a_batch_is_so_many_products),
        cmocka_unit_test(an_empty_sum_is_zero),
        cmocka_unit_test(a_sum_beyond_f16_is_infinite_in_f16_alone),
        cmocka_unit_test(subnormal_bf16_counts_as_itself_or_as_zero),
        cmocka_unit_test(a_product_without_rows_or_columns_does_nothing),
        cmocka_unit_test(alignment_leaves_the_bytes_alone),
        cmocka_unit_test(workspace_never_shrinks_as_shapes_grow),
        cmocka_unit_test(wrong_arguments_are_refused_and_touch_nothing),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
