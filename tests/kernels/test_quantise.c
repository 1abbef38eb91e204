/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantised values: on every device the bytes of the definition, worked out here in float64 and
 * with remainders that are exact, and values back within the bounds that quantise.h promises. Over
 * all exponents, zeros, one outlier, ties, and what is not finite.
 */
#include "half.h"
#include "suite.h"

#include <errno.h>
#include <float.h>

/* As many blocks as f32 has exponents, and some. */
enum { BLOCK = HST_QUANT_BLOCK, FEW = 8 * BLOCK, ALL = 280 * BLOCK, ROOM = ALL + 77 };

/* How a block's values are made; the last of them in each block, with numbers that are not. */
enum filling { PLAIN, EXPONENTS, ZEROS, OUTLIER, TIES, TINY, GREATEST, FILLINGS };

struct parameters {
    enum hst_quant bits;
    enum filling filling;
    size_t count;
};

static double most_of(enum hst_quant bits)
{
    return bits == HST_INT8 ? 127 : 7;
}

static uint32_t random_bits(struct suite *s)
{
    return (uint32_t)((suite_random(s) + 1) * 0x1p31);
}

/* Block by block another exponent, from the least subnormal to the greatest number. */
static double of_exponents(struct suite *s, enum hst_dtype dtype, size_t block)
{
    const int least = dtype == HST_F16 ? -24 : dtype == HST_BF16 ? -133 : -149;
    const int span = dtype == HST_F16 ? 39 : 127 - least;
    const int exponent = least + (int)(block % (size_t)(span + 1));
    return ldexp(suite_random(s), exponent);
}

static double value_of(struct suite *s, const struct parameters *p, enum hst_dtype dtype, size_t i)
{
    const double tie =
        (double)(random_bits(s) % (unsigned)(2 * most_of(p->bits))) - most_of(p->bits);
    switch (p->filling) {
    case EXPONENTS:
        return of_exponents(s, dtype, i / BLOCK);
    case ZEROS:
        return i / BLOCK % 2 ? suite_random(s) : i % 3 ? 0.0 : -0.0;
    case OUTLIER:
        return i % BLOCK == 101 ? -1000 : suite_random(s) * 0x1p-6;
    case TIES: /* the scale is 1, or a power of two: quotients are halves */
        return i % BLOCK == 7 ? most_of(p->bits) : tie + 0.5;
    case TINY:
        return suite_random(s) * 0x1p-120;
    case GREATEST: /* times the scale that division has, 127 is an infinity */
        return i % BLOCK == 33 && dtype == HST_F32 ? -FLT_MAX : suite_random(s);
    default:
        return suite_random(s);
    }
}

/* s, by float64: of two floats a quotient is no tie between floats there unless it is one. */
static float scale_of(const double *values, size_t n, double most)
{
    double absmax = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i]))
            return NAN;
        absmax = fmax(absmax, fabs(values[i]));
    }
    const float scale = (float)(absmax / most);
    if (scale * most >= 0x1.ffffffp127) /* is rounded to an infinity */
        return nextafterf(scale, 0);
    return scale < 0x1p-126f ? 0 : scale;
}

/* The integer that is nearest to w/s, of three: by what each leaves of w, which is exact in float64
 * for those that can be. */
static int nearest(double w, double s)
{
    const int about = (int)(w / s);
    int best = about - 1;
    for (int q = about; q <= about + 1; q++) {
        const double left = fabs(w - q * s), least = fabs(w - best * s);
        if (left < least || (left == least && q % 2 == 0))
            best = q;
    }
    return best;
}

static int code_in(const unsigned char *codes, enum hst_quant bits, size_t i)
{
    const int half = codes[i / 2] >> (i % 2 * 4) & 15;
    return bits == HST_INT8 ? (int8_t)codes[i] : (half ^ 8) - 8;
}

static void expect_block(const struct parameters *p, const double *values, size_t first, size_t n,
                         const unsigned char *codes, float scale)
{
    const double most = most_of(p->bits);
    const float want = scale_of(values + first, n, most);
    if (!(scale >= want && scale <= want) && !(isnan(scale) && isnan(want)))
        fail_msg("block at %zu: scale %a, not %a", first, (double)scale, (double)want);
    for (size_t i = first; i < first + n; i++) {
        const int q = code_in(codes, p->bits, i);
        const int should = scale > 0 ? nearest(values[i], (double)scale) : 0;
        if (q != should)
            fail_msg("element %zu, %a: %d, not %d, of scale %a", i, values[i], q, should,
                     (double)scale);
    }
}

/* What the interface promises of the value itself, beside its bits. */
static void expect_bound(const struct parameters *p, enum hst_dtype dtype, double w, double absmax,
                         double q_s, double back)
{
    const double half = absmax / (2 * most_of(p->bits)) * (1 + 0x1p-20);
    const bool zeros = absmax / most_of(p->bits) < 0x1p-126;
    if (fabs(q_s - w) > (zeros ? 0x1p-126 * 127 : half))
        fail_msg("%a became %a: off by more than %a", w, q_s, half);
    if (fabs(back - q_s) > rounding(dtype, q_s) + fabs(q_s) * 0x1p-24)
        fail_msg("%a was rounded to %a", q_s, back);
}

