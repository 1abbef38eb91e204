/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is told of a layer's operations: the work of each, that none is forgotten, and that a stream
 * which is watched does what it would do alone. Amounts are counted by hand or from the model's
 * sizes, not by what counts them in the program.
 */
#include "bench/layer/layer.h"
#include "bench/step/watch.h"
#include "host_device.h"
#include "verbs/doctor/gpu_clock.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void expect(struct watched w, const char *name, double bytes, double flops)
{
    assert_string_equal(w.name, name);
    assert_true(w.bytes == bytes);
    assert_true(w.flops == flops);
    assert_int_equal(w.computes, flops > 0);
}

/* 3x5 of bf16 and 5x7 make 3x7. */
static void a_product_reads_its_factors_and_writes_its_result(void **state)
{
    struct hst_matmul a = {.m = 3,
                           .n = 7,
                           .k = 5,
                           .a = {NULL, 5, HST_BF16},
                           .b = {NULL, 5, HST_BF16},
                           .c = {NULL, 7, HST_BF16},
                           .b_transposed = true};
    (void)state;
    expect(watched_matmul(&a), "product 3x7x5", 30 + 70 + 42, 210);
    a.b_transposed = false;
    a.c.dtype = HST_F32;
    expect(watched_matmul(&a), "product, dX 3x7x5, to f32", 30 + 70 + 84, 210);
    a.a_transposed = a.accumulate = true;
    expect(watched_matmul(&a), "product, dW 3x7x5, to f32, added", 30 + 70 + 2 * 84, 210);
    a.batch = 2;
    a.a_step = a.c_step = 24;
    expect(watched_matmul(&a), "product, dW 3x7x5, 2 at once, to f32, added",
           2 * 30 + 70 + 2 * 2 * 84, 2 * 210);
}

/* Two sequences of 3 have 6 scores each and head. */
static void attention_is_what_the_mask_leaves(void **state)
{
    const struct hst_attention_backward a = {
        .forward = {
            .batch = 2, .seq = 3, .heads = 4, .kv_heads = 2, .head_dim = 8, .dtype = HST_F16}};
    const double q = 2 * 3 * 4 * 8 * 2, k = q / 2, lse = 4 * 2 * 3 * 4, scores = 2 * 4 * 6;
    (void)state;
    expect(watched_attention(&a.forward), "attention 2x3, heads 4/2 of 8", 2 * q + 2 * k + lse,
           4 * scores * 8);
    expect(watched_attention_backward(&a), "attention backward 2x3, heads 4/2 of 8",
           4 * q + 4 * k + lse, 10 * scores * 8);
}

/* 4 tokens of 8. */
static void what_moves_is_counted_once_each(void **state)
{
    static const float other;
    struct hst_rmsnorm norm = {.tokens = 4, .width = 8, .dtype = HST_BF16};
    struct hst_rmsnorm_backward back = {.tokens = 4, .width = 8, .dtype = HST_F32};
    struct hst_cross_entropy loss = {.tokens = 4, .vocab = 16, .dtype = HST_BF16};
    (void)state;
    expect(watched_rmsnorm(&norm), "rmsnorm 4x8", 2 * 64 + 16 + 16, 0);
    norm.residual = &other;
    expect(watched_rmsnorm(&norm), "rmsnorm, residual 4x8", 4 * 64 + 16 + 16, 0);
    expect(watched_rmsnorm_backward(&back), "rmsnorm backward 4x8", 3 * 128 + 16 + 32 + 64, 0);
    back.accumulate = true;
    expect(watched_rmsnorm_backward(&back), "rmsnorm backward, added 4x8", 4 * 128 + 16 + 32 + 64,
           0);
    expect(watched_cross_entropy(&loss), "cross-entropy 4x16", 128, 0);
    loss.want_grad = true;
    loss.columns = 8;
    expect(watched_cross_entropy(&loss), "cross-entropy, gradient 4x8", 128, 0);
    expect(watched_swiglu(&(struct hst_swiglu){.count = 32, .dtype = HST_BF16}), "swiglu 32", 192,
           0);
    expect(watched_swiglu_backward(&(struct hst_swiglu_backward){.count = 32, .dtype = HST_F32}),
           "swiglu backward 32", 640, 0);
    expect(watched_add(&(struct hst_add){.count = 32, .dtype = HST_BF16}), "add 32", 192, 0);
    expect(
        watched_cast(&(struct hst_cast){.count = 32, .src_dtype = HST_F32, .dst_dtype = HST_BF16}),
        "cast f32 to bf16 32", 192, 0);
    expect(
        watched_rope(&(struct hst_rope){
            .batch = 2, .seq = 2, .heads = 3, .head_dim = 4, .dtype = HST_BF16, .inverse = true}),
        "rope, inverse 4x3x4", 2 * 96 + 32, 0);
    expect(watched_bias(&(struct hst_bias){.tokens = 4, .width = 8, .dtype = HST_BF16}), "bias 4x8",
           2 * 64 + 16, 0);
    expect(watched_bias_backward(
               &(struct hst_bias_backward){.tokens = 4, .width = 8, .dtype = HST_BF16}),
           "bias backward 4x8", 64 + 64, 0);
    expect(watched_embedding(&(struct hst_embedding){.tokens = 4, .width = 8, .dtype = HST_BF16}),
           "embedding 4x8", 128 + 16, 0);
    expect(watched_embedding_backward(
               &(struct hst_embedding_backward){.tokens = 4, .width = 8, .dtype = HST_BF16}),
           "embedding backward 4x8", 64 + 16 + 256, 0);
    expect(watched_norm2(&(struct hst_norm2){.count = 32, .dtype = HST_F32}), "norm2 32", 128, 0);
    float moment[2];
    struct hst_optimize update = {.count = 2, .dtype = HST_F32, .m = moment, .v = moment};
    expect(watched_optimize(&update), "update 2", 2 * 28, 0);
    update.v = NULL;
    expect(watched_optimize(&update), "update 2", 2 * 20, 0);
    expect(watched_copy(10), "copy of 10 B", 20, 0);
    expect(watched_zero(10), "zero of 10 B", 10, 0);
}

