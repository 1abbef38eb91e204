/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sum of ways: on every device the bytes of a recursion that follows the tree's definition, and
 * of cpu_adam's norm over what is written; and near the same sum in float64. Values are of every
 * magnitude, and some are infinite or no number. Where integers give back sums, what those are is
 * the host quantiser's matter, which has a test of its own (test_quantise.c).
 */
#include "half.h"
#include "suite.h"
#include <errno.h>
#include <float.h>
#include <hoistway/cpu_adam.h>
#include <stdlib.h>

enum { MOST = HST_SUM_INPUTS, MANY = 2 * MOST + 2, ROOM = 12305 };

/* Of inputs [first, first + each·inputs) of a tree. */
struct parameters {
    uint32_t inputs;
    size_t count;
    bool whole; /* all ways; else some within a larger tree */
};

/* How values are rounded on the way to a root. */
struct rounding {
    uint32_t hop;
    enum hst_dtype reduce, root;
    enum hst_quant quant;
};

struct operands {
    struct tensor *in, *out, *partial, *kept;
    struct tensor *sums; /* of some ways each, where they are added in several calls */
    size_t input_bytes;  /* from one input to the next */
    const void *row[MANY];
};

static uint32_t random_bits(struct suite *s)
{
    return (uint32_t)((suite_random(s) + 1) * 0x1p31);
}

/* Mostly moderate numbers that cancel in part; some tiny, huge, infinite, -0 or NaN. */
static float any_value(struct suite *s, enum hst_dtype dtype)
{
    static const float special[] = {0,     -0.0f,    1e-40f,    -3e-39f,  65504,    65519,
                                    65520, 3.38e38f, -3.38e38f, 1e-7f,    INFINITY, -INFINITY,
                                    NAN,   -65504,   0x1p-24f,  0x1p-133f};
    const uint32_t bits = random_bits(s);
    if (bits % 512 == 0)
        return special[bits >> 16 & 15];
    const float x = (float)suite_random(s) * (float)(1 + (bits & 63));
    return dtype == HST_F16 ? x : x * (bits & 64 ? 1.0f : 0x1p-20f);
}

static void round_row(enum hst_dtype type, float *row, size_t count)
{
    for (size_t i = 0; i < count && type != HST_F32; i++)
        row[i] = (float)half_value(type, half_round(type, row[i]));
}

/* The bytes of a row in its type, every NaN as the interface says. */
static void store_row(enum hst_dtype type, const float *row, size_t count, void *bytes)
{
    for (size_t i = 0; i < count; i++) {
        const uint16_t half = type == HST_F32 ? 0 : half_round(type, row[i]);
        const float single = isnan(row[i]) ? NAN : row[i];
        if (type == HST_F32)
            memcpy((char *)bytes + i * 4, &single, 4);
        else
            memcpy((char *)bytes + i * 2, &half, 2);
    }
}

static void give_back(enum hst_quant bits, float *row, size_t count)
{
    static unsigned char codes[ROOM];
    static float scales[ROOM / HST_QUANT_BLOCK + 1], back[ROOM];
    const struct hst_quantise to = {bits, HST_F32, count, row, codes, scales};
    const struct hst_dequantise from = {bits, HST_F32, count, codes, scales, back};
    assert_int_equal(hst_host_quantise(&to), 0);
    assert_int_equal(hst_host_dequantise(&from), 0);
    memcpy(row, back, count * sizeof *row);
}

/* The definition: a node of n ways is split at the largest power of two below n. rows[i] is the
 * value of input i, and becomes that of the node that begins with it. */
static void add_node(const struct hst_sum_ways *a, uint32_t first, uint32_t inputs, float **rows)
{
    if (inputs == 1)
        return;
    uint32_t left = 1;
    while (left * 2 < inputs)
        left *= 2;
    add_node(a, first, left, rows);
    add_node(a, first + left, inputs - left, rows + left);
    for (size_t i = 0; i < a->count; i++)
        rows[0][i] += rows[left][i];
    const struct hst_sum_node node = {a->first + first * a->each, inputs * a->each};
    if (node.count != a->tree.ways)
        round_row(hst_sum_type(&a->tree, node), rows[0], a->count);
    if (hst_sum_quantised(&a->tree, node))
        give_back(a->tree.quant, rows[0], a->count);
}

/* Block by block another kind: zeros, scales at the least one, what is not finite in one input, an
 * outlier, the greatest number, ties. */
