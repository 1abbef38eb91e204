/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every update of every table: the rounding order that cpu_adam.h documents, transcribed line by
 * line, and the formats in which it is stored; what is counted; what is refused.
 */
#include "support.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum { COUNT = 203, ROUNDS = 12 };

static const struct hst_cpu_adam_ops *tables[TABLES_MAX];
static size_t table_count;
static uint64_t rng;

/* An update's arrays, in the widest format. */
struct memory {
    _Alignas(64) unsigned char weights[COUNT * 4], master[COUNT * 4], m[COUNT * 4], v[COUNT * 4],
        grads[COUNT * 4];
    uint64_t index;
    float m_scale, v_scale; /* of codes: COUNT elements are less than a block */
};

static bool same_bytes(const void *a, const void *b, size_t bytes)
{
    return memcmp(a, b, bytes) == 0;
}

static bool has_codes(const struct hst_update *u)
{
    return u->kind.moments == HST_CPU_CODE;
}

static struct hst_update_arrays arrays_in(struct memory *at, const struct hst_update *u)
{
    return (struct hst_update_arrays){.weights = at->weights,
                                      .master = u->bytes.master ? at->master : NULL,
                                      .m = u->bytes.m ? at->m : NULL,
                                      .v = u->bytes.v ? at->v : NULL,
                                      .grads = at->grads,
                                      .index = at->index,
                                      .m_scales = has_codes(u) ? &at->m_scale : NULL,
                                      .v_scales = has_codes(u) ? &at->v_scale : NULL};
}

/* ---- the header's text, one rounding a line ---- */

static float one_nan(float x)
{
    return isnan(x) ? float_of(0x7fc00000) : x;
}

struct element {
    float p, m, v;
};

static struct element literal_sgd(const struct hst_adam_coef *k, struct element e, float grad)
{
    float g1 = k->grad_scale * grad;
    float g = fmaf(k->l2, e.p, g1);
    float m1 = fmaf(k->beta1_lo, e.m, g);
    float m = fmaf(k->beta1_hi, e.m, m1);
    float p = fmaf(-k->step_size, m, e.p);
    return (struct element){one_nan(p), one_nan(m), 0};
}

static struct element literal_lion(const struct hst_adam_coef *k, struct element e, float grad)
{
    float g = k->grad_scale * grad;
    float c1 = k->beta1_lo * e.m;
    float c2 = fmaf(k->one_minus_beta1, g, c1);
    float c = fmaf(k->beta1_hi, e.m, c2);
    float m1 = k->beta2_lo * e.m;
    float m2 = fmaf(k->one_minus_beta2, g, m1);
    float m = fmaf(k->beta2_hi, e.m, m2);
    float u1 = c > 0 ? 1.0f : c < 0 ? -1.0f : c;
    float u = fmaf(0.0f, m, u1);
    float step = fmaf(k->decay, e.p, u);
    float p = fmaf(-k->step_size, step, e.p);
    return (struct element){one_nan(p), one_nan(m), 0};
}

static struct element literal_adagrad(const struct hst_adam_coef *k, struct element e, float grad)
{
    float g1 = k->grad_scale * grad;
    float g = fmaf(k->l2, e.p, g1);
    float v = fmaf(g, g, e.v);
    float q1 = sqrtf(v);
    float q = q1 + k->eps;
    float n = fmaf(0.0f, v, g);
    float step = n / q;
    float p = fmaf(-k->step_size, step, e.p);
    return (struct element){one_nan(p), 0, one_nan(v)};
}

