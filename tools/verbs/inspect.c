/* SPDX-License-Identifier: Apache-2.0 */
/* hoistway inspect: tells what a path is by what is in it, and shows that. Writes nothing. */
#include "cli/json.h"
#include "cli/message.h"
#include "cli/text.h"
#include "data/files.h"
#include "hf/folder.h"
#include "hf/hf.h"
#include "verbs/ckpt.h"
#include "verbs/train.h"
#include "verbs/verbs.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct options {
    enum token_dtype token_dtype;
    bool json;
};

static const char *const token_dtypes[] = {"u16", "u32", NULL};

static const struct hst_option table[] = {
    {.name = "token-dtype",
     .group = "input",
     .type = HST_OPTION_CHOICE,
     .offset = offsetof(struct options, token_dtype),
     .argument = "TYPE",
     .default_text = "by the file's header",
     .choices = token_dtypes,
     .first_choice = TOKEN_U16,
     .help = "of token files without a header"},
    {.name = "json",
     .group = "output",
     .type = HST_OPTION_FLAG,
     .offset = offsetof(struct options, json),
     .help = "one JSON object"},
};

/* ---- what is there ---- */

enum kind { KIND_STORE, KIND_FORMING, KIND_STORE_FILE, KIND_MODEL, KIND_WEIGHTS, KIND_TOKENS };

static bool has(const char *directory, const char *name)
{
    char path[4096];
    return snprintf(path, sizeof path, "%s/%s", directory, name) < (int)sizeof path &&
           access(path, F_OK) == 0;
}

/* By its first bytes: a header's length and the brace that it begins with, or our own magic. */
static enum kind kind_of_file(const char *path)
{
    unsigned char first[9] = {0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const ssize_t got = fd < 0 ? -1 : pread(fd, first, sizeof first, 0);
    uint64_t header_bytes;
    if (fd >= 0)
        close(fd);
    memcpy(&header_bytes, first, sizeof header_bytes);
    if (got >= 8 && memcmp(first, "HSTSTORE", 8) == 0)
        return KIND_STORE_FILE;
    const size_t n = strlen(path);
    const bool named = n > 12 && strcmp(path + n - 12, ".safetensors") == 0;
    const bool looks = got == 9 && first[8] == '{' && le64toh(header_bytes) < UINT32_MAX;
    return named || looks ? KIND_WEIGHTS : KIND_TOKENS;
}

static int find_kind(const char *path, enum kind *kind, struct hst_error *error)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return fail(error, FAIL_DATA_FILE, -errno,
                    "%.250s can not be looked at: %s. Fix: check it.", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) {
        *kind = kind_of_file(path);
        return 0;
    }
    if (has(path, "r00000.d0.blk") || has(path, "reshard.unfinished"))
        *kind = KIND_STORE;
    else if (has(path, "r00000.d0.blk.new"))
        *kind = KIND_FORMING;
    else if (has(path, "config.json") || has(path, "model.safetensors") ||
             has(path, "model.safetensors.index.json"))
        *kind = KIND_MODEL;
    else
        return fail(error, FAIL_DATA_FILE, -EINVAL,
                    "%.250s holds neither a model (config.json, model.safetensors) nor a store "
                    "(r00000.d0.blk). Fix: name the directory that does.",
                    path);
    return 0;
}

/* ---- weights ---- */

static void format_dims(const struct hf_look_tensor *t, char text[192])
{
    size_t n = (size_t)snprintf(text, 192, "[");
    for (uint32_t d = 0; d < t->dim_count; d++)
        n += (size_t)snprintf(text + n, 192 - n, "%s%" PRIu64, d ? ", " : "", t->dims[d]);
    snprintf(text + n, 192 - n, "]");
}

static uint64_t elements_of(const struct hf_look_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->dim_count; d++)
        n *= t->dims[d];
    return n;
}

struct sum {
    uint64_t tensors, parameters, bytes;
};

static struct sum sum_of(const struct hf_model *model)
{
    struct hf_look_tensor t;
    struct sum sum = {0};
    for (; hf_look_tensor(model, sum.tensors, &t); sum.tensors++) {
        sum.parameters += elements_of(&t);
        sum.bytes += t.bytes;
    }
    return sum;
}

