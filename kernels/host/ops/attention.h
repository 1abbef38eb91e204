/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_HOST_ATTENTION_H
#define HST_KERNELS_HOST_ATTENTION_H
/* The forward and the backward of attention share this: tiles, and what multiplies them. */
#include "host/work.h"
#include "ops.h"

/* A block of f32 rows, head_dim wide: in a tensor itself, or in the workspace. */
struct rows {
    float *data;
    size_t ld;
};

/*
 * It makes a worker's GEMMs: an own kernel, whose operands are bf16, or, where that is null,
 * OpenBLAS, whose operands are f32. For the own one probabilities and their gradients are rounded
 * to bf16.
 */
struct products {
    host_gemm_bf16_function *own;
    void *pack;
};

static inline enum hst_dtype operand_dtype(const struct products *by)
{
    return by->own ? HST_BF16 : HST_F32;
}

/* It returns the kernel that makes the GEMMs of such an attention, or null. */
static inline host_gemm_bf16_function *own_products(const struct host_dev *dev,
                                                    const struct hst_attention *a)
{
    return a->dtype == HST_BF16 ? host_gemm_bf16_small(dev->gemm_bf16) : NULL;
}

/* A block of rows that is multiplied, head_dim wide: in a tensor itself, or its widened copy. */
struct operand {
    const void *data;
    size_t ld;
};

/* Row `position` of one head of one sequence lies at base + offset + position · ld elements. */
struct head {
    size_t offset, ld;
};

static inline struct head head_of(const struct hst_attention *a, size_t sequence, size_t head,
                                  size_t heads)
{
    return (struct head){(sequence * a->seq * heads + head) * a->head_dim, heads * a->head_dim};
}

static inline void *head_row(const void *base, struct head head, size_t position,
                             enum hst_dtype dtype)
{
    return row_at(base, head.offset + position * head.ld, 1, dtype);
}

/* Positions [r.begin, r.end) of a head; `wide` holds the copy where there has to be one. */
static inline struct operand head_rows(const struct hst_attention *a, const struct products *by,
                                       const void *base, struct head head, struct range r,
                                       float *wide)
{
    if (a->dtype == operand_dtype(by))
        return (struct operand){head_row(base, head, r.begin, a->dtype), head.ld};
    for (size_t t = r.begin; t < r.end; t++)
        convert_row(wide + (t - r.begin) * a->head_dim, HST_F32, head_row(base, head, t, a->dtype),
                    a->dtype, a->head_dim);
    return (struct operand){wide, a->head_dim};
}

/*
 * A tile of scores lies with one row per key and one column per query: vectors hold queries,
 * maxima and sums over keys need no meeting of lanes, and with q and dout turned once per tile of
 * queries, no product has its second operand transposed. OpenBLAS (0.3.21, SkylakeX) packs nothing
 * for such products up to a million multiplications, 64 × 64 × head_dim 244: measured 160 to 185
 * GFLOP/s where those of the other form have 105 and large products 150.
 * Columns are worked on in strips of ATTENTION_DIAGONAL; those beyond the last query hold numbers
 * that nothing reads.
 *
 * Where an own kernel multiplies, q and dout are not turned, as it packs them in any case. A row of
 * scores becomes one of bf16 in place: its elements lie in the first half of the row then. No score
 * is overwritten before it is read, as strips are worked on in rising order.
 */
enum { STRIP_PARTS = ATTENTION_DIAGONAL / VEC, HALF_LD = 2 * ATTENTION_QUERIES };

/* It stores a part of a strip of weights in their row, from column `at` on. */
VEC_INLINE void put_weights(float *row, size_t at, bool halves, vec weights)
{
    if (halves)
        vec_store(row, at, ATTENTION_QUERIES, HST_BF16, weights);
    else
        memcpy(row + at, &weights, sizeof weights);
}

/* Row 0 of a tile's weights, from column `at` on. */
static inline const uint16_t *half_weights(const float *scores, size_t at)
{
    return (const uint16_t *)scores + at;
}

struct key_tile {
    struct range keys;
    size_t first;  /* of the tile's queries, the first to see any of these keys */
    bool diagonal; /* the keys are the positions of queries first, first + 1, … */
};

static inline size_t key_tiles(struct range q)
{
    return q.begin / ATTENTION_KEYS + pieces_of(q.end - q.begin, ATTENTION_DIAGONAL);
}

