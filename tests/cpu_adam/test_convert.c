/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions against references written on the bits, for every supported instruction set: over a
 * dense sample of the 2^32 patterns, or with --every-pattern over all of them.
 */
#include "support.h"

#include <math.h>

enum { CHUNK = 1 << 14 };

static uint32_t stride = 61; /* odd: every residue, every class of exponent, both signs */
static const struct hst_cpu_adam_ops *tables[TABLES_MAX];
static size_t table_count;

static uint32_t is_nan(uint32_t bits)
{
    return (bits & 0x7fffffff) > 0x7f800000;
}

/* The two bf16 neighbours of x are its upper half and the next one; the lower half says which is
 * nearer. */
static uint32_t nearest_half(uint32_t bits, uint32_t tie_goes_up)
{
    uint32_t lower = bits & 0xffff, upper = bits >> 16;
    return upper + (lower > 0x8000 || (lower == 0x8000 && tie_goes_up));
}

/* Each check returns how many of the CHUNK patterns in x came out wrong. */
static uint32_t wrong_splits(const struct hst_cpu_adam_ops *ops, const uint32_t *x)
{
    static uint16_t weight[CHUNK];
    static int16_t remainder[CHUNK];
    static uint32_t joined[CHUNK];
    uint32_t wrong = 0;

    ops->split_f32((const float *)x, weight, remainder, CHUNK);
    ops->join_f32(weight, remainder, (float *)joined, CHUNK);
    for (int i = 0; i < CHUNK; i++) {
        uint32_t nan = is_nan(x[i]);
        uint32_t want_weight = nan ? 0x7fc0 : nearest_half(x[i], 1);
        uint32_t want_joined = nan ? 0x7fc00000 : x[i];
        int32_t want_remainder = nan ? 0 : (int32_t)(x[i] - (want_weight << 16));
        wrong += (weight[i] != want_weight) | (remainder[i] != want_remainder) |
                 (joined[i] != want_joined);
    }
    return wrong;
}

static uint32_t wrong_roundings(const struct hst_cpu_adam_ops *ops, const uint32_t *x)
{
    static uint16_t half[CHUNK];
    uint32_t wrong = 0;

    ops->bf16_from_f32((const float *)x, half, CHUNK);
    for (int i = 0; i < CHUNK; i++) {
        uint32_t nearest = nearest_half(x[i], x[i] >> 16 & 1);
        uint32_t want = is_nan(x[i]) ? (x[i] >> 31) << 15 | 0x7fc0 : nearest;
        wrong += half[i] != want;
    }
    return wrong;
}

/* The same on integers: what of the fraction is cut off says how the rest is rounded. Held to
 * f16_nearest_to, which is slower, by known_values and every f16 pattern below. */
static uint16_t f16_on_integers(uint32_t bits)
{
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff, exponent = magnitude >> 23;

    if (is_nan(bits) || exponent >= 143)
        return (uint16_t)(sign | (is_nan(bits) ? 0x7e00 : 0x7c00));
    if (exponent < 102) /* less than half of the least */
        return (uint16_t)sign;
    uint32_t fraction = (magnitude & 0x7fffff) | 0x800000;
    uint32_t cut = exponent < 113 ? 126 - exponent : 13;
    uint32_t kept = fraction >> cut, rest = fraction & ((1u << cut) - 1), half = 1u << (cut - 1);
    kept += rest > half || (rest == half && kept & 1);
    return (uint16_t)(sign | (kept + (exponent < 113 ? 0 : (exponent - 113) << 10)));
}

static uint32_t wrong_f16(const struct hst_cpu_adam_ops *ops, const uint32_t *x)
{
    static uint16_t half[CHUNK];
    uint32_t wrong = 0;

    ops->f16_from_f32((const float *)x, half, CHUNK);
    for (int i = 0; i < CHUNK; i++)
        wrong += half[i] != f16_on_integers(x[i]);
    return wrong;
}

typedef uint32_t check_fn(const struct hst_cpu_adam_ops *ops, const uint32_t *x);

static void over_the_patterns(check_fn *check)
{
    static uint32_t x[CHUNK];

    for (uint64_t first = 0; first <= UINT32_MAX; first += (uint64_t)CHUNK * stride) {
        for (uint32_t i = 0; i < CHUNK; i++)
            x[i] = (uint32_t)first + i * stride;
        for (size_t k = 0; k < table_count; k++) {
            uint32_t wrong = check(tables[k], x);
            if (wrong)
                fail_msg("%s: %u of %d patterns from 0x%08x on are wrong", tables[k]->name, wrong,
                         (int)CHUNK, x[0]);
        }
    }
}

static void split_rounds_ties_away_and_join_restores_every_pattern(void **state)
{
    (void)state;
    over_the_patterns(wrong_splits);
}

