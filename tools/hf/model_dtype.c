/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what type a model comes in. config.json goes first: it is what transformers loads the
 * model as, and it is there without weights, too.
 */
#include "hf/model.h"

#include <string.h>

static const struct {
    enum hst_dtype dtype;
    const char *in_config, *in_files;
} types[] = {
    {HST_F32, "float32", "F32"},
    {HST_BF16, "bfloat16", "BF16"},
    {HST_F16, "float16", "F16"},
};
enum { TYPES = sizeof types / sizeof types[0] };

/* It takes the first one of types with as many elements. */
static bool dtype_of_files(const struct hf_model *model, enum hst_dtype *dtype)
{
    uint64_t bytes[TYPES] = {0};
    int most = 0;
    for (size_t i = 0; i < model->tensor_count; i++)
        for (int t = 0; t < TYPES; t++)
            if (strcmp(model->by_name[i]->dtype->name, types[t].in_files) == 0)
                bytes[t] += (model->by_name[i]->end - model->by_name[i]->begin) * (t ? 2 : 1);
    for (int t = 1; t < TYPES; t++)
        most = bytes[t] > bytes[most] ? t : most;
    if (bytes[most] == 0)
        return false;
    *dtype = types[most].dtype;
    return true;
}

bool hf_model_dtype(const struct hf_model *model, enum hst_dtype *dtype)
{
    struct hf_model *files = NULL;
    for (int t = 0; t < TYPES; t++)
        if (strcmp(model->dtype, types[t].in_config) == 0) {
            *dtype = types[t].dtype;
            return true;
        }
    if (model->tensor_count)
        return dtype_of_files(model, dtype);
    if (hf_look_open(model->directory, &files, NULL))
        return false;
    const bool told = dtype_of_files(files, dtype);
    hf_model_close(&files);
    return told;
}

const char *hf_model_tensor_type(const struct hf_model *model, const char *name)
{
    const struct st_tensor *tensor = hf_tensor_find(model, name);
    return tensor ? tensor->dtype->name : NULL;
}
