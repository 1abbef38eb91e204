/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the weights of a model directory: model.safetensors, else the files of the index, as
 * transformers does. Index and files must tell the same story about every tensor.
 */
#include "hf/index.h"
#include "hf/model.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The code under which a file's own faults are told. */
static int open_file(struct hf_model *model, const char *name, enum fail_code code,
                     struct hf_file *file, struct hst_error *error)
{
    file->path = hf_path(model, name);
    if (!file->path)
        return fail(error, code, -ENOMEM, "no memory");
    int rc = folder_input(&model->folder, name, &file->input);
    if (rc)
        return fail(error, code, rc, "%s: %s", file->path, input_why(rc));
    unsigned char first[8] = {0};
    uint64_t bytes = file->input.size_bytes, header_bytes;
    rc = input_read(&file->input, 0, first, bytes < 8 ? bytes : 8);
    if (rc)
        return fail(error, FAIL_READ, rc, "%s: cannot be read: %s", file->path, input_why(rc));
    rc = st_header_bytes(file->path, first, bytes, &header_bytes, error);
    if (rc)
        return rc;
    file->text = malloc(header_bytes + 1);
    if (!file->text)
        return fail(error, FAIL_SAFETENSORS, -ENOMEM, "%s: no memory for its header", file->path);
    rc = input_read(&file->input, 8, file->text, header_bytes);
    if (rc)
        return fail(error, FAIL_READ, rc, "%s: cannot be read: %s", file->path, input_why(rc));
    file->text[header_bytes] = '\0';
    file->data_offset = 8 + header_bytes;
    return st_parse(file->path, file->text, header_bytes, bytes - file->data_offset,
                    ST_MAX_TENSORS - model->tensor_count, &file->header, error);
}

static int open_files(struct hf_model *model, char *const *names, uint32_t count,
                      enum fail_code code, struct hst_error *error)
{
    model->files = calloc(count + 1u, sizeof *model->files);
    if (!model->files)
        return fail(error, code, -ENOMEM, "no memory");
    for (uint32_t i = 0; i < count; i++) {
        struct hf_file *file = &model->files[i];
        file->input.fd = -1;
        model->file_count = i + 1;
        int rc = open_file(model, names[i], code, file, error);
        if (rc)
            return rc;
        model->tensor_count += file->header.count;
        for (size_t j = 0; j < file->header.count; j++)
            file->header.tensors[j].file = i;
    }
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(struct st_tensor *const *)a)->name, (*(struct st_tensor *const *)b)->name);
}

static int sort_tensors(struct hf_model *model, struct hst_error *error)
{
    model->by_name = malloc((model->tensor_count + 1) * sizeof *model->by_name);
    if (!model->by_name)
        return fail(error, FAIL_SAFETENSORS, -ENOMEM, "%s: no memory", model->directory);
    size_t n = 0;
    for (uint32_t i = 0; i < model->file_count; i++)
        for (size_t j = 0; j < model->files[i].header.count; j++)
            model->by_name[n++] = &model->files[i].header.tensors[j];
    qsort(model->by_name, n, sizeof *model->by_name, compare_names);
    for (size_t i = 1; i < n; i++)
        if (compare_names(&model->by_name[i - 1], &model->by_name[i]) == 0)
            return fail(error, FAIL_INDEX, -EBADMSG, "%s: tensor %.80s is also in %s",
                        model->files[model->by_name[i]->file].path, model->by_name[i]->name,
                        model->files[model->by_name[i - 1]->file].path);
    return 0;
}

/* Both sorted by name: walked side by side. */
static int compare_with_index(struct hf_model *model, const char *path, const struct index *index,
                              struct hst_error *error)
{
    size_t i = 0;
    uint64_t total = 0;
    for (size_t j = 0; j < index->count || i < model->tensor_count;) {
        const struct st_tensor *t = i < model->tensor_count ? model->by_name[i] : NULL;
        const struct index_entry *e = j < index->count ? &index->entries[j] : NULL;
        assert(t || e);
        int order = !t ? 1 : !e ? -1 : strcmp(t->name, e->name);
        if (order < 0)
            return fail(error, FAIL_INDEX, -EBADMSG, "%s: tensor %.80s is not in the index",
                        model->files[t->file].path, t->name);
        if (order > 0)
            return fail(error, FAIL_INDEX, -EBADMSG,
                        "%s: tensor %.80s is listed, but %s does not have it", path, e->name,
                        e->file_name);
        if (t->file != e->file)
            return fail(error, FAIL_INDEX, -EBADMSG,
                        "%s: tensor %.80s is listed in %s, but it is in %s", path, e->name,
                        e->file_name, model->files[t->file].path);
        total += t->end - t->begin;
        i++;
        j++;
    }
    if (index->has_total && index->total_bytes != total)
        hf_note(model, FAIL_INDEX, true,
                "%s: total_size is %llu, the tensors have %llu bytes; going on with what is there.",
                path, (unsigned long long)index->total_bytes, (unsigned long long)total);
    return 0;
}

