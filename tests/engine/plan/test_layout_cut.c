/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts that are cut, against the whole they were cut from. */
#include "plan/layout/layout.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define HEAD_ROWS 5000
#define COLUMNS   64
#define BLOCK     256
#define TILE      4096

static char why[256];

static int add(struct layout *layout, const struct hst_unit_desc *desc)
{
    return layout_add(layout, desc, why, sizeof why);
}

static const struct hst_param_desc embed = {
    .name = "embed", .dim_count = 2, .dims = {HEAD_ROWS, COLUMNS}};
static const struct hst_param_desc layer[] = {
    {.name = "norm", .dim_count = 1, .dims = {50}},
    {.name = "proj", .dim_count = 2, .dims = {1000, COLUMNS}},
};
static const struct hst_param_desc head = {
    .name = "head", .dim_count = 2, .dims = {HEAD_ROWS, COLUMNS}};
static const struct hst_param_desc tied_head = {
    .name = "head", .dim_count = 2, .dims = {HEAD_ROWS, COLUMNS}, .alias_of = "embed"};

/* The blocks of both are given. */
static struct layout model(const struct hst_param_desc *last, uint64_t first_block,
                           uint64_t last_block)
{
    struct layout layout = {0};
    const struct hst_unit_desc units[] = {
        {.name = "embedding",
         .params = &embed,
         .param_count = 1,
         .flops_per_token = 0,
         .work_bytes = 1 << 20,
         .slices = {.block_rows = first_block, .work_bytes = 5}},
        {.name = "layer", .params = layer, .param_count = 2, .act_bytes_per_token = 4},
        {.name = "nothing"},
        {.name = "head",
         .params = last,
         .param_count = 1,
         .flops_per_token = 10000,
         .flags = HST_UNIT_NO_FORWARD,
         .slices = {.block_rows = last_block, .work_bytes = 7, .token_bytes = 3}},
    };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        assert_int_equal(add(&layout, &units[i]), 0);
    assert_int_equal(layout_seal(&layout, TILE, SHARE_ALL), 0);
    return layout;
}

/* What is stored and summed is the same: tiles, blocks of the norm, digest, elements. */
static void check_same(const struct layout *whole, const struct layout *cut)
{
    assert_int_equal(cut->tile_count, whole->tile_count);
    assert_true(cut->elements == whole->elements);
    assert_true(cut->parameters == whole->parameters);
    assert_true(cut->tied_elements == whole->tied_elements);
    assert_true(layout_digest(cut) == layout_digest(whole));
    for (uint32_t t = 0; t < whole->tile_count; t++) {
        struct tile_range a = layout_tile(whole, t), b = layout_tile(cut, t);
        struct layout_overlap of_a, of_b;
        uint32_t next_a = layout_first_param_in(whole, a), next_b = layout_first_param_in(cut, b);
        assert_int_equal(a.elements, b.elements);
        assert_true(whole->units[a.unit].first_block + a.offset / LAYOUT_UNIT_ALIGN ==
                    cut->units[b.unit].first_block + b.offset / LAYOUT_UNIT_ALIGN);
        assert_int_equal(layout_begins_unit(cut, t), layout_begins_unit(whole, t));
        while (layout_next_overlap(whole, a, &next_a, &of_a)) {
            assert_true(layout_next_overlap(cut, b, &next_b, &of_b));
            struct hst_param_ref ref_a = layout_param_ref(whole, of_a.param);
            struct hst_param_ref ref_b = layout_param_ref(cut, of_b.param);
            assert_int_equal(ref_a.unit, ref_b.unit);
            assert_ptr_equal(ref_a.name, ref_b.name);
            assert_ptr_equal(ref_a.dims, ref_b.dims);
            assert_true(of_a.in_param == of_b.in_param && of_a.in_tile == of_b.in_tile &&
                        of_a.count == of_b.count);
        }
        assert_false(layout_next_overlap(cut, b, &next_b, &of_b));
    }
}

/* Slices of each unit: its rows, one after another, of whole blocks. */
static void check_slices(const struct layout *cut)
{
    uint64_t row = 0, flops = 0;
    for (uint32_t u = 0; u < cut->unit_count; u++) {
        const struct layout_unit *unit = &cut->units[u];
        const struct layout_param *param = &cut->params[unit->first_param];
        if (!layout_is_slice(cut, u))
            continue;
        row = unit->first_row == 0 ? 0 : row;
        assert_true(unit->first_row == row);
        row += unit->rows;
        assert_true(row == HEAD_ROWS || row % BLOCK == 0);
        assert_true(param->dims[0] == unit->rows && param->count == unit->rows * COLUMNS);
        assert_true(param->first == unit->first_row * COLUMNS);
        assert_int_equal(param->unit, u);
        assert_false(unit->no_forward);
        assert_int_equal(unit->work_bytes, unit->whole == 0 ? 5 : 7);
        assert_true(unit->elements <= 16 * BLOCK * COLUMNS / 4); /* the layer's are 65,536 */
        if (unit->whole == 3)
            flops += unit->flops_per_token;
    }
    assert_true(row == HEAD_ROWS);
    assert_in_range(flops, 9990, 10000);
}

