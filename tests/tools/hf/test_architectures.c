/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of the architectures beside Llama: what they add to it, and must say. */
#include "support.h"

#include <stdio.h>
#include <string.h>

#define SIZES                                                                                      \
    "\"hidden_size\":8,\"intermediate_size\":16,\"num_hidden_layers\":2,"                          \
    "\"num_attention_heads\":2,\"vocab_size\":4,\"max_position_embeddings\":32,"                   \
    "\"rms_norm_eps\":1e-5,\"rope_theta\":1e4"
#define LLAMA   "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\"," SIZES
#define MISTRAL "{\"architectures\":[\"MistralForCausalLM\"],\"model_type\":\"mistral\"," SIZES
#define QWEN2   "{\"architectures\":[\"Qwen2ForCausalLM\"],\"model_type\":\"qwen2\"," SIZES
#define QWEN3   "{\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\"," SIZES

#define USED ",\"use_sliding_window\":true,\"sliding_window\":9"

/* Without what each must have. */
static const struct kin {
    const char *head, *needed;
    bool qk_norm, qkv_bias;
} kin[] = {
    {LLAMA, "", false, false},
    {MISTRAL, ",\"num_key_value_heads\":1,\"sliding_window\":null", false, false},
    {QWEN2, ",\"num_key_value_heads\":1", false, true},
    {QWEN3, ",\"num_key_value_heads\":1,\"head_dim\":6", true, false},
};
enum { OF_LLAMA, OF_MISTRAL, OF_QWEN2, OF_QWEN3, KIN };

static void put(const char *dir, const char *head, const char *needed, const char *more)
{
    char text[1024];
    snprintf(text, sizeof text, "%s%s%s}", head, needed, more);
    put_text(dir, "config.json", text);
}

