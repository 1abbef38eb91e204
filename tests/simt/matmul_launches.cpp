/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every way in which the plugin's own matrix products are launched, on the double of one card, as
 * attention_launches.cpp has it for attention. A case's hash is one for both tiles, which have the
 * same bytes (test_matmul.cpp).
 */
#include "launches.h"

/* More than one tile down, more than one step of k; whole vectors where nothing is added. */
enum { M = 136, N = 72, K = 40, LARGE = 0, SMALL = 1 << 30 };

static void run_case(enum hst_dtype dtype, bool a_transposed, bool b_transposed, size_t pad)
{
    struct hst_matmul a = {};
    size_t element = dtype == HST_F32 ? 4 : 2;
    uint64_t hash = HASH_BEGIN;
    a.m = M;
    a.n = N;
    a.k = K;
    a.a_transposed = a_transposed;
    a.b_transposed = b_transposed;
    a.a = {numbers((M + pad) * (K + pad), dtype, 1), (a_transposed ? M : K) + pad, dtype};
    a.b = {numbers((N + pad) * (K + pad), dtype, 2), (b_transposed ? K : N) + pad, dtype};
    a.c = {numbers(M * N, dtype, 3), N, dtype};
    for (unsigned multiprocessors : {(unsigned)LARGE, (unsigned)SMALL}) {
        must(hst_cuda_matmul(nullptr, &a, multiprocessors), "matmul");
        must(cudaDeviceSynchronize(), "matmul on the card");
        hash = hash_of(a.c.data, M * N * element, hash);
    }
    for (void *memory : {a.a.data, a.b.data, a.c.data})
        cudaFree(memory);
    printf("bytes matmul,%s,%d%d,%zu %016llx\n", dtype_name(dtype), a_transposed, b_transposed, pad,
           (unsigned long long)hash);
}

int main()
{
    for (enum hst_dtype dtype : {HST_F32, HST_BF16, HST_F16})
        for (int layout = 0; layout < 4; layout++)
            for (size_t pad = 0; pad < 2; pad++)
                run_case(dtype, (layout & 1) != 0, (layout & 2) != 0, pad);
    return 0;
}
