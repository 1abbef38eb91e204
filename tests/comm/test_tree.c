/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree of sums: against a recursion that follows its definition, and the same bytes however the
 * ways are cut among ranks and nodes, and in whatever order ranks are asked. The nodes are those
 * that the recursion comes by.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <hoistway/cpu_adam.h>
#include <hoistway/kernels.h>
#include <math.h>
#include <stdlib.h>

enum { WAYS = 130, N = 1030 }; /* more than a chunk of the kernel's */
static const uint32_t way_counts[] = {1, 2, 3, 6, 8, 16, 24, 37, WAYS};
static const uint32_t hops[] = {1, 2, 8};
static float way[WAYS][N]; /* as accumulated, before any rounding */

static void fill(void)
{
    uint32_t s = 12345;
    for (int w = 0; w < WAYS; w++)
        for (int i = 0; i < N; i++) {
            s = s * 1664525u + 1013904223u;
            way[w][i] = (float)((int32_t)s >> 8) * 1e-7f * (float)(1 + (s & 63));
        }
}

static void round_to(enum hst_dtype type, float *values)
{
    static uint16_t narrow[N];
    const struct hst_cpu_adam_ops *ops = hst_cpu_adam_ops(HST_CPU_ISA_C);
    if (type == HST_BF16) {
        ops->bf16_from_f32(values, narrow, N);
        ops->f32_from_bf16(narrow, values, N);
    } else if (type == HST_F16) {
        ops->f16_from_f32(values, narrow, N);
        ops->f32_from_f16(narrow, values, N);
    }
}

static void give_back(enum hst_quant bits, float *values)
{
    static unsigned char codes[N];
    static float scales[N / HST_QUANT_BLOCK + 1], back[N];
    assert_int_equal(
        hst_host_quantise(&(struct hst_quantise){bits, HST_F32, N, values, codes, scales}), 0);
    assert_int_equal(
        hst_host_dequantise(&(struct hst_dequantise){bits, HST_F32, N, codes, scales, back}), 0);
    memcpy(values, back, sizeof back);
}

/* Ways, and groups of them, are what integers give back; the root is not. */
static bool is_given_back(const struct hst_sum_tree *tree, uint32_t first, uint32_t count)
{
    const bool last = first + count == tree->ways, group = first % tree->hop == 0;
    return tree->quant && count < tree->ways &&
           (count == 1 || (group && (count == tree->hop || (last && count < tree->hop))));
}

/* The definition: a node of n ways is split at the largest power of two below n. */
static void expected(const struct hst_sum_tree *tree, uint32_t first, uint32_t count, float *out)
{
    if (count == 1) {
        memcpy(out, way[first], sizeof way[0]);
    } else {
        uint32_t left = 1;
        while (left * 2 < count)
            left *= 2;
        float *right = malloc(sizeof way[0]);
        expected(tree, first, left, out);
        expected(tree, first + left, count - left, right);
        for (int i = 0; i < N; i++)
            out[i] += right[i];
        free(right);
    }
    round_to(hst_sum_type(tree, (struct hst_sum_node){first, count}), out);
    if (is_given_back(tree, first, count))
        give_back(tree->quant, out);
}

static void store(enum hst_dtype type, const float *values, void *out)
{
    const struct hst_cpu_adam_ops *ops = hst_cpu_adam_ops(HST_CPU_ISA_C);
    if (type == HST_BF16)
        ops->bf16_from_f32(values, out, N);
    else if (type == HST_F16)
        ops->f16_from_f32(values, out, N);
    else
        memcpy(out, values, sizeof way[0]);
}

/* The value of a node in the type that it has by place; the caller frees it. */
static void *add(const struct hst_sum_tree *tree, uint32_t first, uint32_t each, uint32_t inputs,
                 const void *const *in)
{
    void *out = malloc(sizeof way[0]);
    const struct hst_sum_ways sum = {.tree = *tree,
                                     .first = first,
                                     .each = each,
                                     .inputs = inputs,
                                     .in = in,
                                     .out = out,
                                     .count = N};
    assert_int_equal(hst_host_sum_ways(&sum), 0);
    return out;
}