static int open_sharded(struct hf_model *model, const char *path, struct hst_error *error)
{
    struct input input;
    char *text = NULL;
    struct index index = {0};
    int rc = folder_input(&model->folder, "model.safetensors.index.json", &input);
    if (rc == -ENOENT)
        return fail(error, FAIL_SAFETENSORS, rc,
                    "%s: no weights: neither model.safetensors nor "
                    "model.safetensors.index.json. Fix: save weights in .bin files as "
                    "safetensors; train --init random needs none",
                    model->directory);
    if (rc)
        return fail(error, FAIL_INDEX, rc, "%s: %s", path, input_why(rc));
    rc = input_read_all(&input, INDEX_MAX_BYTES, &text);
    input_close(&input);
    if (rc)
        return fail(error, FAIL_INDEX, rc, "%s: cannot be read: %s", path,
                    rc == -EFBIG ? "more than 100000000 bytes" : input_why(rc));
    rc = index_parse(path, text, input.size_bytes, &index, error);
    if (!rc)
        rc = open_files(model, index.files, index.file_count, FAIL_INDEX, error);
    if (!rc)
        rc = sort_tensors(model, error);
    if (!rc)
        rc = compare_with_index(model, path, &index, error);
    index_free(&index);
    free(text);
    return rc;
}

static bool is_vocabulary(const struct llama_config *config, const struct st_tensor *t)
{
    return t->dim_count == 2 && t->dims[0] == config->vocab && t->dims[1] == config->hidden;
}

/* Tied embeddings are one tensor: a head that is also there must hold the same numbers. */
static int check_tied(struct hf_model *model, struct hst_error *error)
{
    struct st_tensor *head = hf_tensor_find(model, "lm_head.weight");
    const struct st_tensor *embedding = hf_tensor_find(model, "model.embed_tokens.weight");
    if (!model->config.tied_embeddings || !head || !embedding)
        return 0;
    const char *path = model->files[head->file].path;
    bool same = head->dim_count == embedding->dim_count &&
                memcmp(head->dims, embedding->dims, sizeof head->dims) == 0;
    if (!hf_tensor_readable(head) || !hf_tensor_readable(embedding) ||
        !is_vocabulary(&model->config, embedding))
        return 0; /* hf_model_require tells it */
    enum { PART = 1 << 16 };
    float *a = malloc(2 * PART * sizeof *a);
    if (!a)
        return fail(error, FAIL_TENSOR, -ENOMEM, "%s: no memory", path);
    uint64_t elements = 0;
    st_elements(head->dims, head->dim_count, &elements);
    int rc = 0;
    for (uint64_t at = 0; same && !rc && at < elements; at += PART) {
        size_t n = elements - at < PART ? (size_t)(elements - at) : PART;
        rc = hf_tensor_read(model, head, at, a, n, error);
        if (!rc)
            rc = hf_tensor_read(model, embedding, at, a + PART, n, error);
        same = !rc && memcmp(a, a + PART, n * sizeof *a) == 0;
    }
    free(a);
    if (rc)
        return rc;
    if (!same)
        return fail(error, FAIL_TENSOR, -EBADMSG,
                    "%s: tie_word_embeddings is true, but lm_head.weight differs from "
                    "model.embed_tokens.weight. Fix: set tie_word_embeddings to false, or remove "
                    "lm_head.weight",
                    path);
    head->required = true;
    return 0;
}

static void note_dtype(struct hf_model *model)
{
    const char *in_config = strcmp(model->dtype, "float32") == 0    ? "F32"
                            : strcmp(model->dtype, "bfloat16") == 0 ? "BF16"
                            : strcmp(model->dtype, "float16") == 0  ? "F16"
                                                                    : NULL;
    for (size_t i = 0; in_config && i < model->tensor_count; i++) {
        const struct st_tensor *t = model->by_name[i];
        if (!hf_tensor_readable(t) || strcmp(t->dtype->name, in_config) == 0)
            continue;
        hf_note(model, FAIL_TENSOR, false,
                "config.json says %s, tensor %.80s is %s: it is converted.", model->dtype, t->name,
                t->dtype->name);
        return;
    }
}

int hf_weights_open_file(struct hf_model *model, char *name, struct hst_error *error)
{
    char *const names[] = {name};
    int rc = open_files(model, names, 1, FAIL_SAFETENSORS, error);
    return rc ? rc : sort_tensors(model, error);
}

int hf_weights_find(struct hf_model *model, struct hst_error *error)
{
    char single[] = "model.safetensors";
    if (faccessat(model->folder.fd, single, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return hf_weights_open_file(model, single, error);
    char *path = hf_path(model, "model.safetensors.index.json");
    int rc = path ? open_sharded(model, path, error)
                  : fail(error, FAIL_SAFETENSORS, -ENOMEM, "no memory");
    free(path);
    return rc;
}

int hf_weights_open(struct hf_model *model, struct hst_error *error)
{
    int rc = hf_weights_find(model, error);
    if (!rc)
        rc = check_tied(model, error);
    if (!rc)
        note_dtype(model);
    return rc;
}

void hf_weights_close(struct hf_model *model)
{
    for (uint32_t i = 0; i < model->file_count; i++) {
        input_close(&model->files[i].input);
        st_header_free(&model->files[i].header);
        free(model->files[i].text);
        free(model->files[i].path);
    }
    free(model->files);
    free(model->by_name);
}
