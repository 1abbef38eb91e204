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

static const struct hst_cpu_adam_ops *ops(void)
{
    return hst_cpu_adam_ops(HST_CPU_ISA_AUTO);
}

static void rows_are_as_wide_as_their_kernels(void **state)
{
    (void)state;
    for (size_t i = 0; i < optimizer_adamw_count; i++) {
        const struct optimizer *row = &optimizer_adamw[i];
        const struct hst_update *update = optimizer_kernel_find(row, ops()).update;
        const struct hst_update_bytes *bytes = &update->bytes;
        assert_int_equal(optimizer_weight_bytes(row), bytes->weights);
        assert_int_equal(optimizer_weight_bytes(row), bytes->grads);
        assert_int_equal(optimizer_state_bytes(row), bytes->master + bytes->m + bytes->v);
        assert_int_equal(optimizer_traffic_bytes(row), update->read_bytes + update->written_bytes);
        assert_int_equal(row->has_master, bytes->master > 0);
        assert_int_equal(row->state_count, 2 + (bytes->master > 0));
    }
}

static void rows_keep_to_what_layouts_align(void **state)
{
    (void)state;
    for (size_t i = 0; i < optimizer_adamw_count; i++) {
        const struct optimizer *row = &optimizer_adamw[i];
        assert_ptr_equal(optimizer_find(row->precision, row->state), row);
        assert_int_equal(LAYOUT_PARAM_ALIGN % row->granularity, 0);
        for (uint32_t s = 0; s < row->state_count; s++) {
            assert_int_equal(LAYOUT_UNIT_ALIGN % row->states[s].covers, 0);
            for (uint32_t other = 0; other < s; other++)
                assert_string_not_equal(row->states[s].name, row->states[other].name);
        }
    }
    assert_ptr_equal(optimizer_find(HST_PRECISION_DEFAULT, HST_STATE_DEFAULT),
                     optimizer_find(HST_PRECISION_FP32, HST_STATE_FP32));
    assert_null(optimizer_find(HST_PRECISION_FP32, HST_STATE_BF16));
    assert_null(optimizer_find(HST_PRECISION_FP16, HST_STATE_BF16));
}

static struct hst_config config(void)
{
    struct hst_config config = {.size = sizeof config, .beta1 = 0.8, .weight_decay = 0.1};
    optimizer_resolve(&config);
    return config;
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
    for (size_t i = 0; i < optimizer_adamw_count; i++) {
        const struct optimizer *row = &optimizer_adamw[i];
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
    unsigned char *v = m + ELEMENTS * bytes->m + 1088;
    return (struct hst_update_arrays){tile->weights, master, m, v, tile->grads, 7};
}

static void an_update_has_the_bits_of_cpu_adam(void **state)
{
    (void)state;
    static struct tile tile, other;
    const struct hst_config chosen = config();
    const struct optimizer_step step = {.lr = 0.01, .t = 3, .grad_scale = 0.5f};
    const struct hst_adam_hyper hyper = {0.01, 0.8, 0.999, 1e-8, 0.1};
    struct hst_adam_coef coef;
    struct optimizer_coefs coefs;
    assert_int_equal(hst_adam_coef_init(&hyper, 3, 0.5f, &coef), 0);
    for (size_t i = 0; i < optimizer_adamw_count; i++) {
        const struct optimizer_kernel kernel = optimizer_kernel_find(&optimizer_adamw[i], ops());
        assert_int_equal(optimizer_coefs_init(kernel.optimizer, &chosen, &step, &coefs), 0);
        fill(&tile, &kernel);
        fill(&other, &kernel);
        const struct hst_update_arrays arrays = by_hand(&kernel.update->bytes, &other);
        assert_true(hst_update_run(kernel.update, &coef, &arrays, ELEMENTS) >= 0);
        tile.arrays.index = 7;
        const struct optimizer_arrays rest =
            optimizer_arrays_at(kernel.optimizer, &tile.arrays, 64);
        const struct optimizer_coef *decays = optimizer_coef(&coefs, 0, true);
        assert_true(optimizer_run(&kernel, decays, &tile.arrays, 64) >= 0);
        assert_true(optimizer_run_into(&kernel, decays, &rest, &rest, ELEMENTS - 64) >= 0);
        assert_memory_equal(tile.weights, other.weights, sizeof tile.weights);
        assert_memory_equal(tile.record, other.record, sizeof tile.record);
    }
}

static void numbers_have_defaults_and_bounds(void **state)
{
    (void)state;
    struct hst_config c = {.size = sizeof c, .weight_decay = HST_NONE};
    char text[128];
    optimizer_resolve(&c);
    assert_true(c.beta1 == 0.9 && c.beta2 == 0.999 && c.eps == 1e-8 && c.weight_decay == 0);
    assert_null(optimizer_refusal(&c));
    const int bytes = optimizer_settings_write(&c, text, sizeof text);
    assert_int_equal(bytes, strlen(text));
    assert_string_equal(text, "betas 0.9,0.999\neps 1e-08\nweight-decay 0\n");
    c.beta2 = 1;
    assert_non_null(optimizer_refusal(&c));
}

static void coefficients_of_a_step_are_made_or_left_alone(void **state)
{
    (void)state;
    const struct optimizer *row = optimizer_find(HST_PRECISION_FP32, HST_STATE_FP32);
    const struct hst_config c = config();
    struct optimizer_step step = {.lr = 0.01, .t = 1, .grad_scale = 1};
    struct optimizer_coefs coefs, other;
    assert_int_equal(optimizer_coefs_init(row, &c, &step, &coefs), 0);
    assert_true(optimizer_coef(&coefs, 0, true)->host.decay > 0);
    assert_true(optimizer_coef(&coefs, 0, false)->host.decay == 0);
    other = coefs;
    assert_true(optimizer_coefs_agree(&coefs, &other));
    step.grad_scale = 0.5f;
    assert_int_equal(optimizer_coefs_init(row, &c, &step, &other), 0);
    assert_false(optimizer_coefs_agree(&coefs, &other));
    step.lr = -1;
    struct optimizer_coefs before = other;
    assert_int_equal(optimizer_coefs_init(row, &c, &step, &other), -EINVAL);
    assert_memory_equal(&other, &before, sizeof other);
}

/* Bytes of 8 bits would need a number of their own; what matters is what the second one covers. */
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
        cmocka_unit_test(coefficients_of_a_step_are_made_or_left_alone),
        cmocka_unit_test(a_scale_covers_its_elements),
        cmocka_unit_test(each_byte_of_a_record_has_its_element),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