static void expect_back(const struct parameters *p, enum hst_dtype dtype, const double *values,
                        const struct tensor *back, const unsigned char *codes, const float *scales)
{
    for (size_t first = 0; first < p->count; first += BLOCK) {
        const size_t end = first + BLOCK < p->count ? first + BLOCK : p->count;
        const float scale = scales[first / BLOCK];
        double absmax = 0;
        for (size_t i = first; i < end; i++)
            absmax = fmax(absmax, fabs(values[i]));
        for (size_t i = first; i < end; i++) {
            const double q_s = code_in(codes, p->bits, i) * (double)scale;
            if (isnan(scale)) {
                assert_true(isnan(back->values[i]));
                continue;
            }
            expect_bound(p, dtype, values[i], absmax, q_s, back->values[i]);
            assert_true(back->values[i] == round_to(dtype, q_s));
        }
    }
}

/* Some blocks have one number that is not finite. */
static void spoil(struct tensor *t, size_t count)
{
    static const double bad[] = {INFINITY, -INFINITY, NAN};
    for (size_t b = 1; b * BLOCK + 5 < count; b += 3)
        t->values[b * BLOCK + 5] = bad[b / 3 % 3];
}

static void read_bytes(struct suite *s, const void *from, void *to, size_t bytes)
{
    assert_int_equal(hst_stream_copy(s->stream, s->staging, from, bytes), 0);
    suite_sync(s);
    memcpy(to, s->staging, bytes);
}

static void quantised_case(struct suite *s, const void *parameters)
{
    const struct parameters *p = parameters;
    static unsigned char codes[ROOM], on_host[ROOM];
    static float scales[ROOM / BLOCK + 1], host_scales[ROOM / BLOCK + 1];
    const size_t code_bytes = hst_quant_bytes(p->bits, p->count);
    const size_t scale_count = hst_quant_scales(p->count);
    for (size_t d = 0; d < DTYPES; d++) {
        const enum hst_dtype dtype = suite_dtypes[d];
        struct tensor *values = tensor_empty(s, p->count, dtype);
        struct tensor *coded = tensor_empty(s, (code_bytes + 3) / 4, HST_F32);
        struct tensor *scaled = tensor_empty(s, scale_count, HST_F32);
        struct tensor *back = tensor_empty(s, p->count, dtype);
        for (size_t i = 0; i < p->count; i++)
            values->values[i] = value_of(s, p, dtype, i);
        if (p->filling == PLAIN)
            spoil(values, p->count);
        tensor_write(s, values);
        const struct hst_quantise to = {p->bits,      dtype,       p->count,
                                        values->data, coded->data, scaled->data};
        const struct hst_dequantise from = {p->bits,     dtype,        p->count,
                                            coded->data, scaled->data, back->data};
        assert_int_equal(hst_op_quantise(s->stream, &to), 0);
        assert_int_equal(hst_op_dequantise(s->stream, &from), 0);
        read_bytes(s, coded->data, codes, code_bytes);
        read_bytes(s, scaled->data, scales, scale_count * sizeof *scales);
        tensor_read(s, scaled);
        tensor_read(s, back);
        for (size_t first = 0; first < p->count; first += BLOCK)
            expect_block(p, values->values, first,
                         p->count - first < BLOCK ? p->count - first : BLOCK, codes,
                         scales[first / BLOCK]);
        expect_back(p, dtype, values->values, back, codes, scales);

        const size_t bytes = p->count * hst_dtype_bytes(dtype);
        assert_int_equal(hst_stream_copy(s->stream, s->staging, values->data, bytes), 0);
        suite_sync(s);
        const struct hst_quantise alone = {p->bits,    dtype,   p->count,
                                           s->staging, on_host, host_scales};
        assert_int_equal(hst_host_quantise(&alone), 0);
        assert_memory_equal(on_host, codes, code_bytes);
        assert_memory_equal(host_scales, scales, scale_count * sizeof *scales);
    }
}

static void every_filling_has_the_bytes_of_the_definition(void **state)
{
    (void)state;
    for (int filling = 0; filling < FILLINGS; filling++)
        for (int four = 0; four < 2; four++)
            suite_run(quantised_case,
                      &(struct parameters){four ? HST_INT4 : HST_INT8, (enum filling)filling,
                                           filling == EXPONENTS ? ALL : FEW});
}

static void every_length_has_its_last_block(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 2, 7, 511, 512, 513, 1023, FEW + 77};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int four = 0; four < 2; four++)
            suite_run(quantised_case,
                      &(struct parameters){four ? HST_INT4 : HST_INT8, OUTLIER, counts[i]});
}