static struct element literal_adam(enum hst_optimizer optimizer, const struct hst_adam_coef *k,
                                   struct element e, float grad)
{
    float g = k->grad_scale * grad;
    if (optimizer == HST_OPTIMIZER_ADAM)
        g = fmaf(k->l2, e.p, g);
    float m1 = k->beta1_lo * e.m;
    float m2 = fmaf(k->one_minus_beta1, g, m1);
    float m3 = fmaf(k->beta1_hi, e.m, m2);
    float v1 = k->beta2_lo * e.v;
    float v2 = k->one_minus_beta2 * g;
    float v3 = fmaf(v2, g, v1);
    float v4 = fmaf(k->beta2_hi, e.v, v3);
    float q1 = sqrtf(v4);
    float q = fmaf(q1, k->inv_sqrt_bias2, k->eps);
    float step = m3 / q;
    if (optimizer == HST_OPTIMIZER_ADAMW)
        step = fmaf(k->decay, e.p, step);
    float p = fmaf(-k->step_size, step, e.p);
    return (struct element){one_nan(p), one_nan(m3), one_nan(v4)};
}

static struct element literal_update(enum hst_optimizer optimizer, const struct hst_adam_coef *k,
                                     struct element e, float grad)
{
    if (optimizer == HST_OPTIMIZER_SGD)
        return literal_sgd(k, e, grad);
    if (optimizer == HST_OPTIMIZER_LION)
        return literal_lion(k, e, grad);
    if (optimizer == HST_OPTIMIZER_ADAGRAD)
        return literal_adagrad(k, e, grad);
    return literal_adam(optimizer, k, e, grad);
}

static uint32_t half_at(const void *array, size_t i)
{
    return ((const uint16_t *)array)[i];
}

static float literal_read(enum hst_cpu_type type, const void *array, size_t i)
{
    return type == HST_CPU_F32    ? ((const float *)array)[i]
           : type == HST_CPU_BF16 ? float_of(half_at(array, i) << 16)
                                  : f16_value((uint16_t)half_at(array, i));
}

static float literal_master(enum hst_cpu_type type, const struct memory *at, size_t i)
{
    if (type == HST_CPU_BF16)
        return float_of((half_at(at->weights, i) << 16) +
                        (uint32_t)(int32_t)(int16_t)half_at(at->master, i));
    return ((const float *)(const void *)(type == HST_CPU_F32 ? at->weights : at->master))[i];
}

static void literal_write_moment(enum hst_cpu_type type, void *array, size_t i, float x,
                                 uint32_t noise)
{
    if (type == HST_CPU_F32)
        ((float *)array)[i] = x;
    else
        ((uint16_t *)array)[i] = (uint16_t)((bits_of(x) + (noise & 0xffff)) >> 16);
}

static void literal_write_master(enum hst_cpu_type type, struct memory *at, size_t i, float p)
{
    uint32_t weight = (bits_of(p) + 0x8000) >> 16; /* ties away from zero */
    uint16_t halves[2] = {(uint16_t)weight, (uint16_t)(bits_of(p) - (weight << 16))};
    if (type == HST_CPU_F16)
        halves[0] = f16_nearest_to(p);
    if (type == HST_CPU_F32) {
        memcpy(at->weights + 4 * i, &p, 4);
        return;
    }
    memcpy(at->weights + 2 * i, &halves[0], 2);
    if (type == HST_CPU_BF16)
        memcpy(at->master + 2 * i, &halves[1], 2);
    else
        memcpy(at->master + 4 * i, &p, 4);
}

/* ---- codes ---- */

static int highest_bit(unsigned code)
{
    return 31 - __builtin_clz(code);
}

/* Of a code of so many bits. */
static double literal_z(int bits, unsigned code)
{
    if (code == 0)
        return bits == 8 ? ldexp(1, -25) : 0;
    const int i = highest_bit(code);
    const double part = (code + 0.5 - ldexp(1, i)) / ldexp(1, i);
    return ldexp(1, 3 * (i - bits + 1)) * (0.125 + 0.875 * part);
}

static float literal_from_code(int bits, unsigned char code, float scale)
{
    const float z = (float)literal_z(bits, bits == 8 ? code : code & 0x7f);
    const float x = z * scale;
    return bits == 7 && code & 0x80 ? -x : x;
}

