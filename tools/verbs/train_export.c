/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins the engine's writer with the files of an export. Check and write describe the same tensors,
 * so that what the check allows is what is written.
 */
#include "verbs/train_export.h"

#include "cli/message.h"
#include "fail.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define TELL_AGAIN_S 30

struct sink {
    struct train_export *export;
    struct hst_error *error;
    time_t told_s; /* that the disk is full; 0: not yet */
};

static bool is_stopped(const struct train_export *x)
{
    return x->stopped && *x->stopped;
}

/* What was trained is worth waiting for; the signal that ends the wait also ends the sleep. */
static void wait_for_room(struct sink *sink)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!sink->told_s || now.tv_sec - sink->told_s >= TELL_AGAIN_S) {
        cli_warn(CLI_ROOM, "the export waits for room, until there is some or a signal comes: %s",
                 sink->error->message);
        sink->told_s = now.tv_sec;
    }
    *sink->error = (struct hst_error){0};
    nanosleep(&pause, NULL);
}

static bool is_full(int native)
{
    return native == -ENOSPC || native == -EDQUOT;
}

static void count_written(struct train_export *x, size_t count)
{
    const uint64_t width = x->dtype == HST_F32 ? 4 : 2;
    x->written += count;
    progress_bytes(x->progress, x->written * width, x->elements * width);
}

static int write_tensor(void *context, const struct hst_param_ref *param, uint64_t offset,
                        const void *src, size_t count, enum hst_dtype dtype)
{
    struct sink *sink = context;
    struct train_export *x = sink->export;
    (void)dtype; /* the engine's, with which the export was begun */
    while (!is_stopped(x)) {
        int native = hf_export_write(x->files, param->name, offset, src, count, sink->error);
        if (!is_full(native) || !x->stopped) { /* where nobody could end the wait, there is none */
            count_written(x, count);
            return native;
        }
        wait_for_room(sink);
    }
    return -ECANCELED;
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

int train_export_begin(struct train_export *x, struct hst_error *error)
{
    struct hf_export_desc desc = {0};
    int native = describe(x, &desc, error);
    if (native)
        return native;
    native = hf_export_begin(&desc, &x->files, error);
    free((void *)desc.tensors);
    return native;
}

int train_export_write(struct train_export *x, train_save *save, void *from,
                       struct hst_error *error)
{
    struct sink sink = {.export = x, .error = error};
    const struct hst_writer writer = {.write = write_tensor, .context = &sink};
    int native;
    x->elements = llama_parameter_count(x->model);
    for (;;) {
        x->written = 0;
        progress_begin(x->progress, "exporting");
        native = save(from, &writer, error);
        if (native)
            break;
        progress_begin(x->progress, "exporting: what is written reaches the disk");
        native = hf_export_sync(x->files, error); /* some file systems find out here alone */
        if (!is_full(native) || !x->stopped || is_stopped(x))
            break;
        wait_for_room(&sink);
    }
    if (native)
        train_export_end(x);
    return native ? native : hf_export_commit(&x->files, error);
}

int train_export_save_engine(void *from, const struct hst_writer *writer, struct hst_error *error)
{
    (void)error; /* the engine keeps its own */
    return hst_engine_save(from, writer);
}

void train_export_end(struct train_export *x)
{
    hf_export_abort(&x->files);
}