static void each_has_the_norms_and_the_window_it_says(void **state)
{
    static const struct {
        int of;
        const char *needed, *more;
        uint32_t window;
        uint64_t windowless; /* of both layers */
    } rows[] = {
        {OF_LLAMA, "", "", 0, 0},
        {OF_LLAMA, "", ",\"sliding_window\":3,\"use_sliding_window\":true,\"layer_types\":7", 0, 0},
        {OF_MISTRAL, NULL, "", 0, 0},
        {OF_MISTRAL, NULL, ",\"use_sliding_window\":false", 0, 0},
        {OF_MISTRAL, ",\"num_key_value_heads\":1", ",\"sliding_window\":4096", 4096, 0},
        {OF_QWEN2, NULL, "", 0, 0},
        {OF_QWEN2, NULL, ",\"sliding_window\":131072,\"use_sliding_window\":false", 0, 0},
        {OF_QWEN2, NULL, USED ",\"max_window_layers\":0", 9, 0},
        {OF_QWEN2, NULL, ",\"attention_bias\":true", 0, 0}, /* it has them without a word */
        {OF_QWEN2, NULL, ",\"attention_bias\":false", 0, 0},
        {OF_QWEN2, NULL, ",\"attention_bias\":null", 0, 0},
        /* of two layers; layer_types says more than a count */
        {OF_QWEN2, NULL, USED ",\"max_window_layers\":2", 0, 0},
        {OF_QWEN2, NULL, USED ",\"max_window_layers\":1", 9, 1},
        {OF_QWEN3, NULL, USED ",\"max_window_layers\":0", 9, 0},
        {OF_QWEN3, NULL,
         USED ",\"max_window_layers\":2,\"layer_types\":"
              "[\"sliding_attention\",\"full_attention\"]",
         9, 2},
        {OF_QWEN3, NULL,
         USED ",\"max_window_layers\":0,\"layer_types\":"
              "[\"full_attention\",\"full_attention\"]",
         0, 0},
        {OF_MISTRAL, ",\"num_key_value_heads\":1", /* where it is not looked at */
         USED ",\"max_window_layers\":2,\"layer_types\":[\"full_attention\"]", 9, 0},
        {OF_QWEN3, NULL, "", 0, 0},
        {OF_QWEN3, NULL, ",\"sliding_window\":4,\"use_sliding_window\":false", 0, 0},
        {OF_QWEN3, NULL, ",\"sliding_window\":null,\"use_sliding_window\":true", 0, 0},
        {OF_QWEN3, NULL,
         ",\"sliding_window\":4,\"use_sliding_window\":true,"
         "\"max_window_layers\":0",
         4, 0},
        {OF_QWEN3, NULL, ",\"layer_types\":[\"full_attention\",\"full_attention\"]", 0, 0},
        {OF_QWEN3, NULL,
         ",\"layer_types\":[\"full_attention\",\"sliding_attention\"],\"sliding_window\":4,"
         "\"use_sliding_window\":true",
         4, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct kin *k = &kin[rows[i].of];
        put(*state, k->head, rows[i].needed ? rows[i].needed : k->needed, rows[i].more);
        struct hf_model *model = open_model(*state, false);
        const struct llama_config *c = hf_model_config(model);
        assert_int_equal(c->qk_norm, k->qk_norm);
        assert_int_equal(c->qkv_bias, k->qkv_bias);
        assert_int_equal(c->window, rows[i].window);
        assert_int_equal(c->windowless[0], rows[i].windowless);
        assert_int_equal(llama_config_window(c, 1), rows[i].windowless & 2 ? 0 : rows[i].window);
        assert_int_equal(c->head_dim, rows[i].of == OF_QWEN3 ? 6 : 4);
        hf_model_close(&model);
    }
}

static void what_would_be_another_model_is_refused(void **state)
{
    static const struct {
        int of;
        const char *needed, *more;
        enum fail_code code;
        const char *pattern;
    } rows[] = {
        {OF_MISTRAL, ",\"sliding_window\":null", "", FAIL_CONFIG_VALUE,
         "num_key_value_heads is missing, which a MistralForCausalLM must have"},
        {OF_MISTRAL, ",\"num_key_value_heads\":1", "", FAIL_CONFIG_VALUE,
         "sliding_window is missing. Fix: add it \\(null: a token attends to all before it"},
        {OF_MISTRAL, ",\"num_key_value_heads\":1", ",\"sliding_window\":0", FAIL_CONFIG_VALUE,
         "sliding_window is 0, want null or a whole number from 1 to 2147483647"},
        {OF_MISTRAL, ",\"num_key_value_heads\":1", ",\"sliding_window\":\"4\"", FAIL_CONFIG_VALUE,
         "sliding_window is \"4\", want null"},
        {OF_MISTRAL, NULL, ",\"layer_types\":[\"sliding_attention\"]", FAIL_ARCHITECTURE,
         "layer_types has \"sliding_attention\", supported: full_attention"},
        {OF_QWEN2, "", "", FAIL_CONFIG_VALUE,
         "num_key_value_heads is missing, which a Qwen2ForCausalLM must have"},
        {OF_QWEN3, ",\"head_dim\":6", "", FAIL_CONFIG_VALUE,
         "num_key_value_heads is missing, which a Qwen3ForCausalLM must have"},
        {OF_QWEN3, ",\"num_key_value_heads\":1", ",\"head_dim\":null", FAIL_CONFIG_VALUE,
         "head_dim is missing, which a Qwen3ForCausalLM must have"},
        {OF_QWEN3, NULL, ",\"attention_bias\":true", FAIL_ARCHITECTURE,
         "attention_bias is true, supported: false. With it other linear layers have a bias"},
        {OF_QWEN2, NULL, ",\"mlp_bias\":true", FAIL_ARCHITECTURE, "mlp_bias is true"},
        {OF_QWEN2, NULL, ",\"attention_bias\":1", FAIL_ARCHITECTURE,
         "attention_bias is 1, supported"},
        {OF_QWEN2, NULL, ",\"use_sliding_window\":true", FAIL_CONFIG_VALUE,
         "sliding_window is missing"},
        {OF_QWEN3, NULL, ",\"use_sliding_window\":true", FAIL_CONFIG_VALUE,
         "sliding_window is missing"},
        {OF_QWEN3, NULL, ",\"use_sliding_window\":1", FAIL_CONFIG_VALUE,
         "use_sliding_window is 1, want true or false"},
        {OF_QWEN3, NULL, ",\"use_sliding_window\":true,\"sliding_window\":-1", FAIL_CONFIG_VALUE,
         "sliding_window is -1, want"},
        {OF_QWEN3, NULL, USED, FAIL_CONFIG_VALUE,
         "max_window_layers is missing, and layer_types too: which layers have the window is not"},
        {OF_QWEN2, NULL, USED ",\"layer_types\":[\"sliding_attention\"]", FAIL_CONFIG_VALUE,
         "layer_types has 1 layers, num_hidden_layers is 2"},
        {OF_QWEN3, NULL, ",\"layer_types\":\"full_attention\"", FAIL_CONFIG_VALUE,
         "layer_types is \"full_attention\", want a list"},
        {OF_QWEN3, NULL, ",\"layer_types\":[\"full_attention\",{\"a\":[1]}]", FAIL_ARCHITECTURE,
         "layer_types has \\{\"a\":\\[1\\]\\}, supported: full_attention"},
        {OF_QWEN3, NULL, ",\"layer_types\":[\"sliding_attention\"],\"sliding_window\":4",
         FAIL_ARCHITECTURE, "layer_types has \"sliding_attention\", supported: full_attention"},
        {OF_QWEN3, NULL,
         ",\"layer_types\":[\"chunked\"],\"sliding_window\":4,\"use_sliding_window\":true",
         FAIL_ARCHITECTURE,
         "layer_types has \"chunked\", supported: full_attention, sliding_attention"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct kin *k = &kin[rows[i].of];
        put(*state, k->head, rows[i].needed ? rows[i].needed : k->needed, rows[i].more);
        print_message("%s\n", rows[i].pattern);
        expect_refusal(*state, false, rows[i].code, rows[i].pattern);
    }
}

static void shapes_are_what_is_said(void **state)
{
    put(*state, QWEN3, ",\"num_key_value_heads\":null,\"head_dim\":6", "");
    struct hf_model *model = open_model(*state, false);
    assert_int_equal(hf_model_config(model)->kv_heads, 2);
    hf_model_close(&model);
    /* hidden_size need not be a multiple of heads where head_dim is there */
    put_text(*state, "config.json",
             "{\"architectures\":[\"Qwen3ForCausalLM\"],\"hidden_size\":30,"
             "\"intermediate_size\":16,\"num_hidden_layers\":1,\"num_attention_heads\":4,"
             "\"num_key_value_heads\":2,\"head_dim\":10,\"vocab_size\":4,"
             "\"max_position_embeddings\":32,\"rms_norm_eps\":1e-5,\"rope_theta\":1e4}");
    model = open_model(*state, false);
    assert_int_equal(hf_model_config(model)->head_dim, 10);
    hf_model_close(&model);
}

/* What one of them may say, others are not. */
static void a_name_and_a_type_belong_together(void **state)
{
    static const char *const types[] = {"llama", "mistral", "qwen2", "qwen3"};
    char more[64], want[64];
    for (int i = 0; i < KIN; i++)
        for (int j = 0; j < KIN; j++) {
            char text[1024];
            snprintf(text, sizeof text, "%s%s}", kin[i].head, kin[i].needed);
            snprintf(more, sizeof more, "\"model_type\":\"%s\"", types[i]);
            char *at = strstr(text, more);
            assert_non_null(at);
            char changed[1024];
            snprintf(changed, sizeof changed, "%.*s\"model_type\":\"%s\"%s", (int)(at - text), text,
                     types[j], at + strlen(more));
            put_text(*state, "config.json", changed);
            snprintf(want, sizeof want, "model_type is %s, want %s", types[j], types[i]);
            if (i != j) {
                expect_refusal(*state, false, FAIL_ARCHITECTURE, want);
                continue;
            }
            struct hf_model *model = open_model(*state, false);
            hf_model_close(&model);
        }
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup_directory, teardown_directory)
    const struct CMUnitTest tests[] = {
        TEST(each_has_the_norms_and_the_window_it_says),
        TEST(what_would_be_another_model_is_refused),
        TEST(shapes_are_what_is_said),
        TEST(a_name_and_a_type_belong_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
