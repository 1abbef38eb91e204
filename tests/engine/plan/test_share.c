/* SPDX-License-Identifier: Apache-2.0 */
/* Shards of every small row and world: what they cover, and what tiles a layout makes of them. */
#include "plan/layout/layout.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define BLOCK LAYOUT_UNIT_ALIGN
enum { UNITS = 4, MOST_BLOCKS = 40, MOST_RANKS = 12 };

static uint64_t blocks_of_paper(uint64_t blocks, uint32_t world)
{
    return (blocks + world - 1) / world; /* ceil(B/N), as DESIGN writes it */
}

static void a_row_is_cut_into_equal_shards_in_order_of_rank(void **state)
{
    (void)state;
    for (uint64_t blocks = 0; blocks <= MOST_BLOCKS; blocks++)
        for (uint32_t world = 1; world <= MOST_RANKS; world++) {
            const uint64_t each = blocks_of_paper(blocks, world) * BLOCK;
            uint64_t end = 0;
            assert_int_equal(shard_elements(blocks * BLOCK, world), each);
            for (uint32_t rank = 0; rank < world; rank++) {
                const struct shard shard = shard_of(blocks * BLOCK, (struct share){rank, world});
                assert_int_equal(shard.first, end);
                end += shard.elements;
                if (end < blocks * BLOCK)
                    assert_int_equal(shard.elements, each);
            }
            assert_int_equal(end, blocks * BLOCK);
        }
}

static void a_row_that_is_large_overflows_nothing(void **state)
{
    (void)state;
    const uint64_t row = UINT64_MAX / BLOCK * BLOCK;
    assert_int_equal(shard_elements(row, 1), row);
    const struct shard last = shard_of(row, (struct share){UINT32_MAX - 1, UINT32_MAX});
    assert_true(last.first == row && last.elements == 0); /* rank times shard is above 2^64 */
    assert_int_equal(shard_of(BLOCK, (struct share){UINT32_MAX - 1, UINT32_MAX}).elements, 0);
}

/* ---- tiles ---- */

static void lay_out(const uint64_t blocks[UNITS], struct layout_unit *units, struct layout *layout,
                    uint32_t tile_blocks, struct share share)
{
    *layout = (struct layout){.units = units, .unit_count = UNITS};
    for (uint32_t u = 0; u < UNITS; u++)
        units[u] = (struct layout_unit){.elements = blocks[u] * BLOCK};
    assert_int_equal(layout_seal(layout, tile_blocks * BLOCK, share), 0);
}

/* Each tile of a rank adds one to its blocks; *number: the tile of all ranks that comes next. */
static void take(const struct layout *layout, uint32_t unit, uint32_t *number,
                 uint8_t owners[UNITS][MOST_BLOCKS])
{
    const struct layout_unit *u = &layout->units[unit];
    uint64_t at = u->shard.first;
    for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count; t++) {
        const struct tile_range range = layout_tile(layout, t);
        assert_int_equal(range.unit, unit);
        assert_int_equal(range.offset, at);
        assert_true(range.elements > 0 && range.elements <= layout->tile_elements);
        assert_int_equal(layout_begins_unit(layout, t), at == 0);
        assert_int_equal(layout_number_of_all(layout, t), (*number)++);
        at += range.elements;
        for (uint64_t b = range.offset / BLOCK; b < at / BLOCK; b++)
            owners[unit][b]++;
    }
    assert_int_equal(at, u->shard.first + u->shard.elements);
}

