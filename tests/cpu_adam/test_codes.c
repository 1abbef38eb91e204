/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AdamW with moments in codes of 8 bits: the map, by its definition in float64; blocks that are all
 * zero, tiny or not finite; the way of weights beside float64's.
 */
#include "support.h"

#include <math.h>
#include <stdlib.h>

enum { BLOCK = HST_CODE_BLOCK, COUNT = 4 * BLOCK, STEPS = 300 };

static const struct hst_cpu_adam_ops *tables[TABLES_MAX];
static size_t table_count;
static uint64_t rng;

struct memory {
    uint16_t weights[COUNT], grads[COUNT];
    int16_t master[COUNT];
    uint8_t m[COUNT], v[COUNT];
    float m_scales[COUNT / BLOCK], v_scales[COUNT / BLOCK];
};

static const struct hst_update *update_of(const struct hst_cpu_adam_ops *ops)
{
    const struct hst_update_kind kind = {.optimizer = HST_OPTIMIZER_ADAMW,
                                         .weights = HST_CPU_BF16,
                                         .moments = HST_CPU_CODE,
                                         .grads = HST_CPU_BF16};
    return hst_update_find(ops, kind);
}

static uint16_t bf16_of(float x)
{
    return (uint16_t)(bits_of(x) >> 16); /* of numbers that it holds */
}

static float f32_of(uint16_t x)
{
    return float_of((uint32_t)x << 16);
}

static void run(const struct hst_cpu_adam_ops *ops, const struct hst_adam_hyper *hyper, int t,
                struct memory *at, size_t n)
{
    struct hst_adam_coef k;
    const struct hst_update_arrays arrays = {.weights = at->weights,
                                             .master = at->master,
                                             .m = at->m,
                                             .v = at->v,
                                             .grads = at->grads,
                                             .m_scales = at->m_scales,
                                             .v_scales = at->v_scales};
    assert_int_equal(hst_adam_coef_init(hyper, (uint64_t)t, 1, &k), 0);
    assert_int_equal(hst_update_run(update_of(ops), &k, &arrays, n), 0);
}

/* ---- the map ---- */

/* The middle of the interval of a code with so many bits, and its lower end. */
static double middle(int bits, int code, double part)
{
    if (code == 0)
        return bits == 8 ? ldexp(part, -24) : 0;
    const int i = 31 - __builtin_clz((unsigned)code);
    return ldexp(1, 3 * (i - bits + 1)) *
           (0.125 + 0.875 * (code + part - ldexp(1, i)) / ldexp(1, i));
}

static double value_of(int bits, uint8_t code, float scale)
{
    const double sign = bits == 7 && code & 0x80 ? -1 : 1;
    return sign * (double)scale * middle(bits, bits == 7 ? code & 0x7f : code, 0.5);
}

/* β1 = β2 = 0: m is the gradient, v its square, and so is what a step keeps of them. */
static const struct hst_adam_hyper KEEPS_GRADIENTS = {0, 0, 0, 1e-8, 0};

static void check_interval(int bits, double x, uint8_t code, float scale)
{
    const int c = bits == 7 ? code & 0x7f : code;
    const double z = fabs(x) / (double)scale, low = middle(bits, c, 0), high = middle(bits, c, 1);
    if (z < low * (1 - 1e-5) - 1e-9 || (c || bits == 8 ? z > high * (1 + 1e-5) + 1e-9 : 0))
        fail_msg("%g of %g has code %d of %d bits, of %g to %g", x, (double)scale, c, bits, low,
                 high);
}