static float value_for_integers(struct suite *s, const struct hst_sum_ways *a, uint32_t input,
                                size_t k)
{
    static const float endless[] = {INFINITY, -INFINITY, NAN};
    const size_t block = k / HST_QUANT_BLOCK, at = k % HST_QUANT_BLOCK;
    const float x = (float)suite_random(s);
    switch ((block + a->count) % 7) {
    case 0:
        return at % 3 ? 0.0f : -0.0f;
    case 1:
        return ldexpf(x, -118 - (int)(a->count % 7));
    case 2:
        return input == 0 && at == 3 ? endless[random_bits(s) % 3] : x;
    case 3:
        return at == 101 ? -1000 : x * 0x1p-6f;
    case 4:
        return input + 1 == a->inputs && at == 5 ? -FLT_MAX : x;
    case 5:
        return at == 7 ? 127 : (float)(random_bits(s) % 254) - 126.5f;
    default:
        return x * (float)(1 + (random_bits(s) & 63));
    }
}

/* Fills the inputs, of both sides, and tells how far from a sum in float64 rounding may lead. */
static void fill(struct suite *s, const struct operands *o, const struct hst_sum_ways *a,
                 float **rows, double *exact, double *magnitude)
{
    memset(exact, 0, ROOM * sizeof *exact);
    memset(magnitude, 0, ROOM * sizeof *magnitude);
    for (uint32_t i = 0; i < a->inputs; i++) {
        const struct hst_sum_node node = {a->first + i * a->each, a->each};
        const enum hst_dtype type = hst_sum_type(&a->tree, node);
        for (size_t k = 0; k < a->count; k++)
            rows[i][k] =
                a->tree.quant ? value_for_integers(s, a, i, k) : any_value(s, a->tree.root);
        round_row(type, rows[i], a->count);
        store_row(type, rows[i], a->count, s->staging + i * o->input_bytes);
        for (size_t k = 0; k < a->count; k++) {
            exact[k] += rows[i][k];
            magnitude[k] += fabs(rows[i][k]);
        }
    }
    assert_int_equal(
        hst_stream_copy(s->stream, o->in->data, s->staging, a->inputs * o->input_bytes), 0);
    suite_sync(s);
}

static enum hst_cpu_type cpu_type(enum hst_dtype dtype)
{
    return dtype == HST_BF16 ? HST_CPU_BF16 : dtype == HST_F16 ? HST_CPU_F16 : HST_CPU_F32;
}

static void expect_bytes(struct suite *s, const struct hst_sum_ways *a, const char *how,
                         const char *what, const void *got, const void *want, size_t bytes,
                         size_t each)
{
    assert_int_equal(hst_stream_copy(s->stream, s->staging, got, bytes), 0);
    suite_sync(s);
    for (size_t i = 0; i < bytes; i += each)
        if (memcmp(s->staging + i, (const char *)want + i, each) != 0) {
            uint64_t is = 0, should = 0;
            memcpy(&is, s->staging + i, each);
            memcpy(&should, (const char *)want + i, each);
            fail_msg("%s: %s[%zu] is %llx, not %llx: %u inputs of %u ways from %u, W %u, H %u, "
                     "reduce %d, root %d, quant %d, %zu elements",
                     how, what, i / each, (unsigned long long)is, (unsigned long long)should,
                     a->inputs, a->each, a->first, a->tree.ways, a->tree.hop, a->tree.reduce,
                     a->tree.root, a->tree.quant, a->count);
        }
}

/* Every addition may be rounded to f32 and to the type that is least exact. */
static void expect_near(const struct hst_sum_ways *a, const float *got, const double *exact,
                        const double *magnitude)
{
    const double ulp = a->tree.root == HST_F32    ? 0x1p-24
                       : a->tree.root == HST_BF16 ? 0x1p-9
                                                  : 0x1p-11;
    const double most = a->tree.root == HST_F16 ? 65504 : 0x1p127;
    for (size_t i = 0; i < a->count; i++)
        if (isfinite(magnitude[i]) && magnitude[i] < most / 2) {
            const double off = fabs(got[i] - exact[i]);
            if (!(off <= magnitude[i] * ulp * (2 + 7) + 0x1p-24))
                fail_msg("element %zu is %g, not %g: %u inputs", i, (double)got[i], exact[i],
                         a->inputs);
        }
}