static void bf16_rounds_to_nearest_ties_to_even_and_keeps_the_sign_of_nan(void **state)
{
    (void)state;
    over_the_patterns(wrong_roundings);
}

static void f16_rounds_to_nearest_ties_to_even_with_denormals(void **state)
{
    (void)state;
    over_the_patterns(wrong_f16);
}

static void every_f16_pattern_widens_exactly_and_comes_back(void **state)
{
    static uint16_t half[1 << 16], back[1 << 16];
    static float wide[1 << 16];
    (void)state;

    for (uint32_t i = 0; i < 1 << 16; i++)
        half[i] = (uint16_t)i;
    for (size_t k = 0; k < table_count; k++) {
        tables[k]->f32_from_f16(half, wide, 1 << 16);
        tables[k]->f16_from_f32(wide, back, 1 << 16);
        for (uint32_t i = 0; i < 1 << 16; i++) {
            assert_int_equal(bits_of(wide[i]), bits_of(f16_value((uint16_t)i)));
            assert_int_equal(back[i], is_nan(bits_of(wide[i])) ? (i & 0x8000) | 0x7e00 : i);
        }
    }
}

/* Around each boundary between two f16 numbers: the middle, and the f32 numbers beside it. */
static void f16_boundaries_fall_where_its_definition_says(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 0x7bff; i++) {
        float below = f16_value((uint16_t)i), above = f16_value((uint16_t)(i + 1));
        float middle = below + (above - below) / 2;
        const float x[] = {nextafterf(middle, 0), middle, nextafterf(middle, INFINITY)};
        uint16_t got[3];
        for (size_t k = 0; k < table_count; k++) {
            tables[k]->f16_from_f32(x, got, 3);
            for (int j = 0; j < 3; j++) {
                assert_int_equal(got[j], f16_nearest_to(x[j]));
                assert_int_equal(got[j], f16_on_integers(bits_of(x[j])));
            }
        }
    }
}

static void known_values_convert_as_the_header_says(void **state)
{
    static const struct {
        uint32_t x;
        uint16_t even, weight;
        int16_t remainder;
    } known[] = {
        {0x3f800000, 0x3f80, 0x3f80, 0},      {0x3f808000, 0x3f80, 0x3f81, -32768},
        {0xbf808000, 0xbf80, 0xbf81, -32768}, {0x3f818000, 0x3f82, 0x3f82, -32768},
        {0x3f807fff, 0x3f80, 0x3f80, 32767},  {0x7f7fffff, 0x7f80, 0x7f80, -1},
        {0xff800000, 0xff80, 0xff80, 0},      {0x00000001, 0x0000, 0x0000, 1},
        {0x80008001, 0x8001, 0x8001, -32767}, {0xff800001, 0xffc0, 0x7fc0, 0},
        {0x7fffffff, 0x7fc0, 0x7fc0, 0},
    };
    (void)state;

    for (size_t k = 0; k < table_count; k++)
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
            float x = float_of(known[i].x);
            uint16_t even, weight;
            int16_t remainder;
            tables[k]->bf16_from_f32(&x, &even, 1);
            tables[k]->split_f32(&x, &weight, &remainder, 1);
            assert_int_equal(even, known[i].even);
            assert_int_equal(weight, known[i].weight);
            assert_int_equal(remainder, known[i].remainder);
        }
}

static void every_bf16_pattern_widens_to_its_own_bits(void **state)
{
    static uint16_t half[1 << 16];
    static uint32_t wide[1 << 16];
    (void)state;

    for (uint32_t i = 0; i < 1 << 16; i++)
        half[i] = (uint16_t)i;
    for (size_t k = 0; k < table_count; k++) {
        tables[k]->f32_from_bf16(half, (float *)wide, 1 << 16);
        for (uint32_t i = 0; i < 1 << 16; i++)
            assert_int_equal(wide[i], i << 16);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values_convert_as_the_header_says),
        cmocka_unit_test(every_bf16_pattern_widens_to_its_own_bits),
        cmocka_unit_test(split_rounds_ties_away_and_join_restores_every_pattern),
        cmocka_unit_test(every_f16_pattern_widens_exactly_and_comes_back),
        cmocka_unit_test(f16_boundaries_fall_where_its_definition_says),
        cmocka_unit_test(f16_rounds_to_nearest_ties_to_even_with_denormals),
        cmocka_unit_test(bf16_rounds_to_nearest_ties_to_even_and_keeps_the_sign_of_nan),
    };

    if (argc > 1 && strcmp(argv[1], "--every-pattern") == 0)
        stride = 1;
    table_count = tables_list(tables);
    return cmocka_run_group_tests_name("convert", tests, NULL, NULL);
}
