/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors by name: shapes, types, values widened to f32, files that change, tied embeddings. */
#include "half.h"
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An odd length of the header: nothing is aligned. */
#define MIXED                                                                                      \
    "{\"f\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"                          \
    "\"h\":{\"dtype\":\"BF16\",\"shape\":[5],\"data_offsets\":[24,34]},"                           \
    "\"i\":{\"dtype\":\"I16\",\"shape\":[1],\"data_offsets\":[34,36]}}"

static void put_mixed(const char *dir)
{
    const float f[6] = {1.5f, -2, 0, INFINITY, NAN, 1e-40f};
    const uint16_t h[5] = {0x3fc0, 0xc000, 0x0000, 0x7f80, 0x0001};
    char all[8 + sizeof MIXED + 36];
    uint64_t n = strlen(MIXED);
    n += n % 2 == 0;
    memcpy(all, &n, 8);
    memset(all + 8, ' ', n);
    memcpy(all + 8, MIXED, strlen(MIXED));
    memcpy(all + 8 + n, f, 24);
    memcpy(all + 8 + n + 24, h, 10);
    memset(all + 8 + n + 34, 0, 2);
    put_config(dir, "\"dtype\": \"float32\",");
    put_file(dir, "model.safetensors", all, 8 + n + 36);
}

static void values_are_read_and_widened_from_any_offset(void **state)
{
    const float f[6] = {1.5f, -2, 0, INFINITY, NAN, 1e-40f};
    const uint32_t h[5] = {0x3fc00000, 0xc0000000, 0, 0x7f800000, 0x00010000};
    const uint64_t fd[] = {2, 3}, hd[] = {5};
    put_mixed(*state);
    struct hf_model *model = open_model(*state, true);
    assert_int_equal(hf_model_require(model, "f", 2, fd, NULL), 0);
    assert_int_equal(hf_model_require(model, "h", 1, hd, NULL), 0);
    for (size_t at = 0; at <= 6; at++)
        for (size_t n = 0; at + n <= 6; n++) {
            float got[7] = {0};
            got[n] = 7;
            assert_int_equal(hf_model_read(model, "f", at, got, n, NULL), 0);
            assert_memory_equal(got, f + at, n * 4);
            assert_true(got[n] == 7);
            if (at + n > 5)
                continue;
            assert_int_equal(hf_model_read(model, "h", at, got, n, NULL), 0);
            assert_memory_equal(got, h + at, n * 4);
            assert_true(got[n] == 7);
        }
    assert_matches(hf_model_note(model, 0)->text, "config.json says float32, tensor h is BF16");
    assert_null(hf_model_note(model, 1));
    hf_model_close(&model);
}

/* Every pattern of 16 bits, as numbers by their definition (half.h). */
static void check_widened(void **state, const char *name, enum hst_dtype dtype)
{
    enum { N = 100000 };
    uint16_t *h = malloc(N * 2);
    float *got = malloc(N * 4);
    assert_true(h && got);
    for (uint32_t i = 0; i < N; i++)
        h[i] = (uint16_t)(i * 40503u);
    char head[256];
    int n =
        snprintf(head + 8, 200, "{\"h\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%d]}}",
                 name, N, 2 * N);
    uint64_t length = (uint64_t)n;
    memcpy(head, &length, 8);
    char *all = malloc(8 + (size_t)n + 2 * N);
    assert_non_null(all);
    memcpy(all, head, 8 + (size_t)n);
    memcpy(all + 8 + n, h, 2 * N);
    put_config(*state, "");
    put_file(*state, "model.safetensors", all, 8 + (size_t)n + 2 * N);
    struct hf_model *model = open_model(*state, true);
    const uint64_t dims[] = {N};
    assert_int_equal(hf_model_require(model, "h", 1, dims, NULL), 0);
    assert_int_equal(hf_model_read(model, "h", 0, got, N, NULL), 0);
    for (uint32_t i = 0; i < N; i++) {
        double want = half_value(dtype, h[i]);
        assert_true(isnan(want) ? isnan(got[i]) : (double)got[i] == want);
        assert_int_equal(signbit(got[i]) != 0, h[i] >> 15);
    }
    hf_model_close(&model);
    free(all);
    free(got);
    free(h);
}

static void a_long_tensor_of_16_bits_is_widened_in_place(void **state)
{
    check_widened(state, "BF16", HST_BF16);
    check_widened(state, "F16", HST_F16);
}

static void what_the_model_lacks_is_refused_by_name(void **state)
{
    struct hst_error e;
    size_t unused;
    const uint64_t right[] = {2, 3}, wrong[] = {3, 2}, one[] = {1};
    put_mixed(*state);
    struct hf_model *model = open_model(*state, true);
    assert_true(hf_model_require(model, "g", 1, one, &e) < 0);
    assert_int_equal(e.code, FAIL_TENSOR);
    assert_matches(e.message, "tensor g is missing");
    assert_true(hf_model_require(model, "f", 2, wrong, &e) < 0);
    assert_matches(e.message, "tensor f has shape \\[2, 3\\], config.json asks for \\[3, 2\\]");
    assert_true(hf_model_require(model, "f", 1, right, &e) < 0);
    assert_matches(e.message, "asks for \\[2\\]");
    assert_true(hf_model_require(model, "i", 1, one, &e) < 0);
    assert_matches(e.message, "tensor i has dtype I16; supported: F32, BF16, F16");
    assert_int_equal(e.code, FAIL_TENSOR);
    float v;
    assert_int_equal(hf_model_read(model, "f", 0, &v, 1, &e), -EINVAL);
    assert_int_equal(hf_model_require(model, "f", 2, right, &e), 0);
    assert_int_equal(hf_model_read(model, "f", 6, &v, 1, &e), -EINVAL);
    assert_int_equal(hf_model_read(model, "f", UINT64_MAX, &v, 1, &e), -EINVAL);
    assert_string_equal(hf_model_unused(model, &unused), "h");
    assert_int_equal(unused, 2); /* and i, which is of a type that is none of ours */
    hf_model_close(&model);
}

