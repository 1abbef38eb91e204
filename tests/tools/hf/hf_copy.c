/* SPDX-License-Identifier: Apache-2.0 */
/* hf_copy SOURCE TARGET f32|bf16 SHARD_BYTES: exports every tensor. For check_export.py. */
#include "base/fail.h"
#include "hf/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PART = 1000 }; /* no divisor of anything */

static int copy_tensor(struct hf_model *model, struct hf_export *export, const struct st_tensor *t,
                       bool half, struct hst_error *error)
{
    uint64_t elements = 0;
    int rc = hf_model_require(model, t->name, t->dim_count, t->dims, error);
    st_elements(t->dims, t->dim_count, &elements);
    for (uint64_t at = 0; at < elements && !rc; at += PART) {
        float values[PART];
        uint16_t halves[PART];
        size_t n = elements - at < PART ? (size_t)(elements - at) : PART;
        rc = hf_model_read(model, t->name, at, values, n, error);
        for (size_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, values + i, 4);
            halves[i] = (uint16_t)(bits >> 16);
        }
        if (!rc)
            rc = hf_export_write(export, t->name, at, half ? (void *)halves : values, n, error);
    }
    return rc;
}

static int copy(struct hf_model *model, char **argv, struct hst_error *error)
{
    bool half = strcmp(argv[3], "bf16") == 0;
    struct hf_tensor *tensors = calloc(model->tensor_count + 1, sizeof *tensors);
    if (!tensors)
        return fail(error, FAIL_EXPORT, -1, "no memory");
    for (size_t i = 0; i < model->tensor_count; i++) {
        const struct st_tensor *t = model->by_name[i];
        tensors[i] = (struct hf_tensor){t->name, t->dim_count, t->dims};
    }
    const struct hf_export_desc desc = {argv[2],
                                        model,
                                        tensors,
                                        model->tensor_count,
                                        half ? HST_BF16 : HST_F32,
                                        strtoull(argv[4], NULL, 10)};
    struct hf_export *export = NULL;
    int rc = hf_export_begin(&desc, &export, error);
    for (size_t i = 0; i < model->tensor_count && !rc; i++)
        rc = copy_tensor(model, export, model->by_name[i], half, error);
    if (!rc)
        rc = hf_export_commit(&export, error);
    hf_export_abort(&export);
    free(tensors);
    return rc;
}

int main(int argc, char **argv)
{
    struct hst_error error = {0};
    struct hf_model *model = NULL;
    if (argc != 5)
        return 2;
    int rc = hf_model_open(argv[1], true, &model, &error);
    if (!rc)
        rc = copy(model, argv, &error);
    hf_model_close(&model);
    if (rc)
        fprintf(stderr, "E%d %s\n", error.code, error.message);
    return rc != 0;
}