static void a_code_is_that_of_the_interval_around_the_number(void **state)
{
    static struct memory at;
    bool seen[2][256] = {{false}};
    (void)state;

    for (size_t t = 0; t < table_count; t++)
        for (int round = 0; round < 200; round++) {
            memset(&at, 0, sizeof at);
            for (int i = 0; i < COUNT; i++) {
                const float size =
                    ldexpf(1.5f + random_unit(&rng) / 2, -(int)random_below(&rng, 30));
                at.grads[i] = bf16_of(random_below(&rng, 2) ? -size : size);
            }
            run(tables[t], &KEEPS_GRADIENTS, 1, &at, COUNT);
            for (int i = 0; i < COUNT; i++) {
                const double g = (double)f32_of(at.grads[i]);
                check_interval(7, g, at.m[i], at.m_scales[i / BLOCK]);
                check_interval(8, g * g, at.v[i], at.v_scales[i / BLOCK]);
                assert_int_equal(at.m[i] >> 7, g < 0);
                seen[0][at.m[i]] = seen[1][at.v[i]] = true;
            }
        }
    for (int c = 0; c < 256; c++)
        assert_true(seen[0][c] && seen[1][c]);
}

static void the_largest_of_a_block_is_kept_whatever_its_sign(void **state)
{
    static struct memory at;
    (void)state;

    for (size_t t = 0; t < table_count; t++)
        for (int sign = -1; sign <= 1; sign += 2) {
            memset(&at, 0, sizeof at);
            for (int i = 0; i < BLOCK; i++)
                at.grads[i] = bf16_of(random_unit(&rng));
            at.grads[77] = bf16_of((float)sign * 1.5f);
            run(tables[t], &KEEPS_GRADIENTS, 1, &at, BLOCK);
            assert_true(fabs(value_of(7, at.m[77], at.m_scales[0]) / (sign * 1.5) - 1) < 1e-6);
            assert_true(fabs(value_of(8, at.v[77], at.v_scales[0]) / 2.25 - 1) < 1e-6);
        }
}

/* ---- blocks that are nothing but zeros, too small, or not finite ---- */

static void check_block(const struct memory *at, int block, uint32_t scale)
{
    assert_int_equal(bits_of(at->m_scales[block]), scale);
    assert_int_equal(bits_of(at->v_scales[block]), scale);
    for (int i = block * BLOCK; i < (block + 1) * BLOCK; i++) {
        assert_int_equal(at->m[i], 0);
        assert_int_equal(at->v[i], 0);
    }
}

static void blocks_without_a_scale_are_zero_or_not_a_number(void **state)
{
    static struct memory at;
    const struct hst_adam_hyper hyper = {1e-3, 0.9, 0.999, 1e-8, 0};
    (void)state;

    for (size_t t = 0; t < table_count; t++) {
        memset(&at, 0, sizeof at);
        for (int i = 0; i < BLOCK; i++) {
            at.weights[i + 2 * BLOCK] = bf16_of(0.5f);
            at.grads[i + BLOCK] = 0x0001; /* denormal: m and v are too, or 0 */
            at.grads[i + 2 * BLOCK] = bf16_of(0.25f);
            at.grads[i + 3 * BLOCK] = bf16_of(0.25f);
        }
        at.grads[2 * BLOCK + 5] = 0x7f80; /* one is infinite */
        run(tables[t], &hyper, 1, &at, COUNT);
        check_block(&at, 0, 0);
        check_block(&at, 1, 0);
        check_block(&at, 2, 0x7fc00000);
        assert_true(at.m_scales[3] > 0 && at.v_scales[3] > 0);
        memset(at.grads, 0, sizeof at.grads);
        run(tables[t], &hyper, 2, &at, COUNT);
        for (int i = 0; i < BLOCK; i++) {
            assert_int_equal(at.weights[i], 0);
            assert_true(fabsf(f32_of(at.weights[i + BLOCK])) < 1e-30f);
            assert_int_equal(at.weights[i + 2 * BLOCK], 0x7fc0);
            assert_int_equal(at.master[i + 2 * BLOCK], 0);
            assert_true((at.weights[i + 3 * BLOCK] & 0x7fff) < 0x7f80);
        }
    }
}

