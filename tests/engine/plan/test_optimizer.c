/* SPDX-License-Identifier: Apache-2.0 */
/* The table of optimizers: its rows say what cpu_adam does, and what records are made of. */
#include "optimizer/optimizer.h"
#include "plan/layout/layout.h"
#include "plan/placement/record.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ELEMENTS = 4096 };
#define ADAMW HST_OPTIMIZER_ADAMW

static const struct hst_cpu_adam_ops *ops(void)
{
    return hst_cpu_adam_ops(HST_CPU_ISA_AUTO);
}

/* Row number n of all tables; null: there are no more. */
static const struct optimizer *row_of(size_t n)
{
    for (int o = 0; o <= HST_OPTIMIZER_ADAGRAD; o++)
        for (int p = HST_PRECISION_FP32; p <= HST_PRECISION_FP16; p++)
            for (int s = HST_STATE_FP32; s <= HST_STATE_8BIT; s++) {
                const struct optimizer *row =
                    optimizer_find((enum hst_optimizer)o, (enum hst_precision)p, (enum hst_state)s);
                if (row && n-- == 0)
                    return row;
            }
    return NULL;
}

static void rows_are_as_wide_as_their_kernels(void **state)
{
    (void)state;
    const struct optimizer *row;
    for (size_t i = 0; (row = row_of(i)); i++) {
        const struct hst_update *update = optimizer_kernel_find(row, ops()).update;
        const struct hst_update_bytes *bytes = &update->bytes;
        assert_int_equal(optimizer_weight_bytes(row), bytes->weights);
        assert_int_equal(optimizer_weight_bytes(row), bytes->grads);
        const int moments = (bytes->m > 0) + (bytes->v > 0);
        const int scales = row->state == HST_STATE_8BIT ? moments : 0;
        const double scale_bytes = scales * 4.0 / HST_CODE_BLOCK;
        assert_true(optimizer_state_bytes(row) ==
                    bytes->master + bytes->m + bytes->v + scale_bytes);
        assert_true(optimizer_traffic_bytes(row) ==
                    update->read_bytes + update->written_bytes + 2 * scale_bytes);
        assert_int_equal(row->has_master, bytes->master > 0);
        assert_int_equal(row->state_count, moments + scales + (bytes->master > 0));
        assert_int_equal(row->granularity, update->granularity);
    }
}

static void rows_keep_to_what_layouts_align(void **state)
{
    (void)state;
    const struct optimizer *row;
    for (size_t i = 0; (row = row_of(i)); i++) {
        assert_string_equal(row->name, optimizer_name(row->host.optimizer));
        assert_int_equal(LAYOUT_UNIT_ALIGN % row->granularity, 0);
        for (uint32_t s = 0; s < row->state_count; s++) {
            assert_int_equal(LAYOUT_UNIT_ALIGN % row->states[s].covers, 0);
            for (uint32_t other = 0; other < s; other++)
                assert_string_not_equal(row->states[s].name, row->states[other].name);
        }
    }
    assert_ptr_equal(optimizer_find(ADAMW, HST_PRECISION_DEFAULT, HST_STATE_DEFAULT),
                     optimizer_find(ADAMW, HST_PRECISION_FP32, HST_STATE_FP32));
    assert_null(optimizer_find(ADAMW, HST_PRECISION_FP32, HST_STATE_BF16));
    assert_null(optimizer_find(ADAMW, HST_PRECISION_FP16, HST_STATE_BF16));
    assert_null(optimizer_find(HST_OPTIMIZER_ADAGRAD, HST_PRECISION_BF16, HST_STATE_BF16));
}

static struct hst_config config(enum hst_optimizer optimizer)
{
    struct hst_config config = {.size = sizeof config, .optimizer = optimizer, .weight_decay = 0.1};
    if (optimizer == HST_OPTIMIZER_SGD)
        config.momentum = 0.7;
    else if (optimizer != HST_OPTIMIZER_ADAGRAD)
        config.beta1 = 0.8;
    optimizer_resolve(&config);
    return config;
}

static struct optimizer_groups groups_of(const struct hst_config *config)
{
    struct optimizer_groups groups;
    char why[HST_WHY_BYTES];
    assert_true(optimizer_groups_read(config, &groups, why));
    return groups;
}

/* A tile: its weights, its gradients and its record, with numbers everywhere. */
struct tile {
    _Alignas(64) unsigned char weights[ELEMENTS * 4], grads[ELEMENTS * 4], record[16 * 4096];
    struct optimizer_arrays arrays;
};