static void slices_are_the_whole_in_pieces(void **state)
{
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        uint32_t units, slices;
        struct layout whole = model(tied ? &tied_head : &head, BLOCK, BLOCK), cut;
        assert_int_equal(layout_cut(&whole, TILE, &cut), 0);
        assert_int_equal(layout_seal(&cut, TILE, SHARE_ALL), 0);
        check_same(&whole, &cut);
        check_slices(&cut);
        layout_count_slices(&cut, &units, &slices);
        assert_int_equal(units, 2);
        assert_int_equal(slices, 10); /* 4 blocks, 4, 4, 4 and the rest of 20 */
        layout_count_slices(&whole, &units, &slices);
        assert_int_equal(units + slices, 0);
        layout_free(&cut);
        layout_free(&whole);
    }
}

/* Of several ranks each slice is a row of its own, of which each has a shard, and a store says
 * where it begins. Its elements are where the whole has them. */
static void ranks_have_shards_of_slices(void **state)
{
    (void)state;
    struct layout whole = model(&head, BLOCK, BLOCK), cut;
    assert_int_equal(layout_cut(&whole, TILE, &cut), 0);
    for (uint32_t world = 2; world < 6; world++) {
        uint64_t elements = 0;
        uint32_t begun = 0;
        for (uint32_t rank = 0; rank < world; rank++) {
            assert_int_equal(layout_seal(&cut, TILE, (struct share){rank, world}), 0);
            assert_true(layout_stores_slices(&cut));
            for (uint32_t u = 0; u < cut.unit_count; u++) {
                const uint64_t each = shard_elements(cut.units[u].elements, world);
                assert_true(cut.units[u].shard.elements <= each);
                assert_true(each * world <= cut.units[u].elements + world * LAYOUT_UNIT_ALIGN);
            }
            for (uint32_t t = 0; t < cut.tile_count; t++) {
                const struct tile_range is = layout_tile(&cut, t);
                const struct tile_range was = layout_range_in(&whole, &cut, is);
                assert_int_equal(was.unit, cut.units[is.unit].whole);
                assert_true(was.offset == is.offset + cut.units[is.unit].first_row * COLUMNS);
                assert_true(was.offset + was.elements <= whole.units[was.unit].elements);
                assert_int_equal(layout_begins_unit(&cut, t), is.offset == 0);
                begun += layout_begins_unit(&cut, t);
                elements += is.elements;
            }
        }
        assert_true(elements == whole.elements);
        assert_int_equal(begun, 11); /* 10 slices, the layer */
    }
    assert_int_equal(layout_seal(&cut, TILE, SHARE_ALL), 0);
    assert_false(layout_stores_slices(&cut));
    layout_free(&cut);
    layout_free(&whole);
}

/* Each slice of an alias is one of the same rows, and there is a gradient of each. */
static void aliases_are_cut_as_their_owners(void **state)
{
    (void)state;
    struct layout whole = model(&tied_head, BLOCK, BLOCK), cut;
    assert_int_equal(layout_cut(&whole, TILE, &cut), 0);
    assert_int_equal(layout_seal(&cut, TILE, SHARE_ALL), 0);
    uint32_t heads = 0;
    for (uint32_t i = 0; i < cut.param_count; i++) {
        const struct layout_param *param = &cut.params[i], *owner = &cut.params[param->owner];
        if (param->owner == i)
            continue;
        heads++;
        assert_true(owner->first == param->first && owner->count == param->count);
        assert_true(owner->tied && owner->grad_offset == param->first);
        assert_true(param->grad_offset == owner->grad_offset);
        assert_int_equal(cut.units[param->unit].elements, 0);
    }
    assert_int_equal(heads, 5);
    layout_free(&cut);
    layout_free(&whole);
}

