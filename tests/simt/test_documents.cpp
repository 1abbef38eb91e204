/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of attention's work is left of a row that is packed with documents, counted in products
 * of tensor cores: a tile of scores has the same number of them wherever it lies; and in copies to
 * shared memory.
 */
#include "../short.h"
#include "launchers.h"
#include "support.h"

#include <vector>

static const size_t HEAD_DIM = 64;
static size_t SEQ = 4096;      /* half of it in the short form */
static double more_copies = 1; /* of shorter documents, of which a block's own tiles are more */

struct counts {
    struct hst::Work forward, backward;
};

static void *memory_of(size_t bytes)
{
    void *memory;
    assert_int_equal(cudaMalloc(&memory, bytes), cudaSuccess);
    return memory;
}

/* Numbers do not matter: device memory is NaNs. */
static struct hst_attention_backward operands(std::vector<void *> &all)
{
    struct hst_attention_backward b = {};
    struct hst_attention *a = &b.forward;
    a->batch = a->heads = a->kv_heads = 1;
    a->seq = SEQ;
    a->head_dim = HEAD_DIM;
    a->dtype = HST_BF16;
    a->scale = 0.125f;
    for (int i = 0; i < 8; i++)
        all.push_back(memory_of(SEQ * HEAD_DIM * 2));
    a->q = all[0];
    a->k = all[1];
    a->v = all[2];
    a->o = all[3];
    b.dout = all[4];
    b.dq = all[5];
    b.dk = all[6];
    b.dv = all[7];
    a->lse = (float *)memory_of(SEQ * sizeof(float));
    a->work = {memory_of(SEQ * sizeof(float)), SEQ * sizeof(float)};
    all.push_back(a->lse);
    all.push_back(a->work.data);
    return b;
}

static struct counts count(const uint32_t *first, size_t window)
{
    std::vector<void *> all;
    struct hst_attention_backward b = operands(all);
    struct counts counts;
    b.forward.first = first;
    b.forward.window = window;
    hst::work() = {};
    assert_int_equal(hst_cuda_attention(nullptr, &b.forward), cudaSuccess);
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    counts.forward = hst::work();
    hst::work() = {};
    assert_int_equal(hst_cuda_attention_backward(nullptr, &b), cudaSuccess);
    assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    counts.backward = hst::work();
    for (void *memory : all)
        cudaFree(memory);
    return counts;
}

static double part_of(unsigned long part, unsigned long whole)
{
    assert_true(part > 0 && whole > 0);
    return (double)part / (double)whole;
}

/* Copies are of a block's tiles, its own among them, which all have: no less than one in eight. */
static void expect_at_most(double copies, const char *what, struct counts part, struct counts whole)
{
    const double products[] = {part_of(part.forward.mma, whole.forward.mma),
                               part_of(part.backward.mma, whole.backward.mma)};
    const double copied[] = {part_of(part.forward.cp_async, whole.forward.cp_async),
                             part_of(part.backward.cp_async, whole.backward.cp_async)};
    printf("%s: %.4f of the forward's products and %.4f of its copies, %.4f and %.4f of the "
           "backward's\n",
           what, products[0], copied[0], products[1], copied[1]);
    for (int i = 0; i < 2; i++)
        assert_true(products[i] <= 0.2 && copied[i] <= copies);
}

static void eight_documents_in_a_row_take_a_fifth_of_it(void **)
{
    const size_t document = SEQ / 8, window = SEQ / 16;
    std::vector<uint32_t> begins(SEQ);
    for (size_t t = 0; t < SEQ; t++)
        begins[t] = (uint32_t)(t / document * document);
    uint32_t *first = (uint32_t *)memory_of(SEQ * sizeof *first);
    assert_int_equal(cudaMemcpy(first, begins.data(), SEQ * sizeof *first, cudaMemcpyDefault),
                     cudaSuccess);
    struct counts whole = count(nullptr, 0);
    expect_at_most(0.205 * more_copies, "8 documents in a row", count(first, 0), whole);
    expect_at_most(0.23 * more_copies, "a window of a 16th", count(nullptr, window), whole);
    cudaFree(first);
}

int main()
{
    if (test_is_short()) {
        SEQ = 2048;
        more_copies = 1.4;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_documents_in_a_row_take_a_fifth_of_it),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