static void a_stored_rotary_table_is_not_an_unused_weight(void **state)
{
    size_t unused;
    put_config(*state, "");
    put_tensors(*state, "model.safetensors",
                "{\"model.layers.0.self_attn.rotary_emb.inv_freq\":{\"dtype\":\"F32\",\"shape\":[2]"
                ",\"data_offsets\":[0,8]}}",
                8);
    struct hf_model *model = open_model(*state, true);
    assert_null(hf_model_unused(model, &unused));
    hf_model_close(&model);
}

static void a_file_that_shrinks_or_changes_is_an_error_not_a_signal(void **state)
{
    const uint64_t dims[] = {2, 3};
    char path[4096];
    struct hst_error e;
    float v[6];
    snprintf(path, sizeof path, "%s/model.safetensors", (char *)*state);
    put_mixed(*state);
    struct hf_model *model = open_model(*state, true);
    assert_int_equal(hf_model_require(model, "f", 2, dims, NULL), 0);
    assert_int_equal(truncate(path, 20), 0);
    assert_true(hf_model_read(model, "f", 0, v, 6, &e) < 0);
    assert_int_equal(e.code, FAIL_READ);
    assert_matches(e.message, "changed after it had been opened");
    hf_model_close(&model);
    put_mixed(*state);
    model = open_model(*state, true);
    assert_int_equal(hf_model_require(model, "f", 2, dims, NULL), 0);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_true(hf_model_read(model, "f", 0, v, 6, &e) < 0);
    assert_int_equal(e.code, FAIL_READ);
    hf_model_close(&model);
}

static void a_file_that_is_replaced_or_removed_is_still_read(void **state)
{
    const uint64_t dims[] = {2, 3};
    char path[4096];
    float v[6];
    snprintf(path, sizeof path, "%s/model.safetensors", (char *)*state);
    put_mixed(*state);
    struct hf_model *model = open_model(*state, true);
    assert_int_equal(hf_model_require(model, "f", 2, dims, NULL), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(hf_model_read(model, "f", 0, v, 6, NULL), 0);
    assert_true(v[0] == 1.5f);
    hf_model_close(&model);
}

/* Head and embedding of 300,000 elements; element `differs` of the head is another one. */
static void put_tied(const char *dir, const char *dtype, long differs)
{
    enum { N = 300000 };
    char head[400];
    int width = strcmp(dtype, "F32") == 0 ? 4 : 2, data = N * (width + 4);
    uint64_t n = (uint64_t)snprintf(
        head + 8, 300,
        "{\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[37500,8],\"data_offsets\":["
        "0,%d]},"
        "\"lm_head.weight\":{\"dtype\":\"%s\",\"shape\":[37500,8],\"data_offsets\":[%d,%d]}}",
        4 * N, dtype, 4 * N, data);
    memcpy(head, &n, 8);
    char *all = malloc(8 + n + (size_t)data), *at = all + 8 + n;
    assert_non_null(all);
    memcpy(all, head, 8 + n);
    for (long i = 0; i < N; i++) {
        uint32_t bits = (uint32_t)(i % 32768) << 16, other = bits ^ (i == differs ? 0x10000u : 0);
        memcpy(at + 4 * i, &bits, 4);
        memcpy(at + 4 * N + width * i, (char *)&other + 4 - width, (size_t)width);
    }
    put_file(dir, "model.safetensors", all, 8 + n + (size_t)data);
    free(all);
}

static void tied_embeddings_that_are_both_there_must_be_equal(void **state)
{
    put_config_with(*state, "vocab_size", "37500, \"tie_word_embeddings\": true");
    static const char *const dtypes[] = {"F32", "BF16"};
    size_t unused;
    for (int i = 0; i < 2; i++) {
        put_tied(*state, dtypes[i], -1);
        struct hf_model *model = open_model(*state, true);
        assert_true(hf_model_config(model)->tied_embeddings);
        assert_string_equal(hf_model_unused(model, &unused),
                            "model.embed_tokens.weight"); /* the head counts as used */
        hf_model_close(&model);
        put_tied(*state, dtypes[i], 299999);
        expect_refusal(*state, true, FAIL_TENSOR,
                       "lm_head.weight differs from model.embed_tokens.weight");
        put_tied(*state, dtypes[i], 0);
        expect_refusal(*state, true, FAIL_TENSOR, "lm_head.weight differs");
    }
    put_config_with(*state, "vocab_size", "37500");
    struct hf_model *model = open_model(*state, true); /* untied: they may differ */
    hf_model_close(&model);
    put_config(*state, "\"tie_word_embeddings\": true,");
    model = open_model(*state, true); /* of another size than the model's: not read */
    hf_model_close(&model);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup_directory, teardown_directory)
    const struct CMUnitTest tests[] = {
        TEST(values_are_read_and_widened_from_any_offset),
        TEST(a_long_tensor_of_16_bits_is_widened_in_place),
        TEST(what_the_model_lacks_is_refused_by_name),
        TEST(a_stored_rotary_table_is_not_an_unused_weight),
        TEST(a_file_that_shrinks_or_changes_is_an_error_not_a_signal),
        TEST(a_file_that_is_replaced_or_removed_is_still_read),
        TEST(tied_embeddings_that_are_both_there_must_be_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