/* More operations than there is room for at first. */
static void a_watched_stream_does_what_the_other_does(void **state)
{
    enum { TIMES = 300, COUNT = 64 };
    struct watch *watch = NULL;
    double seconds[TIMES], all = -1, sum = 0;
    void *memory = NULL;
    size_t count = 7;
    (void)state;
    assert_int_equal(hst_dev_mem_alloc(dev, 2 * COUNT * 4, &memory), 0);
    float *x = memory, *ones = x + COUNT;
    for (int i = 0; i < COUNT; i++)
        ones[i] = 1;
    assert_int_equal(watch_open(dev, stream, &watch), 0);
    struct hst_stream *front = watch_front(watch);
    for (int round = 1; round <= 2; round++) {
        assert_int_equal(watch_begin(watch), 0);
        struct hst_add add = {COUNT, HST_F32, x, ones, x};
        for (int i = 0; i < TIMES - 1; i++)
            assert_int_equal(hst_op_add(front, &add), 0);
        assert_int_equal(
            hst_op_norm2(front, &(struct hst_norm2){COUNT, HST_F32, x, (double *)memory}),
            -ENOTSUP); /* the host does not, and so it is not seen */
        assert_int_equal(hst_op_add(front, &(struct hst_add){COUNT, 0, x, ones, x}), -EINVAL);
        assert_int_equal(hst_stream_copy(front, ones, ones, 0), 0);
        assert_int_equal(watch_seconds(watch, seconds, &all), 0);
        const struct watched *seen = watch_seen(watch, &count);
        assert_int_equal(count, TIMES);
        assert_string_equal(seen[0].name, "add 64");
        assert_string_equal(seen[TIMES - 1].name, "copy of 0 B");
        assert_true(x[0] == (float)(round * (TIMES - 1)) && x[COUNT - 1] == x[0]);
    }
    for (int i = 0; i < TIMES; i++) {
        assert_true(seconds[i] >= 0);
        sum += seconds[i];
    }
    assert_true(all > 0 && fabs(sum / all - 1) < 1e-6);
    watch_close(&watch);
    assert_null(watch);
    hst_dev_mem_free(dev, memory, 2 * COUNT * 4);
}

/* ---- a whole layer ---- */

struct told {
    double flops[3], ceiling_s[3]; /* of forward, backward, head: the sum of their operations */
    double all_flops[3];
    unsigned rows, pauses, paused_at[2], ropes, biases, norms, casts;
};

static int phase_of(const char *name)
{
    return strcmp(name, "forward") == 0 ? 0 : strcmp(name, "backward") == 0 ? 1 : 2;
}

static void tell(void *context, const struct bench_layer_row *row)
{
    struct told *told = context;
    int phase = phase_of(row->phase);
    told->rows++;
    assert_true(row->times > 0 && row->bytes > 0 && row->ceiling_s > 0);
    assert_true(0 < row->least_s && row->least_s <= row->seconds && row->seconds <= row->most_s);
    assert_true((row->seq == 0) == (phase == 2));
    if (!row->name) {
        told->all_flops[phase] += row->flops;
        assert_true(fabs(row->ceiling_s / told->ceiling_s[phase] - 1) < 1e-9);
        told->ceiling_s[phase] = 0;
        return;
    }
    assert_true(fabs(row->rate / row->ceiling / (row->ceiling_s / row->seconds) - 1) < 1e-9);
    told->flops[phase] += row->flops;
    told->ceiling_s[phase] += row->ceiling_s;
    told->ropes += strncmp(row->name, "rope", 4) == 0 ? row->times : 0;
    told->biases += strncmp(row->name, "bias", 4) == 0 ? row->times : 0;
    told->norms += strncmp(row->name, "rmsnorm", 7) == 0 ? row->times : 0;
    told->casts += strncmp(row->name, "cast", 4) == 0 ? row->times : 0;
}

