/* SPDX-License-Identifier: Apache-2.0 */
/* A model's directory or a file of weights: what is in it, what a run would make of it. */
#include "base/text.h"
#include "cli/log/json.h"
#include "cli/options/device.h"
#include "hf/export/fold.h"
#include "hf/hf.h"
#include "verbs/inspect/inspect.h"
#include "verbs/train/train.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct look {
    const char *path;
    bool directory, exported;
    struct hf_model *files;     /* null: a config.json alone */
    struct hf_model *trainable; /* null: it cannot be trained */
    const char *why;            /* then */
    struct device_choice device;
    struct hf_look_tensor *tensors;
    uint64_t count, parameters, bytes;
};

static bool has(const char *directory, const char *name)
{
    char path[4096];
    return snprintf(path, sizeof path, "%s/%s", directory, name) < (int)sizeof path &&
           access(path, F_OK) == 0;
}

static uint64_t elements_of(const struct hf_look_tensor *t)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->dim_count; d++)
        n *= t->dims[d];
    return n;
}

static int read_tensors(struct look *look, struct hst_error *error)
{
    struct hf_look_tensor t;
    while (look->files && hf_look_tensor(look->files, look->count, &t))
        look->count++;
    look->tensors = calloc(look->count + 1, sizeof *look->tensors);
    if (!look->tensors)
        return fail(error, FAIL_BUDGET, -ENOMEM, "no memory. Fix: end other programs.");
    for (size_t i = 0; i < look->count; i++) {
        (void)hf_look_tensor(look->files, i, &look->tensors[i]);
        look->parameters += elements_of(&look->tensors[i]);
        look->bytes += look->tensors[i].bytes;
    }
    return 0;
}

/* ---- what a run would do ---- */

static const char *precision_of(const struct look *look)
{
    return look->device.gpu ? "bf16" : "fp32"; /* the defaults of --precision */
}

static const char *export_of(const struct look *look)
{
    return export_dtype_name(
        export_dtype(EXPORT_MODEL, look->trainable, look->device.gpu ? HST_BF16 : HST_F32));
}

/* ---- JSON ---- */

static void put_tensor(struct json_writer *json, const struct hf_look_tensor *t)
{
    json_put_object(json, NULL);
    json_put_text(json, "name", t->name);
    json_put_text(json, "dtype", t->dtype);
    json_put_array(json, "shape");
    for (uint32_t d = 0; d < t->dim_count; d++)
        json_put_whole(json, NULL, t->dims[d]);
    json_put_end(json);
    json_put_whole(json, "bytes", t->bytes);
    json_put_text(json, "file", t->file);
    json_put_end(json);
}

static void print_json(const struct look *look)
{
    struct json_writer json = {.out = stdout};
    json_put_object(&json, NULL);
    json_put_text(&json, "kind", look->directory ? "model" : "safetensors");
    json_put_text(&json, "path", look->path);
    json_put_whole(&json, "files", look->files ? hf_look_files(look->files) : 0);
    json_put_whole(&json, "parameters", look->parameters);
    json_put_whole(&json, "bytes", look->bytes);
    if (look->directory) {
        json_put_bool(&json, "exported", look->exported);
        json_put_bool(&json, "trainable", look->trainable != NULL);
    }
    if (look->trainable) {
        const struct llama_config *config = hf_model_config(look->trainable);
        json_put_whole(&json, "layers", config->layers);
        json_put_whole(&json, "hidden", config->hidden);
        json_put_whole(&json, "vocab", config->vocab);
        json_put_text(&json, "device", look->device.name);
        json_put_text(&json, "precision", precision_of(look));
        json_put_text(&json, "export_dtype", export_of(look));
    }
    json_put_array(&json, "tensors");
    for (size_t i = 0; i < look->count; i++)
        put_tensor(&json, &look->tensors[i]);
    json_put_end(&json);
    json_put_end(&json);
    putchar('\n');
}

/* ---- text ---- */

#define ROW_BYTES 256u

static void format_dims(uint32_t count, const uint64_t *dims, char text[192])
{
    size_t n = (size_t)snprintf(text, 192, "[");
    for (uint32_t d = 0; d < count; d++)
        n += (size_t)snprintf(text + n, 192 - n, "%s%" PRIu64, d ? ", " : "", dims[d]);
    snprintf(text + n, 192 - n, "]");
}

/* "layers.0..31.mlp.up_proj" of "model.layers.0..31.mlp.up_proj.weight": what all have in common
 * says nothing. Cut to so many columns. */
static const char *short_name(const char *name, size_t columns, struct hst_error *line)
{
    char *text = line->message;
    if (strncmp(name, "model.", 6) == 0 && name[6])
        name += 6;
    screen_name(name, line);
    size_t n = strlen(text);
    if (n > 7 && strcmp(text + n - 7, ".weight") == 0)
        text[n -= 7] = '\0';
    if (n > columns)
        strcpy(text + columns - 2, "..");
    return text;
}

/* It writes what stands behind a row's name. */
static void format_row(const struct hf_fold_row *row, char text[ROW_BYTES])
{
    char dims[192], times[32] = "", size[TEXT_BYTES];
    format_dims(row->dim_count, row->dims, dims);
    if (row->count > 1)
        snprintf(times, sizeof times, "%" PRIu64 " × ", row->count);
    snprintf(text, ROW_BYTES, "%s%.160s %s, %s", times, dims, row->dtype,
             text_size(row->bytes, size));
}