static void a_row_may_be_cut_at_blocks(void **state)
{
    (void)state;
    static float values[4 * BLOCK], scales[4], some[4];
    static unsigned char codes[4 * BLOCK], part[4 * BLOCK];
    for (size_t i = 0; i < 4 * BLOCK; i++)
        values[i] = (float)((double)(i * 2654435761u % 65536) - 32768);
    struct hst_quantise a = {HST_INT4, HST_F32, 4 * BLOCK, values, codes, scales};
    assert_int_equal(hst_host_quantise(&a), 0);
    for (size_t b = 0; b < 4; b++) {
        a = (struct hst_quantise){
            HST_INT4, HST_F32, BLOCK, values + b * BLOCK, part + b * BLOCK / 2, some + b};
        assert_int_equal(hst_host_quantise(&a), 0);
    }
    assert_memory_equal(part, codes, 2 * BLOCK);
    assert_memory_equal(some, scales, sizeof scales);
}

/* The greatest of a block: of every exponent, random, and near where a scale's last bit turns. */
static float some_greatest(int exponent, unsigned turn, uint32_t *random)
{
    static const float edges[] = {1.0f,      0x1.000002p0f, 0x1.fffffep0f, 0x1.bffffep0f,
                                  0x1.c0p0f, 0x1.fbfffep0f, 0x1.fcp0f,     0x1.fc0002p0f};
    *random = *random * 1664525u + 1013904223u;
    const float any = 1 + (float)(*random >> 9) * 0x1p-23f;
    return ldexpf(turn < sizeof edges / sizeof *edges ? edges[turn] : any, exponent);
}

/* Integers and scales of a block, and what they give back. */
struct coded {
    unsigned char codes[BLOCK];
    float scale, back[BLOCK];
};

static struct coded coded_of(enum hst_quant bits, const float *values)
{
    struct coded c = {.scale = 0};
    const struct hst_quantise to = {bits, HST_F32, BLOCK, values, c.codes, &c.scale};
    const struct hst_dequantise from = {bits, HST_F32, BLOCK, c.codes, &c.scale, c.back};
    assert_int_equal(hst_host_quantise(&to), 0);
    assert_int_equal(hst_host_dequantise(&from), 0);
    return c;
}

static void what_a_block_gives_back_has_its_integers_and_its_scale(void **state)
{
    (void)state;
    enum { TURNS = 24 };
    static float values[BLOCK];
    uint32_t random = 1;
    for (int four = 0; four < 2; four++)
        for (int exponent = -149; exponent < 128; exponent++)
            for (unsigned turn = 0; turn < TURNS; turn++) {
                const enum hst_quant bits = four ? HST_INT4 : HST_INT8;
                const float most = some_greatest(exponent, turn, &random);
                for (size_t i = 0; i < BLOCK; i++) {
                    random = random * 1664525u + 1013904223u;
                    values[i] = most * ((float)((int32_t)random >> 8) * 0x1p-23f);
                }
                values[turn * 21] = most;
                const struct coded once = coded_of(bits, values), twice = coded_of(bits, once.back);
                for (size_t i = 0; i < BLOCK; i++)
                    assert_true(isfinite(once.back[i]));
                if (memcmp(once.codes, twice.codes, BLOCK) != 0 || once.scale != twice.scale)
                    fail_msg("%d bits, greatest %a: scale %a, then %a", (int)bits, (double)most,
                             (double)once.scale, (double)twice.scale);
            }
}

static void what_is_no_call_is_refused(void **state)
{
    (void)state;
    static float values[BLOCK], scales[1];
    static unsigned char codes[BLOCK];
    const struct hst_quantise good = {HST_INT8, HST_F32, BLOCK, values, codes, scales};
    struct hst_quantise bad[] = {good, good, good, good, good, good};
    bad[0].bits = (enum hst_quant)5;
    bad[1].dtype = (enum hst_dtype)77;
    bad[2].values = NULL;
    bad[3].codes = NULL;
    bad[4].scales = NULL;
    bad[5].codes = values;
    const struct hst_quantise none = {HST_INT8, HST_F32, 0, NULL, NULL, NULL};
    assert_int_equal(hst_host_quantise(&none), 0);
    assert_int_equal(hst_host_quantise(NULL), -EINVAL);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct hst_dequantise back = {bad[i].bits,  bad[i].dtype,  bad[i].count,
                                            bad[i].codes, bad[i].scales, (void *)bad[i].values};
        assert_int_equal(hst_host_quantise(&bad[i]), -EINVAL);
        assert_int_equal(hst_host_dequantise(&back), -EINVAL);
    }
    assert_int_equal(hst_quant_bytes((enum hst_quant)5, 8), 0);
    assert_int_equal(hst_quant_bytes(HST_INT4, 9), 5);
    assert_int_equal(hst_quant_scales(513), 2);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_filling_has_the_bytes_of_the_definition),
        cmocka_unit_test(every_length_has_its_last_block),
        cmocka_unit_test(a_row_may_be_cut_at_blocks),
        cmocka_unit_test(what_a_block_gives_back_has_its_integers_and_its_scale),
        cmocka_unit_test(what_is_no_call_is_refused),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
