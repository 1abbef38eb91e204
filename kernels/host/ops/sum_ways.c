/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sum of ways (hoistway/ways.h). The additions follow a binary counter: two neighbours of one
 * size become one node at once, and what is left when all inputs have come is joined from the
 * right. That is the tree whose nodes of n ways are split at the largest power of two below n.
 * Inputs are taken a chunk of elements at a time, whose sums stay in the nearest cache.
 */
#include "base/sum_tree.h"
#include "ops.h"
#include "quant_block.h"

#include <assert.h>

enum {
    CHUNK = 2048, /* elements at a time */
    LEVELS = 18,  /* nodes that wait at once, at most */
    NORM_BLOCK = 4096,
    HALF = VEC / 2, /* f64 in a vector */
};
static_assert(PIECE_ELEMENTS % NORM_BLOCK == 0, "a partial is of one piece");
static_assert(CHUNK % HST_QUANT_BLOCK == 0, "a block of integers is of one chunk");

/* Nodes that wait for their right neighbour, from the left; those of one chunk of elements. Values
 * are written by whole lanes: what lies behind the chunk's end is 0. */
struct waiting {
    const struct hst_sum_ways *sum;
    uint32_t depth;
    struct hst_sum_node node[LEVELS];
    _Alignas(64) float value[LEVELS][CHUNK];
};

VEC_INLINE void vec_keep(float *to, vec x)
{
    memcpy(to, &x, sizeof x);
}

VEC_INLINE vec vec_round(vec x, enum hst_dtype dtype)
{
    if (dtype == HST_F32)
        return x;
    return dtype == HST_BF16 ? vec_from_bf16(vec_to_bf16(x)) : vec_from_f16(vec_to_f16(x));
}

/* ---- additions ------------------------------------------------------------------------------- */

VEC_INLINE void widen(const void *in, float *value, size_t n, enum hst_dtype dtype)
{
    for (size_t i = 0; i < n; i += LANES)
        for (size_t j = i; j < i + LANES; j += VEC)
            vec_keep(value + j, vec_load(in, j, n, dtype, 0));
}

VEC_INLINE void add_two(const void *a, const void *b, float *value, size_t n, enum hst_dtype dtype)
{
    for (size_t i = 0; i < n; i += LANES)
        for (size_t j = i; j < i + LANES; j += VEC)
            vec_keep(value + j, vec_load(a, j, n, dtype, 0) + vec_load(b, j, n, dtype, 0));
}

VEC_INLINE void add_right(float *restrict left, const float *restrict right, size_t n,
                          enum hst_dtype dtype)
{
    for (size_t i = 0; i < n; i += VEC)
        vec_keep(left + i, vec_round(vec_at(left + i) + vec_at(right + i), dtype));
}

VEC_INLINE void round_all(float *value, size_t n, enum hst_dtype dtype)
{
    for (size_t i = 0; i < n; i += VEC)
        vec_keep(value + i, vec_round(vec_at(value + i), dtype));
}

/* The type that a sum is rounded to before it goes on: the root is rounded when it is written. */
static enum hst_dtype type_inside(const struct waiting *w, struct hst_sum_node node)
{
    return node.count == w->sum->tree.ways ? HST_F32 : hst_sum_type(&w->sum->tree, node);
}

/* ---- what integers give back ----------------------------------------------------------------- */

/* Of at most a block; whole lanes are written. */
static void give_back_block(float *value, size_t n, enum hst_quant bits)
{
    float wide[HST_QUANT_BLOCK] = {0};
    int8_t code[HST_QUANT_BLOCK] = {0};
    memcpy(wide, value, n * sizeof *value);
    const float scale = quant_scale(wide, quant_most(bits));
    if (scale > 0)
        quant_round(wide, scale, code);
    for (size_t i = 0; i < HST_QUANT_BLOCK; i++)
        wide[i] = code[i];
    for (size_t i = 0; i < n; i += VEC)
        vec_keep(value + i, quant_times(wide + i, scale));
}

/* A node that ranks may send as integers is what those give back, wherever it is computed. */
static void give_back(struct waiting *w, uint32_t at, size_t n)
{
    const struct hst_sum_tree *tree = &w->sum->tree;
    if (!hst_sum_quantised(tree, w->node[at]))
        return;
    for (size_t i = 0; i < n; i += HST_QUANT_BLOCK)
        give_back_block(w->value[at] + i, least(HST_QUANT_BLOCK, n - i), tree->quant);
}

/* ---- the tree -------------------------------------------------------------------------------- */

/* The last two become one. */
static void join(struct waiting *w, size_t n)
{
    const uint32_t right = --w->depth, left = right - 1;
    w->node[left].count += w->node[right].count;
    BY_DTYPE(type_inside(w, w->node[left]), add_right, w->value[left], w->value[right], n);
    give_back(w, left, n);
}

static const void *input_at(const struct waiting *w, uint32_t i, size_t at, enum hst_dtype dtype)
{
    return row_at(w->sum->in[i], at, 1, dtype);
}

/* Takes input i, and the next one with it where both are of one type: returns how many. An input of
 * an even number is always joined with the next one first. */
