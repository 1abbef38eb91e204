/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_HOST_ATTENTION_H
#define HST_KERNELS_HOST_ATTENTION_H
/* The forward and the backward of attention share this: tiles, and operands as f32 blocks. */
#include "host/work.h"
#include "ops.h"

/* A block of f32 rows, head_dim wide: in a tensor itself, or its widened copy. */
struct rows {
    float *data;
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

/* Positions [r.begin, r.end) of a head as f32; `wide` holds the copy where the tensor is not. */
static inline struct rows head_rows(const struct hst_attention *a, const void *base,
                                    struct head head, struct range r, float *wide)
{
    if (a->dtype == HST_F32)
        return (struct rows){head_row(base, head, r.begin, HST_F32), head.ld};
    for (size_t t = r.begin; t < r.end; t++)
        convert_row(wide + (t - r.begin) * a->head_dim, HST_F32, head_row(base, head, t, a->dtype),
                    a->dtype, a->head_dim);
    return (struct rows){wide, a->head_dim};
}

/*
 * A tile of scores lies with one row per key and one column per query: vectors hold queries,
 * maxima and sums over keys need no meeting of lanes, and with q and dout turned once per tile of
 * queries, no product has its second operand transposed. OpenBLAS (0.3.21, SkylakeX) packs nothing
 * for such products up to a million multiplications, 64 × 64 × head_dim 244: measured 160 to 185
 * GFLOP/s where those of the other form have 105 and large products 150.
 * Columns are worked on in strips of ATTENTION_DIAGONAL; those beyond the last query hold numbers
 * that nothing reads.
 */
enum { STRIP_PARTS = ATTENTION_DIAGONAL / VEC };

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
static inline void turn_rows(float *to, struct rows from, size_t count, size_t width)
{
    size_t fours = count / 4 * 4, whole = width / 4 * 4;
    for (size_t r = 0; r < fours; r += 4)
        for (size_t i = 0; i < whole; i += 4)
            turn_four(to + i * ATTENTION_QUERIES + r, from.data + r * from.ld + i, from.ld);
    for (size_t r = 0; r < strips_end(count); r++)
        for (size_t i = r < fours ? whole : 0; i < width; i++)
            to[i * ATTENTION_QUERIES + r] = r < count ? from.data[r * from.ld + i] : 0;
}

/* scores[key][query] = scale · keys · queries, from the tile's first query on. */
static inline void tile_scores(float *scores, float scale, struct rows keys,
                               const struct key_tile *tile, const float *turned, size_t queries,
                               size_t head_dim)
{
    host_gemm(&(struct host_gemm){.m = tile->keys.end - tile->keys.begin,
                                  .n = strips_end(queries) - tile->first,
                                  .k = head_dim,
                                  .a = keys.data,
                                  .b = turned + tile->first,
                                  .c = scores + tile->first,
                                  .a_ld = keys.ld,
                                  .b_ld = ATTENTION_QUERIES,
                                  .c_ld = ATTENTION_QUERIES,
                                  .alpha = scale});
}

/* to[query] = alpha · Σ over keys of tile[key][query] · rows[key] (+ to where added). */
static inline void sum_over_keys(struct rows to, float alpha, const float *scores,
                                 const struct key_tile *tile, size_t queries, struct rows rows,
                                 size_t head_dim, bool added)
{
    host_gemm(&(struct host_gemm){.m = queries - tile->first,
                                  .n = head_dim,
                                  .k = tile->keys.end - tile->keys.begin,
                                  .a = scores + tile->first,
                                  .b = rows.data,
                                  .c = to.data + tile->first * to.ld,
                                  .a_ld = ATTENTION_QUERIES,
                                  .b_ld = rows.ld,
                                  .c_ld = to.ld,
                                  .alpha = alpha,
                                  .beta = added ? 1 : 0,
                                  .a_transposed = true});
}
#endif
