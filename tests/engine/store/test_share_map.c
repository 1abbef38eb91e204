/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank goes on with which files, by what each process finds. */
#include "session/store/share_map.h"
#include "store/files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 8, PROCESSES = 8 };

static const struct store_id A = {{1}}, B = {{2}};

/* What processes find; each row's letters are ranks, small ones under the names of before. */
struct found {
    uint32_t processes;
    uint32_t nodes[PROCESSES];
    const char *ranks[PROCESSES];
};

static uint32_t put(struct share_found *to, const char *ranks, uint32_t world,
                    const struct store_id *uuid)
{
    uint32_t count = 0;
    for (; *ranks; ranks++) {
        const bool forming = *ranks >= 'a';
        to[count++] = (struct share_found){.uuid = *uuid,
                                           .rank = (uint32_t)(*ranks - (forming ? 'a' : 'A')),
                                           .world = world,
                                           .drives = 1,
                                           .tile_elements = 4096,
                                           .forming = forming};
    }
    return count;
}

static struct share_map mapped_of_two(const struct found *found, uint32_t world,
                                      const struct found *beside, uint32_t other_world,
                                      const struct store_id *other)
{
    static struct share_found all[PROCESSES * MOST];
    uint32_t counts[PROCESSES];
    struct share_map map;
    for (uint32_t p = 0; p < found->processes; p++) {
        counts[p] = put(&all[p * MOST], found->ranks[p], world, &A);
        if (beside)
            counts[p] += put(&all[p * MOST + counts[p]], beside->ranks[p], other_world, other);
    }
    const struct share_map_in in = {found->processes, found->nodes, counts, all, MOST};
    assert_int_equal(share_map(&in, &map), 0);
    return map;
}

static struct share_map mapped(const struct found *found, uint32_t world)
{
    return mapped_of_two(found, world, NULL, 0, NULL);
}

