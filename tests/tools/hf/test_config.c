/* SPDX-License-Identifier: Apache-2.0 */
/* config.json: what is read, what is refused, and how it is given back with another dtype. */
#include "support.h"

#include "hf/config/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct row {
    int number; /* of a bad input, as in tests/hostile/corpus.py; 0: none */
    const char *key, *value;
    enum fail_code code;
    const char *pattern;
};

static const struct row rows[] = {
    {34, "hidden_size", "0", FAIL_CONFIG_VALUE,
     "hidden_size is 0, want a whole number from 1 to 1048576"},
    {34, "hidden_size", "-8", FAIL_CONFIG_VALUE, "hidden_size is -8, want a whole number"},
    {34, "hidden_size", "2147483648", FAIL_CONFIG_VALUE, "hidden_size is 2147483648, want"},
    {34, "hidden_size", "18446744073709551624", FAIL_CONFIG_VALUE,
     "hidden_size is 18446744073709551624, want"},
    {34, "hidden_size", "8.0", FAIL_CONFIG_VALUE, "hidden_size is 8.0, want"},
    {34, "hidden_size", "\"8\"", FAIL_CONFIG_VALUE, "hidden_size is \"8\", want a whole number"},
    {34, "hidden_size", "[8]", FAIL_CONFIG_VALUE, "hidden_size is \\[8\\], want"},
    {34, "hidden_size", NULL, FAIL_CONFIG_VALUE, "hidden_size is missing"},
    {34, "vocab_size", "null", FAIL_CONFIG_VALUE, "vocab_size is missing"},
    {34, "num_key_value_heads", "0", FAIL_CONFIG_VALUE, "num_key_value_heads is 0"},
    {35, "num_attention_heads", "3", FAIL_CONFIG_VALUE,
     "hidden_size 8 is no multiple of num_attention_heads 3"},
    {35, "num_key_value_heads", "4", FAIL_CONFIG_VALUE,
     "heads 2 is no multiple of num_key_value_heads 4"},
    {35, "num_attention_heads", "8", FAIL_CONFIG_VALUE, "head_dim is 1, want an even number"},
    {36, "num_hidden_layers", "16385", FAIL_CONFIG_VALUE,
     "num_hidden_layers is 16385, want a whole number from 1 to 16384"},
    {36, "head_dim", "7", FAIL_CONFIG_VALUE, "head_dim is 7, want an even number"},
    {37, "architectures", "[\"GemmaForCausalLM\"]", FAIL_ARCHITECTURE,
     "architecture GemmaForCausalLM is not supported; supported: LlamaForCausalLM, Mistral"},
    {37, "architectures", "[\"MistralForCausalLM\"]", FAIL_ARCHITECTURE,
     "model_type is llama, want mistral"},
    {37, "architectures", "[]", FAIL_ARCHITECTURE, "does not name one architecture"},
    {37, "architectures", NULL, FAIL_ARCHITECTURE, "does not name one architecture"},
    {37, "architectures", "[\"LlamaForCausalLM\",\"X\"]", FAIL_ARCHITECTURE,
     "does not name one architecture"},
    {37, "model_type", "\"mistral\"", FAIL_ARCHITECTURE, "model_type is mistral, want llama"},
    {37, "auto_map", "{\"AutoModel\":\"x.Y\"}", FAIL_ARCHITECTURE, "auto_map asks for code"},
    {37, "quantization_config", "{}", FAIL_ARCHITECTURE, "quantized weights cannot be trained"},
    {37, "hidden_act", "\"gelu\"", FAIL_ARCHITECTURE, "hidden_act is gelu, supported: silu"},
    {37, "attention_bias", "true", FAIL_ARCHITECTURE, "attention_bias is true"},
    {37, "mlp_bias", "true", FAIL_ARCHITECTURE, "mlp_bias is true"},
    {37, "mlp_bias", "1", FAIL_ARCHITECTURE, "mlp_bias is 1, supported: false"},
    {37, "tie_word_embeddings", "\"no\"", FAIL_CONFIG_VALUE,
     "tie_word_embeddings is \"no\", want true or false"},
    {37, "attention_dropout", "0.1", FAIL_ARCHITECTURE, "attention_dropout is 0.1"},
    {37, "partial_rotary_factor", "0.5", FAIL_ARCHITECTURE, "partial_rotary_factor is 0.5"},
    {39, "rms_norm_eps", "NaN", FAIL_CONFIG_FILE, "not valid JSON"},
    {39, "rms_norm_eps", "1e400", FAIL_CONFIG_VALUE,
     "rms_norm_eps is 1e400, want a number from 1e-20 to 1"},
    {39, "rms_norm_eps", "-1e-5", FAIL_CONFIG_VALUE, "rms_norm_eps is -1e-5"},
    {39, "rms_norm_eps", "\"nan\"", FAIL_CONFIG_VALUE, "rms_norm_eps is \"nan\", want"},
    {39, "rms_norm_eps", NULL, FAIL_CONFIG_VALUE, "rms_norm_eps is missing"},
    {39, "rope_theta", "Infinity", FAIL_CONFIG_FILE, "not valid JSON"},
    {39, "rope_theta", "1e400", FAIL_CONFIG_VALUE, "rope_theta is 1e400"},
    {39, "rope_theta", "0", FAIL_CONFIG_VALUE, "rope_theta is 0"},
    {34, "pad_token_id", "4", FAIL_CONFIG_VALUE,
     "pad_token_id is 4, want null or a whole number from -4 to 3\\. Fix: null"},
    {34, "pad_token_id", "-5", FAIL_CONFIG_VALUE, "pad_token_id is -5, want null or a whole"},
    {34, "pad_token_id", "18446744073709551616", FAIL_CONFIG_VALUE, "pad_token_id is 184467440"},
    {34, "pad_token_id", "-", FAIL_CONFIG_FILE, "not valid JSON"},
    {34, "pad_token_id", "1.0", FAIL_CONFIG_VALUE, "pad_token_id is 1.0, want"},
    {34, "pad_token_id", "\"-1\"", FAIL_CONFIG_VALUE, "pad_token_id is \"-1\", want"},
    {34, "pad_token_id", "true", FAIL_CONFIG_VALUE, "pad_token_id is true, want"},
    {34, "initializer_range", "1.5", FAIL_CONFIG_VALUE,
     "initializer_range is 1.5, want a number from 0 to 1"},
    {34, "initializer_range", "\"small\"", FAIL_CONFIG_VALUE, "initializer_range is \"small\""},
    {37, "is_causal", "false", FAIL_ARCHITECTURE,
     "is_causal is false, supported: true. With it tokens attend to those after them"},
    {37, "is_causal", "1", FAIL_ARCHITECTURE, "is_causal is 1, supported: true"},
    {37, "torchscript", "true", FAIL_ARCHITECTURE, "torchscript is true, supported: false. With"},
    {37, "pruned_heads", "{\"0\":[1]}", FAIL_ARCHITECTURE, "pruned_heads is .*, supported: \\{\\}"},
    {37, "per_layer_config", "[{\"hidden_size\":4}]", FAIL_ARCHITECTURE, "per_layer_config is"},
    {37, "transformers_weights", "\"other.safetensors\"", FAIL_ARCHITECTURE,
     "transformers_weights is other.safetensors, supported: model.safetensors model.safe"},
    {0, "rope_scaling", "{\"type\":\"dynamic\",\"factor\":2}", FAIL_ARCHITECTURE,
     "rope_scaling.type is dynamic"},
    {0, "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":2}", FAIL_ARCHITECTURE,
     "rope_type is yarn; supported"},
    {0, "rope_scaling", "{\"rope_type\":\"longrope\"}", FAIL_ARCHITECTURE, "rope_type is longrope"},
    {0, "rope_scaling", "{\"rope_type\":\"new\"}", FAIL_ARCHITECTURE, "rope_type is new"},
    {0, "rope_scaling", "{\"rope_type\":\"linear\",\"factor\":2,\"beta\":1}", FAIL_ARCHITECTURE,
     "unknown key beta"},
    {0, "rope_scaling", "{\"rope_type\":\"linear\"}", FAIL_CONFIG_VALUE, "rope factor is missing"},
    {0, "rope_scaling", "{\"rope_type\":\"linear\",\"factor\":0}", FAIL_CONFIG_VALUE,
     "rope factor is 0"},
    {0, "rope_scaling", "{\"rope_type\":\"default\",\"factor\":2}", FAIL_ARCHITECTURE,
     "factor has no meaning"},
    {0, "rope_scaling", "{\"rope_type\":\"linear\",\"type\":\"llama3\",\"factor\":2}",
     FAIL_CONFIG_VALUE, "differ"},
    {0, "rope_scaling", "{\"factor\":2}", FAIL_CONFIG_VALUE, "rope_scaling has no rope_type"},
    {0, "rope_scaling", "[]", FAIL_CONFIG_VALUE, "rope_scaling is not an object"},
    {0, "rope_scaling",
     "{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4}",
     FAIL_CONFIG_VALUE, "original_max_position_embeddings is missing"},
    {0, "rope_scaling",
     "{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4,"
     "\"original_max_position_embeddings\":16}",
     FAIL_CONFIG_VALUE, "high_freq_factor must be greater"},
    {0, "rope_parameters", "{\"rope_type\":\"default\",\"rope_theta\":500000}", FAIL_CONFIG_VALUE,
     "contradict"},
    {0, "rope_parameters", "{\"full\":{\"rope_type\":\"default\"}}", FAIL_ARCHITECTURE,
     "unknown key full"},
    {0, "rope_parameters", "{\"rope_type\":\"default\",\"partial_rotary_factor\":0.5}",
     FAIL_ARCHITECTURE, "partial_rotary_factor other than 1"},
};

