/* SPDX-License-Identifier: Apache-2.0 */
/* Values as integers and scales, and back (hoistway/quantise.h). */
#include "ops.h"
#include "quant_block.h"

#include <assert.h>

enum { BLOCK = HST_QUANT_BLOCK };
static_assert(PIECE_ELEMENTS % BLOCK == 0, "a block is of one piece");

/* ---- to integers ----------------------------------------------------------------------------- */

VEC_INLINE void widen_block(const void *values, float *wide, size_t n, enum hst_dtype dtype)
{
    for (size_t i = 0; i < BLOCK; i += VEC) {
        const vec x = vec_load(values, i, n, dtype, 0);
        memcpy(wide + i, &x, sizeof x);
    }
}

/* Elements past n are 0. */
static void put_codes(const int8_t *code, size_t n, enum hst_quant bits, uint8_t *out)
{
    if (bits == HST_INT8)
        memcpy(out, code, n);
    for (size_t i = 0; bits == HST_INT4 && i < n; i += 2)
        out[i / 2] = (uint8_t)((code[i] & 15) | (code[i + 1] & 15) << 4);
}

static void quantise_block(const struct hst_quantise *a, size_t at, size_t n)
{
    float wide[BLOCK];
    int8_t code[BLOCK] = {0};
    BY_DTYPE(a->dtype, widen_block, row_at(a->values, at, 1, a->dtype), wide, n);
    const float scale = quant_scale(wide, quant_most(a->bits));
    if (scale > 0)
        quant_round(wide, scale, code);
    put_codes(code, n, a->bits, (uint8_t *)a->codes + at * (unsigned)a->bits / 8);
    a->scales[at / BLOCK] = scale;
}

static void quantise_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct hst_quantise *a = arg;
    const struct range piece = range_of(a->count, PIECE_ELEMENTS, index);
    for (size_t at = piece.begin; at < piece.end; at += BLOCK)
        quantise_block(a, at, least(BLOCK, piece.end - at));
}

int HOST_OP(quantise)(struct host_dev *dev, const void *args)
{
    struct hst_quantise a = *(const struct hst_quantise *)args;
    host_split(dev, pieces_of(a.count, PIECE_ELEMENTS), quantise_piece, &a);
    return 0;
}

/* ---- and back -------------------------------------------------------------------------------- */

static void take_codes(const uint8_t *in, size_t n, enum hst_quant bits, int8_t *code)
{
    if (bits == HST_INT8)
        memcpy(code, in, n);
    for (size_t i = 0; bits == HST_INT4 && i < n; i += 2) {
        code[i] = (int8_t)(((in[i / 2] & 15) ^ 8) - 8);
        code[i + 1] = (int8_t)(((in[i / 2] >> 4) ^ 8) - 8);
    }
}

VEC_INLINE void scale_block(const float *wide, float scale, void *values, size_t n,
                            enum hst_dtype dtype)
{
    for (size_t i = 0; i < n; i += VEC)
        vec_store(values, i, n, dtype, quant_times(wide + i, scale));
}

static void dequantise_block(const struct hst_dequantise *a, size_t at, size_t n)
{
    float wide[BLOCK];
    int8_t code[BLOCK] = {0};
    take_codes((const uint8_t *)a->codes + at * (unsigned)a->bits / 8, n, a->bits, code);
    for (size_t i = 0; i < BLOCK; i++)
        wide[i] = code[i];
    BY_DTYPE(a->dtype, scale_block, wide, a->scales[at / BLOCK], row_at(a->values, at, 1, a->dtype),
             n);
}

static void dequantise_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct hst_dequantise *a = arg;
    const struct range piece = range_of(a->count, PIECE_ELEMENTS, index);
    for (size_t at = piece.begin; at < piece.end; at += BLOCK)
        dequantise_block(a, at, least(BLOCK, piece.end - at));
}

int HOST_OP(dequantise)(struct host_dev *dev, const void *args)
{
    struct hst_dequantise a = *(const struct hst_dequantise *)args;
    host_split(dev, pieces_of(a.count, PIECE_ELEMENTS), dequantise_piece, &a);
    return 0;
}
