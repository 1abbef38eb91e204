/* SPDX-License-Identifier: Apache-2.0 */
/* Weights as files: what is in them, whether a model of that kind can be trained or not. */
#include "base/fail.h"
#include "hf/model.h"

#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A path's directory, opened; the path's last part is put into *name, to be freed. */
static int open_directory(struct hf_model *model, const char *path, bool directory, char **name,
                          struct hst_error *error)
{
    char *head = strdup(path), *tail = strdup(path);
    *name = tail ? strdup(basename(tail)) : NULL;
    model->directory = head ? strdup(directory ? head : dirname(head)) : NULL;
    const bool memory = *name && model->directory;
    free(head);
    free(tail);
    if (!memory)
        return fail(error, FAIL_SAFETENSORS, -ENOMEM, "no memory");
    int rc = folder_open(model->directory, &model->folder);
    return rc ? fail(error, FAIL_READ, rc, "%s cannot be opened: %s", model->directory,
                     strerrordesc_np(-rc))
              : 0;
}

int hf_look_open(const char *path, struct hf_model **model, struct hst_error *error)
{
    struct stat st;
    char *name = NULL;
    struct hf_model *m = calloc(1, sizeof *m);
    if (!m)
        return hf_fix(error, fail(error, FAIL_SAFETENSORS, -ENOMEM, "no memory"));
    m->folder = FOLDER_NONE;
    const bool directory = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    int rc = open_directory(m, path, directory, &name, error);
    if (!rc)
        rc = directory ? hf_weights_find(m, error) : hf_weights_open_file(m, name, error);
    free(name);
    if (rc)
        hf_model_close(&m);
    else
        *model = m;
    return hf_fix(error, rc);
}

bool hf_look_tensor(const struct hf_model *model, size_t i, struct hf_look_tensor *tensor)
{
    if (i >= model->tensor_count)
        return false;
    const struct st_tensor *t = model->by_name[i];
    *tensor = (struct hf_look_tensor){
        .name = t->name,
        .dtype = t->dtype->name,
        .file = model->files[t->file].path,
        .dim_count = t->dim_count,
        .dims = t->dims,
        .bytes = t->end - t->begin,
    };
    return true;
}

size_t hf_look_files(const struct hf_model *model)
{
    return model->file_count;
}
