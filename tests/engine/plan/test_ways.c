/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's ways: micro-batches against the tokens that they are cut from, and the counter against
 * the recursion that <hoistway/ways.h> defines. What a sum holds is told by a word made of what was
 * added, in which order, and of each value's type: two words are equal where all bytes would be.
 */
#include "plan/layout/ways.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { FEW = 40 };

static bool is_power_of_two(uint32_t n)
{
    return (n & (n - 1)) == 0;
}

/* ---- micro-batches --------------------------------------------------------------------------- */

/* Ways of so many tokens on a rank that has some of them, and the same cut out of the whole. */
static void check_micros(const struct ways *ways)
{
    const struct ways whole = {.count = ways->first + ways->count,
                               .tokens = ways->tokens,
                               .micro_tokens = ways->micro_tokens};
    const uint32_t count = ways_micro_count(ways), before = ways_micro_count(&whole) - count;
    uint64_t end = 0;
    for (uint32_t m = 0; m < count; m++) {
        const struct hst_micro micro = ways_micro(ways, m), same = ways_micro(&whole, before + m);
        const uint64_t last = micro.first_token + micro.tokens - 1;
        const bool ends_way = (last + 1) % ways->tokens == 0;
        assert_int_equal(micro.first_token, end);
        assert_true(micro.tokens > 0);
        assert_true(ends_way ? micro.tokens <= ways->micro_tokens
                             : micro.tokens == ways->micro_tokens);
        assert_int_equal(ways_of_micro(ways, m), micro.first_token / ways->tokens);
        assert_int_equal(ways_of_micro(ways, m), last / ways->tokens);
        assert_int_equal(same.tokens, micro.tokens);
        assert_int_equal(same.first_token, ways->first * ways->tokens + micro.first_token);
        end = last + 1;
    }
    assert_int_equal(end, ways->count * ways->tokens);
}

static void micro_batches_cover_the_tokens_once_and_cross_no_way(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= 8; count++)
        for (uint64_t tokens = 1; tokens <= 24; tokens++)
            for (uint64_t micro = 1; micro <= tokens; micro++)
                for (uint32_t rank = 0; rank < 3; rank++)
                    check_micros(&(struct ways){.first = rank * count,
                                                .count = count,
                                                .tokens = tokens,
                                                .micro_tokens = micro});
    /* a way of more tokens than 32 bits can say */
    const struct ways large = {.count = 3, .tokens = 5ull << 33, .micro_tokens = 1u << 31};
    assert_int_equal(ways_micro_count(&large), 60);
    check_micros(&large);
}

/* ---- the counter ----------------------------------------------------------------------------- */

/* As the header says it: the root, a way, a group of hop ways or the last ones, and the others. */
static enum hst_dtype type_of(const struct hst_sum_tree *tree, uint32_t first, uint32_t count)
{
    const uint32_t end = first + count, group_end = first + tree->hop;
    if (count == tree->ways)
        return tree->root;
    if (count == 1)
        return tree->reduce;
    if (first % tree->hop == 0 && end == (group_end < tree->ways ? group_end : tree->ways))
        return tree->reduce;
    return HST_F32;
}

static uint64_t mix(uint64_t a, uint64_t b, enum hst_dtype type)
{
    uint64_t z = a * UINT64_C(0x9e3779b97f4a7c15) + (b ^ (b >> 29)) + (uint64_t)type * 0x1234567u;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ (z >> 31);
}

static uint64_t word_of_way(const struct hst_sum_tree *tree, uint32_t way)
{
    return mix(way + 1, 0, type_of(tree, way, 1));
}

static uint64_t word_of(const struct hst_sum_tree *tree, uint32_t first, uint32_t count)
{
    if (count == 1)
        return word_of_way(tree, first);
    uint32_t left = 1;
    while (left * 2 < count)
        left *= 2;
    return mix(word_of(tree, first, left), word_of(tree, first + left, count - left),
               type_of(tree, first, count));
}

/* What the buffers hold, and what was seen of them. */
struct room {
    struct {
        uint64_t word;
        uint32_t first, count;
        bool taken;
    } buffer[32];
    uint32_t used; /* buffers that ever held a sum */
    uint32_t sums; /* at once, at most */
};

static void put(struct room *room, uint32_t buffer, uint32_t first, uint32_t count, uint64_t word)
{
    assert_true(buffer < 32);
    assert_false(room->buffer[buffer].taken); /* of a sum that waits */
    room->buffer[buffer].taken = true;
    room->buffer[buffer].first = first;
    room->buffer[buffer].count = count;
    room->buffer[buffer].word = word;
    room->used = room->used > buffer + 1 ? room->used : buffer + 1;
}

/* An addition as the executor makes it: in place where both values have one type. It returns the
 * word of the sum. */