static void print_weights_json(const char *path, bool directory, const struct hf_model *model,
                               const struct llama_config *config)
{
    struct json_writer json = {.out = stdout};
    struct hf_look_tensor t;
    const struct sum sum = sum_of(model);
    json_put_object(&json, NULL);
    json_put_text(&json, "kind", directory ? "model" : "safetensors");
    json_put_text(&json, "path", path);
    json_put_whole(&json, "files", hf_look_files(model));
    json_put_whole(&json, "parameters", sum.parameters);
    json_put_whole(&json, "bytes", sum.bytes);
    if (directory)
        json_put_bool(&json, "trainable", config != NULL);
    if (config) {
        json_put_whole(&json, "layers", config->layers);
        json_put_whole(&json, "hidden", config->hidden);
        json_put_whole(&json, "vocab", config->vocab);
    }
    json_put_array(&json, "tensors");
    for (size_t i = 0; hf_look_tensor(model, i, &t); i++) {
        json_put_object(&json, NULL);
        json_put_text(&json, "name", t.name);
        json_put_text(&json, "dtype", t.dtype);
        json_put_array(&json, "shape");
        for (uint32_t d = 0; d < t.dim_count; d++)
            json_put_whole(&json, NULL, t.dims[d]);
        json_put_end(&json);
        json_put_whole(&json, "bytes", t.bytes);
        json_put_text(&json, "file", t.file);
        json_put_end(&json);
    }
    json_put_end(&json);
    json_put_end(&json);
    putchar('\n');
}

static void print_weights_text(const char *path, bool directory, const struct hf_model *model,
                               const struct llama_config *config, const char *why)
{
    char count[TEXT_BYTES], size[TEXT_BYTES], dims[192];
    struct hf_look_tensor t;
    struct hst_error name; /* for its escaping */
    const struct sum sum = sum_of(model);
    fail(&name, FAIL_USAGE, 0, "%s", path);
    printf("%s %s: %" PRIu64 " tensors, %s parameters, %s in %zu file%s\n",
           directory ? "model" : "safetensors file", name.message, sum.tensors,
           text_count((double)sum.parameters, count), text_size(sum.bytes, size),
           hf_look_files(model), hf_look_files(model) == 1 ? "" : "s");
    if (config)
        printf("  can be trained: %" PRIu32 " layers, hidden %" PRIu32 ", vocabulary %" PRIu32 "\n",
               config->layers, config->hidden, config->vocab);
    else if (directory)
        printf("  can not be trained: %s\n", why);
    for (size_t i = 0; hf_look_tensor(model, i, &t); i++) {
        format_dims(&t, dims);
        fail(&name, FAIL_USAGE, 0, "%s", t.name);
        printf("  %-8s %-20s %10s  %s\n", t.dtype, dims, text_size(t.bytes, size), name.message);
    }
}

static int inspect_weights(const char *path, bool directory, bool json, struct hst_error *error)
{
    struct hf_model *model = NULL, *trainable = NULL;
    struct hst_error why = {0};
    int native = hf_look_open(path, &model, error);
    if (native)
        return native;
    const bool can = directory && hf_model_open(path, true, &trainable, &why) == 0 &&
                     train_weights_check(trainable, &why) == 0;
    const struct llama_config *config = can ? hf_model_config(trainable) : NULL;
    if (json)
        print_weights_json(path, directory, model, config);
    else
        print_weights_text(path, directory, model, config, why.message);
    hf_model_close(&trainable);
    hf_model_close(&model);
    return 0;
}

/* ---- tokens ---- */

