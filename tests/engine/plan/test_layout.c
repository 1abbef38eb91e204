/* SPDX-License-Identifier: Apache-2.0 */
/* Layout, tile records and the order of a step: where each byte lies, independent of any machine.
 */
#include "plan/layout/layout.h"
#include "plan/placement/record.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static int add(struct layout *layout, const char *unit, const struct hst_param_desc *params,
               uint32_t count)
{
    char why[256];
    struct hst_unit_desc desc = {.name = unit, .params = params, .param_count = count};
    return layout_add(layout, &desc, why, sizeof why);
}

static const struct hst_param_desc EMBED[] = {
    {.name = "embed", .dim_count = 2, .dims = {100, 50}, .flags = HST_PARAM_DECAY}};
static const struct hst_param_desc LAYER[] = {
    {.name = "norm", .dim_count = 1, .dims = {50}},
    {.name = "proj", .dim_count = 2, .dims = {100, 100}, .flags = HST_PARAM_DECAY},
};
static const struct hst_param_desc HEAD[] = {
    {.name = "last", .dim_count = 1, .dims = {50}},
    {.name = "out", .dim_count = 2, .dims = {100, 50}, .alias_of = "embed"},
};

static struct layout small_model(uint32_t tile_elements)
{
    struct layout layout = {0};
    assert_int_equal(add(&layout, "embed", EMBED, 1), 0);
    assert_int_equal(add(&layout, "layer", LAYER, 2), 0);
    assert_int_equal(add(&layout, "empty", NULL, 0), 0);
    assert_int_equal(add(&layout, "head", HEAD, 2), 0);
    assert_int_equal(layout_seal(&layout, tile_elements, SHARE_ALL), 0);
    return layout;
}

static void parameters_start_at_multiples_of_64_and_rows_end_at_multiples_of_4096(void **state)
{
    (void)state;
    struct layout layout = small_model(4096);
    assert_int_equal(layout.params[1].offset, 0);
    assert_int_equal(layout.params[2].offset, 64);
    assert_int_equal(layout.units[0].elements, 8192);
    assert_int_equal(layout.units[1].elements, 12288);
    assert_int_equal(layout.units[2].elements, 0);
    assert_int_equal(layout.units[3].elements, 4096);
    assert_int_equal(layout.parameters, 5000 + 50 + 10000 + 50);
    layout_free(&layout);
}

static void tiles_cover_every_row_once_in_order(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {4096, 8192, 131072};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct layout layout = small_model(sizes[i]);
        uint64_t covered = 0;
        for (uint32_t t = 0; t < layout.tile_count; t++) {
            struct tile_range range = layout_tile(&layout, t);
            assert_true(range.elements > 0 && range.elements % 4096 == 0 &&
                        range.elements <= sizes[i]);
            assert_true(range.offset + range.elements <= layout.units[range.unit].elements);
            if (range.offset == 0)
                assert_int_equal(layout.units[range.unit].first_tile, t);
            covered += range.elements;
        }
        assert_int_equal(covered, layout.elements);
        layout_free(&layout);
    }
}

static void a_tied_parameter_has_one_storage_and_one_gradient(void **state)
{
    (void)state;
    struct layout layout = small_model(4096);
    const struct layout_param *owner = &layout.params[0], *alias = &layout.params[4];
    assert_true(owner->tied && alias->tied);
    assert_int_equal(alias->owner, 0);
    assert_int_equal(alias->offset, owner->offset);
    assert_int_equal(alias->grad_offset, owner->grad_offset);
    assert_int_equal(layout.tied_elements, 5056);
    assert_int_equal(layout.units[0].grad_elements, 0); /* its gradient is in the tied buffer */
    assert_int_equal(layout.units[3].elements, 4096);   /* the alias takes no room */
    layout_free(&layout);
}

static void the_digest_tells_models_apart(void **state)
{
    (void)state;
    struct layout layout = small_model(4096), same = small_model(4096), tiles = small_model(8192);
    uint64_t digest = layout_digest(&layout);
    assert_true(layout_digest(&same) == digest);
    assert_true(layout_digest(&tiles) != digest);
    layout.params[1].decay = !layout.params[1].decay;
    assert_true(layout_digest(&layout) != digest);
    same.params[1].name[0]++;
    assert_true(layout_digest(&same) != digest);
    same.params[1].name[0]--;
    same.params[1].dims[0]++;
    assert_true(layout_digest(&same) != digest);
    layout_free(&layout);
    layout_free(&same);
    layout_free(&tiles);
}

