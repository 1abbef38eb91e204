/* SPDX-License-Identifier: Apache-2.0 */
/* What a grain computes beside GEMMs, in parts: which calls those are, and in which memory. */
#include "harness.h"
#include "model/layer/blocks.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MIB  ((size_t)1 << 20)
#define ROOM (32 * MIB)

static const struct llama_config config = {
    .hidden = 64,
    .intermediate = 160,
    .layers = 3,
    .heads = 8,
    .kv_heads = 4,
    .head_dim = 16,
    .vocab = 9000, /* two blocks of a softmax */
    .max_positions = 1024,
    .rms_norm_eps = 1e-5,
    .rope = {ROPE_DEFAULT, 10000.0, 1.0, 1.0, 1.0, 1024.0},
};
static const struct llama_run run = {
    .seq_len = 128, .batch_tokens = 1024, .micro_batch_tokens = 512};

enum { ATTENTION, LAYER, HEAD };

/* What was called, with what. */
static struct calls {
    unsigned matmul, rmsnorm, rmsnorm_backward, rope, swiglu, swiglu_backward, add, bias,
        bias_backward;
    unsigned cast, softmax;
    unsigned attention, attention_backward;
    struct hst_attention last;
    struct hst_bias biased[6];
} calls;

#define COUNTED(name, type, also)                                                                  \
    int __real_hst_op_##name(struct hst_stream *stream, const struct type *args);                  \
    int __wrap_hst_op_##name(struct hst_stream *stream, const struct type *args);                  \
    int __wrap_hst_op_##name(struct hst_stream *stream, const struct type *args)                   \
    {                                                                                              \
        also;                                                                                      \
        return __real_hst_op_##name(stream, args);                                                 \
    }
COUNTED(matmul, hst_matmul, calls.matmul++)
COUNTED(rmsnorm, hst_rmsnorm, calls.rmsnorm++)
COUNTED(rmsnorm_backward, hst_rmsnorm_backward, calls.rmsnorm_backward++)
COUNTED(rope, hst_rope, calls.rope++)
COUNTED(swiglu, hst_swiglu, calls.swiglu++)
COUNTED(swiglu_backward, hst_swiglu_backward, calls.swiglu_backward++)
COUNTED(add, hst_add, calls.add++)
COUNTED(bias, hst_bias, calls.biased[calls.bias++ % 6] = *args)
COUNTED(bias_backward, hst_bias_backward, calls.bias_backward++)
COUNTED(cast, hst_cast, calls.cast++)
COUNTED(cross_entropy, hst_cross_entropy, calls.softmax++)
COUNTED(attention, hst_attention, (calls.attention++, calls.last = *args))
COUNTED(attention_backward, hst_attention_backward, calls.attention_backward++)

struct context {
    struct hst_dev *dev;
    struct hst_stream *stream;
    struct llama *model;
    struct llama_operations operations;
    uint32_t width;
    char *memory; /* 16 MiB */
};

/* The operations of another model, or run, or type. */
static void describe(struct context *c, const struct llama_config *model, const struct llama_run *r,
                     enum hst_dtype dtype)
{
    llama_destroy(&c->model);
    assert_int_equal(llama_create(model, r, &c->model, NULL), 0);
    llama_operations(c->model, dtype, &c->operations);
    assert_int_equal(c->operations.count, 3);
    memset(&calls, 0, sizeof calls);
}

static int set_up(void **state)
{
    struct context *c = calloc(1, sizeof *c);
    if (!c || harness_device(&c->dev, &c->stream) < 0)
        return -1;
    c->memory = aligned_alloc(4096, ROOM);
    describe(c, &config, &run, HST_BF16);
    *state = c;
    return c->memory ? 0 : -1;
}

static int tear_down(void **state)
{
    struct context *c = *state;
    hst_stream_destroy(&c->stream);
    hst_dev_close(&c->dev);
    llama_destroy(&c->model);
    free(c->memory);
    free(c);
    return 0;
}

static int enqueue(struct context *c, int which, size_t bytes, double most, double *amount)
{
    const struct hst_room room = {c->dev, c->stream, {c->memory, bytes}, c->width};
    const struct hst_operation *o = &c->operations.list[which];
    return o->enqueue(o->context, &room, most, amount);
}