/* What a sum has to be, in bytes. */
struct result {
    char out[ROOM * 4];
    double partial[ROOM / HST_NORM_BLOCK + 1];
};

static void expect_result(struct suite *s, const struct hst_sum_ways *a, const char *how,
                          const struct result *want)
{
    const struct hst_sum_node node = {a->first, a->inputs * a->each};
    const size_t size = hst_dtype_bytes(hst_sum_type(&a->tree, node)),
                 partials = (a->count + HST_NORM_BLOCK - 1) / HST_NORM_BLOCK;
    expect_bytes(s, a, how, "out", a->out, want->out, a->count * size, size);
    if (a->partial)
        expect_bytes(s, a, how, "partial", a->partial, want->partial, partials * 8, 8);
}

static void sum_and_compare(struct suite *s, const struct operands *o, const struct hst_sum_ways *a,
                            struct result *want)
{
    static float values[MOST][ROOM];
    static double exact[ROOM], magnitude[ROOM];
    float *rows[MOST];
    for (uint32_t i = 0; i < a->inputs; i++)
        rows[i] = values[i];
    fill(s, o, a, rows, exact, magnitude);
    const struct hst_sum_node node = {a->first, a->inputs * a->each};
    const enum hst_dtype type = hst_sum_type(&a->tree, node);
    add_node(a, 0, a->inputs, rows);
    if (a->inputs == 1 && hst_sum_quantised(&a->tree, node))
        give_back(a->tree.quant, rows[0], a->count);
    round_row(type, rows[0], a->count);
    store_row(type, rows[0], a->count, want->out);
    hst_cpu_adam_ops(HST_CPU_ISA_C)->norm2[cpu_type(type)](want->out, a->count, want->partial);
    assert_int_equal(hst_op_sum_ways(s->stream, a), 0);
    expect_result(s, a, "at once", want);
    if (!a->tree.quant)
        expect_near(a, rows[0], exact, magnitude);
}

static struct operands operands_of(struct suite *s, uint32_t inputs, size_t count)
{
    const size_t partials = (count + HST_NORM_BLOCK - 1) / HST_NORM_BLOCK;
    struct operands o = {.input_bytes = (count * 4 + 63) / 64 * 64};
    o.in = tensor_empty(s, inputs * o.input_bytes / 4, HST_F32);
    o.out = tensor_empty(s, count, HST_F32);
    o.partial = tensor_empty(s, partials * 2, HST_F32);
    o.kept = tensor_filled(s, 1, HST_F32, 3);
    o.sums = tensor_empty(s, inputs * o.input_bytes / 4, HST_F32);
    for (uint32_t i = 0; i < inputs; i++)
        o.row[i] = (char *)o.in->data + i * o.input_bytes;
    return o;
}

/* turn: by which some of the shape is chosen. */
static void one_sum(struct suite *s, const struct parameters *p, const struct operands *o,
                    struct rounding by, uint32_t turn)
{
    static struct result want;
    const uint32_t each = 1u << turn % 3, ways = p->inputs * each;
    struct hst_sum_ways a = {
        .tree = {p->whole ? ways : 3 * ways + turn % 5, by.hop, by.reduce, by.root, by.quant},
        .first = p->whole ? 0 : ways,
        .each = each,
        .inputs = p->inputs,
        .in = o->row,
        .out = turn % 4 ? o->out->data : o->in->data,
        .count = p->count,
        .partial = turn % 7 % 2 ? NULL : o->partial->data};
    const struct hst_sum_node all = {a.first, ways}, one = {a.first, each};
    if (hst_sum_type(&a.tree, all) != hst_sum_type(&a.tree, one))
        a.out = o->out->data; /* only of one type may it take an input's place */
    sum_and_compare(s, o, &a, &want);
}

/* Both types of reduction of a root's type, and all groups, for one shape. */
static void sums_case(struct suite *s, const void *parameters)
{
    const struct parameters *p = parameters;
    const struct operands o = operands_of(s, p->inputs, p->count);
    uint32_t turn = p->inputs;
    for (uint32_t hop = 1; hop <= 8; hop *= 2)
        for (size_t r = 0; r < DTYPES; r++)
            for (int wide = 0; wide <= (suite_dtypes[r] != HST_F32); wide++, turn++)
                one_sum(
                    s, p, &o,
                    (struct rounding){hop, wide ? HST_F32 : suite_dtypes[r], suite_dtypes[r], 0},
                    turn);
    tensor_read(s, o.out);
    tensor_read(s, o.kept);
}