static void ranks_have_the_numbers_of_what_they_find(void **state)
{
    (void)state;
    static const struct {
        struct found found;
        uint32_t number[PROCESSES];
    } rows[] = {
        {{2, {0, 0}, {"AB", "AB"}}, {0, 1}},
        {{4, {0, 0, 1, 1}, {"AB", "AB", "CD", "CD"}}, {0, 1, 2, 3}},
        {{4, {0, 0, 1, 1}, {"CD", "CD", "AB", "AB"}}, {2, 3, 0, 1}},
        {{3, {0, 0, 1}, {"BC", "BC", "A"}}, {1, 2, 0}},
        {{3, {0, 1, 2}, {"B", "C", "A"}}, {1, 2, 0}},
        /* a copy of another node's file beside one's own is no matter */
        {{4, {0, 0, 1, 1}, {"ABCD", "ABCD", "CD", "CD"}}, {0, 1, 2, 3}},
        {{4, {0, 0, 1, 1}, {"ABCD", "ABCD", "AB", "AB"}}, {2, 3, 0, 1}},
        /* some have not got their names */
        {{2, {0, 1}, {"b", "A"}}, {1, 0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct found *found = &rows[i].found;
        struct share_map map = mapped(found, found->processes);
        assert_int_equal(map.fate, SHARE_OWN);
        assert_memory_equal(map.number, rows[i].number, found->processes * sizeof *map.number);
        for (uint32_t p = 0; p < found->processes; p++)
            assert_int_equal(map.seen[p * map.world + p], 1); /* by the new numbers */
        share_map_free(&map);
    }
}

static void what_no_order_of_nodes_gives_is_moved(void **state)
{
    (void)state;
    static const struct {
        struct found found;
        uint32_t world;
    } rows[] = {
        {{1, {0}, {"ABCD"}}, 4},
        {{2, {0, 1}, {"AB", "CD"}}, 4},
        {{4, {0, 0, 1, 1}, {"A", "A", "B", "B"}}, 2},
        {{4, {0, 0, 1, 1}, {"AC", "AC", "BD", "BD"}}, 4},
        {{4, {0, 0, 0, 1}, {"AB", "AB", "AB", "CD"}}, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct share_map map = mapped(&rows[i].found, rows[i].world);
        assert_int_equal(map.fate, SHARE_MOVE);
        for (uint32_t p = 0; p < rows[i].found.processes; p++)
            assert_int_equal(map.number[p], p);
        assert_int_equal(share_map_first(&map, rows[i].found.processes, 1), rows[i].world == 2 ? 2
                                                                            : i == 3           ? 2
                                                                                               : 0);
        share_map_free(&map);
    }
}

static void what_is_missing_is_named(void **state)
{
    (void)state;
    char text[200];
    static const struct found some = {3, {0, 1, 2}, {"AB", "A", ""}};
    struct share_map map = mapped(&some, 8);
    assert_int_equal(map.fate, SHARE_MISSING);
    share_map_missing(&map, 3, text, sizeof text);
    assert_string_equal(text, "r00002.d0.blk, r00003.d0.blk, r00004.d0.blk, r00005.d0.blk and 2 "
                              "more");
    assert_int_equal(share_map_twice(&map, 3, some.nodes), 0);
    share_map_free(&map);
    static const struct found apart = {2, {0, 1}, {"A", "B"}};
    map = mapped(&apart, 3);
    assert_int_equal(share_map_twice(&map, 2, apart.nodes), UINT32_MAX);
    share_map_free(&map);
}

/* Of two stores that are not whole the one that is found first is looked for. */
static void what_is_there_of_another_store_is_known(void **state)
{
    (void)state;
    static const struct found mine = {2, {0, 1}, {"A", "C"}}, all = {2, {0, 1}, {"A", "BC"}};
    static const struct {
        struct found other;
        uint32_t rank;
    } rows[] = {{{2, {0, 1}, {"", "B"}}, 1},           /* in the place of one that is missing */
                {{2, {0, 1}, {"", "A"}}, UINT32_MAX},  /* beside one that is found */
                {{2, {0, 1}, {"", "b"}}, UINT32_MAX},  /* it has no name yet */
                {{2, {0, 1}, {"", "D"}}, UINT32_MAX}}; /* of a rank that there is not */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct share_map map = mapped_of_two(&mine, 3, &rows[i].other, 8, &B);
        assert_int_equal(map.fate, SHARE_MISSING);
        assert_memory_equal(&map.uuid, &A, sizeof A);
        assert_int_equal(map.other, rows[i].rank);
        share_map_free(&map);
        map = mapped_of_two(&all, 3, &rows[i].other, 8, &B);
        assert_int_equal(map.fate, SHARE_MOVE);
        assert_int_equal(map.other, UINT32_MAX);
        share_map_free(&map);
    }
}

static void without_a_vote_there_is_no_store(void **state)
{
    (void)state;
    static const struct found none = {2, {0, 0}, {"", ""}}, forming = {2, {0, 0}, {"ab", "ab"}};
    struct share_map map = mapped(&none, 2);
    assert_int_equal(map.fate, SHARE_NONE);
    share_map_free(&map);
    map = mapped(&forming, 2);
    assert_int_equal(map.fate, SHARE_NONE);
    share_map_free(&map);
}

/* Of a store of two ranks and the one of four that it was made of. */
static void a_move_that_was_cut_off_is_told_by_ids(void **state)
{
    (void)state;
    const struct store_id next = store_moved_id(&A, 2);
    static const struct {
        const char *old, *new;
        bool moved;
    } rows[] = {{"ABCD", "ab", false}, {"ABCD", "a", false}, {"BCD", "Ab", true},
                {"ABCD", "Ba", true},  {"CD", "AB", true},   {"ABCD", "AB", true}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct found old = {1, {0}, {rows[i].old}}, new = {1, {0}, {rows[i].new}};
        struct share_map map = mapped_of_two(&old, 4, &new, 2, &next);
        assert_int_equal(map.fate, SHARE_MOVE); /* to one */
        assert_int_equal(map.world, rows[i].moved ? 2 : 4);
        assert_memory_equal(&map.uuid, rows[i].moved ? &next : &A, sizeof A);
        share_map_free(&map);
    }
}

static void two_stores_are_no_choice(void **state)
{
    (void)state;
    static const struct found one = {1, {0}, {"AB"}}, part = {1, {0}, {"A"}};
    struct share_map map = mapped_of_two(&one, 2, &one, 2, &B);
    assert_int_equal(map.fate, SHARE_SEVERAL);
    share_map_free(&map);
    map = mapped_of_two(&part, 2, &one, 2, &B); /* one of them is whole */
    assert_int_equal(map.fate, SHARE_MOVE);
    assert_memory_equal(&map.uuid, &B, sizeof B);
    share_map_free(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_have_the_numbers_of_what_they_find),
        cmocka_unit_test(what_no_order_of_nodes_gives_is_moved),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(what_is_there_of_another_store_is_known),
        cmocka_unit_test(without_a_vote_there_is_no_store),
        cmocka_unit_test(a_move_that_was_cut_off_is_told_by_ids),
        cmocka_unit_test(two_stores_are_no_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
