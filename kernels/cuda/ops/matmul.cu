/* SPDX-License-Identifier: Apache-2.0 */
/*
 * C ← [C +] op(A)·op(B) by the plugin's own kernels: which of them, and which tile.
 *
 * An element of C is one chain of sums from +0 in rising k, which is filled with zeros to whole
 * steps: in f32 one fused multiply-add per k (steps of 8), in bf16 and f16 one mma.sync per 16 of
 * k (steps of 32). What it is added to comes last. Both tiles have the same steps, so an element's
 * bits depend on k, the dtype and the numbers alone: not on m, n, the tile, transposition, leading
 * dimensions or the number of multiprocessors. Within an mma.sync the order is the card's own.
 *
 * The large tile is taken where every multiprocessor gets at least one. No workspace.
 */
#include "launch.h"

#include "matmul.h"

/* The larger tiles, in rows and columns of C. */
enum { HALF_ROWS = 128, HALF_COLUMNS = 256, F32_ROWS = 128, F32_COLUMNS = 128 };

extern "C" cudaError_t hst_cuda_matmul(cudaStream_t stream, const struct hst_matmul *args,
                                       unsigned multiprocessors)
{
    if (!args->m || !args->n || (!args->k && args->accumulate))
        return cudaSuccess;
    if (args->a.dtype == HST_F32)
        return matmul_f32(stream, args,
                          matmul_tiles(args, F32_ROWS, F32_COLUMNS) >= multiprocessors);
    return matmul_half(stream, args,
                       matmul_tiles(args, HALF_ROWS, HALF_COLUMNS) >= multiprocessors);
}
