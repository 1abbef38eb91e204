/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins the engine's writer with the files of an export. Check and write describe the same tensors,
 * so that what the check allows is what is written.
 */
#include "verbs/train/export.h"

#include "base/fail.h"
#include "cli/message/message.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TELL_AGAIN_S 30
#define PART         32768u /* elements that are rounded at once */

struct sink {
    struct train_export *export;
    const struct hst_cpu_adam_ops *ops;
    struct hst_error *error;
    time_t told_s; /* that the disk is full; 0: not yet */
};

static bool is_stopped(const struct train_export *x)
{
    return x->stopped && *x->stopped;
}

/* A trained model is worth waiting for; the signal that ends the wait also ends the sleep. */
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

static void count_infinite(struct train_export *x, const char *name, const uint16_t *values,
                           size_t count)
{
    const uint64_t found = export_infinite(values, x->dtype, count);
    if (found && !x->infinite_count)
        snprintf(x->infinite_tensor, sizeof x->infinite_tensor, "%s", name);
    x->infinite_count += found;
}

/* Values of the files' type. */
static int write_part(struct sink *sink, const struct hst_param_ref *param, uint64_t offset,
                      const void *src, size_t count)
{
    struct train_export *x = sink->export;
    if (x->dtype != HST_F32)
        count_infinite(x, param->name, src, count);
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

static int write_tensor(void *context, const struct hst_param_ref *param, uint64_t offset,
                        const void *src, size_t count, enum hst_dtype dtype)
{
    struct sink *sink = context;
    const enum hst_dtype wanted = sink->export->dtype;
    uint16_t rounded[PART];
    if (dtype == wanted)
        return write_part(sink, param, offset, src, count);
    int native = 0;
    for (size_t at = 0; at < count && !native; at += PART) {
        const size_t n = count - at < PART ? count - at : PART;
        export_round(sink->ops, (const float *)src + at, wanted, rounded,
                     n); /* only masters differ */
        native = write_part(sink, param, offset + at, rounded, n);
    }
    return native;
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
    struct sink sink = {.export = x, .ops = hst_cpu_adam_ops(HST_CPU_ISA_AUTO), .error = error};
    const struct hst_writer writer = {.write = write_tensor, .context = &sink};
    int native;
    x->elements = llama_parameter_count(x->model);
    for (;;) {
        x->written = 0;
        x->infinite_count = 0;
        progress_begin(x->progress, "exporting");
        native = save(from, x->dtype != x->working, &writer, error);
        if (native)
            break;
        progress_begin(x->progress, "exporting: what is written reaches the disk");
        native = hf_export_sync(x->files, error); /* some file systems find out here alone */
        if (!is_full(native) || !x->stopped)
            break;
        if (is_stopped(x)) { /* the wait has ended, not the room */
            native = -ECANCELED;
            break;
        }
        wait_for_room(&sink);
    }
    if (native)
        train_export_end(x);
    return native ? native : hf_export_commit(&x->files, error);
}

int train_export_save_engine(void *from, bool masters, const struct hst_writer *writer,
                             struct hst_error *error)
{
    (void)error; /* the engine keeps its own */
    return masters ? hst_engine_save_masters(from, writer) : hst_engine_save(from, writer);
}

static int write_nothing(void *context, const struct hst_param_ref *param, uint64_t offset,
                         const void *src, size_t count, enum hst_dtype dtype)
{
    (void)context, (void)param, (void)offset, (void)src, (void)count, (void)dtype;
    return -EPROTO; /* the engine writes on rank 0 alone */
}

int train_export_follow(const struct train_export *x, train_save *save, void *from)
{
    const struct hst_writer writer = {.write = write_nothing};
    return save(from, x->dtype != x->working, &writer, NULL);
}

void train_export_warn(const struct train_export *x)
{
    const bool one = x->infinite_count == 1;
    if (x->infinite_count)
        cli_warn(CLI_EXPORT, "%" PRIu64 " weight%s infinite in the export, %s %.100s: %s. Fix: %s.",
                 x->infinite_count, one ? " is" : "s are", one ? "in" : "the first in",
                 x->infinite_tensor, x->dtype == HST_F16 ? "fp16 ends at 65504" : "bf16 ends there",
                 x->dtype == HST_F16 ? "--export-dtype bf16 or fp32" : "--export-dtype fp32");
}

void train_export_tell_rounded(const struct train_export *x)
{
    if (x->dtype != HST_F32)
        printf("exported %s; --export-dtype fp32 gives the exact master\n",
               export_dtype_name(x->dtype));
}

void train_export_end(struct train_export *x)
{
    hf_export_abort(&x->files);
}