static void every_bad_value_is_refused(void **state)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_config_with(*state, rows[i].key, rows[i].value);
        print_message("row %d: %s = %s\n", rows[i].number, rows[i].key, rows[i].value);
        expect_refusal(*state, false, rows[i].code, rows[i].pattern);
    }
}

static void sizes_whose_bytes_overflow_are_refused(void **state)
{
    put_text(*state, "config.json",
             "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":1048576,\"intermediate_"
             "size\":4194304,"
             "\"num_hidden_layers\":16384,\"num_attention_heads\":65536,\"head_dim\":65536,\"vocab_"
             "size\":16777216,"
             "\"max_position_embeddings\":32,\"rms_norm_eps\":1e-5,\"rope_theta\":1e4}");
    expect_refusal(*state, false, FAIL_CONFIG_VALUE, "size in bytes overflows");
    static const char *const large[][2] = {
        {"\"intermediate_size\":16,\"vocab_size\":2097152",
         "2097152 x hidden_size 1048576 elements"},
        {"\"intermediate_size\":2097152,\"vocab_size\":16",
         "2097152 x hidden_size 1048576 elements"},
        {"\"intermediate_size\":16,\"vocab_size\":16,\"head_dim\":1048", "2146304 x hidden_size"},
    };
    char text[512];
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        snprintf(text, sizeof text,
                 "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":1048576,"
                 "\"num_hidden_layers\":1,\"num_attention_heads\":2048,%s,"
                 "\"max_position_embeddings\":32,\"rms_norm_eps\":1e-5,\"rope_theta\":1e4}",
                 large[i][0]);
        put_text(*state, "config.json", text);
        expect_refusal(*state, false, FAIL_CONFIG_VALUE, large[i][1]);
    }
}