/* A rank's own sum of its ways. */
static void *own_sum(const struct hst_sum_tree *tree, uint32_t first, uint32_t count)
{
    void *ways[WAYS], *out;
    for (uint32_t i = 0; i < count; i++) {
        ways[i] = malloc(sizeof way[0]);
        store(hst_sum_type(tree, (struct hst_sum_node){first + i, 1}), way[first + i], ways[i]);
        if (tree->quant) { /* a sum of one input is what its integers give back */
            void *rounded = ways[i];
            ways[i] = add(tree, first + i, 1, 1, (const void *const[]){rounded});
            free(rounded);
        }
    }
    out = add(tree, first, 1, count, (const void *const *)ways);
    for (uint32_t i = 0; i < count; i++)
        free(ways[i]);
    return out;
}

/* Ranks [first, first + count) of `each` ways; those of odd numbers are asked first. */
static void *sum_of_ranks(const struct hst_sum_tree *tree, uint32_t first, uint32_t count,
                          uint32_t each)
{
    void *rank[WAYS];
    for (uint32_t turn = 0; turn < 2; turn++)
        for (uint32_t i = 1 - turn; i < count; i += 2)
            rank[i] = own_sum(tree, (first + i) * each, each);
    void *out = add(tree, first * each, each, count, (const void *const *)rank);
    for (uint32_t i = 0; i < count; i++)
        free(rank[i]);
    return out;
}

static bool divides_well(uint32_t ways, uint32_t ranks)
{
    const uint32_t each = ways / ranks;
    return ways % ranks == 0 && (ranks == 1 || (each & (each - 1)) == 0);
}

static unsigned long compared;

static void compare_all_cuts(const struct hst_sum_tree *tree)
{
    static float value[N];
    void *want = malloc(sizeof way[0]);
    expected(tree, 0, tree->ways, value);
    store(tree->root, value, want);
    const size_t bytes = N * hst_dtype_bytes(tree->root);
    for (uint32_t ranks = 1; ranks <= tree->ways; ranks++) {
        if (!divides_well(tree->ways, ranks))
            continue;
        void *flat = sum_of_ranks(tree, 0, ranks, tree->ways / ranks);
        assert_memory_equal(flat, want, bytes);
        free(flat);
        compared++;
        for (uint32_t locals = 2; locals < ranks; locals *= 2) {
            if (ranks % locals)
                continue;
            void *node[WAYS];
            const uint32_t nodes = ranks / locals, each = tree->ways / ranks;
            for (uint32_t i = 0; i < nodes; i++)
                node[i] = sum_of_ranks(tree, i * locals, locals, each);
            void *hopped = add(tree, 0, each * locals, nodes, (const void *const *)node);
            assert_memory_equal(hopped, want, bytes);
            for (uint32_t i = 0; i < nodes; i++)
                free(node[i]);
            free(hopped);
            compared++;
        }
    }
    free(want);
}

static void any_number_of_ranks_and_hops_has_the_bytes_of_one_rank(void **state)
{
    (void)state;
    static const enum hst_dtype roots[] = {HST_F32, HST_BF16, HST_F16};
    fill();
    for (size_t w = 0; w < sizeof way_counts / sizeof *way_counts; w++)
        for (size_t h = 0; h < sizeof hops / sizeof *hops; h++)
            for (int r = 0; r < 3; r++)
                for (int wide = 0; wide < 2; wide++)
                    compare_all_cuts(&(struct hst_sum_tree){
                        way_counts[w], hops[h], wide ? HST_F32 : roots[r], roots[r], 0});
    assert_true(compared > 300);
}

static void any_number_of_ranks_sends_integers_with_the_bytes_of_one_rank(void **state)
{
    (void)state;
    const unsigned long before = compared;
    fill();
    way[1][5] = INFINITY, way[2][600] = NAN; /* which a block has everywhere afterwards */
    for (size_t w = 0; way_counts[w] < WAYS; w++)
        for (size_t h = 0; h < sizeof hops / sizeof *hops; h++)
            for (int four = 0; four < 2; four++)
                compare_all_cuts(&(struct hst_sum_tree){way_counts[w], hops[h], HST_F32,
                                                        four ? HST_BF16 : HST_F32,
                                                        four ? HST_INT4 : HST_INT8});
    assert_true(compared - before > 100);
}

