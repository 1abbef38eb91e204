/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_HF_EXPORT_FOLD_H
#define HOISTWAY_TOOLS_HF_EXPORT_FOLD_H
/* Tensors whose names differ in numbers alone, and that have one shape and type, as one row. */
#include "hf/hf.h"

struct hf_fold_row {
    char *name; /* "model.layers.0..31.mlp.up_proj.weight"; with gaps: "0,..,31" */
    const char *dtype;
    uint32_t dim_count;
    const uint64_t *dims; /* both of the tensors */
    uint64_t count;       /* tensors */
    uint64_t bytes;       /* of all of them */
    size_t first;         /* of the tensors */
};

/**
 * The rows of tensors[count], each where its first one is. To be given to hf_fold_free; the
 * tensors outlive it. Errors: -ENOMEM.   Cost: that of sorting them.
 */
int hf_fold(const struct hf_look_tensor *tensors, size_t count, struct hf_fold_row **rows,
            size_t *row_count);
void hf_fold_free(struct hf_fold_row *rows, size_t count);
#endif