static void a_file_that_is_missing_or_not_json_is_refused(void **state)
{
    static const char *const bad[][2] = {
        {"", "its end, too early"},
        {"{", "its end, too early"},
        {"[1]", "no object"},
        {"{\"a\":1,\"a\":2}", "a key that stands there twice"},
        {"{\"a\":{\"b\":{\"c\":1,\"\\u0063\":2}}}", "a key that stands there twice"},
        {"{\"a\":1} x", "after the end"},
        {"{\"a\":01}", "a comma or an end"},
        {"{\"a\":[1,]}", "no value"},
        {"{\"a\":\"\\x\"}", "unknown escape"},
        {"{\"\\u0000\":1}", "NUL"},
        {"{\"\xff\":1}", "not UTF-8"},
        {"{'a':1}", "a key in quotes"},
        {"\xef\xbb\xbf{}", "no value"},
    };
    expect_refusal(*state, false, FAIL_CONFIG_FILE, "config.json: there is no such file");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_text(*state, "config.json", bad[i][0]);
        expect_refusal(*state, false, FAIL_CONFIG_FILE, bad[i][1]);
    }
    expect_refusal("/nonexistent/model", false, FAIL_CONFIG_FILE, "not a model directory");
}

static void a_gigabyte_of_spaces_is_refused_unread(void **state)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/config.json", (char *)*state);
    put_text(*state, "config.json", " ");
    assert_int_equal(truncate(path, 1 << 30), 0);
    expect_refusal(*state, false, FAIL_CONFIG_FILE, "1073741824 bytes, at most 67108864 allowed");
}