static unsigned char literal_code(int bits, float x, float inverse)
{
    const float y = fmaf(fabsf(x), inverse, 0x1p-31f);
    float least = INFINITY;
    for (int i = 0; i < bits; i++)
        least = fminf(least, fmaf((float)(8.0 / 7 * ldexp(1, i + 3 * (bits - 1 - i))), y,
                                  (float)(6.0 / 7 * ldexp(1, i))));
    return (unsigned char)(unsigned)least;
}

static void literal_write_codes(int bits, const float *x, unsigned char *codes, float *scale)
{
    float largest = 0;
    bool finite = true;
    for (size_t i = 0; i < COUNT; i++) {
        finite = finite && isfinite(x[i]);
        largest = fmaxf(largest, fabsf(x[i]));
    }
    *scale = largest * (float)(1 / literal_z(bits, (1u << bits) - 1));
    finite = finite && isfinite(*scale);
    *scale = !finite ? float_of(0x7fc00000) : *scale < 0x1p-126f ? 0 : *scale;
    for (size_t i = 0; i < COUNT; i++) {
        codes[i] = !finite || *scale == 0 ? 0 : literal_code(bits, x[i], 1 / *scale);
        if (bits == 7 && finite && *scale != 0 && signbit(x[i]))
            codes[i] |= 0x80;
    }
}

static void literal_run_codes(const struct hst_update *u, const struct hst_adam_coef *k,
                              struct memory *at)
{
    float m[COUNT], v[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        struct element e = {literal_master(u->kind.weights, at, i),
                            literal_from_code(7, at->m[i], at->m_scale),
                            literal_from_code(8, at->v[i], at->v_scale)};
        e = literal_update(u->kind.optimizer, k, e, literal_read(u->kind.grads, at->grads, i));
        literal_write_master(u->kind.weights, at, i, e.p);
        m[i] = e.m;
        v[i] = e.v;
    }
    literal_write_codes(7, m, at->m, &at->m_scale);
    literal_write_codes(8, v, at->v, &at->v_scale);
}

/* ---- the whole ---- */

static uint64_t literal_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint32_t literal_noise(uint64_t mixed_t, uint64_t index)
{
    uint64_t k = literal_mix(mixed_t + (index >> 32));
    uint32_t x = (uint32_t)(index ^ k);
    x ^= x >> 16;
    x *= 0x21f0aaad;
    x ^= x >> 15;
    x ^= (uint32_t)(k >> 32);
    x *= 0xd35a2d97;
    return x ^ x >> 15;
}

/* Returns how many f16 weights are not finite. */
static int literal_run(const struct hst_update *u, const struct hst_adam_coef *k, struct memory *at)
{
    int not_finite = 0;
    if (has_codes(u)) {
        literal_run_codes(u, k, at);
        return 0;
    }
    for (size_t i = 0; i < COUNT; i++) {
        struct element e = {literal_master(u->kind.weights, at, i),
                            literal_read(u->kind.moments, at->m, i),
                            literal_read(u->kind.moments, at->v, i)};
        float grad = literal_read(u->kind.grads, at->grads, i);
        e = literal_update(u->kind.optimizer, k, e, grad);
        literal_write_master(u->kind.weights, at, i, e.p);
        uint32_t noise = literal_noise(k->noise, at->index + i);
        if (u->bytes.m)
            literal_write_moment(u->kind.moments, at->m, i, e.m, noise);
        if (u->bytes.v)
            literal_write_moment(u->kind.moments, at->v, i, e.v, noise >> 16);
        if (u->kind.weights == HST_CPU_F16)
            not_finite += !isfinite(f16_value((uint16_t)half_at(at->weights, i)));
    }
    return not_finite;
}

/* ---- what there is ---- */

