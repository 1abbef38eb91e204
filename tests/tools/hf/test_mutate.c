/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thousands of damaged headers, indexes and configs, from a fixed seed: no crash (the sanitizers
 * watch), and the reader of JSON accepts exactly what jansson accepts.
 */
#include "support.h"

#include "hf/config/config.h"
#include "hf/index.h"
#include "hf/safetensors.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROUNDS = 20000, LONGEST = 2048 };

static uint64_t next_random(uint64_t *s)
{
    *s += 0x9e3779b97f4a7c15u;
    uint64_t z = *s;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Pieces that are more often interesting than single bytes. */
static const char *const pieces[] = {
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "\\udc00",
    "\\ud83d\\ude00",
    "\\u0061",
    "\xff",
    "\xc3\xa9",
    "\xed\xa0\x80",
    "\xf0\x9f\x98\x80",
    "0",
    "-1",
    "1e5",
    "01",
    "1.5",
    "1e400",
    "9223372036854775807",
    "18446744073709551616",
    "null",
    "true",
    "false",
    "\"a\"",
    "\"a\":1,",
    "{\"a\":{}}",
    "[[[[[[[[[[[[[[[[[[[[",
    " ",
    "\n",
    "\"shape\"",
    "\"dtype\":\"F32\"",
    "\"\"",
    "..",
    "/",
};

static size_t mutate(const char *seed, char *out, uint64_t *random)
{
    size_t n = strlen(seed);
    memcpy(out, seed, n);
    for (uint64_t edits = 1 + next_random(random) % 4; edits; edits--) {
        size_t at = next_random(random) % (n + 1), cut = next_random(random) % 12;
        const char *piece = pieces[next_random(random) % (sizeof pieces / sizeof *pieces)];
        size_t add = strlen(piece);
        if (cut > n - at || next_random(random) % 2)
            cut = 0;
        if (next_random(random) % 3 == 0)
            add = 0;
        if (n - cut + add >= LONGEST)
            continue;
        memmove(out + at + add, out + at + cut, n - at - cut);
        memcpy(out + at, piece, add);
        n = n - cut + add;
        if (n && next_random(random) % 4 == 0)
            out[next_random(random) % n] ^= (char)(1u << next_random(random) % 8);
    }
    out[n] = '\0';
    return n;
}

/* The text in a block of its own size, so that a read beyond it is seen. */
static char *exact_copy(const char *text, size_t n)
{
    char *copy = malloc(n + 1);
    assert_non_null(copy);
    memcpy(copy, text, n);
    copy[n] = '\0';
    return copy;
}

static const char header_seed[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"model.a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_"
    "offsets\":[0,16]},"
    "\"b\\u00e9\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[16,18]},"
    "\"c\":{\"dtype\":\"F4\",\"shape\":[4,1],\"data_offsets\":[18,20]}}   ";
static const char index_seed[] =
    "{\"metadata\":{\"total_size\":20},\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\","
    "\"b\":\"model-00002-of-00002.safetensors\",\"c\\n\":\"model-00001-of-00002.safetensors\"}}";
static const char config_seed[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":8,\"intermediate_size\":16,"
    "\"dtype\":\"float32\","
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"vocab_size\":4,\"max_position_"
    "embeddings\":32,"
    "\"rms_norm_eps\":1e-5,\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":5e5,"
    "\"factor\":8.0,"
    "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":64}}";

static void damaged_headers_are_refused_or_consistent(void **state)
{
    (void)state;
    char text[LONGEST + 1];
    uint64_t random = 1;
    int accepted = 0;
    for (int i = 0; i < ROUNDS; i++) {
        size_t n = mutate(header_seed, text, &random);
        char *copy = exact_copy(text, n);
        struct st_header h;
        struct hst_error error = {0};
        int rc = st_parse("f", copy, n, 20, 100, &h, &error);
        if (rc) {
            assert_int_equal(rc, -EBADMSG);
            assert_int_equal(error.code, FAIL_SAFETENSORS);
        } else {
            uint64_t bytes = 0;
            for (size_t j = 0; j < h.count; j++)
                bytes += h.tensors[j].end - h.tensors[j].begin;
            assert_int_equal(bytes, 20);
            st_header_free(&h);
            accepted++;
        }
        free(copy);
    }
    print_message("%d of %d accepted\n", accepted, ROUNDS);
    assert_in_range(accepted, 10, ROUNDS / 2);
}

static void damaged_indexes_and_configs_are_refused_or_consistent(void **state)
{
    (void)state;
    char text[LONGEST + 1];
    uint64_t random = 2;
    int accepted[2] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        size_t n = mutate(index_seed, text, &random);
        char *copy = exact_copy(text, n);
        struct index index;
        if (!index_parse("f", copy, n, &index, NULL)) {
            for (size_t j = 0; j < index.count; j++)
                assert_null(strchr(index.entries[j].file_name, '/'));
            index_free(&index);
            accepted[0]++;
        }
        free(copy);
        n = mutate(config_seed, text, &random);
        copy = exact_copy(text, n);
        struct llama_config config;
        char dtype[16];
        if (!config_parse("f", copy, n, &config, dtype, NULL)) {
            size_t size;
            char *patched = config_with_dtype(copy, n, "float32", &size);
            assert_non_null(patched);
            char *again = exact_copy(patched, size);
            struct llama_config same;
            assert_int_equal(config_parse("f", again, size, &same, dtype, NULL), 0);
            assert_memory_equal(&same, &config, sizeof same);
            assert_string_equal(dtype, "float32");
            free(again);
            free(patched);
            accepted[1]++;
        }
        free(copy);
    }
    print_message("%d indexes, %d configs of %d accepted\n", accepted[0], accepted[1], ROUNDS);
    assert_in_range(accepted[0], 10, ROUNDS / 2);
    assert_in_range(accepted[1], 10, ROUNDS / 2);
}