static void note_pause(void *context, bool before)
{
    struct told *told = context;
    told->paused_at[told->pauses++] = told->rows;
    assert_int_equal(before, told->pauses == 1);
}

static struct told told_of(bool normed, bool biased, enum hst_dtype dtype)
{
    static const uint64_t seqs[] = {16, 32};
    struct told told = {0};
    struct hst_error error = {0};
    struct hst_dev_usage usage;
    const struct llama_config config = {.hidden = 4096,
                                        .layers = 32,
                                        .max_positions = 64,
                                        .rms_norm_eps = 1e-5,
                                        .qk_norm = normed,
                                        .qkv_bias = biased};
    const struct bench_layer_in in = {.config = bench_layer_tiny(&config),
                                      .dtype = dtype,
                                      .tokens = 64,
                                      .seqs = seqs,
                                      .seq_count = 2,
                                      .smoke = true,
                                      .tell = tell,
                                      .pause = note_pause,
                                      .context = &told};
    assert_int_equal(bench_layer(dev, &in, &error), 0);
    hst_dev_usage(dev, &usage);
    assert_int_equal(usage.memory_bytes, 0);
    assert_int_equal(usage.host_bytes, 0);
    assert_int_equal(told.pauses, 2);
    assert_int_equal(told.paused_at[0], 0);
    assert_int_equal(told.paused_at[1], told.rows);
    return told;
}

/* 64 wide, 96 inside, 2 heads and 1 of 64; 64 tokens, in sequences of 16 and then of 32. */
static void every_operation_of_a_layer_is_told(void **state)
{
    const double tokens = 64, down = 64 * 96, weights = 2 * 64 * 128 + 2 * 64 * 64 + 3 * down;
    const double scores = tokens * 2 * ((16 + 1) + (32 + 1)) / 2; /* of both runs, all heads */
    struct told told = told_of(false, false, HST_BF16);
    (void)state;
    assert_true(told.flops[0] == 2 * 2 * tokens * weights + 4 * scores * 64);
    /* the forward once more, but for its last product; then each product twice */
    assert_true(told.flops[1] ==
                2 * 2 * tokens * (weights - down + 2 * weights) + (4 + 10) * scores * 64);
    assert_true(told.flops[2] == 3 * 2 * tokens * 64 * 160);
    for (int i = 0; i < 3; i++)
        assert_true(told.flops[i] == told.all_flops[i]);
    assert_int_equal(told.ropes, 2 * (2 + 4));
    assert_int_equal(told.norms, 2 * (2 + 4) + 3);
    assert_int_equal(told.casts, 2 * 2);
    assert_int_equal(told.biases, 0);
}

static void a_model_of_another_kind_has_other_operations(void **state)
{
    struct told told = told_of(true, true, HST_F16);
    (void)state;
    assert_int_equal(told.norms, 2 * (4 + 8) + 3); /* those of q and k, forward and back */
    assert_int_equal(told.biases, 2 * (3 + 6));
    told = told_of(false, false, HST_F32);
    assert_int_equal(told.casts, 0);
}

static void a_clock_is_two_numbers_of_megahertz(void **state)
{
    static const char *const bad[] = {
        "",           "1980",        "1980, 1980 MHz\n", "[N/A], 1980\n", "0, 1980\n",
        "-5, 1980\n", "1980, nan\n", "1980, 1e9\n",      "1980, 1980",    "1, 2\n3, 4\n"};
    struct gpu_clock clock = {7, 7};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(gpu_clock_parse(bad[i], &clock));
    assert_true(clock.now_hz == 7 && clock.most_hz == 7);
    assert_true(gpu_clock_parse("345, 1980\n", &clock));
    assert_true(clock.now_hz == 345e6 && clock.most_hz == 1980e6);
}

static void what_holds_a_clock_is_told_in_words(void **state)
{
    char text[128];
    (void)state;
    gpu_clock_reasons("0x0000000000000024\n", text, sizeof text);
    assert_string_equal(text, "the limit of power, heat");
    gpu_clock_reasons("0x0000000000000002", text, sizeof text);
    assert_string_equal(text, "clocks that were set for applications");
    static const char *const nothing[] = {"", "0x0000000000000001\n", "[N/A]\n", "0x4 MHz\n"};
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        gpu_clock_reasons(nothing[i], text, sizeof text);
        assert_string_equal(text, "");
    }
    gpu_clock_reasons("0xff", text, 10); /* is cut */
    assert_string_equal(text, "clocks th");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_reads_its_factors_and_writes_its_result),
        cmocka_unit_test(attention_is_what_the_mask_leaves),
        cmocka_unit_test(what_moves_is_counted_once_each),
        cmocka_unit_test(a_watched_stream_does_what_the_other_does),
        cmocka_unit_test(every_operation_of_a_layer_is_told),
        cmocka_unit_test(a_model_of_another_kind_has_other_operations),
        cmocka_unit_test(a_clock_is_two_numbers_of_megahertz),
        cmocka_unit_test(what_holds_a_clock_is_told_in_words),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
