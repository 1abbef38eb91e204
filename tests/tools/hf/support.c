/* SPDX-License-Identifier: Apache-2.0 */
/* Builds model directories, and checks how they are refused. */
#include "support.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Of processor time, because tests share the machine. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SECONDS 30
#else
#define SECONDS 5
#endif

int setup_directory(void **state)
{
    const char *base = getenv("TMPDIR");
    char *path;
    if (asprintf(&path, "%s/hoistway-hf-XXXXXX", base ? base : "/tmp") < 0)
        return -1;
    *state = mkdtemp(path);
    return *state ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

int teardown_directory(void **state)
{
    int rc = nftw(*state, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return rc;
}

static FILE *open_in(const char *dir, const char *name, const char *mode)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return fopen(path, mode);
}

void put_file(const char *dir, const char *name, const void *bytes, size_t size)
{
    FILE *f = open_in(dir, name, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

void put_text(const char *dir, const char *name, const char *text)
{
    put_file(dir, name, text, strlen(text));
}

void put_tensors(const char *dir, const char *name, const char *header, size_t data_bytes)
{
    uint64_t n = strlen(header);
    char *all = malloc(8 + n + data_bytes);
    assert_non_null(all);
    memcpy(all, &n, 8);
    memcpy(all + 8, header, n);
    for (size_t i = 0; i < data_bytes; i++)
        all[8 + n + i] = (char)i;
    put_file(dir, name, all, 8 + n + data_bytes);
    free(all);
}

char *get_file(const char *dir, const char *name, size_t *size)
{
    FILE *f = open_in(dir, name, "r");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    char *all = malloc(*size + 1);
    assert_non_null(all);
    assert_int_equal(fread(all, 1, *size, f), *size);
    all[*size] = '\0';
    fclose(f);
    return all;
}

bool is_there(const char *dir, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int entry_count(const char *dir)
{
    int n = -2;
    DIR *d = opendir(dir);
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static const char *const config_keys[][2] = {
    {"architectures", "[\"LlamaForCausalLM\"]"},
    {"model_type", "\"llama\""},
    {"hidden_size", "8"},
    {"intermediate_size", "16"},
    {"num_hidden_layers", "1"},
    {"num_attention_heads", "2"},
    {"vocab_size", "4"},
    {"max_position_embeddings", "32"},
    {"rms_norm_eps", "1e-5"},
    {"rope_theta", "10000.0"},
};

static void put_config_all(const char *dir, const char *extra, const char *key, const char *value)
{
    FILE *f = open_in(dir, "config.json", "w");
    assert_non_null(f);
    fprintf(f, "{%s", extra);
    bool replaced = false, first = true;
    for (size_t i = 0; i < sizeof config_keys / sizeof *config_keys; i++) {
        const char *v = config_keys[i][1];
        if (key && strcmp(config_keys[i][0], key) == 0) {
            v = value;
            replaced = true;
        }
        if (!v)
            continue;
        fprintf(f, "%s\n  \"%s\": %s", first ? "" : ",", config_keys[i][0], v);
        first = false;
    }
    if (key && !replaced)
        fprintf(f, ",\n  \"%s\": %s", key, value);
    fprintf(f, "\n}\n");
    fclose(f);
}

void put_config(const char *dir, const char *extra)
{
    put_config_all(dir, extra, NULL, NULL);
}

void put_config_with(const char *dir, const char *key, const char *value)
{
    put_config_all(dir, "", key, value);
}

void put_config_without(const char *dir, const char *extra, const char *key)
{
    put_config_all(dir, extra, key, NULL);
}

void assert_matches(const char *text, const char *pattern)
{
    regex_t re;
    assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
    if (regexec(&re, text, 0, NULL, 0))
        fail_msg("\"%s\" does not match \"%s\"", text, pattern);
    regfree(&re);
}

void expect_refusal(const char *dir, bool weights, enum fail_code code, const char *pattern)
{
    struct hf_model *model = NULL;
    struct hst_error error = {0};
    struct timespec a, b;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    int rc = hf_model_open(dir, weights, &model, &error);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    if (rc >= 0)
        fail_msg("accepted, want refusal \"%s\"", pattern);
    assert_null(model);
    assert_int_equal(error.native, rc);
    if (error.code != (int)code)
        fail_msg("E%d %s, want E%d", error.code, error.message, (int)code);
    assert_matches(error.message, pattern);
    assert_matches(error.message, "[^.]\\. Fix: [a-z-]");
    assert_null(strpbrk(error.message, "\n\x1b"));
    assert_true(b.tv_sec - a.tv_sec < SECONDS);
}

struct hf_model *open_model(const char *dir, bool weights)
{
    struct hf_model *model = NULL;
    struct hst_error error = {0};
    if (hf_model_open(dir, weights, &model, &error))
        fail_msg("E%d %s", error.code, error.message);
    return model;
}