static uint32_t take(struct waiting *w, uint32_t i, size_t at, size_t n)
{
    struct hst_sum_node *node = &w->node[w->depth];
    float *value = w->value[w->depth++];
    *node = sum_input(w->sum, i);
    const enum hst_dtype type = hst_sum_type(&w->sum->tree, *node);
    const void *in = input_at(w, i, at, type);
    if (i % 2 || i + 1 == w->sum->inputs ||
        hst_sum_type(&w->sum->tree, sum_input(w->sum, i + 1)) != type) {
        BY_DTYPE(type, widen, in, value, n);
        return 1;
    }
    BY_DTYPE(type, add_two, in, input_at(w, i + 1, at, type), value, n);
    node->count += sum_input(w->sum, i + 1).count;
    const enum hst_dtype rounded = type_inside(w, *node);
    if (rounded != HST_F32)
        BY_DTYPE(rounded, round_all, value, n);
    give_back(w, w->depth - 1, n);
    return 2;
}

/* Elements [at, at + n): their sum is w->value[0]. */
static void add_chunk(struct waiting *w, size_t at, size_t n)
{
    w->depth = 0;
    for (uint32_t i = 0; i < w->sum->inputs;) {
        i += take(w, i, at, n);
        while (w->depth > 1 && w->node[w->depth - 2].count == w->node[w->depth - 1].count)
            join(w, n);
    }
    while (w->depth > 1)
        join(w, n);
    if (w->sum->inputs == 1)
        give_back(w, 0, n);
}

/* ---- what is written ------------------------------------------------------------------------- */

typedef double double_vec __attribute__((vector_size(8 * HALF)));
typedef float float_half __attribute__((vector_size(4 * HALF)));

/* Lane i has the squares of the elements i mod 16. */
struct squares {
    double_vec of[LANES / HALF];
};

VEC_INLINE void add_squares(struct squares *s, int part, vec x)
{
    float_half half[2];
    memcpy(half, &x, sizeof x);
    for (int k = 0; k < 2; k++) {
        double_vec wide = __builtin_convertvector(half[k], double_vec);
        s->of[2 * part + k] += wide * wide;
    }
}

/* The lanes meet as a tree 8, 4, 2, 1. */
static double squares_sum(const struct squares *s)
{
    double lane[LANES];
    memcpy(lane, s->of, sizeof lane);
    for (int distance = LANES / 2; distance; distance /= 2)
        for (int i = 0; i < distance; i++)
            lane[i] += lane[i + distance];
    return isnan(lane[0]) ? (double)NAN : lane[0];
}

VEC_INLINE void write_chunk(const float *value, void *out, size_t n, struct squares *squares,
                            enum hst_dtype dtype)
{
    struct squares s = *squares;
    for (size_t i = 0; i < n; i += LANES)
        for (int part = 0; part < PARTS; part++) {
            const size_t at = i + (size_t)part * VEC;
            vec x = vec_at(value + at);
            x = (vec)vec_pick((uvec)(x != x), (uvec){0} + 0x7fc00000, (uvec)x);
            vec_store(out, at, n, dtype, x);
            add_squares(&s, part, vec_round(x, dtype));
        }
    *squares = s;
}

/* ---- two inputs and no norm ------------------------------------------------------------------ */

/* A rank that adds its ways by and by: nothing waits, so nothing goes through a chunk's sums. */
VEC_INLINE void add_pair_of(const void *const *in, void *out, struct range r, enum hst_dtype to,
                            enum hst_dtype from)
{
    for (size_t i = r.begin; i < r.end; i += VEC) {
        const vec x = vec_load(in[0], i, r.end, from, 0) + vec_load(in[1], i, r.end, from, 0);
        const uvec quiet = (uvec){0} + 0x7fc00000;
        vec_store(out, i, r.end, to, (vec)vec_pick((uvec)(x != x), quiet, (uvec)x));
    }
}

VEC_INLINE void add_pair_to(const void *const *in, void *out, struct range r, enum hst_dtype from,
                            enum hst_dtype to)
{
    BY_DTYPE(from, add_pair_of, in, out, r, to);
}

static void pair_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct hst_sum_ways *a = arg;
    const struct range piece = range_of(a->count, PIECE_ELEMENTS, index);
    BY_DTYPE(hst_sum_type(&a->tree, sum_output(a)), add_pair_to, a->in, a->out, piece,
             hst_sum_type(&a->tree, sum_input(a, 0)));
}

/* The sum of two of one type is rounded to its own and no other. */
static bool is_pair(const struct hst_sum_ways *a)
{
    return a->inputs == 2 && !a->partial && !a->tree.quant &&
           hst_sum_type(&a->tree, sum_input(a, 0)) == hst_sum_type(&a->tree, sum_input(a, 1));
}

/* ---- all ------------------------------------------------------------------------------------- */

static void sum_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct hst_sum_ways *a = arg;
    const enum hst_dtype type = hst_sum_type(&a->tree, sum_output(a));
    const struct range piece = range_of(a->count, PIECE_ELEMENTS, index);
    struct waiting waiting;
    waiting.sum = a;
    for (size_t block = piece.begin; block < piece.end; block += NORM_BLOCK) {
        struct squares squares = {0};
        const size_t end = least(piece.end, block + NORM_BLOCK);
        for (size_t at = block; at < end; at += CHUNK) {
            const size_t n = least(CHUNK, end - at);
            add_chunk(&waiting, at, n);
            BY_DTYPE(type, write_chunk, waiting.value[0], row_at(a->out, at, 1, type), n, &squares);
        }
        if (a->partial)
            a->partial[block / NORM_BLOCK] = squares_sum(&squares);
    }
}

int HOST_OP(sum_ways)(struct host_dev *dev, const void *args)
{
    struct hst_sum_ways a = *(const struct hst_sum_ways *)args;
    host_split(dev, pieces_of(a.count, PIECE_ELEMENTS), is_pair(&a) ? pair_piece : sum_piece, &a);
    return 0;
}