/* The keys that queries [q.begin, q.end) see: those before them, then their own positions, of which
   queries in earlier strips see none. */
static inline struct key_tile key_tile(struct range q, size_t index)
{
    size_t before = q.begin / ATTENTION_KEYS;
    if (index < before)
        return (struct key_tile){range_of(q.begin, ATTENTION_KEYS, index), 0, false};
    struct range own = range_of(q.end - q.begin, ATTENTION_DIAGONAL, index - before);
    return (struct key_tile){{q.begin + own.begin, q.begin + own.end}, own.begin, true};
}

/*
 * The first key that each query of a tile sees, from the tile's first query on. It does not fall,
 * so a tile of keys is seen by the queries up to some one, and those of a tile up to some one see
 * all of it. Behind the last query it is 0: nothing reads what those columns hold.
 */
struct first_keys {
    uint32_t of[ATTENTION_QUERIES];
};

static inline struct first_keys first_keys_of(const struct hst_attention *a, size_t sequence,
                                              struct range queries)
{
    struct first_keys first = {{0}};
    for (size_t t = queries.begin; t < queries.end; t++) {
        size_t from = a->first ? a->first[sequence * a->seq + t] : 0;
        from = from < t ? from : t;
        if (a->window && t >= a->window && t - a->window + 1 > from)
            from = t - a->window + 1;
        first.of[t - queries.begin] = (uint32_t)from;
    }
    return first;
}

/* The first tile of keys that some query sees: the first query's, as none sees an earlier key. */
static inline size_t first_key_tile(const struct first_keys *first)
{
    return first->of[0] / ATTENTION_KEYS;
}

/* It tells whether a strip of queries, from column `at` on, has one that does not see all of a
 * tile's keys for its documents' or its window's sake. */
static inline bool strip_begins_later(const struct first_keys *first, const struct key_tile *tile,
                                      size_t at, size_t queries)
{
    size_t last = at + ATTENTION_DIAGONAL < queries ? at + ATTENTION_DIAGONAL : queries;
    return first->of[last - 1] > tile->keys.begin;
}

/* It says which of a tile's keys the queries of a strip see: all, those up to their own, or of
 * these those from their first on. A constant wherever it is asked. */
enum seen { SEEN_ALL, SEEN_TO, SEEN_BETWEEN };

/* Keys [from, to] of a tile, for each query of a part of a strip. */
struct sight {
    uvec from, to;
};

/* It is for the queries from column `column` on, of a tile whose first query is at `begin`. */
static inline struct sight sight_of(const struct first_keys *first, const struct key_tile *tile,
                                    size_t begin, size_t column)
{
    uint32_t keys = (uint32_t)tile->keys.begin;
    struct sight s = {.to = vec_count((uint32_t)(begin + column - tile->keys.begin))};
    memcpy(&s.from, first->of + column, sizeof s.from);
    s.from = (uvec)(s.from > keys) & (s.from - keys);
    return s;
}

/* All ones where a query sees the tile's key. */
static inline uvec sees(struct sight s, size_t key, enum seen seen)
{
    uvec to = (uvec)(s.to >= (uint32_t)key);
    return seen == SEEN_BETWEEN ? to & (uvec)(s.from <= (uint32_t)key) : to;
}

/* The end of the last strip that holds a query. */
static inline size_t strips_end(size_t queries)
{
    return pieces_of(queries, ATTENTION_DIAGONAL) * ATTENTION_DIAGONAL;
}

/* Four rows of four, ld elements apart, become columns. */
static inline void turn_four(float *to, const float *from, size_t ld)
{
    quad row[4];
    for (size_t r = 0; r < 4; r++)
        memcpy(&row[r], from + r * ld, sizeof row[r]);
    quad low = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
    quad high = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
    quad low2 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
    quad high2 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
    const quad column[4] = {__builtin_shufflevector(low, low2, 0, 1, 4, 5),
                            __builtin_shufflevector(low, low2, 2, 3, 6, 7),
                            __builtin_shufflevector(high, high2, 0, 1, 4, 5),
                            __builtin_shufflevector(high, high2, 2, 3, 6, 7)};
    for (size_t i = 0; i < 4; i++)
        memcpy(to + i * ATTENTION_QUERIES, &column[i], sizeof column[i]);
}

