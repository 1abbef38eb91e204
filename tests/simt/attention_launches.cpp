/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every way in which attention is launched, on the double of one card (HST_FAKE_CUDA=cc=X.Y), for
 * tests/cuda/resources.py. Prints, of each case, a hash over the bytes of its results, which the
 * card must not change:
 *
 *   bytes CASE HASH
 *
 * The launches themselves are written by the runtime (HST_SIMT_LAUNCHES).
 */
#include "launches.h"

#include <cmath>

/* More than one tile of 128 rows, the last of which ends within 16 rows and within a warp's 32. */
static const size_t SEQ = 150, HEADS = 1, KV_HEADS = 1;

/* Two documents, the second of which begins within a tile. */
static const uint32_t *documents()
{
    std::vector<uint32_t> begins(SEQ);
    void *memory;
    for (size_t t = 70; t < SEQ; t++)
        begins[t] = 70;
    must(cudaMalloc(&memory, SEQ * sizeof(uint32_t)), "cudaMalloc");
    must(cudaMemcpy(memory, begins.data(), SEQ * sizeof(uint32_t), cudaMemcpyDefault),
         "cudaMemcpy");
    return (const uint32_t *)memory;
}

static void run_case(enum hst_dtype dtype, size_t head_dim, const uint32_t *first)
{
    size_t element = dtype == HST_F32 ? 4 : 2;
    size_t q = SEQ * HEADS * head_dim, kv = SEQ * KV_HEADS * head_dim, rows = SEQ * HEADS;
    struct hst_attention_backward b = {};
    struct hst_attention *a = &b.forward;
    a->batch = 1;
    a->seq = SEQ;
    a->heads = HEADS;
    a->kv_heads = KV_HEADS;
    a->head_dim = head_dim;
    a->dtype = dtype;
    a->scale = 1 / sqrtf((float)head_dim);
    void *const inputs[] = {numbers(q, dtype, 1), numbers(kv, dtype, 2), numbers(kv, dtype, 3),
                            numbers(q, dtype, 4)};
    struct {
        void *data;
        size_t bytes;
    } outputs[] = {{numbers(q, dtype, 5), q * element},
                   {numbers(rows, HST_F32, 6), rows * sizeof(float)},
                   {numbers(q, dtype, 7), q * element},
                   {numbers(kv, dtype, 8), kv * element},
                   {numbers(kv, dtype, 9), kv * element}};
    a->q = inputs[0];
    a->k = inputs[1];
    a->v = inputs[2];
    b.dout = inputs[3];
    a->o = outputs[0].data;
    a->lse = (float *)outputs[1].data;
    b.dq = outputs[2].data;
    b.dk = outputs[3].data;
    b.dv = outputs[4].data;
    a->first = first;
    a->work.size_bytes = hst_cuda_attention_work_bytes(a);
    must(cudaMalloc(&a->work.data, a->work.size_bytes), "cudaMalloc");
    must(hst_cuda_attention(nullptr, a), "attention");
    must(hst_cuda_attention_backward(nullptr, &b), "attention's backward");
    must(cudaDeviceSynchronize(), "attention on the card");
    uint64_t hash = HASH_BEGIN;
    for (auto &out : outputs) {
        hash = hash_of(out.data, out.bytes, hash);
        cudaFree(out.data);
    }
    for (void *memory : inputs)
        cudaFree(memory);
    cudaFree(a->work.data);
    printf("bytes attention,%s,%zu%s %016llx\n", dtype_name(dtype), head_dim,
           first ? ",documents" : "", (unsigned long long)hash);
}

int main()
{
    for (const uint32_t *first : {(const uint32_t *)nullptr, documents()})
        for (enum hst_dtype dtype : {HST_F32, HST_BF16, HST_F16})
            for (size_t head_dim : {64, 96, 128, 256})
                if (dtype != HST_F32 || head_dim == 64)
                    run_case(dtype, head_dim, first);
    return 0;
}