/* Of each optimizer: whether it has m, v, and either in bf16, and in codes. */
static const struct {
    enum hst_optimizer optimizer;
    bool m, v, bf16, codes;
} OPTIMIZERS[] = {
    {HST_OPTIMIZER_ADAMW, true, true, true, true},
    {HST_OPTIMIZER_ADAM, true, true, true, false},
    {HST_OPTIMIZER_SGD, true, false, true, false},
    {HST_OPTIMIZER_LION, true, false, true, false},
    {HST_OPTIMIZER_ADAGRAD, false, true, false, false},
};
enum { OPTIMIZERS_COUNT = sizeof OPTIMIZERS / sizeof *OPTIMIZERS };

/* ---- values ---- */

static void put(enum hst_cpu_type type, void *array, size_t i, float x)
{
    if (type == HST_CPU_F32)
        ((float *)array)[i] = x;
    else
        ((uint16_t *)array)[i] =
            type == HST_CPU_BF16 ? (uint16_t)(bits_of(x) >> 16) : f16_nearest_to(x);
}

static float some(bool special, float scale)
{
    return special && random_below(&rng, 3) == 0 ? float_of(random_special(&rng))
                                                 : random_unit(&rng) * scale;
}

/* A code is any. */
static void put_moment(const struct hst_update *u, unsigned char *array, size_t i, float x)
{
    if (has_codes(u))
        array[i] = (unsigned char)random_u64(&rng);
    else
        put(u->kind.moments, array, i, x);
}

static void fill(const struct hst_update *u, struct memory *at, bool special)
{
    memset(at, 0, sizeof *at);
    at->m_scale = special && random_below(&rng, 3) == 0 ? 0 : 1e-3f;
    at->v_scale = special && random_below(&rng, 3) == 0 ? 1e-38f : 1e-6f;
    for (size_t i = 0; i < COUNT; i++) {
        /* f16: near the edge of its range too */
        float p = some(special, i % 7 == 0 ? 131072.0f : 1.0f);
        literal_write_master(u->kind.weights, at, i, one_nan(p));
        put_moment(u, at->m, i, some(special, 1e-3f));
        put_moment(u, at->v, i, fabsf(some(special, 1e-6f)));
        put(u->kind.grads, at->grads, i, some(special, 1e-3f));
    }
}

static struct hst_adam_coef random_coef(void)
{
    /* With the larger step every rounding of it shows in the weight. */
    const struct hst_adam_hyper hypers[] = {{1e-3, 0.9, 0.999, 1e-8, 0.1},
                                            {1.0, 0.9, 0.999, 1e-8, 0.5}};
    struct hst_adam_coef k;
    uint64_t t = 1 + random_below(&rng, 100);
    float scale = random_unit(&rng);
    assert_int_equal(hst_adam_coef_init(&hypers[random_below(&rng, 2)], t, scale, &k), 0);
    return k;
}

/* ---- cases ---- */

static void every_update_follows_the_documented_rounding_order(void **state)
{
    static struct memory got, want;
    (void)state;

    for (size_t t = 0; t < table_count; t++)
        for (size_t i = 0; i < tables[t]->update_count; i++)
            for (int round = 0; round < ROUNDS; round++) {
                const struct hst_update *u = &tables[t]->updates[i];
                struct hst_adam_coef k = random_coef();
                fill(u, &want, round % 2);
                /* every third time its upper half changes on the way */
                want.index = random_u64(&rng) >> 16;
                want.index = round % 3 ? want.index : (want.index | 0xffffffff) - COUNT / 2;
                got = want;
                const struct hst_update_arrays arrays = arrays_in(&got, u);
                int not_finite = literal_run(u, &k, &want);
                assert_int_equal(hst_update_run(u, &k, &arrays, COUNT), not_finite);
                if (!same_bytes(&got, &want, sizeof got))
                    fail_msg("%s: %s does something else", tables[t]->name, u->name);
            }
}

