/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every operation gives the same bytes in every instruction set that this processor has, for odd
 * shapes and every dtype, tails and special values included.
 */
#include "half.h"
#include "host/host.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    TENSOR_BYTES = 1 << 19,
    TENSORS = 12,
    WORK_TENSORS = 4, /* what operations work in is no result: who writes what there may differ */
    ARENA_BYTES = (TENSORS + WORK_TENSORS) * TENSOR_BYTES,
    TOKENS = 37,
    WIDTH = 83
};

/* The same bytes for each set: numbers in [-4, 4), with a few that are special. */
static void fill(char *arena, enum hst_dtype dtype)
{
    static const float special[] = {0, -0.0f, 1e-40f, -3e38f, 90, -90, -104, 1e-20f};
    uint32_t seed = 1;
    for (size_t i = 0; i < ARENA_BYTES / 4; i++) {
        seed = seed * 1664525 + 1013904223;
        float x = (float)(seed >> 8) * 0x1p-21f - 4;
        if (seed >> 22 == 5)
            x = special[seed >> 8 & 7];
        if (dtype == HST_F32)
            memcpy(arena + i * 4, &x, 4);
        else
            for (size_t j = 0; j < 2; j++)
                memcpy(arena + i * 4 + j * 2, &(uint16_t){half_round(dtype, x)}, 2);
    }
}

/* Each operation once; tensors are at fixed places of the arena. */
static void run_all(struct hst_stream *s, char *arena, enum hst_dtype dtype)
{
    char *t[TENSORS];
    for (size_t i = 0; i < TENSORS; i++)
        t[i] = arena + i * TENSOR_BYTES;
    uint32_t *ids = (uint32_t *)t[11];
    for (uint32_t i = 0; i < TOKENS; i++)
        ids[i] = i * 7 % 11;
    float *f = (float *)t[10], *rows = (float *)t[9]; /* sums and numbers per row: f32 always */
    for (size_t i = 0; i < TENSOR_BYTES / 4; i++)
        f[i] = rows[i] = (float)(i % 17) * 0.25f;
    struct hst_work work = {arena + TENSORS * TENSOR_BYTES, TENSOR_BYTES};
    hst_op_rmsnorm(
        s, &(struct hst_rmsnorm){TOKENS, WIDTH, dtype, 1e-5f, t[0], t[1], t[4], rows, NULL, NULL});
    hst_op_rmsnorm(
        s, &(struct hst_rmsnorm){TOKENS, WIDTH, dtype, 1e-5f, t[0], t[1], t[2], rows, t[3], t[7]});
    hst_op_rmsnorm_backward(s, &(struct hst_rmsnorm_backward){TOKENS, WIDTH, dtype, t[0], t[1],
                                                              t[3], rows, t[4], f, true, work});
    hst_op_rope(s, &(struct hst_rope){1, TOKENS, 2, 42, dtype, t[2], f, f + 4096, false, NULL});
    hst_op_swiglu(s, &(struct hst_swiglu){20011, dtype, t[0], t[1], t[5]});
    hst_op_swiglu_backward(
        s, &(struct hst_swiglu_backward){20011, dtype, t[0], t[1], t[3], t[6], t[7]});
    hst_op_add(s, &(struct hst_add){20011, dtype, t[5], t[6], t[6]});
    hst_op_bias(s, &(struct hst_bias){TOKENS, WIDTH, dtype, t[4], t[1]});
    hst_op_bias_backward(s, &(struct hst_bias_backward){TOKENS, WIDTH, dtype, t[3], f, work});
    for (enum hst_dtype to = HST_F32; to <= HST_F16; to++)
        hst_op_cast(s, &(struct hst_cast){20011, dtype, to, t[7], t[8] + to * (TENSOR_BYTES / 4)});
    hst_op_embedding_backward(s, &(struct hst_embedding_backward){.tokens = TOKENS,
                                                                  .vocab = 11,
                                                                  .width = WIDTH,
                                                                  .dtype = dtype,
                                                                  .ids = ids,
                                                                  .dout = t[5],
                                                                  .dweight = f});
    hst_op_embedding(s, &(struct hst_embedding){.tokens = TOKENS,
                                                .vocab = 11,
                                                .width = WIDTH,
                                                .dtype = dtype,
                                                .ids = ids,
                                                .weight = t[0],
                                                .out = t[5]});
    hst_op_cross_entropy(s, &(struct hst_cross_entropy){.tokens = TOKENS,
                                                        .vocab = WIDTH,
                                                        .dtype = dtype,
                                                        .logits = t[3],
                                                        .targets = ids,
                                                        .loss = rows,
                                                        .grad_scale = 0.3f,
                                                        .want_grad = true});
    assert_int_equal(hst_stream_sync(s), 0);
    struct hst_matrix a = {t[1], WIDTH, dtype};
    hst_op_matmul(s, &(struct hst_matmul){.m = TOKENS,
                                          .n = 21,
                                          .k = WIDTH,
                                          .a = a,
                                          .b = a,
                                          .c = {t[4], 21, dtype},
                                          .b_transposed = true,
                                          .work = work});
}