static void fill(struct tile *tile, const struct optimizer_kernel *kernel)
{
    static float x[ELEMENTS];
    const enum hst_cpu_type type = kernel->optimizer->host.weights;
    for (int i = 0; i < ELEMENTS; i++)
        x[i] = (float)(i - 100) / 512;
    memset(tile->record, 0x3c, sizeof tile->record);
    tile->arrays = record_arrays(kernel->optimizer, tile->weights, tile->record, ELEMENTS);
    tile->arrays.grads = tile->grads;
    if (type == HST_CPU_F32)
        memcpy(tile->grads, x, sizeof x);
    else if (type == HST_CPU_BF16)
        kernel->ops->bf16_from_f32(x, (uint16_t *)(void *)tile->grads, ELEMENTS);
    else
        kernel->ops->f16_from_f32(x, (uint16_t *)(void *)tile->grads, ELEMENTS);
    optimizer_begin(kernel, x, &tile->arrays, ELEMENTS);
}

static void masters_are_what_began_and_other_states_are_zero(void **state)
{
    (void)state;
    static struct tile tile;
    static float room[ELEMENTS];
    const struct optimizer *row;
    for (size_t i = 0; (row = row_of(i)); i++) {
        const struct optimizer_kernel kernel = optimizer_kernel_find(row, ops());
        fill(&tile, &kernel);
        const float *masters = optimizer_masters(&kernel, &tile.arrays, room, ELEMENTS);
        for (int e = 0; e < ELEMENTS; e++)
            assert_true(masters[e] == (float)(e - 100) / 512);
        for (uint32_t s = row->has_master; s < row->state_count; s++)
            for (uint64_t at = 0; at < optimizer_array_bytes(row, s, ELEMENTS); at++)
                assert_int_equal(((unsigned char *)tile.arrays.states[s])[at], 0);
        if (row->host.weights != HST_CPU_F16)
            continue;
        static unsigned char weights[sizeof tile.weights];
        memcpy(weights, tile.weights, sizeof weights);
        memset(tile.weights, 0, ELEMENTS * sizeof(uint16_t));
        optimizer_derive(&kernel, &tile.arrays, ELEMENTS);
        assert_memory_equal(tile.weights, weights, sizeof weights);
    }
}

/* The arrays as cpu_adam names them, found without the row. */
static struct hst_update_arrays by_hand(const struct hst_update_bytes *bytes, struct tile *tile)
{
    unsigned char *master = bytes->master ? tile->record : NULL;
    unsigned char *m = tile->record + (bytes->master ? ELEMENTS * bytes->master + 1088 : 0);
    unsigned char *v = bytes->m ? m + ELEMENTS * bytes->m + 1088 : m;
    unsigned char *scales = v + ELEMENTS * bytes->v + 1088;
    const bool codes = bytes->m == 1; /* then the second scales are 1,088 on modulo 4,096 */
    return (struct hst_update_arrays){
        .weights = tile->weights,
        .master = master,
        .m = bytes->m ? m : NULL,
        .v = bytes->v ? v : NULL,
        .grads = tile->grads,
        .index = 7,
        .m_scales = codes ? (float *)(void *)scales : NULL,
        .v_scales = codes ? (float *)(void *)(scales + 1088) : NULL,
    };
}

/* Of the numbers that config() has. */
static struct hst_adam_coef coef_by_hand(enum hst_optimizer optimizer)
{
    const struct hst_adam_hyper adamw = {0.01, 0.8, 0.999, 1e-8, 0.1};
    const struct hst_adam_hyper sgd = {0.01, 0.7, 0, 1, 0.1};
    struct hst_adam_coef coef;
    const struct hst_adam_hyper lion = {0.01, 0.8, 0.99, 1, 0.1};
    const struct hst_adam_hyper adagrad = {0.01, 0, 0, 1e-10, 0.1};
    if (optimizer == HST_OPTIMIZER_ADAGRAD)
        assert_int_equal(hst_plain_coef_init(&adagrad, 3, 0.5f, &coef), 0);
    else if (optimizer == HST_OPTIMIZER_LION)
        assert_int_equal(hst_plain_coef_init(&lion, 3, 0.5f, &coef), 0);
    else if (optimizer == HST_OPTIMIZER_ADAMW)
        assert_int_equal(hst_adam_coef_init(&adamw, 3, 0.5f, &coef), 0);
    else
        assert_int_equal(hst_plain_coef_init(&sgd, 3, 0.5f, &coef), 0);
    return coef;
}