/* The same of sums that integers give back. */
static void integers_case(struct suite *s, const void *parameters)
{
    const struct parameters *p = parameters;
    const struct operands o = operands_of(s, p->inputs, p->count);
    uint32_t turn = p->inputs;
    for (uint32_t hop = 1; hop <= 8; hop *= 2)
        for (size_t r = 0; r < DTYPES; r++, turn++)
            one_sum(s, p, &o,
                    (struct rounding){hop, HST_F32, suite_dtypes[r],
                                      turn / 2 % 2 ? HST_INT4 : HST_INT8},
                    turn);
    tensor_read(s, o.out);
    tensor_read(s, o.kept);
}

static void any_number_of_inputs_has_the_bytes_of_the_definition(void **state)
{
    (void)state;
    for (uint32_t inputs = 1; inputs <= MOST; inputs++)
        suite_run(sums_case, &(struct parameters){inputs, 1 + inputs * 7 % 41, true});
}

static void nodes_within_the_tree_have_the_bytes_of_the_definition(void **state)
{
    (void)state;
    for (uint32_t inputs = 1; inputs <= MOST; inputs *= 2)
        suite_run(sums_case, &(struct parameters){inputs, 37, false});
}

static void any_number_of_elements_has_its_partials(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 8, 511, 4095, 4096, 4097, ROOM};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        suite_run(sums_case, &(struct parameters){i % 3 + 2, counts[i], true});
}

static void sums_that_integers_give_back_have_the_bytes_of_the_definition(void **state)
{
    (void)state;
    static const uint32_t inputs[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 31, MOST};
    static const size_t counts[] = {0, 8, 511, 512, 4095, 4096, 4097, ROOM};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        suite_run(integers_case, &(struct parameters){inputs[i], 1300 + inputs[i], true});
    for (uint32_t n = 1; n <= MOST; n *= 2)
        suite_run(integers_case, &(struct parameters){n, 700 + n, false});
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        suite_run(integers_case, &(struct parameters){i % 3 + 2, counts[i], true});
}

/* ---- the same ways in several calls ---------------------------------------------------------- */

enum { FEW_ELEMENTS = 21 };

/* Some of the ways of `all`: nodes from `left` on, of which the last may be shorter. Their sum is
 * at `out`; that of all ways is where `all` says. Returns where it is. */
static void *add_some(struct suite *s, const struct hst_sum_ways *all, struct hst_sum_node left,
                      uint32_t inputs, const void *const *in, void *out)
{
    struct hst_sum_ways some = *all;
    const bool root = left.first == 0 && inputs * left.count >= all->tree.ways;
    some.first = left.first;
    some.each = left.count;
    some.inputs = inputs;
    some.in = in;
    some.out = root ? all->out : out;
    some.partial = root ? all->partial : NULL;
    assert_int_equal(hst_op_sum_ways(s->stream, &some), 0);
    suite_sync(s);
    return some.out;
}

/* A binary counter: each way as it comes, and what waits then from the right. */
static void add_one_by_one(struct suite *s, const struct operands *o,
                           const struct hst_sum_ways *all)
{
    enum { LEVELS = 8 };
    struct hst_sum_node node[LEVELS];
    const void *value[LEVELS];
    uint32_t depth = 0;
    char *sum = o->sums->data;
    for (uint32_t i = 0; i < all->inputs; i++) {
        node[depth] = (struct hst_sum_node){i, 1};
        value[depth++] = o->row[i];
        const bool last = i + 1 == all->inputs;
        while (depth > 1 && (last || node[depth - 2].count == node[depth - 1].count)) {
            const uint32_t right = --depth, left = right - 1;
            value[left] = add_some(s, all, node[left], 2, value + left, sum);
            node[left].count += node[right].count;
            sum += o->input_bytes;
        }
    }
}

/* Groups of `each` ways, the last of which may be shorter, and then the groups. */
static void add_by_groups(struct suite *s, const struct operands *o, const struct hst_sum_ways *all,
                          uint32_t each)
{
    const void *value[MOST];
    uint32_t groups = 0;
    for (uint32_t first = 0; first < all->inputs; first += each, groups++) {
        const uint32_t left = all->inputs - first;
        char *sum = (char *)o->sums->data + groups * o->input_bytes;
        value[groups] = add_some(s, all, (struct hst_sum_node){first, 1}, each < left ? each : left,
                                 o->row + first, sum);
    }
    add_some(s, all, (struct hst_sum_node){0, each}, groups, value, NULL);
}

