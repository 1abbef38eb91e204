/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products: C is cut into a grid of blocks that its shape alone decides (but for products by
 * AMX, whose grid decides no bits), and each block is one single-threaded call over the whole of K.
 *
 * Blocks are 512 at most each way, halved to no less than 256 until 8 of them exist. Measured at
 * the shapes of a small Llama (k from 512 to 2048), a BLAS call on 512 × 512 reaches 95 % of its
 * rate on the whole, 256 × 512 and 256 × 256 about 90 %, 128 × 128 less than 80 %: packing costs as
 * much as the edge is long. Fewer blocks than 8 would leave workers idle; models of width 2048 have
 * 16 and more.
 *
 * Of a batch each product is cut as it would be alone, so that it has the same bytes.
 *
 * Of bf16 each block is one call of an own kernel where there is one (gemm_bf16.h), which rounds C,
 * too. The one by AMX is so fast that packing counts more: its blocks have more rows where two for
 * each worker are left. Else operands of bf16 and f16 are widened into the worker's part of the
 * workspace, MATMUL_WIDE_K of K at a time, and the products add up in f32 in rising k, which bounds
 * the workspace.
 */
#include "host/work.h"
#include "ops.h"

enum { BLOCK_MIN = 256, BLOCKS_WANTED = 8, BLOCK_ROUND = 16, FAST_ROWS = 2048 };

struct grid {
    size_t rows, columns;             /* of one block */
    size_t row_blocks, column_blocks; /* how many */
};

static size_t round_up(size_t x, size_t to)
{
    return (x + to - 1) / to * to;
}

/* The extent of blocks of at most `most` that share `total` evenly. */
static size_t even_block(size_t total, size_t most)
{
    size_t count = pieces_of(total, most);
    return least(round_up(pieces_of(total, count), BLOCK_ROUND), most);
}

static struct grid grid_of(size_t m, size_t n, size_t rows, size_t columns, size_t wanted)
{
    while (pieces_of(m, rows) * pieces_of(n, columns) < wanted &&
           (rows > BLOCK_MIN || columns > BLOCK_MIN)) {
        if (rows >= columns)
            rows /= 2;
        else
            columns /= 2;
    }
    struct grid g = {.rows = even_block(m, rows), .columns = even_block(n, columns)};
    g.row_blocks = pieces_of(m, g.rows);
    g.column_blocks = pieces_of(n, g.columns);
    return g;
}

struct product {
    const struct hst_matmul *args;
    struct grid grid;
    size_t work_bytes; /* of one worker */
    host_gemm_bf16_function *gemm_bf16;
};

/* It returns where an operand's rows [row, …) and columns [column, …) begin. */
static void *inside(const struct hst_matrix *x, size_t row, size_t column)
{
    return row_at(row_at(x->data, row, x->ld, x->dtype), column, 1, x->dtype);
}

/* The i-th of a batch, alone. */
static struct hst_matmul product_at(const struct hst_matmul *args, size_t i)
{
    struct hst_matmul one = *args;
    one.a.data = row_at(one.a.data, i, one.a_step, one.a.dtype);
    one.b.data = row_at(one.b.data, i, one.b_step, one.b.dtype);
    one.c.data = row_at(one.c.data, i, one.c_step, one.c.dtype);
    return one;
}

static size_t blocks_of(const struct product *p)
{
    return p->grid.row_blocks * p->grid.column_blocks;
}

struct block {
    struct range rows, columns;
};

static struct block block_of(const struct product *p, size_t index)
{
    index %= blocks_of(p);
    return (struct block){range_of(p->args->m, p->grid.rows, index / p->grid.column_blocks),
                          range_of(p->args->n, p->grid.columns, index % p->grid.column_blocks)};
}

static void f32_piece(void *arg, size_t index, unsigned worker)
{
    (void)worker;
    const struct product *p = arg;
    const struct hst_matmul one = product_at(p->args, index / blocks_of(p)), *a = &one;
    struct block b = block_of(p, index);
    size_t row = b.rows.begin, column = b.columns.begin;
    host_gemm(&(struct host_gemm){
        .m = b.rows.end - row,
        .n = b.columns.end - column,
        .k = a->k,
        .a = a->a_transposed ? inside(&a->a, 0, row) : inside(&a->a, row, 0),
        .b = a->b_transposed ? inside(&a->b, column, 0) : inside(&a->b, 0, column),
        .c = (float *)a->c.data + row * a->c.ld + column,
        .a_ld = a->a.ld,
        .b_ld = a->b.ld,
        .c_ld = a->c.ld,
        .alpha = 1,
        .beta = a->accumulate ? 1 : 0,
        .a_transposed = a->a_transposed,
        .b_transposed = a->b_transposed});
}

/* A copy in f32 of rows × columns of a matrix of another type, dense. */
static void widen(float *to, const struct hst_matrix *x, struct range rows, struct range columns)
{
    size_t width = columns.end - columns.begin;
    for (size_t r = rows.begin; r < rows.end; r++, to += width)
        convert_row(to, HST_F32, inside(x, r, columns.begin), x->dtype, width);
}

static void narrow(const struct hst_matrix *c, struct block b, const float *from)
{
    size_t width = b.columns.end - b.columns.begin;
    for (size_t r = b.rows.begin; r < b.rows.end; r++, from += width)
        convert_row(inside(c, r, b.columns.begin), c->dtype, from, HST_F32, width);
}