static void a_config_of_the_greatest_size_is_read_in_time(void **state)
{
    size_t n = CONFIG_MAX_BYTES - 2;
    char *text = malloc(n + 3);
    assert_non_null(text);
    memset(text, ' ', n);
    strcpy(text + n, "{}");
    put_text(*state, "config.json", text);
    expect_refusal(*state, false, FAIL_ARCHITECTURE, "architectures");
    size_t at = (size_t)sprintf(text, "{\"\":1");
    while (at + 8 < n) {
        memcpy(text + at, ",\"a\":1", 6);
        at += 6;
    }
    strcpy(text + at, "}");
    put_text(*state, "config.json", text);
    expect_refusal(*state, false, FAIL_CONFIG_FILE, "too many keys");
    free(text);
}

static void a_plain_config_is_read_and_completed(void **state)
{
    put_config(*state, "\"eos_token_id\": [1, 2], \"unknown\": {\"deep\": [null]},");
    struct hf_model *model = open_model(*state, false);
    const struct llama_config *c = hf_model_config(model);
    assert_int_equal(c->hidden, 8);
    assert_int_equal(c->intermediate, 16);
    assert_int_equal(c->layers, 1);
    assert_int_equal(c->heads, 2);
    assert_int_equal(c->kv_heads, 2);
    assert_int_equal(c->head_dim, 4);
    assert_int_equal(c->vocab, 4);
    assert_int_equal(c->max_positions, 32);
    assert_true(c->rms_norm_eps == 1e-5);
    assert_false(c->tied_embeddings);
    assert_int_equal(c->rope.type, ROPE_DEFAULT);
    assert_true(c->rope.theta == 10000);
    hf_model_close(&model);
}

static void null_is_the_same_as_absent(void **state)
{
    put_config(*state, "\"head_dim\": null, \"rope_scaling\": null, \"num_key_value_heads\": null, "
                       "\"auto_map\": null,");
    struct hf_model *model = open_model(*state, false);
    assert_int_equal(hf_model_config(model)->head_dim, 4);
    hf_model_close(&model);
}

#define LLAMA3                                                                                     \
    "\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "                       \
    "\"original_max_position_embeddings\": 8192"

static void check_llama3(const char *dir)
{
    struct hf_model *model = open_model(dir, false);
    const struct rope_config *r = &hf_model_config(model)->rope;
    assert_int_equal(r->type, ROPE_LLAMA3);
    assert_true(r->theta == 10000 && r->factor == 8 && r->low_freq_factor == 1 &&
                r->high_freq_factor == 4);
    assert_true(r->original_max_positions == 8192);
    hf_model_close(&model);
}

static void both_rope_dialects_say_the_same(void **state)
{
    put_config(*state, "\"rope_scaling\": {" LLAMA3 ", \"rope_type\": \"llama3\"},");
    check_llama3(*state);
    put_config(*state,
               "\"rope_scaling\": {" LLAMA3 ", \"type\": \"llama3\", \"rope_type\": \"llama3\"},");
    check_llama3(*state);
    put_config(*state, "\"rope_parameters\": {" LLAMA3
                       ", \"rope_theta\": 10000, \"rope_type\": \"llama3\"},");
    check_llama3(*state);
    put_config(*state,
               "\"rope_parameters\": {" LLAMA3 ", \"rope_theta\": 1e4, \"rope_type\": \"llama3\"},"
               "\"rope_scaling\": {" LLAMA3 ", \"rope_type\": \"llama3\"},");
    check_llama3(*state);
    put_config(*state, "\"rope_parameters\": {" LLAMA3 ", \"rope_type\": \"llama3\"},"
                       "\"rope_scaling\": {\"factor\": 8, \"rope_type\": \"linear\"},");
    expect_refusal(*state, false, FAIL_CONFIG_VALUE, "contradict each other");
    put_config_with(*state, "rope_scaling", "{\"type\": \"linear\", \"factor\": 2.5}");
    struct hf_model *model = open_model(*state, false);
    assert_int_equal(hf_model_config(model)->rope.type, ROPE_LINEAR);
    assert_true(hf_model_config(model)->rope.factor == 2.5);
    hf_model_close(&model);
}