static void weights_that_f16_can_not_hold_are_counted(void **state)
{
    const float masters[] = {65504, 65519.996f, 65520, -65520, 1e30f, NAN, -INFINITY, 1};
    const uint16_t want[] = {0x7bff, 0x7bff, 0x7c00, 0xfc00, 0x7c00, 0x7e00, 0x7e00, 0x3c00};
    const struct hst_adam_hyper still = {0, 0.9, 0.999, 1e-8, 0};
    const struct hst_update_kind kind = {.weights = HST_CPU_F16};
    struct hst_adam_coef k;
    (void)state;

    assert_int_equal(hst_adam_coef_init(&still, 1, 1, &k), 0);
    for (size_t t = 0; t < table_count; t++) {
        float master[8], m[8] = {0}, v[8] = {0}, grads[8] = {0};
        uint16_t weights[8] = {0};
        memcpy(master, masters, sizeof master);
        const struct hst_update_arrays arrays = {
            .weights = weights, .master = master, .m = m, .v = v, .grads = grads};
        assert_int_equal(hst_update_run(hst_update_find(tables[t], kind), &k, &arrays, 8), 5);
        assert_memory_equal(weights, want, sizeof want);
    }
}

static void an_update_is_found_by_its_kind_and_describes_its_traffic(void **state)
{
    size_t found = 0;
    (void)state;

    for (int o = 0; o < OPTIMIZERS_COUNT; o++)
        for (int w = 0; w < HST_CPU_TYPES; w++)
            for (int m = 0; m <= HST_CPU_CODE; m++)
                for (int g = 0; g < HST_CPU_TYPES; g++) {
                    const struct hst_update_kind kind = {OPTIMIZERS[o].optimizer,
                                                         (enum hst_cpu_type)w, (enum hst_cpu_type)m,
                                                         (enum hst_cpu_type)g};
                    const struct hst_update *u = hst_update_find(tables[0], kind);
                    bool exists = m == HST_CPU_F32 ||
                                  (OPTIMIZERS[o].bf16 && m == HST_CPU_BF16 && w == HST_CPU_BF16) ||
                                  (OPTIMIZERS[o].codes && m == HST_CPU_CODE && w == HST_CPU_BF16 &&
                                   g == HST_CPU_BF16);
                    assert_int_equal(u != NULL, exists);
                    if (!u)
                        continue;
                    found++;
                    const struct hst_update_bytes *b = &u->bytes;
                    int states = b->master + b->m + b->v, moment = m == HST_CPU_F32    ? 4
                                                                   : m == HST_CPU_BF16 ? 2
                                                                                       : 1;
                    assert_int_equal(u->granularity, m == HST_CPU_CODE ? 256 : 1);
                    assert_int_equal(b->m, OPTIMIZERS[o].m ? moment : 0);
                    assert_int_equal(b->v, OPTIMIZERS[o].v ? moment : 0);
                    assert_int_equal(u->written_bytes, b->weights + states);
                    /* an f16 weight is not read: its master is */
                    assert_int_equal(u->read_bytes,
                                     (w == HST_CPU_F16 ? 0 : b->weights) + states + b->grads);
                }
    assert_int_equal(found, tables[0]->update_count);
}

static void expect_refused(const struct hst_update *u, const struct hst_adam_coef *k,
                           struct hst_update_arrays arrays, size_t n)
{
    assert_int_equal(hst_update_run(u, k, &arrays, n), -EINVAL);
}

static void arrays_that_can_not_be_are_refused_and_untouched(void **state)
{
    static struct memory at, before;
    struct hst_adam_coef k = random_coef();
    (void)state;

    for (size_t i = 0; i < tables[0]->update_count; i++) {
        const struct hst_update *u = &tables[0]->updates[i];
        fill(u, &at, false);
        before = at;
        const struct hst_update_arrays good = arrays_in(&at, u);
        struct hst_update_arrays bad[] = {good, good, good, good, good, good, good, good};
        bad[0].weights = NULL;
        bad[1].m = u->bytes.m ? NULL : at.m;
        bad[2].grads = NULL;
        bad[3].master = u->bytes.master ? NULL : at.master;
        bad[4].weights = at.weights + 1;
        bad[5].grads = at.grads + 1;
        bad[6].v = at.weights + 12; /* begins inside of the weights, or is none's */
        bad[7].grads = at.weights;
        for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++)
            expect_refused(u, &k, bad[b], 8);
        expect_refused(u, &k, good, SIZE_MAX / 4);
        assert_memory_equal(&at, &before, sizeof at);
    }
}