static void print_rows(struct screen *screen, const struct hf_fold_row *rows, size_t count,
                       const struct inspect_options *options)
{
    const size_t room = SCREEN_COLUMNS - 4;
    char text[ROW_BYTES];
    struct hst_error line;
    size_t name = 0, rest = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t n = strlen(short_name(rows[i].name, sizeof line.message, &line));
        format_row(&rows[i], text);
        name = n > name ? n : name;
        rest = strlen(text) > rest ? strlen(text) : rest;
    }
    if (name + rest > room)
        name = rest + 20 < room ? room - rest : 20;
    const unsigned left = screen_left(screen, options);
    const size_t shown = count <= left ? count : left ? left - 1 : 0;
    for (size_t i = 0; i < shown; i++) {
        format_row(&rows[i], text);
        screen_say(screen, "  %-*s  %s", (int)name, short_name(rows[i].name, name, &line), text);
    }
    if (shown < count)
        screen_say(screen, "  and %zu more like these; --all tells every tensor", count - shown);
}

static int print_tensors(struct screen *screen, const struct look *look,
                         const struct inspect_options *options, struct hst_error *error)
{
    struct hf_fold_row *rows;
    size_t count;
    if (hf_fold(look->tensors, look->count, &rows, &count))
        return fail(error, FAIL_BUDGET, -ENOMEM, "no memory. Fix: end other programs.");
    print_rows(screen, rows, count, options);
    hf_fold_free(rows, count);
    return 0;
}

static void print_every_tensor(const struct look *look)
{
    char dims[192], size[TEXT_BYTES];
    struct hst_error line;
    for (size_t i = 0; i < look->count; i++) {
        const struct hf_look_tensor *t = &look->tensors[i];
        format_dims(t->dim_count, t->dims, dims);
        printf("  %-8s %-20s %10s  %s\n", t->dtype, dims, text_size(t->bytes, size),
               screen_name(t->name, &line));
    }
}

static void say_files(struct screen *screen, const struct look *look)
{
    char count[TEXT_BYTES], size[TEXT_BYTES];
    const size_t files = look->files ? hf_look_files(look->files) : 0;
    if (!look->files)
        screen_say(screen, "  config.json alone, no weights%s",
                   look->trainable ? ": plan needs no more, and train --init random begins with "
                                     "random ones"
                                   : "");
    else
        screen_say(screen, "  %" PRIu64 " tensor%s, %s parameter%s, %s in %zu file%s%s",
                   look->count, text_s(look->count), text_count((double)look->parameters, count),
                   text_s(look->parameters), text_size(look->bytes, size), files, text_s(files),
                   look->exported ? ", exported by hoistway" : "");
}

static void say_training(struct screen *screen, const struct look *look)
{
    if (look->trainable) {
        const struct llama_config *config = hf_model_config(look->trainable);
        screen_say(screen,
                   "  can be trained: %" PRIu32 " layer%s, hidden %" PRIu32 ", vocabulary %" PRIu32,
                   config->layers, text_s(config->layers), config->hidden, config->vocab);
        screen_say(screen, "  would train in %s, the default on %s, and be exported in %s",
                   precision_of(look), look->device.name, export_of(look));
    } else if (look->directory) {
        screen_say(screen, "  cannot be trained: %s", look->why);
    }
}

static int print_text(const struct look *look, const struct inspect_options *options,
                      struct hst_error *error)
{
    struct screen screen = {0};
    struct hst_error line;
    screen_say(&screen, "%s %s", look->directory ? "model" : "safetensors file",
               screen_name(look->path, &line));
    say_files(&screen, look);
    say_training(&screen, look);
    if (!options->all)
        return print_tensors(&screen, look, options, error);
    print_every_tensor(look);
    return 0;
}

/* ---- the whole ---- */

/* It tells whether it can be trained, from weights or without any. */
static void try_training(struct look *look, struct hst_error *why)
{
    const bool weights = look->files != NULL;
    look->why = why->message;
    if (hf_model_open(look->path, weights, &look->trainable, why) == 0 && weights &&
        train_weights_check(look->trainable, why))
        hf_model_close(&look->trainable);
    if (look->trainable)
        device_choose(NULL, 0, &look->device);
}

int inspect_weights(const char *path, bool directory, const struct inspect_options *options,
                    struct hst_error *error)
{
    struct look look = {.path = path, .directory = directory};
    struct hst_error why = {0};
    const bool bare =
        directory && !has(path, "model.safetensors") && !has(path, "model.safetensors.index.json");
    int native = bare ? 0 : hf_look_open(path, &look.files, error);
    if (native)
        return native;
    look.exported = directory && has(path, "export.hoistway");
    if (directory)
        try_training(&look, &why);
    native = read_tensors(&look, error);
    if (!native && options->json)
        print_json(&look);
    else if (!native)
        native = print_text(&look, options, error);
    free(look.tensors);
    hf_model_close(&look.trainable);
    hf_model_close(&look.files);
    return native;
}