static uint64_t add(const struct ways *ways, struct room *room, const struct ways_addition *a)
{
    const uint32_t left = a->in[0], right = a->in[1];
    assert_true(left < 32 && right < 32 && left != right);
    assert_true(room->buffer[left].taken && room->buffer[right].taken);
    assert_int_equal(room->buffer[left].first, a->first);
    assert_int_equal(room->buffer[left].count, a->each);
    assert_int_equal(room->buffer[right].first, a->first + a->each);
    const uint32_t count = a->each + room->buffer[right].count;
    const enum hst_dtype type = type_of(&ways->tree, a->first, count);
    const uint64_t word = mix(room->buffer[left].word, room->buffer[right].word, type);
    assert_true(room->buffer[right].count <= a->each);
    assert_true(hst_sum_node_valid(&ways->tree, (struct hst_sum_node){a->first, count}));
    assert_int_equal(a->last, count == ways->count);
    if (!a->last && a->out != left)
        put(room, a->out, a->first, count, word); /* beside both, which are read meanwhile */
    else if (!a->last)
        assert_int_equal(type, type_of(&ways->tree, a->first, a->each));
    room->buffer[right].taken = false;
    room->buffer[left].taken = !a->last && a->out == left;
    if (room->buffer[left].taken)
        room->buffer[left].count = count, room->buffer[left].word = word;
    return word;
}

/* All ways of a rank; the word of their sum. */
static uint64_t sum_of(const struct ways *ways, struct room *room)
{
    struct ways_counter counter = {.count = 0};
    uint64_t word = 0;
    bool over = false;
    *room = (struct room){.used = 0};
    for (uint32_t i = 0; i < ways->count; i++) {
        const uint32_t way = ways->first + i;
        struct ways_addition addition;
        assert_false(over);
        word = word_of_way(&ways->tree, way);
        put(room, ways_counter_push(ways, &counter), way, 1, word);
        room->sums = counter.count > room->sums ? counter.count : room->sums;
        while (ways_counter_next(ways, &counter, &addition)) {
            word = add(ways, room, &addition);
            over = addition.last;
        }
    }
    assert_true(over || ways->count == 1);
    assert_int_equal(counter.count, 1);
    return word;
}

static const struct {
    enum hst_dtype reduce, root;
} types[] = {{HST_F32, HST_F32},
             {HST_BF16, HST_BF16},
             {HST_F16, HST_F16},
             {HST_F32, HST_BF16},
             {HST_F32, HST_F16}};
enum { TYPES = sizeof types / sizeof *types };

/* The ways of one of so many ranks, which may have as many. */
static struct ways ways_of_rank(const struct hst_sum_tree *tree, uint32_t ranks, uint32_t rank)
{
    const uint32_t count = tree->ways / ranks;
    return (struct ways){
        .tree = *tree, .first = rank * count, .count = count, .tokens = 1, .micro_tokens = 1};
}

static bool fits(uint32_t ways, uint32_t ranks)
{
    return ways % ranks == 0 && (ranks == 1 || is_power_of_two(ways / ranks));
}

static void check_rank(const struct ways *ways)
{
    struct room room;
    const struct hst_sum_tree *tree = &ways->tree;
    assert_true(sum_of(ways, &room) == word_of(tree, ways->first, ways->count));
    assert_int_equal(ways_buffers(ways), ways->count == 1 ? 0 : room.used);
    assert_int_equal(ways_type(ways), type_of(tree, ways->first, ways->count));
    /* a sum for each power of two up to the ways' number, the way that comes, and one that is
       rounded to another type */
    uint32_t levels = 1;
    while (1u << levels <= ways->count)
        levels++;
    assert_true(room.used <= levels + 1);
}

static void the_counter_adds_as_the_recursion_does(void **state)
{
    (void)state;
    uint32_t ranks_seen = 0;
    for (uint32_t w = 1; w <= FEW; w++)
        for (uint32_t hop = 1; hop <= 64; hop *= 2)
            for (size_t t = 0; t < TYPES; t++)
                for (uint32_t ranks = 1; ranks <= w; ranks++) {
                    const struct hst_sum_tree tree = {w, hop, types[t].reduce, types[t].root, 0};
                    assert_true(hst_sum_tree_valid(&tree));
                    for (uint32_t rank = 0; fits(w, ranks) && rank < ranks; rank++, ranks_seen++) {
                        const struct ways ways = ways_of_rank(&tree, ranks, rank);
                        check_rank(&ways);
                    }
                }
    assert_true(ranks_seen > 10000);
}

static void a_narrow_sum_takes_no_place_of_a_wide_one(void **state)
{
    (void)state;
    /* four ways in bf16, of which two sums in f32 wait: [0,2) beside [2,3) and [3,4) */
    const struct ways ways = {.tree = {8, 4, HST_BF16, HST_BF16, 0}, .count = 4};
    struct ways_counter counter = {.count = 0};
    struct ways_addition a;
    assert_int_equal(ways_counter_push(&ways, &counter), 0);
    assert_false(ways_counter_next(&ways, &counter, &a));
    assert_int_equal(ways_counter_push(&ways, &counter), 1);
    assert_true(ways_counter_next(&ways, &counter, &a));
    assert_int_equal(a.out, 2); /* in f32, and both inputs are bf16 */
    assert_int_equal(ways_counter_push(&ways, &counter), 0);
    assert_false(ways_counter_next(&ways, &counter, &a));
    assert_int_equal(ways_buffers(&ways), 4);
    /* where all are f32 each sum takes its left one's place */
    struct ways wide = ways;
    wide.tree.reduce = wide.tree.root = HST_F32;
    assert_int_equal(ways_buffers(&wide), 3);
}