static void the_fifth_dialect_needs_no_rope_theta_beside_it(void **state)
{
    const char *head =
        "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":8,\"intermediate_size\":16,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"vocab_size\":4,"
        "\"max_position_embeddings\":32,\"rms_norm_eps\":1e-5";
    char text[1000];
    snprintf(text, sizeof text,
             "%s,\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5e5}}", head);
    put_text(*state, "config.json", text);
    struct hf_model *model = open_model(*state, false);
    assert_true(hf_model_config(model)->rope.theta == 5e5);
    hf_model_close(&model);
    snprintf(text, sizeof text, "%s,\"rope_parameters\":{\"rope_type\":\"default\"}}", head);
    put_text(*state, "config.json", text);
    expect_refusal(*state, false, FAIL_CONFIG_VALUE, "add rope_theta in rope_parameters");
}

/* Llama 2's files are older than the key; those of others always had it. */
static void a_llama_of_before_the_key_means_a_base_of_10000(void **state)
{
    static const char *const scalings[][2] = {
        {"null", NULL},
        {"{\"type\":\"linear\",\"factor\":4}", NULL},
        {"{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"
         "\"original_max_position_embeddings\":16}",
         "add rope_theta \\(old Llama models mean 10000"},
    };
    for (size_t i = 0; i < sizeof scalings / sizeof *scalings; i++) {
        char extra[256];
        snprintf(extra, sizeof extra, "\"rope_scaling\":%s,", scalings[i][0]);
        put_config_without(*state, extra, "rope_theta");
        if (scalings[i][1]) {
            expect_refusal(*state, false, FAIL_CONFIG_VALUE, scalings[i][1]);
            continue;
        }
        struct hf_model *model = open_model(*state, false);
        assert_true(hf_model_config(model)->rope.theta == 10000);
        hf_model_close(&model);
    }
}

static void two_lengths_of_the_original_must_agree(void **state)
{
    static const char llama3[] =
        "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
        "\"high_freq_factor\":4,\"original_max_position_embeddings\":16},"
        "\"original_max_position_embeddings\":%s,";
    char extra[256];
    snprintf(extra, sizeof extra, llama3, "16");
    put_config(*state, extra);
    struct hf_model *model = open_model(*state, false);
    hf_model_close(&model);
    snprintf(extra, sizeof extra, llama3, "17");
    put_config(*state, extra);
    expect_refusal(*state, false, FAIL_CONFIG_VALUE,
                   "original_max_position_embeddings is 17, that of the rope is 16");
}

static void values_that_say_the_same_are_taken(void **state)
{
    static const char *const same[][2] = {
        {"hidden_act", "\"swish\""},
        {"hidden_act", "null"},
        {"is_causal", "true"},
        {"attention_dropout", "0.0"},
        {"pruned_heads", "{ }"},
        {"partial_rotary_factor", "1.0"},
        {"pad_token_id", "null"},
        {"initializer_range", "0"},
        {"per_layer_config", "[\n]"},
        {"is_encoder_decoder", "false"},
        {"transformers_weights", "\"model.safetensors\""},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        put_config_with(*state, same[i][0], same[i][1]);
        struct hf_model *model = open_model(*state, false);
        assert_false(hf_model_config(model)->has_pad);
        hf_model_close(&model);
    }
}

static void the_row_for_padding_may_be_counted_from_the_end(void **state)
{
    static const struct {
        const char *value;
        uint32_t row;
    } rows_of_4[] = {{"0", 0}, {"3", 3}, {"-1", 3}, {"-4", 0}, {"-0", 0}};
    for (size_t i = 0; i < sizeof rows_of_4 / sizeof *rows_of_4; i++) {
        put_config_with(*state, "pad_token_id", rows_of_4[i].value);
        struct hf_model *model = open_model(*state, false);
        assert_true(hf_model_config(model)->has_pad);
        assert_int_equal(hf_model_config(model)->pad, rows_of_4[i].row);
        hf_model_close(&model);
    }
}