static void check_world(const uint64_t blocks[UNITS], uint32_t tile_blocks, uint32_t world)
{
    struct layout_unit units[UNITS];
    struct layout layout;
    uint8_t owners[UNITS][MOST_BLOCKS] = {0};
    uint32_t number = 0, tiles = 0;
    for (uint32_t u = 0; u < UNITS; u++)
        for (uint32_t rank = 0; rank < world; rank++) {
            lay_out(blocks, units, &layout, tile_blocks, (struct share){rank, world});
            take(&layout, u, &number, owners);
        }
    assert_int_equal(layout.tiles_of_all, number);
    for (uint32_t rank = 0; rank < world; rank++) {
        lay_out(blocks, units, &layout, tile_blocks, (struct share){rank, world});
        tiles += layout.tile_count;
        assert_true(layout_largest_tile(&layout) <= tile_blocks * BLOCK);
    }
    assert_int_equal(tiles, number);
    for (uint32_t u = 0; u < UNITS; u++)
        for (uint64_t b = 0; b < blocks[u]; b++)
            assert_int_equal(owners[u][b], 1);
}

static void every_block_is_in_one_tile_of_one_rank(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 300; n++) {
        const uint64_t blocks[UNITS] = {n % 37, n % 2 * (n % 11), n % 5, n % 23 + 1};
        for (uint32_t world = 1; world <= MOST_RANKS; world++)
            check_world(blocks, 1 + (uint32_t)(n % 7), world);
    }
}

static void one_rank_has_the_tiles_of_whole_rows(void **state)
{
    (void)state;
    struct layout_unit units[UNITS];
    struct layout layout;
    lay_out((const uint64_t[UNITS]){5, 0, 4, 1}, units, &layout, 2, SHARE_ALL);
    assert_int_equal(layout.tile_count, 3 + 0 + 2 + 1);
    for (uint32_t t = 0; t < layout.tile_count; t++)
        assert_int_equal(layout_number_of_all(&layout, t), t);
    assert_int_equal(layout_tile(&layout, 2).elements, BLOCK);
}

/* Files are cut by this: it cannot be changed for those that are there. */
static void the_cut_is_the_one_that_files_were_written_with(void **state)
{
    (void)state;
    /* of 7, 0, 2 and 4 blocks for three ranks, in tiles of two: first block, blocks, number */
    static const uint64_t WANTED[3][4][3] = {
        {{0, 2, 0}, {2, 1, 1}, {0, 1, 5}, {0, 2, 7}},
        {{3, 2, 2}, {5, 1, 3}, {1, 1, 6}, {2, 2, 8}},
        {{6, 1, 4}},
    };
    static const uint32_t COUNTS[3] = {4, 4, 1};
    struct layout_unit units[UNITS];
    struct layout layout;
    for (uint32_t rank = 0; rank < 3; rank++) {
        lay_out((const uint64_t[UNITS]){7, 0, 2, 4}, units, &layout, 2, (struct share){rank, 3});
        assert_int_equal(layout.tile_count, COUNTS[rank]);
        assert_int_equal(layout.tiles_of_all, 9);
        for (uint32_t t = 0; t < layout.tile_count; t++) {
            assert_int_equal(layout_tile(&layout, t).offset, WANTED[rank][t][0] * BLOCK);
            assert_int_equal(layout_tile(&layout, t).elements, WANTED[rank][t][1] * BLOCK);
            assert_int_equal(layout_number_of_all(&layout, t), WANTED[rank][t][2]);
        }
    }
}

static void tiles_of_all_ranks_are_numbered_by_32_bits(void **state)
{
    (void)state;
    struct layout_unit units[UNITS] = {{.elements = (uint64_t)UINT32_MAX * BLOCK}};
    struct layout layout = {.units = units, .unit_count = UNITS};
    assert_int_equal(layout_seal(&layout, BLOCK, (struct share){1, 8}), -EINVAL);
    units[0].elements -= BLOCK;
    assert_int_equal(layout_seal(&layout, BLOCK, (struct share){1, 8}), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_cut_into_equal_shards_in_order_of_rank),
        cmocka_unit_test(a_row_that_is_large_overflows_nothing),
        cmocka_unit_test(every_block_is_in_one_tile_of_one_rank),
        cmocka_unit_test(one_rank_has_the_tiles_of_whole_rows),
        cmocka_unit_test(the_cut_is_the_one_that_files_were_written_with),
        cmocka_unit_test(tiles_of_all_ranks_are_numbered_by_32_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