static void an_update_has_the_bits_of_cpu_adam(void **state)
{
    (void)state;
    static struct tile tile, other;
    const struct optimizer_step step = {.lr = 0.01, .t = 3, .grad_scale = 0.5f};
    struct optimizer_coefs coefs;
    const struct optimizer *row;
    for (size_t i = 0; (row = row_of(i)); i++) {
        const struct optimizer_kernel kernel = optimizer_kernel_find(row, ops());
        const struct hst_config chosen = config(row->host.optimizer);
        const struct optimizer_groups groups = groups_of(&chosen);
        const struct hst_adam_coef coef = coef_by_hand(row->host.optimizer);
        assert_int_equal(optimizer_coefs_init(kernel.optimizer, &groups, &step, &coefs), 0);
        fill(&tile, &kernel);
        fill(&other, &kernel);
        const struct hst_update_arrays arrays = by_hand(&kernel.update->bytes, &other);
        assert_true(hst_update_run(kernel.update, &coef, &arrays, ELEMENTS) >= 0);
        tile.arrays.index = 7;
        const struct optimizer_arrays rest =
            optimizer_arrays_at(kernel.optimizer, &tile.arrays, 256);
        const struct optimizer_coef *decays = optimizer_coef(&coefs, 0, true);
        assert_true(optimizer_run(&kernel, decays, &tile.arrays, 256) >= 0);
        assert_true(optimizer_run_into(&kernel, decays, &rest, &rest, ELEMENTS - 256) >= 0);
        assert_memory_equal(tile.weights, other.weights, sizeof tile.weights);
        assert_memory_equal(tile.record, other.record, sizeof tile.record);
    }
}

static void numbers_have_defaults_and_bounds(void **state)
{
    (void)state;
    struct hst_config c = {.size = sizeof c, .weight_decay = HST_NONE};
    char text[128], why[HST_WHY_BYTES];
    optimizer_resolve(&c);
    assert_true(c.beta1 == 0.9 && c.beta2 == 0.999 && c.eps == 1e-8 && c.weight_decay == 0);
    assert_false(optimizer_refusal(&c, why));
    const int bytes = optimizer_settings_write(&c, text, sizeof text);
    assert_int_equal(bytes, strlen(text));
    assert_string_equal(text, "betas 0.9,0.999\neps 1e-08\nweight-decay 0\n");
    c.beta2 = 1;
    assert_true(optimizer_refusal(&c, why));
    assert_non_null(strstr(why, "betas and momentum must be in [0, 1)"));
}