/* By hand. In fp32 a sum takes the place of its left part: there is a place for each sum that
 * waits, of 4 and of 2 behind six ways, and one for the way that comes. The last addition goes to
 * where gradients are. In bf16 two ways lie in a and b, and their sum, which is f32 still, in c;
 * of the next two in a and b it lies in d. The sum of these four has the place of c, so that of
 * eight the next two sums lie in d and e. */
static void buffers_are_as_many_as_by_hand(void **state)
{
    (void)state;
    static const struct {
        uint32_t ways, ranks, wide, narrow;
    } rows[] = {{1, 1, 0, 0}, {2, 2, 0, 0}, {2, 1, 2, 2},  {4, 2, 2, 2}, {4, 1, 3, 4},
                {8, 2, 3, 4}, {8, 1, 4, 5}, {16, 2, 4, 5}, {3, 1, 2, 3}, {6, 1, 3, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct hst_sum_tree wide = {rows[i].ways, 8, HST_F32, HST_F32, 0},
                                  narrow = {rows[i].ways, 8, HST_BF16, HST_BF16, 0};
        for (uint32_t rank = 0; rank < rows[i].ranks; rank++) {
            const struct ways of_wide = ways_of_rank(&wide, rows[i].ranks, rank);
            const struct ways of_narrow = ways_of_rank(&narrow, rows[i].ranks, rank);
            assert_int_equal(ways_buffers(&of_wide), rows[i].wide);
            assert_int_equal(ways_buffers(&of_narrow), rows[i].narrow);
        }
    }
}

/* The rooms of the counter and of its buffers are constants: they hold the most ways that a tree
 * may have, and as many less a few, whose last sums all wait for one another. */
static void sixty_five_thousand_ways_have_room(void **state)
{
    (void)state;
    static const uint32_t counts[] = {HST_WAYS_MOST, HST_WAYS_MOST - 1, HST_WAYS_MOST - 2,
                                      HST_WAYS_MOST / 2 + 1};
    struct room room;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (uint32_t hop = 1; hop <= HST_WAYS_MOST; hop *= 16)
            for (size_t t = 0; t < TYPES; t++) {
                const struct hst_sum_tree tree = {counts[c], hop, types[t].reduce, types[t].root,
                                                  0};
                const struct ways ways = ways_of_rank(&tree, 1, 0);
                assert_true(sum_of(&ways, &room) == word_of(&tree, 0, counts[c]));
                assert_true(room.sums <= WAYS_SUMS_MOST);
                assert_true(room.used <= WAYS_SUMS_MOST); /* they are indices of as many places */
                assert_int_equal(ways_buffers(&ways), room.used);
            }
}

/* ---- what a node's sum is as it leaves ------------------------------------------------------ */

static void a_sum_is_wide_where_no_rounding_is_due_before_all_are_added(void **state)
{
    (void)state;
    static const struct {
        struct hst_sum_tree tree;
        uint32_t ways;
        bool wide;
    } rows[] = {
        {{8, 8, HST_BF16, HST_BF16, 0}, 4, true},
        {{8, 4, HST_BF16, HST_BF16, 0}, 4, false},
        {{4, 4, HST_BF16, HST_BF16, 0}, 2, true},
        {{4, 2, HST_F16, HST_F16, 0}, 2, false},
        {{8, 2, HST_F16, HST_F16, 0}, 4, true},
        {{8, 8, HST_BF16, HST_BF16, 0}, 1, false},
        {{8, 8, HST_BF16, HST_BF16, 0}, 8, false},
        {{8, 8, HST_F32, HST_BF16, 0}, 4, false},
        {{8, 8, HST_F32, HST_F32, 0}, 4, false},
        {{8, 8, HST_F32, HST_BF16, HST_INT8}, 4, true},
        {{8, 8, HST_F32, HST_F32, HST_INT4}, 1, false},
        {{8, 4, HST_F32, HST_BF16, HST_INT4}, 4, false},
        {{8, 8, HST_F32, HST_F32, HST_INT4}, 8, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (ways_sum_is_wide(&rows[i].tree, rows[i].ways) != rows[i].wide)
            fail_msg("row %zu", i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_batches_cover_the_tokens_once_and_cross_no_way),
        cmocka_unit_test(the_counter_adds_as_the_recursion_does),
        cmocka_unit_test(buffers_are_as_many_as_by_hand),
        cmocka_unit_test(a_narrow_sum_takes_no_place_of_a_wide_one),
        cmocka_unit_test(sixty_five_thousand_ways_have_room),
        cmocka_unit_test(a_sum_is_wide_where_no_rounding_is_due_before_all_are_added),
    };
    return cmocka_run_group_tests_name("plan/ways", tests, NULL, NULL);
}