/* A vocabulary of several blocks, whole and in two calls, and some of its rows. */
static void run_vocabulary(struct hst_stream *s, char *arena, enum hst_dtype dtype)
{
    enum { ROWS = 5, VOCAB = 20011, B = HST_VOCAB_BLOCK };
    char *t[TENSORS];
    for (size_t i = 0; i < TENSORS; i++)
        t[i] = arena + i * TENSOR_BYTES;
    uint32_t *ids = (uint32_t *)t[11];
    for (uint32_t i = 0; i < TOKENS; i++)
        ids[i] = i * 5003 % VOCAB;
    struct hst_cross_entropy loss = {.tokens = ROWS,
                                     .vocab = VOCAB,
                                     .dtype = dtype,
                                     .logits = t[0],
                                     .targets = ids,
                                     .loss = (float *)t[10],
                                     .grad_scale = 0.3f,
                                     .want_grad = true};
    hst_op_cross_entropy(s, &loss);
    loss.state = (float *)t[9];
    loss.loss = (float *)t[9] + 4096;
    for (int gradient = 0; gradient < 2; gradient++)
        for (size_t first = 0; first < 2 * B; first += B) {
            loss.want_grad = gradient;
            loss.first_column = first;
            loss.columns = first ? VOCAB - B : B;
            loss.logits = t[first ? 2 : 1];
            assert_int_equal(hst_op_cross_entropy(s, &loss), 0);
        }
    const struct hst_embedding forward = {.tokens = TOKENS,
                                          .vocab = VOCAB,
                                          .width = WIDTH,
                                          .dtype = dtype,
                                          .ids = ids,
                                          .weight = t[3],
                                          .out = t[4],
                                          .first_row = 5000,
                                          .rows = 1000};
    const struct hst_embedding_backward backward = {.tokens = TOKENS,
                                                    .vocab = VOCAB,
                                                    .width = WIDTH,
                                                    .dtype = dtype,
                                                    .ids = ids,
                                                    .dout = t[4],
                                                    .dweight = (float *)t[5],
                                                    .first_row = 5000,
                                                    .rows = 1000};
    assert_int_equal(hst_op_embedding(s, &forward), 0);
    assert_int_equal(hst_op_embedding_backward(s, &backward), 0);
}

/* Attention wants numbers that softmax can tell apart: it has runs of its own. With a window other
 * strips are masked. */
static void attend(struct hst_stream *s, char *arena, enum hst_dtype dtype, size_t window)
{
    char *t[TENSORS];
    for (size_t i = 0; i < TENSORS; i++)
        t[i] = arena + i * TENSOR_BYTES;
    struct hst_attention args = {
        .batch = 1,
        .seq = 530,
        .heads = 2,
        .kv_heads = 1,
        .head_dim = 20,
        .dtype = dtype,
        .scale = 0.01f,
        .q = t[0],
        .k = t[1],
        .v = t[2],
        .o = t[3],
        .lse = (float *)t[4],
        .work = {arena + TENSORS * TENSOR_BYTES, WORK_TENSORS * TENSOR_BYTES},
        .window = window};
    hst_op_attention(s, &args);
    assert_int_equal(hst_op_attention_backward(
                         s, &(struct hst_attention_backward){args, t[1] + 4096, t[5], t[6], t[7]}),
                     0);
}

static void run_attention(struct hst_stream *s, char *arena, enum hst_dtype dtype)
{
    attend(s, arena, dtype, 0);
}

static void run_window(struct hst_stream *s, char *arena, enum hst_dtype dtype)
{
    attend(s, arena, dtype, 77);
}

/* Ways of odd numbers, in groups and not, whose partials go to the end of the arena. */
static void run_ways(struct hst_stream *s, char *arena, enum hst_dtype dtype)
{
    static const void *in[7];
    for (size_t i = 0; i < 7; i++)
        in[i] = arena + i * TENSOR_BYTES;
    for (uint32_t turn = 0; turn < 6; turn++) {
        const struct hst_sum_ways args = {
            .tree = {7 - turn % 3, 1u << turn % 4, turn % 2 ? HST_F32 : dtype, dtype,
                     turn == 3   ? HST_INT8
                     : turn == 5 ? HST_INT4
                                 : 0},
            .each = 1,
            .inputs = 7 - turn % 3,
            .in = in,
            .out = arena + 8 * TENSOR_BYTES + turn / 3 * TENSOR_BYTES,
            .count = 20011 - turn,
            .partial = (double *)(arena + (10 + turn / 3) * TENSOR_BYTES) + 8 * turn};
        assert_int_equal(hst_op_sum_ways(s, &args), 0);
    }
}

/* A tensor as integers of either width, and back, each in tensors of its own. */
static void run_quantised(struct hst_stream *s, char *arena, enum hst_dtype dtype)
{
    for (size_t four = 0; four < 2; four++) {
        const enum hst_quant bits = four ? HST_INT4 : HST_INT8;
        char *codes = arena + (2 + four) * TENSOR_BYTES, *back = arena + (4 + four) * TENSOR_BYTES;
        float *scales = (float *)(void *)(arena + (6 + four) * TENSOR_BYTES);
        assert_int_equal(
            hst_op_quantise(s, &(struct hst_quantise){bits, dtype, 20011, arena, codes, scales}),
            0);
        assert_int_equal(
            hst_op_dequantise(s, &(struct hst_dequantise){bits, dtype, 20011, codes, scales, back}),
            0);
    }
}