/* One call with all ways, and then the others with the same ways. */
static void in_one_call_and_in_several(struct suite *s, const struct operands *o,
                                       struct hst_sum_tree tree)
{
    static struct result want;
    const struct hst_sum_ways all = {.tree = tree,
                                     .each = 1,
                                     .inputs = tree.ways,
                                     .in = o->row,
                                     .out = o->out->data,
                                     .count = FEW_ELEMENTS,
                                     .partial = o->partial->data};
    sum_and_compare(s, o, &all, &want);
    for (uint32_t each = 1; each < 2 * tree.ways; each *= 2) {
        assert_int_equal(hst_stream_zero(s->stream, all.out, FEW_ELEMENTS * 4), 0);
        assert_int_equal(hst_stream_zero(s->stream, all.partial, 8), 0);
        if (each == 1)
            add_one_by_one(s, o, &all);
        else
            add_by_groups(s, o, &all, each);
        expect_result(s, &all, each == 1 ? "one by one" : "by groups", &want);
    }
}

static void calls_case(struct suite *s, const void *parameters)
{
    const uint32_t ways = *(const uint32_t *)parameters;
    static const uint32_t hops[] = {1, 2, 8};
    const struct operands o = operands_of(s, ways, FEW_ELEMENTS);
    for (size_t h = 0; h < sizeof hops / sizeof *hops; h++)
        for (size_t r = 0; r < DTYPES; r++)
            for (int wide = 0; wide <= (suite_dtypes[r] != HST_F32); wide++)
                in_one_call_and_in_several(s, &o,
                                           (struct hst_sum_tree){ways, hops[h],
                                                                 wide ? HST_F32 : suite_dtypes[r],
                                                                 suite_dtypes[r], 0});
    tensor_read(s, o.out);
    tensor_read(s, o.kept);
}

static void ways_added_in_several_calls_have_the_bytes_of_one(void **state)
{
    (void)state;
    for (uint32_t ways = 2; ways <= 40; ways++) /* one is a sum without a call */
        suite_run(calls_case, &ways);
}

/* ---- more inputs than an operation takes ----------------------------------------------------- */

enum { BLOCKED = 1030 }; /* elements: of integers two blocks and a part of one */

/* Blocks first, and then their sums, as a caller has it who is a transport. */
static void add_by_blocks(struct suite *s, const struct operands *o, const struct hst_sum_ways *all)
{
    const void *value[MOST];
    struct hst_sum_ways blocks = hst_sum_of_blocks(all, MOST);
    for (uint32_t b = 0; b < blocks.inputs; b++) {
        struct hst_sum_ways block = hst_sum_block(all, MOST, b);
        value[b] = block.in[0];
        if (block.inputs == 1)
            continue;
        block.out = (char *)o->sums->data + b * o->input_bytes;
        value[b] = block.out;
        assert_int_equal(hst_op_sum_ways(s->stream, &block), 0);
        suite_sync(s); /* the pointers are borrowed */
    }
    blocks.in = value;
    assert_int_equal(hst_op_sum_ways(s->stream, &blocks), 0);
    suite_sync(s);
}

/* The host adds any number of inputs at once: those that `fill` has left. */
static void blocks_and_host(struct suite *s, const struct operands *o, struct hst_sum_ways all)
{
    static float values[MANY][BLOCKED];
    static double exact[ROOM], magnitude[ROOM];
    static struct result want;
    const void *in[MANY];
    float *rows[MANY];
    for (uint32_t i = 0; i < all.inputs; i++) {
        rows[i] = values[i];
        in[i] = s->staging + i * o->input_bytes;
    }
    fill(s, o, &all, rows, exact, magnitude);
    struct hst_sum_ways host = all;
    host.in = in;
    host.out = want.out;
    host.partial = want.partial;
    assert_int_equal(hst_host_sum_ways(&host), 0);
    add_by_blocks(s, o, &all);
    expect_result(s, &all, "by blocks", &want);
}