/* Enqueues one part in so many bytes; none beyond them is written. Returns how much it was. */
static double part(struct context *c, int which, size_t bytes, double most)
{
    double amount = -1;
    memset(c->memory, 0x3c, ROOM);
    assert_int_equal(enqueue(c, which, bytes, most, &amount), 0);
    assert_int_equal(hst_stream_sync(c->stream), 0);
    for (size_t i = bytes; i < bytes + MIB; i++)
        assert_int_equal(c->memory[i], 0x3c);
    assert_true(amount > 0 && amount <= c->operations.list[which].amount);
    return amount;
}

static void a_layer_does_all_but_products_and_attention(void **state)
{
    assert_true(part(*state, LAYER, 8 * MIB, 512) == 512);
    const struct calls seen = {.rmsnorm = 4,
                               .rmsnorm_backward = 2,
                               .rope = 6,
                               .swiglu = 2,
                               .swiglu_backward = 1,
                               .add = 1,
                               .cast = 2};
    assert_memory_equal(&calls, &seen, sizeof calls);
}

/* Two blocks, first for the loss and then for its gradient; the sum of dn is rounded. */
static void the_head_does_its_softmax(void **state)
{
    struct context *c = *state;
    assert_true(part(c, HEAD, 12 * MIB, 512) == 512);
    const struct calls seen = {.softmax = 4, .cast = 1};
    assert_memory_equal(&calls, &seen, sizeof calls);
}

static void attention_is_computed_twice_and_back(void **state)
{
    struct context *c = *state;
    assert_true(part(c, ATTENTION, 8 * MIB, INFINITY) == c->operations.list[ATTENTION].amount);
    assert_int_equal(calls.attention, 2);
    assert_int_equal(calls.attention_backward, 1);
    assert_int_equal(calls.last.batch, 4);
    calls.attention = calls.attention_backward = 0;
    memset(&calls.last, 0, sizeof calls.last);
    const struct calls none = {0};
    assert_memory_equal(&calls, &none, sizeof calls);
}

/* Of a grain, as GEMMs' are (test_model.c): the forward twice, and two for the backward. */
static void amounts_are_those_of_a_grain(void **state)
{
    struct context *c = *state;
    const struct hst_operation *o = c->operations.list;
    double weights = 2.0 * (2 * 64 * 128 + 2 * 64 * 64 + 3 * 64 * 160);
    double attention = (double)llama_layer_flops(c->model, 0) - weights; /* of a token */
    assert_true(o[ATTENTION].amount == 512 * 4 * attention && o[ATTENTION].times == 3);
    assert_true(o[LAYER].amount == 512 && o[LAYER].times == 3);
    assert_true(o[HEAD].amount == 512 && o[HEAD].times == 1);
    assert_true(o[ATTENTION].flop && !o[LAYER].flop && !o[HEAD].flop);
    struct llama_config few = config;
    few.vocab = 301;
    describe(c, &few,
             &(struct llama_run){.seq_len = 128, .batch_tokens = 4608, .micro_batch_tokens = 4608},
             HST_BF16);
    assert_true(o[HEAD].amount == 2048 && o[HEAD].times == 3); /* chunks, the last one shorter */
    assert_true(part(c, HEAD, 28 * MIB, INFINITY) == 2048);
}

static void little_is_asked_for_in_tokens(void **state)
{
    struct context *c = *state;
    assert_true(part(c, LAYER, 8 * MIB, 0) == 16);
    assert_true(part(c, LAYER, 8 * MIB, 100) == 100);
    assert_true(part(c, LAYER, 8 * MIB, 300) == 256); /* whole sequences */
    assert_true(part(c, HEAD, 8 * MIB, 0) == 16);
}

static void assert_attention(size_t batch, size_t kv_heads, size_t seq)
{
    assert_int_equal(calls.last.batch, batch);
    assert_int_equal(calls.last.kv_heads, kv_heads);
    assert_int_equal(calls.last.heads, 2 * kv_heads);
    assert_int_equal(calls.last.seq, seq);
}

/* Keys to 512, then sequences and heads as long as there is one for each worker, then keys. */
static void attention_keeps_all_workers_busy(void **state)
{
    struct context *c = *state;
    describe(c, &config,
             &(struct llama_run){.seq_len = 1024, .batch_tokens = 2048, .micro_batch_tokens = 2048},
             HST_BF16);
    double whole = c->operations.list[ATTENTION].amount, each = whole / 8 / 1025;
    c->width = 4;
    assert_true(part(c, ATTENTION, 14 * MIB, whole / 2) == each * 513 * 4);
    assert_attention(2, 4, 512);
    assert_true(part(c, ATTENTION, 14 * MIB, whole / 5) == each * 513 * 2);
    assert_attention(1, 4, 512);
    part(c, ATTENTION, 14 * MIB, whole / 15);
    assert_attention(1, 4, 256);
    part(c, ATTENTION, 14 * MIB, 0);
    assert_attention(1, 1, 64);
    c->width = 0; /* who shares them is not told */
    part(c, ATTENTION, 14 * MIB, whole / 15);
    assert_attention(1, 2, 512);
}

