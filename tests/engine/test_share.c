/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of every small model and world: each tile is some rank's, and no rank has much more. */
#include "plan/layout/share.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { UNITS = 3, MOST = 9, TILES = UNITS * MOST };

static void lay_out(const uint32_t counts[UNITS], struct layout_unit *units, struct layout *layout)
{
    *layout = (struct layout){.units = units, .unit_count = UNITS};
    for (uint32_t u = 0; u < UNITS; u++) {
        units[u] = (struct layout_unit){.first_tile = layout->tile_count, .tile_count = counts[u]};
        layout->tile_count += counts[u];
    }
}

/* Adds one to owners[tile] for each of its tiles; checks that they are runs in order. */
static void take(const struct layout *layout, struct share share, uint8_t owners[TILES],
                 uint32_t parts[UNITS])
{
    uint32_t index = 0;
    for (uint32_t u = 0; u < UNITS; u++) {
        const struct share_run run = share_of_unit(&layout->units[u], share);
        parts[u] = run.count;
        for (uint32_t t = 0; t < run.count; t++, index++) {
            assert_true(run.first + t >= layout->units[u].first_tile);
            assert_true(run.first + t < layout->units[u].first_tile + layout->units[u].tile_count);
            assert_int_equal(share_tile(layout, share, index), run.first + t);
            owners[run.first + t]++;
        }
    }
    assert_int_equal(share_tiles(layout, share), index);
    assert_int_equal(share_tile(layout, share, index), layout->tile_count);
}

static void check(const struct layout *layout, uint32_t world)
{
    uint8_t owners[TILES] = {0};
    uint32_t least = UINT32_MAX, most = 0, least_of[UNITS], most_of[UNITS] = {0};
    uint32_t end[UNITS];
    memset(least_of, 0xff, sizeof least_of);
    for (uint32_t u = 0; u < UNITS; u++)
        end[u] = layout->units[u].first_tile;
    for (uint32_t rank = 0; rank < world; rank++) {
        const struct share share = {rank, world};
        uint32_t parts[UNITS];
        const uint32_t all = share_tiles(layout, share);
        take(layout, share, owners, parts);
        least = all < least ? all : least;
        most = all > most ? all : most;
        for (uint32_t u = 0; u < UNITS; u++) {
            const struct share_run run = share_of_unit(&layout->units[u], share);
            assert_int_equal(run.first, end[u]); /* behind the rank before */
            end[u] += run.count;
            least_of[u] = parts[u] < least_of[u] ? parts[u] : least_of[u];
            most_of[u] = parts[u] > most_of[u] ? parts[u] : most_of[u];
        }
    }
    for (uint32_t t = 0; t < layout->tile_count; t++)
        assert_int_equal(owners[t], 1);
    assert_true(most - least <= 1);
    for (uint32_t u = 0; u < UNITS; u++)
        assert_true(most_of[u] - least_of[u] <= 1);
}

static void every_tile_has_one_rank_and_ranks_have_alike(void **state)
{
    (void)state;
    struct layout_unit units[UNITS];
    struct layout layout;
    for (uint32_t n = 0; n < (MOST + 1) * (MOST + 1) * (MOST + 1); n++) {
        const uint32_t counts[UNITS] = {n % (MOST + 1), n / (MOST + 1) % (MOST + 1),
                                        n / (MOST + 1) / (MOST + 1)};
        lay_out(counts, units, &layout);
        for (uint32_t world = 2; world <= 12; world++)
            check(&layout, world);
    }
}

static void one_rank_has_all_by_their_numbers(void **state)
{
    (void)state;
    struct layout_unit units[UNITS];
    struct layout layout;
    lay_out((const uint32_t[UNITS]){3, 0, 4}, units, &layout);
    assert_int_equal(share_tiles(&layout, (struct share){0, 1}), 7);
    for (uint32_t t = 0; t < 7; t++)
        assert_int_equal(share_tile(&layout, (struct share){0, 1}, t), t);
}

/* Files are cut by this: it can not be changed for those that are there. */
static void the_cut_is_the_one_that_files_were_written_with(void **state)
{
    (void)state;
    static const uint32_t WANTED[3][4] = {{0, 3, 4, 8}, {1, 5, 6}, {2, 7, 9}};
    struct layout_unit units[UNITS];
    struct layout layout;
    lay_out((const uint32_t[UNITS]){3, 5, 2}, units, &layout);
    for (uint32_t rank = 0; rank < 3; rank++) {
        const struct share share = {rank, 3};
        for (uint32_t i = 0; i < share_tiles(&layout, share); i++)
            assert_int_equal(share_tile(&layout, share, i), WANTED[rank][i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tile_has_one_rank_and_ranks_have_alike),
        cmocka_unit_test(one_rank_has_all_by_their_numbers),
        cmocka_unit_test(the_cut_is_the_one_that_files_were_written_with),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