/* Its v is far below all of the map, but not its m: were v kept as 0, steps would be enormous. */
static void a_v_too_small_for_the_map_makes_no_step_longer(void **state)
{
    static struct memory at;
    const struct hst_adam_hyper hyper = {1e-3, 0.9, 0.999, 1e-12, 0};
    (void)state;

    for (size_t t = 0; t < table_count; t++) {
        memset(&at, 0, sizeof at);
        for (int i = 0; i < BLOCK; i++)
            at.grads[i] = bf16_of(i % 2 ? 1.0f : 0x1p-16f);
        for (int step = 1; step <= 20; step++) {
            run(tables[t], &hyper, step, &at, BLOCK);
            if (step == 1) {
                memset(at.weights, 0, sizeof at.weights);
                memset(at.master, 0, sizeof at.master);
            }
            memset(at.grads, 0, sizeof at.grads); /* m stays, and v */
        }
        for (int i = 0; i < BLOCK; i++) /* of at most 19 steps of the rate, shrinking by β1 */
            assert_true(fabsf(f32_of(at.weights[i])) < 0.019f);
        assert_true(f32_of(at.weights[1]) < -0.001f);
    }
}

/* Half of such a scale is a denormal, which would lose its last bit. */
static void the_least_scales_have_all_of_their_bits(void **state)
{
    static const struct hst_adam_hyper hyper = {1e-3, 0.9, 0.999, 1e-30, 0};
    static struct memory begin, want, at;
    (void)state;

    for (size_t i = 0; i < sizeof begin; i++)
        ((unsigned char *)&begin)[i] = (unsigned char)random_u64(&rng);
    memset(begin.grads, 0, sizeof begin.grads);
    for (int i = 0; i < COUNT; i++)
        begin.weights[i] = bf16_of(1);
    for (int block = 0; block < COUNT / BLOCK; block++) {
        begin.m_scales[block] = 1e-19f;
        begin.v_scales[block] = nextafterf(0x1p-125f, 0);
    }
    want = begin;
    run(hst_cpu_adam_ops(HST_CPU_ISA_C), &hyper, 1, &want, COUNT);
    for (size_t t = 0; t < table_count; t++) {
        at = begin;
        run(tables[t], &hyper, 1, &at, COUNT);
        assert_memory_equal(&at, &want, sizeof at);
    }
}

/* What decides how a block is updated: a weight that is no number, moments that are none, a
 * gradient that is none or infinite or has an infinite square, a scale that is negative, tiny or
 * nothing. */
static void fill_block(struct memory *at, int block)
{
    const int first = block * BLOCK, odd = first + (int)random_below(&rng, BLOCK);
    const uint64_t kind = random_below(&rng, 9);
    at->m_scales[block] = kind == 1 || kind == 2 ? 0 : kind == 0 ? 1e-39f : random_unit(&rng);
    at->v_scales[block] = kind == 1 || kind == 3 ? 0 : kind == 4 ? -1e-6f : 1e-6f;
    for (int i = first; i < first + BLOCK; i++) {
        at->grads[i] = kind < 4 ? 0 : bf16_of(1e-2f * random_unit(&rng));
        at->weights[i] = bf16_of(random_unit(&rng));
        at->master[i] = (int16_t)random_u64(&rng);
        at->m[i] = (uint8_t)random_u64(&rng);
        at->v[i] = (uint8_t)random_u64(&rng);
    }
    if (kind == 5)
        at->weights[odd] = 0xff91;
    if (kind == 6)
        at->grads[odd] = random_below(&rng, 2) ? 0x7f80 : 0x7fc1;
    if (kind == 7)
        at->grads[odd] = bf16_of(1e25f);
}

static void a_block_has_the_same_bytes_behind_any_other(void **state)
{
    static const struct hst_adam_hyper hyper = {1e-3, 0.9, 0.999, 1e-8, 0.1};
    static struct memory begin, want, at;
    (void)state;

    for (int round = 0; round < 200; round++) {
        for (int block = 0; block < COUNT / BLOCK; block++)
            fill_block(&begin, block);
        for (size_t t = 0; t < table_count; t++) {
            const size_t n = (size_t)(COUNT - 5 * round); /* 4 blocks to none, and a rest */
            want = at = begin;
            for (int step = 1; step <= 2; step++) {
                run(hst_cpu_adam_ops(HST_CPU_ISA_C), &hyper, step, &want, n);
                run(tables[t], &hyper, step, &at, n);
                assert_memory_equal(&at, &want, sizeof at);
            }
        }
    }
}