static void what_does_not_fit_is_halved(void **state)
{
    struct context *c = *state;
    for (int which = ATTENTION; which <= HEAD; which++) {
        double whole = part(c, which, 14 * MIB, INFINITY), most = whole;
        for (size_t bytes = 4 * MIB; bytes >= MIB / 2; bytes /= 2) {
            double now = part(c, which, bytes, INFINITY);
            assert_true(now <= most);
            most = now;
        }
        assert_true(most < whole);
    }
}

/* Down to 16 tokens, or one head of 64 keys; what does not hold these holds nothing. */
static void a_room_for_nothing_is_told(void **state)
{
    struct context *c = *state;
    double one = c->operations.list[ATTENTION].amount / 16 / 2 * 65 / 129;
    const double fewest[] = {[ATTENTION] = one, [LAYER] = 16, [HEAD] = 16};
    for (int which = ATTENTION; which <= HEAD; which++) {
        double amount = -1;
        size_t bytes = MIB;
        int rc = 0;
        while (rc == 0) {
            rc = enqueue(c, which, bytes, INFINITY, &amount);
            bytes -= bytes / 8;
        }
        assert_int_equal(rc, -ENOSPC);
        assert_true(amount == fewest[which]);
    }
}

/* Sequences of 17 tokens, 6 heads that share 3 of keys, a vocabulary of one block. */
static void odd_shapes_and_every_type_are_computed(void **state)
{
    struct context *c = *state;
    struct llama_config odd = config;
    odd.hidden = 56;
    odd.heads = 6;
    odd.kv_heads = 3;
    odd.vocab = 301;
    static const enum hst_dtype types[] = {HST_F32, HST_BF16, HST_F16};
    for (int i = 0; i < 3; i++)
        for (uint64_t sequences = 1; sequences <= 5; sequences += 4) {
            uint64_t tokens = 17 * sequences;
            odd.qk_norm = sequences > 1;
            odd.head_dim = odd.qk_norm ? 58 : 22; /* the former wider than the model */
            odd.qkv_bias = sequences == 1;
            describe(c, &odd,
                     &(struct llama_run){
                         .seq_len = 17, .batch_tokens = tokens, .micro_batch_tokens = tokens},
                     types[i]);
            for (int which = ATTENTION; which <= HEAD; which++)
                for (double share = 1; share > 0.01; share /= 3)
                    part(c, which, 8 * MIB, share * c->operations.list[which].amount);
            assert_int_equal(calls.cast > 0, types[i] != HST_F32);
            describe(c, &odd,
                     &(struct llama_run){
                         .seq_len = 17, .batch_tokens = tokens, .micro_batch_tokens = tokens},
                     types[i]);
            part(c, LAYER, 8 * MIB, INFINITY);
            assert_int_equal(calls.rmsnorm, odd.qk_norm ? 8 : 4);
            assert_int_equal(calls.bias, odd.qkv_bias ? 6 : 0);
            assert_int_equal(calls.bias_backward, odd.qkv_bias ? 3 : 0);
            for (unsigned b = 1; b < 3 && odd.qkv_bias; b++) /* vectors lie apart */
                assert_true((const char *)calls.biased[b].bias -
                                (const char *)calls.biased[b - 1].bias >=
                            (ptrdiff_t)(calls.biased[b - 1].width * hst_dtype_bytes(types[i])));
        }
}

static void their_texts_tell_shapes_apart(void **state)
{
    struct context *c = *state;
    struct llama_operations others;
    struct llama *model = NULL;
    assert_int_equal(
        llama_create(
            &config,
            &(struct llama_run){.seq_len = 256, .batch_tokens = 1024, .micro_batch_tokens = 256},
            &model, NULL),
        0);
    llama_operations(model, HST_BF16, &others);
    for (int i = 0; i < 3; i++) {
        assert_true(strlen(others.list[i].what) <= HST_OPERATION_TEXT_MAX);
        assert_string_not_equal(others.list[i].what, c->operations.list[i].what);
    }
    llama_operations(model, HST_F32, &others);
    assert_string_equal(others.list[ATTENTION].what,
                        "attention twice and back, 1x256 tokens, 8/4 heads of 16, f32");
    llama_destroy(&model);
}