/* Everything that f16 knows: f32 wherever its rounding turns and NaNs to it, and all of it back. */
static void run_casts(struct hst_stream *s, char *arena, enum hst_dtype dtype)
{
    enum { PATTERNS = 1 << 16, NANS = 4096 };
    static uint16_t wanted[F16_BOUNDARIES];
    float *wide = (float *)arena, *nans = wide + F16_BOUNDARIES, *all = nans + NANS;
    uint16_t *half = (uint16_t *)(all + PATTERNS), *patterns = half + F16_BOUNDARIES + NANS;
    f16_boundaries(wide, wanted);
    for (uint32_t i = 0; i < NANS; i++)
        memcpy(&nans[i], &(uint32_t){(0x7f800001u + i * 4095u) | i << 31}, 4);
    for (uint32_t i = 0; i < PATTERNS; i++)
        patterns[i] = (uint16_t)i;
    hst_op_cast(s, &(struct hst_cast){F16_BOUNDARIES + NANS, HST_F32, dtype, wide, half});
    hst_op_cast(s, &(struct hst_cast){PATTERNS, dtype, HST_F32, patterns, all});
}

static void compare(void (*run)(struct hst_stream *, char *, enum hst_dtype), enum hst_dtype dtype)
{
    static char first[ARENA_BYTES];
    const struct hst_dev_config config = {.size = sizeof config, .memory_bytes = ARENA_BYTES};
    const struct host_math *const *set = host_math_usable();
    for (size_t i = 0; set[i]; i++) {
        struct hst_dev *dev;
        struct hst_stream *stream;
        void *arena;
        struct hst_dev_failure failure;
        assert_int_equal(host_dev_open(&config, set[i], &dev, &failure), 0);
        assert_int_equal(hst_stream_create(dev, "isa", &stream), 0);
        assert_int_equal(hst_dev_mem_alloc(dev, ARENA_BYTES, &arena), 0);
        fill(arena, dtype);
        run(stream, arena, dtype);
        assert_int_equal(hst_stream_sync(stream), 0);
        if (i == 0)
            memcpy(first, arena, ARENA_BYTES);
        for (size_t b = 0; b < TENSORS * TENSOR_BYTES; b++)
            if (first[b] != ((char *)arena)[b])
                fail_msg("%s differs from %s in tensor %zu, byte %zu", set[i]->isa, set[0]->isa,
                         b / TENSOR_BYTES, b % TENSOR_BYTES);
        hst_dev_mem_free(dev, arena, ARENA_BYTES);
        hst_stream_destroy(&stream);
        hst_dev_close(&dev);
    }
}

static void every_instruction_set_gives_the_same_bytes(void **state)
{
    (void)state;
    compare(run_all, HST_F32);
    compare(run_all, HST_BF16);
    compare(run_all, HST_F16);
}

static void blocks_of_a_vocabulary_give_the_same_bytes_in_every_instruction_set(void **state)
{
    (void)state;
    compare(run_vocabulary, HST_F32);
    compare(run_vocabulary, HST_BF16);
    compare(run_vocabulary, HST_F16);
}

static void casts_of_every_f16_are_the_same_with_and_without_instructions_for_them(void **state)
{
    (void)state;
    compare(run_casts, HST_F16);
}

static void attention_gives_the_same_bytes_in_every_instruction_set(void **state)
{
    (void)state;
    compare(run_attention, HST_F32);
    compare(run_attention, HST_BF16);
    compare(run_attention, HST_F16);
    compare(run_window, HST_F32);
    compare(run_window, HST_BF16);
}

static void sums_of_ways_have_the_same_bytes_in_every_instruction_set(void **state)
{
    (void)state;
    compare(run_ways, HST_F32);
    compare(run_ways, HST_BF16);
    compare(run_ways, HST_F16);
}

static void quantised_values_have_the_same_bytes_in_every_instruction_set(void **state)
{
    (void)state;
    compare(run_quantised, HST_F32);
    compare(run_quantised, HST_BF16);
    compare(run_quantised, HST_F16);
}

int main(void)
{
    if (!host_math_usable()[1]) {
        printf("skipped: this processor has one instruction set only\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_gives_the_same_bytes),
        cmocka_unit_test(blocks_of_a_vocabulary_give_the_same_bytes_in_every_instruction_set),
        cmocka_unit_test(casts_of_every_f16_are_the_same_with_and_without_instructions_for_them),
        cmocka_unit_test(attention_gives_the_same_bytes_in_every_instruction_set),
        cmocka_unit_test(quantised_values_have_the_same_bytes_in_every_instruction_set),
        cmocka_unit_test(sums_of_ways_have_the_same_bytes_in_every_instruction_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