/* Of a store that nobody wrote, with a negative scale: v is next to nothing by its gradient, as the
 * 31 elements that vectors have behind this one have none. */
static void elements_behind_a_range_are_in_no_scale(void **state)
{
    static struct memory at;
    const struct hst_adam_hyper hyper = {1e-3, 0.9, 0.999, 1e-8, 0};
    (void)state;

    for (size_t t = 0; t < table_count; t++) {
        memset(&at, 0, sizeof at);
        at.v_scales[0] = -1;
        at.grads[0] = 0x3bb3; /* its square, times 1-β2, is β2·2^-25 but for 0.3 % */
        run(tables[t], &hyper, 1, &at, 1);
        assert_true(fabsf(at.v_scales[0]) < 1e-9f);
    }
}

/* ---- the way of weights ---- */

struct exact {
    double p, m, v;
};

static void exact_step(const struct hst_adam_hyper *h, int t, double g, struct exact *e)
{
    e->m = h->beta1 * e->m + (1 - h->beta1) * g;
    e->v = h->beta2 * e->v + (1 - h->beta2) * g * g;
    const double m = e->m / (1 - pow(h->beta1, t)), v = e->v / (1 - pow(h->beta2, t));
    e->p -= h->lr * (m / (sqrt(v) + h->eps) + h->weight_decay * e->p);
}

/* Gradients have a mean and noise, and elements of a block are of sizes 1 to 1/30. */
static void weights_go_the_way_of_float64(void **state)
{
    static struct memory at;
    static struct exact want[COUNT];
    static float got[COUNT];
    const struct hst_adam_hyper hyper = {1e-3, 0.9, 0.999, 1e-8, 0.01};
    double error = 0, way = 0, v_ratio = 0;
    (void)state;

    memset(&at, 0, sizeof at);
    memset(want, 0, sizeof want);
    for (int t = 1; t <= STEPS; t++) {
        for (int i = 0; i < COUNT; i++) {
            const float size = 1 / (1 + (float)(i % 30));
            at.grads[i] = bf16_of(size * (0.3f + random_unit(&rng)));
            exact_step(&hyper, t, (double)f32_of(at.grads[i]), &want[i]);
        }
        run(tables[0], &hyper, t, &at, COUNT);
    }
    tables[0]->join_f32(at.weights, at.master, got, COUNT);
    for (int i = 0; i < COUNT; i++) {
        error += pow((double)got[i] - want[i].p, 2);
        way += pow(want[i].p, 2);
        v_ratio += value_of(8, at.v[i], at.v_scales[i / BLOCK]) / want[i].v / COUNT;
    }
    const double off = sqrt(error / way);
    printf("p off by %.2f %% of its way, mean v %.4f of what it should be\n", 100 * off, v_ratio);
    assert_true(off < 0.1);
    assert_true(fabs(v_ratio - 1) < 0.1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_code_is_that_of_the_interval_around_the_number),
        cmocka_unit_test(the_largest_of_a_block_is_kept_whatever_its_sign),
        cmocka_unit_test(blocks_without_a_scale_are_zero_or_not_a_number),
        cmocka_unit_test(a_v_too_small_for_the_map_makes_no_step_longer),
        cmocka_unit_test(the_least_scales_have_all_of_their_bits),
        cmocka_unit_test(a_block_has_the_same_bytes_behind_any_other),
        cmocka_unit_test(elements_behind_a_range_are_in_no_scale),
        cmocka_unit_test(weights_go_the_way_of_float64),
    };
    rng = seed_begin(argc, argv);
    table_count = tables_list(tables);
    return cmocka_run_group_tests_name("codes", tests, NULL, NULL);
}