static void their_texts_tell_kinds_of_heads_apart(void **state)
{
    static const char *const heads[] = {"/4 heads of", "/4 normed heads of", "/4 biased heads of"};
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        struct llama_operations of;
        struct llama *model = NULL;
        struct llama_config kin = config;
        kin.qk_norm = kind == 1;
        kin.qkv_bias = kind == 2;
        assert_int_equal(
            llama_create(
                &kin,
                &(struct llama_run){.seq_len = 64, .batch_tokens = 512, .micro_batch_tokens = 512},
                &model, NULL),
            0);
        llama_operations(model, HST_BF16, &of);
        assert_non_null(strstr(of.list[LAYER].what, heads[kind]));
        llama_destroy(&model);
    }
}

/* Layers with a window and without: one operation each, whose pairs are those that are seen. */
static void a_window_has_an_attention_of_its_own(void **state)
{
    struct context *c = *state;
    struct llama_config mixed = config;
    struct llama_operations of;
    struct llama *model = NULL;
    mixed.window = 48;
    mixed.windowless[0] = 2; /* the second of three layers */
    assert_int_equal(llama_create(&mixed, &run, &model, NULL), 0);
    llama_operations(model, HST_F32, &of);
    assert_int_equal(of.count, 4);
    assert_true(of.list[0].times == 1 && of.list[1].times == 2);
    assert_string_equal(of.list[1].what,
                        "attention twice and back, 4x128 tokens, 8/4 heads of 16, f32, window 48");
    const double seen = 48 * 49 / 2 + 80 * 48, all = 128 * 129 / 2;
    assert_true(of.list[1].amount / of.list[0].amount == seen / all);
    const double weights = 2.0 * (2 * 64 * 128 + 2 * 64 * 64 + 3 * 64 * 160);
    assert_true((double)llama_layer_flops(model, 0) - weights ==
                floor(4 * seen * 128 / 128)); /* of a token: q is 128 wide */
    assert_true(llama_layer_flops(model, 1) == llama_layer_flops(c->model, 0));
    double amount = 0;
    const struct hst_room room = {c->dev, c->stream, {c->memory, 8 * MIB}, 0};
    assert_int_equal(of.list[1].enqueue(of.list[1].context, &room, INFINITY, &amount), 0);
    assert_int_equal(hst_stream_sync(c->stream), 0);
    assert_true(amount == of.list[1].amount && calls.last.window == 48);
    llama_destroy(&model);
}

/* Rows of 128 in which as many pairs are seen as in four documents of 32 each. */
static void packed_rows_are_measured_as_documents_of_mean_cost(void **state)
{
    struct context *c = *state;
    const double whole = c->operations.list[ATTENTION].amount;
    const uint64_t length = llama_document_tokens(4 * 32 * 33 / 2, 128);
    assert_int_equal(length, 32);
    assert_int_equal(llama_document_tokens(128, 128), 1);
    struct llama_run packed = run;
    packed.documents = true;
    packed.document_tokens = length;
    describe(c, &config, &packed, HST_F32);
    assert_true(c->operations.list[ATTENTION].amount == whole * 33 / 129);
    assert_true(part(c, ATTENTION, 8 * MIB, INFINITY) == whole * 33 / 129);
    assert_true(calls.last.batch == 16 && calls.last.seq == 32 && calls.last.first);
    assert_string_equal(
        c->operations.list[ATTENTION].what,
        "attention twice and back, 16x32 tokens of documents, 8/4 heads of 16, f32");
    packed.documents = false; /* what a length would be then is no matter */
    describe(c, &config, &packed, HST_F32);
    assert_true(c->operations.list[ATTENTION].amount == whole);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_layer_does_all_but_products_and_attention),
        TEST(a_window_has_an_attention_of_its_own),
        TEST(packed_rows_are_measured_as_documents_of_mean_cost),
        TEST(the_head_does_its_softmax),
        TEST(attention_is_computed_twice_and_back),
        TEST(amounts_are_those_of_a_grain),
        TEST(little_is_asked_for_in_tokens),
        TEST(attention_keeps_all_workers_busy),
        TEST(what_does_not_fit_is_halved),
        TEST(a_room_for_nothing_is_told),
        TEST(odd_shapes_and_every_type_are_computed),
        TEST(their_texts_tell_shapes_apart),
        TEST(their_texts_tell_kinds_of_heads_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