static int depth_of(const json_t *j)
{
    int deepest = 0;
    const char *key;
    size_t i;
    json_t *value;
    json_object_foreach((json_t *)j, key, value)
    {
        int d = depth_of(value);
        deepest = d > deepest ? d : deepest;
    }
    json_array_foreach((json_t *)j, i, value)
    {
        int d = depth_of(value);
        deepest = d > deepest ? d : deepest;
    }
    return deepest + (json_is_object(j) || json_is_array(j));
}

static void the_same_texts_are_json_as_for_jansson(void **state)
{
    (void)state;
    const char *const seeds[] = {header_seed, index_seed, config_seed,
                                 "{\"a\":[1,-2.5e+3,true,false,null,\"\\\"\\\\\\/"
                                 "\\b\\f\\n\\r\\t\\u20ac\"],\"b\":{\"\":{}}}"};
    char text[LONGEST + 1];
    uint64_t random = 3;
    int accepted = 0;
    for (int i = 0; i < 4 * ROUNDS; i++) {
        size_t n = mutate(seeds[i % 4], text, &random);
        char *copy = exact_copy(text, n);
        struct jsn_fault fault;
        json_error_t error;
        json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
        int rc = jsn_check(copy, n, 1000, &fault);
        bool too_large = !j && json_error_code(&error) == json_error_numeric_overflow;
        bool want = j && json_is_object(j) && depth_of(j) <= (int)JSN_MAX_DEPTH;
        if (!too_large && want != !rc)
            fail_msg("ours: %d (%s), jansson: %s: %s", rc, fault.why, error.text, text);
        accepted += !rc;
        json_decref(j);
        free(copy);
    }
    print_message("%d of %d accepted\n", accepted, 4 * ROUNDS);
    assert_in_range(accepted, ROUNDS / 10, 2 * ROUNDS);
}

/* A page that cannot be read follows the text, wherever it is cut. */
static void nothing_is_read_beyond_the_end_of_a_text(void **state)
{
    (void)state;
    static const char text[] = "{\"\\u0061\\ud83d\\ude00\\n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\":"
                               "[true,false,null,-1.5e+3]}";
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = sizeof text - 1;
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
    for (size_t n = 1; n <= whole; n++) {
        struct jsn_fault fault;
        char *copy = memcpy(pages + page - n, text, n);
        assert_int_equal(jsn_check(copy, n, 10, &fault), n < whole ? -EBADMSG : 0);
    }
    munmap(pages, 2 * page);
}

static void an_error_is_final(void **state)
{
    (void)state;
    struct jsn_reader r = jsn_reader("[+]", 3);
    assert_int_equal(jsn_next(&r).type, JSN_ARRAY);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(jsn_next(&r).type, JSN_ERROR);
        assert_string_equal(r.why, "something that is no value");
    }
}

static void a_nul_behind_a_backslash_is_no_escape(void **state)
{
    (void)state;
    static const char text[] = "{\"\\\0\":1}";
    struct jsn_fault fault;
    assert_int_equal(jsn_check(text, sizeof text - 1, 10, &fault), -EBADMSG);
    assert_string_equal(fault.why, "an unknown escape in a string");
}

static void strings_are_unescaped_as_by_jansson(void **state)
{
    (void)state;
    static const char text[] =
        "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20ac\\ud83d\\ude00\xc3\xa9\"]";
    json_t *j = json_loadb(text, sizeof text - 1, 0, NULL);
    assert_non_null(j);
    char out[sizeof text];
    size_t n = jsn_unescape(text + 2, sizeof text - 5, out);
    assert_int_equal(n, json_string_length(json_array_get(j, 0)));
    assert_string_equal(out, json_string_value(json_array_get(j, 0)));
    json_decref(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_headers_are_refused_or_consistent),
        cmocka_unit_test(damaged_indexes_and_configs_are_refused_or_consistent),
        cmocka_unit_test(the_same_texts_are_json_as_for_jansson),
        cmocka_unit_test(nothing_is_read_beyond_the_end_of_a_text),
        cmocka_unit_test(an_error_is_final),
        cmocka_unit_test(a_nul_behind_a_backslash_is_no_escape),
        cmocka_unit_test(strings_are_unescaped_as_by_jansson),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