static void each_value_has_its_type_by_place(void **state)
{
    (void)state;
    const struct hst_sum_tree tree = {20, 8, HST_BF16, HST_F16,
                                      HST_INT8}; /* no valid one, but tells them apart */
    const struct {
        uint32_t first, count;
        enum hst_dtype type;
    } rows[] = {{0, 20, HST_F16}, {0, 1, HST_BF16},  {19, 1, HST_BF16}, {0, 8, HST_BF16},
                {8, 8, HST_BF16}, {16, 4, HST_BF16}, {16, 2, HST_F32},  {0, 4, HST_F32},
                {4, 4, HST_F32},  {0, 16, HST_F32},  {18, 2, HST_F32}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(hst_sum_type(&tree, (struct hst_sum_node){rows[i].first, rows[i].count}),
                         rows[i].type);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(
            hst_sum_quantised(&tree, (struct hst_sum_node){rows[i].first, rows[i].count}),
            rows[i].type == HST_BF16);
    const struct hst_sum_tree one = {1, 8, HST_F32, HST_BF16, HST_INT4};
    assert_int_equal(hst_sum_type(&one, (struct hst_sum_node){0, 1}), HST_BF16);
    assert_false(hst_sum_quantised(&one, (struct hst_sum_node){0, 1}));
}

/* ---- which ways are nodes -------------------------------------------------------------------- */

enum { FEW = 24 };
static bool is_node[FEW + 3][FEW + 3]; /* [first][count], of a tree of at most FEW ways */

static void mark_nodes(uint32_t first, uint32_t count)
{
    is_node[first][count] = true;
    if (count == 1)
        return;
    uint32_t left = 1;
    while (left * 2 < count)
        left *= 2;
    mark_nodes(first, left);
    mark_nodes(first + left, count - left);
}

static void nodes_are_those_of_the_definition(void **state)
{
    (void)state;
    for (uint32_t ways = 1; ways <= FEW; ways++) {
        const struct hst_sum_tree tree = {ways, 8, HST_F32, HST_F32, 0};
        memset(is_node, 0, sizeof is_node);
        mark_nodes(0, ways);
        for (uint32_t first = 0; first < FEW + 3; first++)
            for (uint32_t count = 0; count < FEW + 3; count++)
                assert_int_equal(hst_sum_node_valid(&tree, (struct hst_sum_node){first, count}),
                                 is_node[first][count]);
        assert_false(hst_sum_node_valid(&tree, (struct hst_sum_node){1, UINT32_MAX}));
        assert_false(hst_sum_node_valid(&tree, (struct hst_sum_node){UINT32_MAX, 1}));
    }
}

/* Whether all inputs are nodes of what mark_nodes has marked, and make one. */
static bool are_nodes(const struct hst_sum_ways *a)
{
    const uint32_t ways = a->tree.ways;
    uint32_t at = a->first;
    for (uint32_t i = 0; i < a->inputs; i++) {
        const uint32_t count = at + a->each < ways ? a->each : ways - at;
        if (at >= ways || !is_node[at][count])
            return false;
        at += count;
    }
    return a->inputs && is_node[a->first][at - a->first];
}

static void a_sum_takes_all_nodes_that_make_one_and_no_others(void **state)
{
    (void)state;
    uint32_t taken = 0;
    for (uint32_t ways = 1; ways <= FEW; ways++) {
        struct hst_sum_ways sum = {.tree = {ways, 8, HST_F32, HST_F32, 0}}; /* of no elements */
        memset(is_node, 0, sizeof is_node);
        mark_nodes(0, ways);
        for (sum.first = 0; sum.first <= ways; sum.first++)
            for (sum.each = 0; sum.each <= ways + 1; sum.each++)
                for (sum.inputs = 0; sum.inputs <= ways + 1; sum.inputs++) {
                    const bool want = are_nodes(&sum);
                    assert_int_equal(hst_host_sum_ways(&sum), want ? 0 : -EINVAL);
                    taken += want;
                }
        sum.first = 0, sum.each = UINT32_MAX, sum.inputs = 1;
        assert_int_equal(hst_host_sum_ways(&sum), 0); /* all ways, of which there are fewer */
        sum.inputs = UINT32_MAX;
        assert_int_equal(hst_host_sum_ways(&sum), -EINVAL);
    }
    assert_true(taken > 1000);
}

static void the_sum_may_take_the_place_of_its_first_input(void **state)
{
    (void)state;
    static float a[N], b[N], want[N];
    const void *const in[] = {a, b};
    struct hst_sum_ways sum = {.tree = {2, 8, HST_F32, HST_F32, 0},
                               .each = 1,
                               .inputs = 2,
                               .in = in,
                               .out = want,
                               .count = N};
    fill();
    memcpy(a, way[0], sizeof a);
    memcpy(b, way[1], sizeof b);
    assert_int_equal(hst_host_sum_ways(&sum), 0);
    sum.out = a;
    assert_int_equal(hst_host_sum_ways(&sum), 0);
    assert_memory_equal(a, want, sizeof a);
}

static void what_is_no_tree_or_no_node_is_refused(void **state)
{
    (void)state;
    static float value[N], out[N];
    const void *const in[] = {value, value, value, value, value};
    const struct hst_sum_tree good = {8, 8, HST_BF16, HST_BF16, 0};
    const struct {
        struct hst_sum_tree tree;
        uint32_t first, each, inputs;
    } bad[] = {
        {{0, 8, HST_F32, HST_F32, 0}, 0, 1, 1},
        {{HST_WAYS_MOST + 1, 8, HST_F32, HST_F32, 0}, 0, 1, 1},
        {{8, 0, HST_F32, HST_F32, 0}, 0, 1, 1},
        {{8, 3, HST_F32, HST_F32, 0}, 0, 1, 1},
        {{8, 8, HST_BF16, HST_F32, 0}, 0, 1, 1},
        {{8, 8, HST_F32, (enum hst_dtype)9, 0}, 0, 1, 1},
        {{8, 8, HST_F32, HST_F32, (enum hst_quant)5}, 0, 1, 1},
        {{8, 8, HST_BF16, HST_BF16, HST_INT8}, 0, 1, 1}, /* integers of f32 alone */
        {good, 0, 0, 1},
        {good, 0, 1, 0},
        {good, 8, 1, 1},
        {good, 4, 4, 2},
        {good, 0, 1, 3}, /* three of eight ways are no node */
        {good, 1, 1, 2}, /* nor are the second and third */
        {good, 0, 3, 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(hst_host_sum_ways(&(struct hst_sum_ways){.tree = bad[i].tree,
                                                                  .first = bad[i].first,
                                                                  .each = bad[i].each,
                                                                  .inputs = bad[i].inputs,
                                                                  .in = in,
                                                                  .out = out,
                                                                  .count = N}),
                         -EINVAL);
    for (int i = 0; i < N; i++)
        assert_true(out[i] == 0);
    const struct hst_sum_ways two = {
        .tree = good, .each = 1, .inputs = 2, .in = in, .out = out, .count = N};
    struct hst_sum_ways wrong[4] = {two, two, two, two};
    wrong[0].in = NULL;
    wrong[1].out = NULL;
    wrong[2].out = value + 1; /* overlaps an input */
    wrong[3].tree.root = HST_F32, wrong[3].tree.reduce = HST_F32;
    wrong[3].out = value;
    wrong[3].in = (const void *const[]){value, NULL};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(hst_host_sum_ways(&wrong[i]), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks_and_hops_has_the_bytes_of_one_rank),
        cmocka_unit_test(any_number_of_ranks_sends_integers_with_the_bytes_of_one_rank),
        cmocka_unit_test(each_value_has_its_type_by_place),
        cmocka_unit_test(nodes_are_those_of_the_definition),
        cmocka_unit_test(a_sum_takes_all_nodes_that_make_one_and_no_others),
        cmocka_unit_test(the_sum_may_take_the_place_of_its_first_input),
        cmocka_unit_test(what_is_no_tree_or_no_node_is_refused),
    };
    return cmocka_run_group_tests_name("comm/tree", tests, NULL, NULL);
}