/* Of each optimizer: how a version says its numbers, and an option that it has not. */
static void each_optimizer_has_numbers_of_its_own(void **state)
{
    (void)state;
    static const struct {
        enum hst_optimizer optimizer;
        const char *settings, *other;
        struct hst_config wrong;
    } cases[] = {
        {ADAMW,
         "betas 0.9,0.999\neps 1e-08\nweight-decay 0.01\n",
         "--momentum",
         {.momentum = HST_NONE}},
        {HST_OPTIMIZER_SGD,
         "optimizer sgd\nmomentum 0.9\nweight-decay 0\n",
         "--betas",
         {.beta2 = 0.9}},
        {HST_OPTIMIZER_LION,
         "optimizer lion\nbetas 0.9,0.99\nweight-decay 0.01\n",
         "--eps",
         {.eps = 1e-8}},
        {HST_OPTIMIZER_ADAGRAD,
         "optimizer adagrad\neps 1e-10\nweight-decay 0\n",
         "--momentum",
         {.momentum = 0.5}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hst_config c = {.size = sizeof c, .optimizer = cases[i].optimizer};
        struct hst_config wrong = cases[i].wrong;
        char text[128], why[HST_WHY_BYTES];
        enum hst_optimizer found;
        optimizer_resolve(&c);
        assert_false(optimizer_refusal(&c, why));
        const int bytes = optimizer_settings_write(&c, text, sizeof text);
        assert_int_equal(bytes, strlen(text));
        assert_string_equal(text, cases[i].settings);
        wrong.optimizer = c.optimizer;
        optimizer_resolve(&wrong);
        assert_true(optimizer_refusal(&wrong, why));
        assert_non_null(strstr(why, cases[i].other));
        const char *name = optimizer_name(c.optimizer);
        assert_true(optimizer_named(name, strlen(name), &found) && found == c.optimizer);
        assert_false(optimizer_named(name, strlen(name) - 1, &found));
    }
    struct hst_config none = {.size = sizeof none, .optimizer = HST_OPTIMIZER_ADAM};
    char why[HST_WHY_BYTES];
    optimizer_resolve(&none);
    assert_true(optimizer_refusal(&none, why));
    assert_non_null(strstr(why, "one of adamw, sgd, lion, adagrad"));
}

/* What is measured is AdamW's; fewer bytes take less time. */
static void rates_of_others_follow_from_their_bytes(void **state)
{
    (void)state;
    for (int p = HST_PRECISION_FP32; p <= HST_PRECISION_FP16; p++)
        for (int s = HST_STATE_FP32; s <= HST_STATE_BF16; s++) {
            const struct optimizer *row =
                optimizer_find(ADAMW, (enum hst_precision)p, (enum hst_state)s);
            assert_true(!row || optimizer_pace(row) == 1);
        }
    const struct optimizer *sgd =
        optimizer_find(HST_OPTIMIZER_SGD, HST_PRECISION_FP32, HST_STATE_FP32);
    assert_true(optimizer_pace(sgd) == 28.0 / 20);
}

static void coefficients_of_a_step_are_made_or_left_alone(void **state)
{
    (void)state;
    const struct optimizer *row = optimizer_find(ADAMW, HST_PRECISION_FP32, HST_STATE_FP32);
    const struct hst_config c = config(ADAMW);
    const struct optimizer_groups groups = groups_of(&c);
    struct optimizer_step step = {.lr = 0.01, .t = 1, .grad_scale = 1};
    struct optimizer_coefs coefs, other;
    assert_int_equal(optimizer_coefs_init(row, &groups, &step, &coefs), 0);
    assert_true(optimizer_coef(&coefs, 0, true)->host.decay > 0);
    assert_true(optimizer_coef(&coefs, 0, false)->host.decay == 0);
    other = coefs;
    assert_true(optimizer_coefs_agree(&coefs, &other));
    step.grad_scale = 0.5f;
    assert_int_equal(optimizer_coefs_init(row, &groups, &step, &other), 0);
    assert_false(optimizer_coefs_agree(&coefs, &other));
    step.lr = -1;
    struct optimizer_coefs before = other;
    assert_int_equal(optimizer_coefs_init(row, &groups, &step, &other), -EINVAL);
    assert_memory_equal(&other, &before, sizeof other);
}

/* What matters is what the second one covers. */
static const struct optimizer scaled = {
    .host = {.weights = HST_CPU_BF16},
    .states = {{.name = "moment", .number = OPTIMIZER_I16, .covers = 1},
               {.name = "scale", .number = OPTIMIZER_F32, .covers = 256}},
    .state_count = 2,
    .granularity = 256,
};

static void a_scale_covers_its_elements(void **state)
{
    (void)state;
    static unsigned char weights[2 * ELEMENTS], record[8 * 4096];
    assert_true(optimizer_state_bytes(&scaled) == 2 + 4.0 / 256);
    assert_int_equal(optimizer_array_bytes(&scaled, 1, 256), 4);
    assert_int_equal(optimizer_array_bytes(&scaled, 1, 257), 8);
    const struct record at = record_layout(&scaled, ELEMENTS);
    assert_int_equal(at.at[0], 0);
    assert_int_equal(at.at[1], 2 * ELEMENTS + 1088);
    assert_int_equal(at.bytes, 2 * ELEMENTS + 4096);
    const struct optimizer_arrays all = record_arrays(&scaled, weights, record, ELEMENTS);
    const struct optimizer_arrays rest = optimizer_arrays_at(&scaled, &all, 512);
    assert_ptr_equal(rest.weights, weights + 1024);
    assert_ptr_equal(rest.states[0], record + 1024);
    assert_ptr_equal(rest.states[1], record + at.at[1] + 8);
    assert_null(rest.grads);
}

static void each_byte_of_a_record_has_its_element(void **state)
{
    (void)state;
    const struct record at = record_layout(&scaled, ELEMENTS);
    assert_int_equal(record_element(&scaled, ELEMENTS, 0), 0);
    assert_int_equal(record_element(&scaled, ELEMENTS, 11), 5);
    assert_int_equal(record_element(&scaled, ELEMENTS, 2 * ELEMENTS + 4), ELEMENTS - 1);
    assert_int_equal(record_element(&scaled, ELEMENTS, at.at[1] + 7), 256);
    assert_int_equal(record_element(&scaled, ELEMENTS, at.bytes - 1), ELEMENTS - 1);
    static unsigned char record[8 * 4096];
    memset(record, 0xff, sizeof record);
    record_zero_gaps(record, &scaled, ELEMENTS);
    for (uint64_t i = 0; i < at.bytes; i++) {
        bool gap = (i >= 2 * ELEMENTS && i < at.at[1]) || i >= at.at[1] + 4 * ELEMENTS / 256;
        assert_int_equal(record[i], gap ? 0 : 0xff);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_as_wide_as_their_kernels),
        cmocka_unit_test(rows_keep_to_what_layouts_align),
        cmocka_unit_test(masters_are_what_began_and_other_states_are_zero),
        cmocka_unit_test(an_update_has_the_bits_of_cpu_adam),
        cmocka_unit_test(numbers_have_defaults_and_bounds),
        cmocka_unit_test(each_optimizer_has_numbers_of_its_own),
        cmocka_unit_test(rates_of_others_follow_from_their_bytes),
        cmocka_unit_test(coefficients_of_a_step_are_made_or_left_alone),
        cmocka_unit_test(a_scale_covers_its_elements),
        cmocka_unit_test(each_byte_of_a_record_has_its_element),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