/* What a table of keys says is built is built: none takes a value that nothing could mean. */
static void every_key_of_the_table_does_what_it_says(void **state)
{
    static const char nonsense[] = "[{\"x\":1}]";
    const struct config_key *k;
    for (size_t i = 0; (k = config_key(i)); i++) {
        /* the sliding window's are not a Llama's; dtypes are for messages */
        static const char *const others[] = {"dtype",
                                             "torch_dtype",
                                             "sliding_window",
                                             "use_sliding_window",
                                             "max_window_layers",
                                             "layer_types",
                                             "original_max_position_embeddings"};
        bool other = false;
        for (size_t n = 0; n < sizeof others / sizeof *others; n++)
            other |= strcmp(k->name, others[n]) == 0;
        put_config_with(*state, k->name, nonsense);
        struct hf_model *model = NULL;
        struct hst_error error = {0};
        int rc = hf_model_open(*state, false, &model, &error);
        hf_model_close(&model);
        print_message("%s: %s\n", k->name, rc ? error.message : "taken");
        if (!other)
            assert_int_equal(rc < 0, k->kind != CONFIG_NO_EFFECT);
        assert_true((k->values != NULL) == (k->kind == CONFIG_REFUSED));
        assert_true((k->why != NULL) == (k->kind != CONFIG_BUILT));
        assert_true(!i || strcmp(config_key(i - 1)->name, k->name) < 0);
    }
}

static void only_the_value_of_the_dtype_changes(void **state)
{
    static const char *const pairs[][2] = {
        {"{ \"a\" : 1,\n\t\"dtype\" :\"float32\", \"b\":2}\n",
         "{ \"a\" : 1,\n\t\"dtype\" :\"bfloat16\", \"b\":2}\n"},
        {"{\"torch_dtype\":null}", "{\"torch_dtype\":\"bfloat16\"}"},
        {"{\"torch_dtype\":\"float16\",\"x\":{\"dtype\":\"y\"},\"dtype\":\"float32\"}",
         "{\"torch_dtype\":\"bfloat16\",\"x\":{\"dtype\":\"y\"},\"dtype\":\"bfloat16\"}"},
        {"{\"d\\u0074ype\":\"float32\"}", "{\"d\\u0074ype\":\"bfloat16\"}"},
        {"{\n  \"a\": 1\n}\n",
         "{\n  \"dtype\": \"bfloat16\",\n  \"torch_dtype\": \"bfloat16\",\n  \"a\": 1\n}\n"},
        {" {\"a\":1}", " {\"dtype\": \"bfloat16\",\"torch_dtype\": \"bfloat16\",\"a\":1}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        size_t size;
        char *out = config_with_dtype(pairs[i][0], strlen(pairs[i][0]), "bfloat16", &size);
        assert_non_null(out);
        assert_int_equal(size, strlen(pairs[i][1]));
        assert_memory_equal(out, pairs[i][1], size);
        free(out);
    }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup_directory, teardown_directory)
    const struct CMUnitTest tests[] = {
        TEST(every_bad_value_is_refused),
        TEST(sizes_whose_bytes_overflow_are_refused),
        TEST(a_file_that_is_missing_or_not_json_is_refused),
        TEST(a_gigabyte_of_spaces_is_refused_unread),
        TEST(a_config_of_the_greatest_size_is_read_in_time),
        TEST(a_plain_config_is_read_and_completed),
        TEST(null_is_the_same_as_absent),
        TEST(both_rope_dialects_say_the_same),
        TEST(the_fifth_dialect_needs_no_rope_theta_beside_it),
        TEST(a_llama_of_before_the_key_means_a_base_of_10000),
        TEST(two_lengths_of_the_original_must_agree),
        TEST(values_that_say_the_same_are_taken),
        TEST(the_row_for_padding_may_be_counted_from_the_end),
        TEST(every_key_of_the_table_does_what_it_says),
        TEST(only_the_value_of_the_dtype_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