static void blocks_case(struct suite *s, const void *parameters)
{
    const struct parameters *p = parameters;
    static const uint32_t hops[] = {1, 8, MOST, 2 * MOST, 4 * MOST};
    static const enum hst_quant quants[] = {0, 0, HST_INT8, HST_INT4};
    const struct operands o = operands_of(s, p->inputs, p->count);
    for (size_t h = 0; h < sizeof hops / sizeof *hops; h++)
        for (uint32_t turn = 0; turn < DTYPES * 4; turn++) {
            const enum hst_dtype root = suite_dtypes[turn / 4];
            const uint32_t each = turn % 3 ? 1 : 4, ways = p->inputs * each;
            blocks_and_host(
                s, &o,
                (struct hst_sum_ways){.tree = {p->whole ? ways : 3 * ways, hops[h],
                                               turn % 4 ? HST_F32 : root, root, quants[turn % 4]},
                                      .first = p->whole ? 0 : ways,
                                      .each = each,
                                      .inputs = p->inputs,
                                      .in = o.row,
                                      .out = o.out->data,
                                      .count = p->count,
                                      .partial = turn % 2 ? o.partial->data : NULL});
        }
    tensor_read(s, o.out);
    tensor_read(s, o.kept);
}

static void more_inputs_than_an_operation_takes_have_the_bytes_of_one_sum(void **state)
{
    (void)state;
    static const uint32_t inputs[] = {65, 100, 128, MANY};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        suite_run(blocks_case, &(struct parameters){inputs[i], i % 2 ? 37 : BLOCKED, true});
    suite_run(blocks_case, &(struct parameters){2 * MOST, 37, false});
}

static void refusals_case(struct suite *s, const void *parameters)
{
    (void)parameters;
    enum { BAD = 15 };
    struct tensor *t = tensor_filled(s, 1024, HST_F32, 3);
    float *f = t->data;
    const void *in[MOST + 1], *odd[] = {f, f + 65}, *none[] = {f, NULL};
    for (size_t i = 0; i <= MOST; i++)
        in[i] = f + 8 * i;
    const struct hst_sum_ways good = {.tree = {2, 8, HST_F32, HST_F32, 0},
                                      .each = 1,
                                      .inputs = 2,
                                      .in = in,
                                      .out = f + 768,
                                      .count = 8,
                                      .partial = (double *)(f + 900)};
    struct hst_sum_ways bad[BAD];
    for (size_t i = 0; i < BAD; i++)
        bad[i] = good;
    bad[0].tree.ways = 0;
    bad[1].tree.hop = 3;
    bad[2].tree.reduce = HST_BF16; /* the root is f32 */
    bad[3].inputs = 3;             /* more than there are ways */
    bad[4].each = 0;
    bad[5].in = NULL;
    bad[6].in = none;
    bad[7].in = odd; /* not aligned */
    bad[8].out = f + 769;
    bad[9].out = f + 4; /* in part on an input */
    bad[10].partial = (double *)(f + 901);
    bad[11].count = SIZE_MAX / 2;
    bad[12].tree.ways = bad[12].inputs = MOST + 1;
    bad[13].tree = (struct hst_sum_tree){2, 8, HST_F32, HST_BF16, 0};
    bad[13].out = f; /* of another type than the input there */
    bad[14].tree.quant = (enum hst_quant)5;
    for (size_t i = 0; i < BAD; i++)
        assert_int_equal(hst_op_sum_ways(s->stream, &bad[i]), -EINVAL);
    assert_int_equal(hst_op_sum_ways(NULL, &good), -EINVAL);
    assert_int_equal(hst_op_sum_ways(s->stream, NULL), -EINVAL);
    expect_everywhere(s, t, 3);
}

static void wrong_arguments_are_refused_and_touch_nothing(void **state)
{
    (void)state;
    suite_run(refusals_case, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_inputs_has_the_bytes_of_the_definition),
        cmocka_unit_test(nodes_within_the_tree_have_the_bytes_of_the_definition),
        cmocka_unit_test(any_number_of_elements_has_its_partials),
        cmocka_unit_test(sums_that_integers_give_back_have_the_bytes_of_the_definition),
        cmocka_unit_test(ways_added_in_several_calls_have_the_bytes_of_one),
        cmocka_unit_test(more_inputs_than_an_operation_takes_have_the_bytes_of_one_sum),
        cmocka_unit_test(wrong_arguments_are_refused_and_touch_nothing),
    };
    return suite_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