static void what_cannot_be_cut_is_not(void **state)
{
    (void)state;
    const struct {
        const struct hst_param_desc *head;
        uint64_t first_block, last_block;
        uint32_t tile;
    } of[] = {
        {&head, 0, 0, TILE},             /* nothing may be */
        {&tied_head, BLOCK, 0, TILE},    /* the alias may not */
        {&tied_head, 0, BLOCK, TILE},    /* the owner may not */
        {&head, 5056, 5056, TILE},       /* one block holds all rows */
        {&head, BLOCK, BLOCK, 23 * TILE} /* tiles end nowhere with blocks */
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct layout whole = model(of[i].head, of[i].first_block, of[i].last_block), cut;
        assert_int_equal(layout_cut(&whole, of[i].tile, &cut), -ERANGE);
        assert_null(cut.units);
        layout_free(&whole);
    }
}

/* Of an owner whose alias has other blocks neither is cut; what is small enough stays whole. */
static void some_are_cut_and_others_are_not(void **state)
{
    (void)state;
    static const struct hst_param_desc small = {
        .name = "small", .dim_count = 2, .dims = {512, COLUMNS}};
    struct layout whole = model(&tied_head, 4 * BLOCK, 8 * BLOCK), cut;
    assert_int_equal(layout_cut(&whole, TILE, &cut), -ERANGE);
    layout_free(&whole);
    whole = model(&head, BLOCK, 0); /* the head, which may not be cut, is as large as what may */
    assert_int_equal(layout_cut(&whole, TILE, &cut), -ERANGE);
    layout_free(&whole);
    whole = model(&head, BLOCK, BLOCK);
    assert_int_equal(add(&whole, &(struct hst_unit_desc){.name = "small",
                                                         .params = &small,
                                                         .param_count = 1,
                                                         .slices = {.block_rows = BLOCK}}),
                     0);
    assert_int_equal(layout_seal(&whole, TILE, SHARE_ALL), 0);
    assert_int_equal(layout_cut(&whole, TILE, &cut), 0);
    assert_int_equal(layout_seal(&cut, TILE, SHARE_ALL), 0);
    check_same(&whole, &cut);
    assert_false(layout_is_slice(&cut, cut.unit_count - 1));
    assert_int_equal(cut.units[cut.unit_count - 1].rows, 512);
    layout_free(&cut);
    layout_free(&whole);
}

/* Slices that no tile ends with take as many blocks as one does. */
static void slices_may_be_larger_for_their_tiles(void **state)
{
    (void)state;
    struct layout whole = model(&head, BLOCK, BLOCK), cut;
    assert_int_equal(layout_seal(&whole, 5 * TILE, SHARE_ALL), 0);
    assert_int_equal(layout_cut(&whole, 5 * TILE, &cut), 0);
    assert_int_equal(layout_seal(&cut, 5 * TILE, SHARE_ALL), 0);
    check_same(&whole, &cut);
    assert_int_equal(cut.units[0].rows, 5 * BLOCK); /* four would be no larger than a layer */
    layout_free(&cut);
    layout_free(&whole);
}

static void units_that_are_no_matrix_have_no_blocks(void **state)
{
    (void)state;
    struct layout layout = {0};
    static const struct hst_param_desc vector = {
        .name = "vector", .dim_count = 1, .dims = {HEAD_ROWS}};
    const struct hst_unit_desc bad[] = {
        {.name = "u", .params = layer, .param_count = 2, .slices = {.block_rows = BLOCK}},
        {.name = "u", .params = &vector, .param_count = 1, .slices = {.block_rows = BLOCK}},
        {.name = "u", .slices = {.block_rows = BLOCK}},
        {.name = "u", .params = &head, .param_count = 1, .slices = {.block_rows = 32}},
        {.name = "u", .params = &head, .param_count = 1, .slices = {.block_rows = 1ull << 60}},
        {.name = "u",
         .params = &head,
         .param_count = 1,
         .act_bytes_per_token = 1,
         .slices = {.block_rows = BLOCK}},
        {.name = "u",
         .params = &head,
         .param_count = 1,
         .flags = HST_UNIT_RECOMPUTE,
         .slices = {.block_rows = BLOCK}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bool size = bad[i].slices.block_rows != BLOCK;
        assert_int_equal(add(&layout, &bad[i]), -EINVAL);
        assert_non_null(strstr(why, size ? "is no multiple of 4096" : "is not one matrix"));
    }
    assert_int_equal(layout.unit_count, 0);
    layout_free(&layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_are_the_whole_in_pieces),
        cmocka_unit_test(ranks_have_shards_of_slices),
        cmocka_unit_test(aliases_are_cut_as_their_owners),
        cmocka_unit_test(what_cannot_be_cut_is_not),
        cmocka_unit_test(some_are_cut_and_others_are_not),
        cmocka_unit_test(slices_may_be_larger_for_their_tiles),
        cmocka_unit_test(units_that_are_no_matrix_have_no_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
