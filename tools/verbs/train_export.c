/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins the engine's writer with the files of an export. Check and write describe the same tensors,
 * so that what the check allows is what is written.
 */
#include "verbs/train_export.h"

#include "fail.h"

#include <errno.h>
#include <stdlib.h>

struct sink {
    struct hf_export *files;
    const volatile sig_atomic_t *stopped;
    struct hst_error *error;
};

static int write_tensor(void *context, const struct hst_param_ref *param, uint64_t offset,
                        const void *src, size_t count, enum hst_dtype dtype)
{
    struct sink *sink = context;
    (void)dtype; /* the engine's, with which the export was begun */
    if (sink->stopped && *sink->stopped)
        return -ECANCELED;
    return hf_export_write(sink->files, param->name, offset, src, count, sink->error);
}

/* The caller frees desc->tensors. */
static int describe(const struct train_export *x, struct hf_export_desc *desc,
                    struct hst_error *error)
{
    const struct llama_tensor *from;
    size_t count = 0;
    while (llama_tensor(x->model, count))
        count++;
    struct hf_tensor *tensors = calloc(count, sizeof *tensors);
    if (!tensors)
        return fail(error, FAIL_BUDGET, -ENOMEM,
                    "no memory for the list of %zu tensors. Fix: end other programs.", count);
    for (size_t i = 0; i < count; i++) {
        from = llama_tensor(x->model, i);
        tensors[i] = (struct hf_tensor){from->name, from->dim_count, from->dims};
    }
    *desc = (struct hf_export_desc){
        .directory = x->directory,
        .model = x->source,
        .tensors = tensors,
        .tensor_count = count,
        .dtype = x->dtype,
    };
    return 0;
}

int train_export_check(const struct train_export *x, struct hst_error *error)
{
    struct hf_export_desc desc = {0};
    int native = describe(x, &desc, error);
    if (native)
        return native;
    native = hf_export_check(&desc, error);
    free((void *)desc.tensors);
    return native;
}

static int save_engine(void *from, const struct hst_writer *writer, struct hst_error *error)
{
    (void)error; /* the engine keeps its own */
    return hst_engine_save(from, writer);
}

int train_export_write(const struct train_export *x, struct hst_engine *engine,
                       struct hst_error *error)
{
    return train_export_from(x, save_engine, engine, error);
}

int train_export_from(const struct train_export *x, train_save *save, void *from,
                      struct hst_error *error)
{
    struct sink sink = {.stopped = x->stopped, .error = error};
    struct hf_export_desc desc = {0};
    int native = describe(x, &desc, error);
    if (native)
        return native;
    native = hf_export_begin(&desc, &sink.files, error);
    free((void *)desc.tensors);
    if (native)
        return native;
    const struct hst_writer writer = {.write = write_tensor, .context = &sink};
    native = save(from, &writer, error);
    if (native)
        hf_export_abort(&sink.files);
    return native ? native : hf_export_commit(&sink.files, error);
}
