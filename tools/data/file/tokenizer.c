/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whether a token file was made with the model's tokenizer: the same tokenizer.json, or
 * else one that gives texts the same ids. Other ids that happen to be in range would train noise
 * without a word.
 */
#include "data/file/tokenizer.h"

#include "base/fail.h"
#include "data/file/tensors.h"
#include "hf/folder.h"
#include "hf/tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (UINT64_C(256) << 20)
#define FIX        "Fix: make it with this model's own tokenizer, or --allow-other-tokenizer"

/* This is what the file says of its tokenizer: hexadecimal, or empty. */
struct named {
    char sha256[TOKENIZER_HEX], identity[TOKENIZER_HEX];
};

static struct named named_by(const struct token_tensors *tensors)
{
    static const char *const keys[] = {"tokenizer_sha256", "tokenizer_identity"};
    const struct jsn_value m = tensors->metadata;
    struct jsn_value values[2] = {0};
    struct named named = {0};
    if (m.type != JSN_OBJECT)
        return named;
    jsn_members(tensors->text + m.begin, m.end - m.begin, keys, 2, values);
    jsn_get_text(tensors->text + m.begin, values[0], named.sha256, sizeof named.sha256);
    jsn_get_text(tensors->text + m.begin, values[1], named.identity, sizeof named.identity);
    return named;
}

static void sha256_of(const char *text, size_t size, char hex[TOKENIZER_HEX])
{
    struct sha256 hash;
    unsigned char digest[SHA256_BYTES];
    sha256_begin(&hash);
    sha256_add(&hash, text, size);
    sha256_end(&hash, digest);
    sha256_hex(digest, hex);
}

/* The model's tokenizer.json, ended by NUL. -ENOENT: it has none. */
static int read_own(const char *model, char **text, size_t *size)
{
    struct folder folder;
    struct input input;
    char *path = folder_find(model);
    int rc = path ? folder_open(path, &folder) : -ENOMEM;
    free(path);
    if (rc)
        return rc;
    rc = folder_input(&folder, "tokenizer.json", &input);
    folder_close(&folder);
    if (rc)
        return rc;
    *size = (size_t)input.size_bytes;
    rc = input_read_all(&input, MOST_BYTES, text);
    input_close(&input);
    return rc;
}

int token_file_check_tokenizer(const struct token_file *file, const struct data_config *config,
                               struct hst_error *error)
{
    const struct named named = named_by(file->tensors);
    char sha256[TOKENIZER_HEX], identity[TOKENIZER_HEX] = "", *text = NULL;
    size_t size = 0;
    if (!config->model || (!named.sha256[0] && !named.identity[0]))
        return 0;
    int rc = read_own(config->model, &text, &size);
    if (rc == -ENOENT || rc == -ENOTDIR)
        return 0;
    if (!rc) {
        sha256_of(text, size, sha256);
        if (strcmp(sha256, named.sha256) != 0)
            rc = tokenizer_identity(text, size, identity);
    }
    free(text);
    if (rc)
        return fail(error, FAIL_TOKENIZER, rc,
                    "%s: it names its tokenizer, and tokenizer.json of '%.200s' cannot be "
                    "compared with it (%s). Fix: download it again, or --allow-other-tokenizer",
                    file->path, config->model, strerror(-rc));
    if (strcmp(sha256, named.sha256) == 0 || strcmp(identity, named.identity) == 0)
        return 0;
    return fail(error, FAIL_TOKENIZER, -EINVAL,
                "%s: its tokenizer is not that of '%.200s': %s. " FIX, file->path, config->model,
                named.identity[0] ? "the ids, merges, added tokens, normaliser or pre-tokeniser "
                                    "differ"
                                  : "it was made with another tokenizer.json");
}