static void wrong_descriptions_are_refused_and_change_nothing(void **state)
{
    (void)state;
    struct layout layout = {0};
    assert_int_equal(add(&layout, "embed", EMBED, 1), 0);
    const struct hst_param_desc bad[] = {
        {.name = "embed", .dim_count = 1, .dims = {5}},                  /* the name is taken */
        {.name = "a", .dim_count = 0},                                   /* no dimension */
        {.name = "a", .dim_count = 9, .dims = {1, 1, 1, 1, 1, 1, 1, 1}}, /* too many */
        {.name = "a", .dim_count = 2, .dims = {5, 0}},                   /* a zero */
        {.name = "a",
         .dim_count = 3,
         .dims = {4194305, 4194305, 211106198978564}}, /* the product overflows */
        {.name = "a", .dim_count = 1, .dims = {1}, .alias_of = "nobody"},
        {.name = "a", .dim_count = 1, .dims = {5000}, .alias_of = "embed"}, /* another shape */
        {.name = NULL, .dim_count = 1, .dims = {1}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(add(&layout, "unit", &bad[i], 1), -EINVAL);
    const struct hst_param_desc twice[] = {{.name = "a", .dim_count = 1, .dims = {1}},
                                           {.name = "a", .dim_count = 1, .dims = {1}}};
    assert_int_equal(add(&layout, "unit", twice, 2), -EINVAL);
    assert_int_equal(layout.unit_count, 1);
    assert_int_equal(layout.param_count, 1);
    layout_free(&layout);
}

static void the_first_parameter_of_a_range_is_the_first_that_ends_behind_its_start(void **state)
{
    (void)state;
    struct layout layout = small_model(4096);
    struct tile_range range = {.unit = 1, .offset = 0};
    assert_int_equal(layout_first_param_in(&layout, range), 1);
    range.offset = 49;
    assert_int_equal(layout_first_param_in(&layout, range), 1);
    range.offset = 50; /* padding behind "norm" */
    assert_int_equal(layout_first_param_in(&layout, range), 2);
    range.offset = 64 + 10000; /* padding at the end */
    assert_int_equal(layout_first_param_in(&layout, range), 3);
    layout_free(&layout);
}

static void record_arrays_do_not_overlap_and_are_staggered(void **state)
{
    (void)state;
    for (uint64_t n = 4096; n <= 131072 * 4; n += 4096) {
        struct record fp32 = record_layout(
            optimizer_find(HST_OPTIMIZER_ADAMW, HST_PRECISION_FP32, HST_STATE_FP32), n);
        assert_int_equal(fp32.at[0] % 4096, 0);
        assert_int_equal(fp32.at[1] % 4096, 1088);
        assert_true(fp32.at[1] >= fp32.at[0] + 4 * n);
        assert_true(fp32.bytes >= fp32.at[1] + 4 * n && fp32.bytes % 4096 == 0);
        struct record bf16 = record_layout(
            optimizer_find(HST_OPTIMIZER_ADAMW, HST_PRECISION_BF16, HST_STATE_FP32), n);
        assert_int_equal(bf16.at[0], 0);
        assert_int_equal(bf16.at[1] % 4096, 1088);
        assert_int_equal(bf16.at[2] % 4096, 2176);
        assert_true(bf16.at[1] >= 2 * n && bf16.at[2] >= bf16.at[1] + 4 * n);
        assert_true(bf16.bytes >= bf16.at[2] + 4 * n && bf16.bytes <= 10 * n + 3 * 4096);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_start_at_multiples_of_64_and_rows_end_at_multiples_of_4096),
        cmocka_unit_test(tiles_cover_every_row_once_in_order),
        cmocka_unit_test(a_tied_parameter_has_one_storage_and_one_gradient),
        cmocka_unit_test(the_digest_tells_models_apart),
        cmocka_unit_test(wrong_descriptions_are_refused_and_change_nothing),
        cmocka_unit_test(the_first_parameter_of_a_range_is_the_first_that_ends_behind_its_start),
        cmocka_unit_test(record_arrays_do_not_overlap_and_are_staggered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
