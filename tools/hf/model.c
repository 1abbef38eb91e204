/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a model directory. Every file that will be needed, now or for the export at the end of a
 * long run, is opened and checked here and stays open: what happens to the directory later cannot
 * end the run.
 */
#include "hf/model.h"

#include "hf/config/config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *hf_model_tokenizer(const struct hf_model *model)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "vocab.json"};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++)
        for (size_t i = 0; i < model->extra_count; i++)
            if (strcmp(model->extras[i].name, names[n]) == 0)
                return names[n];
    return NULL;
}

char *hf_path(const struct hf_model *model, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", model->directory, name) < 0 ? NULL : path;
}

void hf_note(struct hf_model *model, enum fail_code code, bool warning, const char *format, ...)
{
    if (model->note_count == HF_MAX_NOTES)
        return;
    struct hf_note *note = &model->notes[model->note_count++];
    struct hst_error line; /* for its escaping */
    va_list args;
    va_start(args, format);
    vsnprintf(note->text, sizeof note->text, format, args);
    va_end(args);
    fail(&line, code, 0, "%s", note->text);
    snprintf(note->text, sizeof note->text, "%.255s", line.message);
    note->code = (int)code;
    note->warning = warning;
}

const struct hf_note *hf_model_note(const struct hf_model *model, size_t i)
{
    return i < model->note_count ? &model->notes[i] : NULL;
}

#define NAME_DIRECTORY "name the directory that holds the model's config.json"

static int read_config(struct hf_model *model, const char *path, struct hst_error *error)
{
    struct input input;
    int rc = folder_input(&model->folder, "config.json", &input);
    if (rc == -ENOENT)
        return fail(error, FAIL_CONFIG_FILE, rc, "%s: %s. Fix: " NAME_DIRECTORY, path,
                    input_why(rc));
    if (rc)
        return fail(error, FAIL_CONFIG_FILE, rc, "%s: %s", path, input_why(rc));
    rc = input_read_all(&input, CONFIG_MAX_BYTES, &model->config_text);
    model->config_bytes = input.size_bytes;
    input_close(&input);
    if (rc == -EFBIG)
        return fail(error, FAIL_CONFIG_FILE, rc, "%s: %zu bytes, at most %u allowed", path,
                    model->config_bytes, CONFIG_MAX_BYTES);
    if (rc)
        return fail(error, FAIL_CONFIG_FILE, rc, "%s: cannot be read: %s", path, input_why(rc));
    return config_parse(path, model->config_text, model->config_bytes, &model->config, model->dtype,
                        error);
}

static int not_there(const char *directory, int rc, struct hst_error *error)
{
    char *cache = rc == -ENOENT ? folder_cache_of(directory) : NULL;
    const char *fix = cache ? "download it there, or set HF_HOME to where it is"
                      : rc == -ENOENT || rc == -ENOTDIR ? NAME_DIRECTORY
                                                        : "let this user read it";
    fail(error, FAIL_CONFIG_FILE, rc,
         "%.200s: not a model directory that can be read: %s%s%.200s%s", directory,
         strerrordesc_np(-rc),
         cache ? ", nor a model of that name in the Hugging Face cache '" : "", cache ? cache : "",
         cache ? "'" : "");
    fail_fix(error, fix);
    free(cache);
    return rc;
}

static int open_model(struct hf_model *model, bool need_weights, struct hst_error *error)
{
    int rc = folder_open(model->directory, &model->folder);
    if (rc)
        return not_there(model->directory, rc, error);
    char *path = hf_path(model, "config.json");
    if (!path)
        return fail(error, FAIL_CONFIG_FILE, -ENOMEM, "no memory");
    rc = read_config(model, path, error);
    free(path);
    if (!rc)
        rc = hf_extras_open(model, error);
    if (!rc && need_weights)
        rc = hf_weights_open(model, error);
    return rc;
}

int hf_fix(struct hst_error *error, int native)
{
    static const char *const fixes[] = {
        [FAIL_READ] = "leave the model's files alone, see dmesg for their drive, start again",
        [FAIL_WRITE] = "see dmesg for the drive, or give another --export",
        [FAIL_DISK_SPACE] = "free some space, or export to another disk",
        [FAIL_SAFETENSORS] = "download the file again, or save the model with save_pretrained",
        [FAIL_INDEX] = "download the whole directory again, or save the model with save_pretrained",
        [FAIL_CONFIG_FILE] = "correct config.json, or name a directory that holds one",
        [FAIL_CONFIG_VALUE] = "correct it in config.json, or download that file again",
        [FAIL_ARCHITECTURE] = "use a model that README.md lists",
        [FAIL_TENSOR] = "use weights and config.json of one model, saved with save_pretrained",
        [FAIL_EXPORT] = "give another --export",
    };
    size_t code = error && native ? (size_t)error->code : 0;
    if (native == -ENOMEM)
        fail_fix(error, "end other programs");
    else if (code < sizeof fixes / sizeof fixes[0] && fixes[code])
        fail_fix(error, fixes[code]);
    return native;
}

int hf_model_open(const char *directory, bool need_weights, struct hf_model **model,
                  struct hst_error *error)
{
    struct hf_model *m = calloc(1, sizeof *m);
    if (!m)
        return hf_fix(error, fail(error, FAIL_CONFIG_FILE, -ENOMEM, "no memory"));
    m->folder = FOLDER_NONE;
    m->directory = folder_find(directory);
    int rc = m->directory ? open_model(m, need_weights, error)
                          : fail(error, FAIL_CONFIG_FILE, -ENOMEM, "no memory");
    if (rc)
        hf_model_close(&m);
    else
        *model = m;
    return hf_fix(error, rc);
}

void hf_model_close(struct hf_model **model)
{
    struct hf_model *m = *model;
    if (!m)
        return;
    hf_weights_close(m);
    hf_extras_close(m);
    folder_close(&m->folder);
    free(m->config_text);
    free(m->directory);
    free(m);
    *model = NULL;
}

const struct llama_config *hf_model_config(const struct hf_model *model)
{
    return &model->config;
}
