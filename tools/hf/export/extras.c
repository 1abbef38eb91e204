/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which files go with a model's weights into an export: what it takes to turn text into
 * tokens and back, and what its licence asks to be passed on with it. They are opened with the
 * model, so that the end of a long run does not need its directory any more.
 */
#include "base/utf8.h"
#include "hf/model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_EXTRA_BYTES (256ull << 20)
#define MAX_TEMPLATES   64u

static const char extra_fix[] = "download that file again, or remove it";

static const char *const names[] = {
    "LICENSE",
    "LICENSE.md",
    "LICENSE.txt",
    "NOTICE",
    "NOTICE.txt",
    "USE_POLICY.md",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
};
enum { NAMES = sizeof names / sizeof names[0] };

bool hf_extra_is_known(const char *name)
{
    for (int i = 0; i < NAMES; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

bool hf_template_is_known(const char *name)
{
    const size_t n = strlen(name);
    return n > 6 && strcmp(name + n - 6, ".jinja") == 0 && utf8_all_shown(name, n);
}

static int take(struct hf_model *model, const char *name, const struct input *input,
                struct hst_error *error)
{
    char *copy = strdup(name);
    struct hf_extra *more =
        copy ? realloc(model->extras, (model->extra_count + 1) * sizeof *more) : NULL;
    if (!more) {
        free(copy);
        close(input->fd);
        return fail(error, FAIL_CONFIG_FILE, -ENOMEM, "no memory");
    }
    model->extras = more;
    model->extras[model->extra_count++] = (struct hf_extra){copy, *input};
    if (input->size_bytes > MAX_EXTRA_BYTES)
        return fail(error, FAIL_CONFIG_FILE, -EFBIG,
                    "%s/%s: %llu bytes, at most %llu allowed. Fix: %s", model->directory, name,
                    (unsigned long long)input->size_bytes, MAX_EXTRA_BYTES, extra_fix);
    return 0;
}

/* A link to nothing, as of a download that broke off: the model has that file, but not here. */
static bool is_dangling(const struct hf_model *model, const char *name)
{
    struct stat st;
    return fstatat(model->folder.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Missing ones, and ones that are no regular files of the directory, are left out. */
static int open_one(struct hf_model *model, const char *name, struct hst_error *error)
{
    struct input input;
    int rc = folder_input(&model->folder, name, &input);
    if (rc == -EINVAL || rc == -EXDEV || rc == -ELOOP)
        return 0;
    if (rc == -ENOENT && !is_dangling(model, name))
        return 0;
    if (rc) {
        fail(error, FAIL_CONFIG_FILE, rc, "%s/%s: %s", model->directory, name, input_why(rc));
        fail_fix(error, extra_fix);
        return rc;
    }
    return take(model, name, &input, error);
}

/* ---- templates ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Their paths in the model's directory. The caller frees [*count], also after an error. */
static int list_templates(const struct hf_model *model, char *paths[MAX_TEMPLATES], size_t *count,
                          struct hst_error *error)
{
    int fd =
        openat(model->folder.fd, HF_TEMPLATES, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return 0; /* most models have none; a link to elsewhere is not followed */
    }
    int rc = 0;
    for (struct dirent *d; !rc && (d = readdir(dir));) {
        if (!hf_template_is_known(d->d_name))
            continue;
        if (*count == MAX_TEMPLATES)
            rc = fail(error, FAIL_CONFIG_FILE, -EFBIG,
                      "%s/%s: more than %u templates, at most that many allowed. Fix: remove some",
                      model->directory, HF_TEMPLATES, MAX_TEMPLATES);
        else if (asprintf(&paths[*count], "%s/%s", HF_TEMPLATES, d->d_name) < 0)
            rc = fail(error, FAIL_CONFIG_FILE, -ENOMEM, "no memory");
        else
            ++*count;
    }
    closedir(dir);
    return rc;
}

static int open_templates(struct hf_model *model, struct hst_error *error)
{
    char *paths[MAX_TEMPLATES];
    size_t count = 0;
    int rc = list_templates(model, paths, &count, error);
    qsort(paths, count, sizeof *paths, compare_names); /* directories have no order */
    for (size_t i = 0; i < count; i++) {
        rc = rc ? rc : open_one(model, paths[i], error);
        free(paths[i]);
    }
    return rc;
}

int hf_extras_open(struct hf_model *model, struct hst_error *error)
{
    int rc = 0;
    for (int i = 0; i < NAMES && !rc; i++)
        rc = open_one(model, names[i], error);
    return rc ? rc : open_templates(model, error);
}

void hf_extras_close(struct hf_model *model)
{
    for (size_t i = 0; i < model->extra_count; i++) {
        input_close(&model->extras[i].input);
        free(model->extras[i].name);
    }
    free(model->extras);
}