static void arrays_may_touch(void **state)
{
    static float memory[4 * COUNT];
    const struct hst_update *u = hst_update_find(tables[0], (struct hst_update_kind){0});
    struct hst_adam_coef k = random_coef();
    const struct hst_update_arrays a = {.weights = memory,
                                        .m = memory + COUNT,
                                        .v = memory + 2 * COUNT,
                                        .grads = memory + 3 * COUNT};
    (void)state;
    assert_int_equal(hst_update_run(u, &k, &a, COUNT), 0);
}

static void no_elements_are_fine_wherever_the_arrays_are(void **state)
{
    struct hst_adam_coef k = random_coef();
    const struct hst_update_arrays none = {0};
    (void)state;

    for (size_t i = 0; i < tables[0]->update_count; i++)
        assert_int_equal(hst_update_run(&tables[0]->updates[i], &k, &none, 0), 0);
}

static void coefficients_that_were_not_made_by_init_are_refused(void **state)
{
    static struct memory at, before;
    const struct hst_update *u = &tables[0]->updates[0];
    const struct hst_adam_coef good = random_coef();
    struct hst_adam_coef bad[] = {{0}, good, good, good, good, good, good};
    (void)state;

    bad[1].eps = 0;
    bad[2].step_size = NAN;
    bad[3].grad_scale = INFINITY;
    bad[4].beta2_hi = NAN;
    bad[5].decay = -INFINITY;
    bad[6].l2 = NAN;
    fill(u, &at, false);
    before = at;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_refused(u, &bad[i], arrays_in(&at, u), COUNT);
    assert_memory_equal(&at, &before, sizeof at);
}

static void arrays_at_an_element_are_those_from_it_on(void **state)
{
    static struct memory at;
    (void)state;

    for (size_t i = 0; i < tables[0]->update_count; i++) {
        const struct hst_update *u = &tables[0]->updates[i];
        const struct hst_update_arrays a = arrays_in(&at, u);
        const struct hst_update_arrays b = hst_update_arrays_at(u, &a, 5);
        assert_ptr_equal(b.weights, at.weights + 5 * u->bytes.weights);
        assert_ptr_equal(b.master, u->bytes.master ? at.master + 5 * u->bytes.master : NULL);
        assert_ptr_equal(b.m, u->bytes.m ? at.m + 5 * u->bytes.m : NULL);
        assert_ptr_equal(b.v, u->bytes.v ? at.v + 5 * u->bytes.v : NULL);
        assert_ptr_equal(b.grads, at.grads + 5 * u->bytes.grads);
        assert_int_equal(b.index, a.index + 5);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_update_follows_the_documented_rounding_order),
        cmocka_unit_test(weights_that_f16_can_not_hold_are_counted),
        cmocka_unit_test(an_update_is_found_by_its_kind_and_describes_its_traffic),
        cmocka_unit_test(arrays_that_can_not_be_are_refused_and_untouched),
        cmocka_unit_test(arrays_may_touch),
        cmocka_unit_test(no_elements_are_fine_wherever_the_arrays_are),
        cmocka_unit_test(coefficients_that_were_not_made_by_init_are_refused),
        cmocka_unit_test(arrays_at_an_element_are_those_from_it_on),
    };
    table_count = tables_list(tables);
    rng = seed_begin(argc, argv);
    return cmocka_run_group_tests_name("update", tests, NULL, NULL);
}