static int inspect_tokens(const char *path, const struct options *o, struct hst_error *error)
{
    const size_t n = strlen(path);
    const bool named_text = n > 4 && strcmp(path + n - 4, ".txt") == 0;
    const struct data_config config = {
        .files = path,
        .format = named_text ? DATA_FORMAT_AUTO : DATA_FORMAT_TOKENS,
        .token_dtype = o->token_dtype,
    };
    struct token_file file;
    int native = token_file_open(path, &config, &file, error);
    if (native == -ENOTSUP)
        return fail(
            error, FAIL_DATA_FILE, native,
            "%.250s is nothing that is known: by its first bytes neither safetensors nor "
            "llm.c tokens nor a file of a store, and not named .txt. Fix: --token-dtype u16 "
            "or u32 if it holds raw tokens; of a model or a store, name the directory.",
            path);
    if (native)
        fail_fix(error, "name another file, or make it again");
    if (native)
        return native;
    const bool text = file.format == DATA_FORMAT_BYTES;
    const char *dtype = text ? "bytes" : file.width == 4 ? "u32" : "u16";
    const char *header = file.data_offset > 0 ? "llm.c" : NULL;
    if (o->json) {
        struct json_writer json = {.out = stdout};
        json_put_object(&json, NULL);
        json_put_text(&json, "kind", text ? "text" : "tokens");
        json_put_text(&json, "path", path);
        json_put_text(&json, "dtype", dtype);
        json_put_text(&json, "header", header);
        json_put_whole(&json, "tokens", file.count);
        json_put_end(&json);
        putchar('\n');
    } else {
        struct hst_error name; /* for its escaping */
        fail(&name, FAIL_USAGE, 0, "%s", path);
        printf("%s %s: %" PRIu64 " tokens, %s%s\n", text ? "text" : "token file", name.message,
               file.count, dtype, header ? ", with a header of llm.c" : "");
    }
    token_file_close(&file);
    return 0;
}

/* ---- the verb ---- */

static int refuse_kind(const char *path, enum kind kind, struct hst_error *error)
{
    if (kind == KIND_FORMING)
        return fail(error, (enum fail_code)HST_E_STORE_EMPTY, -ENOENT,
                    "%.250s is a store in which no version was ever committed. Fix: none needed to "
                    "start at step 0.",
                    path);
    return fail(
        error, FAIL_DATA_FILE, -EINVAL,
        "%.250s is one file of a store. Fix: hoistway inspect the directories of the store.", path);
}

static int inspect(const struct cli_operands *operands, const struct options *o,
                   struct hst_error *error)
{
    char store[CKPT_STORE_BYTES], first[CKPT_STORE_BYTES];
    enum kind kind = KIND_TOKENS;
    int native = ckpt_store(operands, store, error);
    if (native)
        return native;
    snprintf(first, sizeof first, "%.*s", (int)strcspn(operands->values[0], ","),
             operands->values[0]);
    char *found = access(first, F_OK) ? folder_cached(first) : NULL;
    const char *path = found ? first : operands->values[0];
    if (found)
        snprintf(first, sizeof first, "%s", found);
    free(found);
    native = find_kind(first, &kind, error);
    if (native)
        return native;
    if (kind == KIND_STORE)
        return ckpt_list(store, o->json, error);
    if (operands->count > 1)
        return fail(error, FAIL_USAGE, -EINVAL,
                    "'%.100s' is no store, of which there may be several directories. Fix: one "
                    "path at a time.",
                    first);
    if (kind == KIND_FORMING || kind == KIND_STORE_FILE)
        return refuse_kind(first, kind, error);
    if (kind == KIND_TOKENS)
        return inspect_tokens(operands->values[0], o, error);
    return inspect_weights(path, kind == KIND_MODEL, o->json, error);
}

int verb_inspect(int argc, char **argv)
{
    struct options options = {.json = false};
    struct cli_operands operands = {.argument = "DIR|FILE..."};
    const struct cli_verb verb = {
        .name = "inspect",
        .about =
            "Tells what a safetensors file, a model directory, a token file or a store (all of "
            "its\ndirectories) holds. Writes nothing.",
        .sets = {{table, sizeof table / sizeof table[0], &options}},
        .set_count = 1,
        .operands = &operands,
    };
    struct hst_error error = {0};
    bool help;
    int native = cli_parse(&verb, argc, argv, &help, &error);
    if (native == 0 && help) {
        cli_help(&verb, stdout);
        return CLI_EXIT_OK;
    }
    native = native ? native : inspect(&operands, &options, &error);
    return native ? cli_fail(&error) : CLI_EXIT_OK;
}