/* to[i][r] = from[r][i], zero where there is no row r. */
static inline void turn_rows(float *to, struct operand rows, size_t count, size_t width)
{
    const struct rows from = {(float *)(uintptr_t)rows.data, rows.ld};
    size_t fours = count / 4 * 4, whole = width / 4 * 4;
    for (size_t r = 0; r < fours; r += 4)
        for (size_t i = 0; i < whole; i += 4)
            turn_four(to + i * ATTENTION_QUERIES + r, from.data + r * from.ld + i, from.ld);
    for (size_t r = 0; r < strips_end(count); r++)
        for (size_t i = r < fours ? whole : 0; i < width; i++)
            to[i * ATTENTION_QUERIES + r] = r < count ? from.data[r * from.ld + i] : 0;
}

/* A tile's queries as a product with keys takes them: rows, turned where OpenBLAS multiplies. */
struct query_rows {
    struct operand rows;
    const float *turned;
};

static inline struct query_rows query_rows_of(const struct products *by, struct operand rows,
                                              float *turned, size_t count, size_t width)
{
    if (!by->own)
        turn_rows(turned, rows, count, width);
    return (struct query_rows){rows, turned};
}

/* As tile_scores, but not scaled. Columns without a query are zeros: exp takes long of others. */
static inline void own_scores(const struct products *by, float *scores, struct operand keys,
                              const struct key_tile *tile, struct operand queries, size_t count,
                              size_t head_dim)
{
    size_t rows = tile->keys.end - tile->keys.begin, beyond = strips_end(count) - count;
    by->own(&(struct host_gemm_bf16){.m = rows,
                                     .n = count - tile->first,
                                     .k = head_dim,
                                     .a = keys.data,
                                     .b = row_at(queries.data, tile->first, queries.ld, HST_BF16),
                                     .c = scores + tile->first,
                                     .a_ld = keys.ld,
                                     .b_ld = queries.ld,
                                     .c_ld = ATTENTION_QUERIES,
                                     .b_transposed = true,
                                     .pack = by->pack});
    for (size_t j = 0; j < rows && beyond; j++)
        memset(scores + j * ATTENTION_QUERIES + count, 0, beyond * sizeof *scores);
}

/* scores[key][query] = scale · keys · queries, from the tile's first query on. It returns what they
   are yet to be multiplied by. */
static inline float tile_scores(const struct products *by, float *scores, float scale,
                                struct operand keys, const struct key_tile *tile,
                                const struct query_rows *queries, size_t count, size_t head_dim)
{
    if (by->own) {
        own_scores(by, scores, keys, tile, queries->rows, count, head_dim);
        return scale;
    }
    host_gemm(&(struct host_gemm){.m = tile->keys.end - tile->keys.begin,
                                  .n = strips_end(count) - tile->first,
                                  .k = head_dim,
                                  .a = keys.data,
                                  .b = queries->turned + tile->first,
                                  .c = scores + tile->first,
                                  .a_ld = keys.ld,
                                  .b_ld = ATTENTION_QUERIES,
                                  .c_ld = ATTENTION_QUERIES,
                                  .alpha = scale});
    return 1;
}

/* to[query] = alpha · Σ over keys of tile[key][query] · rows[key] (+ to where added). The own
   kernel takes weights that have been multiplied by alpha. */
static inline void sum_over_keys(const struct products *by, struct rows to, float alpha,
                                 const float *scores, const struct key_tile *tile, size_t queries,
                                 struct operand rows, size_t head_dim, bool added)
{
    size_t m = queries - tile->first, k = tile->keys.end - tile->keys.begin;
    float *c = to.data + tile->first * to.ld;
    if (by->own)
        by->own(&(struct host_gemm_bf16){.m = m,
                                         .n = head_dim,
                                         .k = k,
                                         .a = half_weights(scores, tile->first),
                                         .b = rows.data,
                                         .c = c,
                                         .a_ld = HALF_LD,
                                         .b_ld = rows.ld,
                                         .c_ld = to.ld,
                                         .a_transposed = true,
                                         .accumulate = added,
                                         .pack = by->pack});
    else
        host_gemm(&(struct host_gemm){.m = m,
                                      .n = head_dim,
                                      .k = k,
                                      .a = scores + tile->first,
                                      .b = rows.data,
                                      .c = c,
                                      .a_ld = ATTENTION_QUERIES,
                                      .b_ld = rows.ld,
                                      .c_ld = to.ld,
                                      .alpha = alpha,
                                      .beta = added ? 1 : 0,
                                      .a_transposed = true});
}
#endif