static void wide_piece(void *arg, size_t index, unsigned worker)
{
    const struct product *p = arg;
    const struct hst_matmul one = product_at(p->args, index / blocks_of(p)), *a = &one;
    struct block b = block_of(p, index);
    size_t m = b.rows.end - b.rows.begin, n = b.columns.end - b.columns.begin;
    float *wide_a = (float *)((char *)a->work.data + worker * p->work_bytes);
    float *wide_b = wide_a + m * least(a->k, MATMUL_WIDE_K),
          *wide_c = wide_b + n * least(a->k, MATMUL_WIDE_K);
    bool direct = a->c.dtype == HST_F32;
    for (size_t k = 0; k < a->k; k += MATMUL_WIDE_K) {
        struct range depth = range_of(a->k, MATMUL_WIDE_K, k / MATMUL_WIDE_K);
        size_t deep = depth.end - k;
        if (a->a_transposed)
            widen(wide_a, &a->a, depth, b.rows);
        else
            widen(wide_a, &a->a, b.rows, depth);
        if (a->b_transposed)
            widen(wide_b, &a->b, b.columns, depth);
        else
            widen(wide_b, &a->b, depth, b.columns);
        host_gemm(&(struct host_gemm){
            .m = m,
            .n = n,
            .k = deep,
            .a = wide_a,
            .b = wide_b,
            .c = direct ? (float *)a->c.data + b.rows.begin * a->c.ld + b.columns.begin : wide_c,
            .a_ld = a->a_transposed ? m : deep,
            .b_ld = a->b_transposed ? deep : n,
            .c_ld = direct ? a->c.ld : n,
            .alpha = 1,
            .beta = k || a->accumulate ? 1 : 0,
            .a_transposed = a->a_transposed,
            .b_transposed = a->b_transposed});
    }
    if (!direct)
        narrow(&a->c, b, wide_c);
}

/* An own kernel does it: as f32_piece, and C is rounded where it is not f32. */
static void bf16_piece(void *arg, size_t index, unsigned worker)
{
    const struct product *p = arg;
    const struct hst_matmul one = product_at(p->args, index / blocks_of(p)), *a = &one;
    struct block b = block_of(p, index);
    size_t row = b.rows.begin, column = b.columns.begin;
    size_t m = b.rows.end - row, n = b.columns.end - column;
    bool direct = a->c.dtype == HST_F32;
    float *c = (float *)((char *)a->work.data + worker * p->work_bytes);
    bool between = !direct && a->k > host_gemm_bf16_k(p->gemm_bf16);
    p->gemm_bf16(&(struct host_gemm_bf16){
        .m = m,
        .n = n,
        .k = a->k,
        .a = a->a_transposed ? inside(&a->a, 0, row) : inside(&a->a, row, 0),
        .b = a->b_transposed ? inside(&a->b, column, 0) : inside(&a->b, 0, column),
        .c = direct ? inside(&a->c, row, column) : c,
        .rounded = direct ? NULL : inside(&a->c, row, column),
        .a_ld = a->a.ld,
        .b_ld = a->b.ld,
        .c_ld = direct ? a->c.ld : n,
        .rounded_ld = a->c.ld,
        .a_transposed = a->a_transposed,
        .b_transposed = a->b_transposed,
        .accumulate = a->accumulate,
        .pack = c + (between ? m * n : 0)});
}

/* Blocks by AMX have more rows than others where no block needs C in f32 beside it. */
static struct grid own_grid(const struct hst_matmul *a, const struct host_dev *dev)
{
    const size_t k = host_gemm_bf16_k(dev->gemm_bf16);
    if (k == GEMM_BF16_K)
        return grid_of(a->m, a->n, MATMUL_BLOCK, MATMUL_BLOCK, BLOCKS_WANTED);
    const size_t rows = a->c.dtype == HST_F32 || a->k <= k ? FAST_ROWS : MATMUL_BLOCK;
    const size_t wanted = dev->parallel.width > 1 ? 2 * (size_t)dev->parallel.width : 1;
    return grid_of(a->m, a->n, rows, MATMUL_BLOCK, wanted);
}

/* The empty sum over k. */
static void clear(const struct hst_matmul *a)
{
    size_t bytes = a->n * hst_dtype_bytes(a->c.dtype);
    for (size_t r = 0; r < a->m && !a->accumulate; r++)
        memset(row_at(a->c.data, r, a->c.ld, a->c.dtype), 0, bytes);
}

int HOST_OP(matmul)(struct host_dev *dev, const void *args)
{
    const struct hst_matmul *a = args;
    if (!a->m || !a->n)
        return 0;
    size_t batch = a->batch ? a->batch : 1;
    if (!a->k) {
        for (size_t i = 0; i < batch; i++) {
            const struct hst_matmul one = product_at(a, i);
            clear(&one);
        }
        return 0;
    }
    bool own = a->a.dtype == HST_BF16 && dev->gemm_bf16;
    bool wide = a->a.dtype != HST_F32 && !own;
    size_t block = wide ? MATMUL_WIDE_BLOCK : MATMUL_BLOCK;
    struct product p = {.args = a,
                        .grid = own ? own_grid(a, dev)
                                    : grid_of(a->m, a->n, block, block, BLOCKS_WANTED),
                        .work_bytes = host_matmul_worker_bytes(a),
                        .gemm_bf16 = dev->gemm_bf16};
    host_split(dev, batch * blocks_of(&p), own ? bf16_piece : wide ? wide_piece : f32_piece, &p);
    return 0;
}
