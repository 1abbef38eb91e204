/* SPDX-License-Identifier: Apache-2.0 */
/* Data files: what they hold, and which rows their documents would fill. */
#include "base/text.h"
#include "cli/log/json.h"
#include "data/batch.h"
#include "data/file/tensors.h"
#include "data/packed.h"
#include "verbs/inspect/inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct look {
    const char *path;
    const struct inspect_options *options;
    struct token_file file;
    struct pack pack; /* where options->seq_len is not 0 */
    struct data_packing packing;
    struct data_batch batch; /* of one row, where options->row is not 0 */
    uint8_t *learned;        /* its columns: has each a target? One may be DATA_NO_TARGET itself */
};

static bool ends_in(const char *path, const char *suffix)
{
    const size_t n = strlen(path), s = strlen(suffix);
    return n > s && strcmp(path + n - s, suffix) == 0;
}

bool inspect_has_tokens(const char *path)
{
    char *name = strdup(path);
    struct token_file file = {.fd = open(path, O_RDONLY | O_CLOEXEC), .path = name};
    struct stat st;
    bool named = false;
    if (name && file.fd >= 0 && fstat(file.fd, &st) == 0) {
        file.size_bytes = (uint64_t)st.st_size;
        named = token_tensors_named(&file);
    }
    token_file_close(&file);
    return named;
}

int inspect_check_packing(const struct inspect_options *o, struct hst_error *error)
{
    if (o->seq_len || (!o->pack && !o->longer && !o->row))
        return 0;
    return fail(error, FAIL_VALUE, -EINVAL,
                "--%s says how documents become rows, and not how long rows are. Fix: --seq-len N.",
                o->pack     ? "pack"
                : o->longer ? "long"
                            : "row");
}

/* ---- what is there ---- */

static int open_file(struct look *look, struct hst_error *error)
{
    const bool named = ends_in(look->path, ".txt") || ends_in(look->path, ".jsonl");
    const struct data_config config = {
        .files = look->path,
        .format = named ? DATA_FORMAT_AUTO : DATA_FORMAT_TOKENS,
        .token_dtype = look->options->token_dtype,
    };
    int native = token_file_open(look->path, &config, &look->file, error);
    if (native == -ENOTSUP)
        return fail(
            error, FAIL_DATA_FILE, native,
            "%.250s is nothing that is known: by its first bytes no safetensors, llm.c tokens, "
            "file "
            "of a store, log, trace, rates or result of nvme-bench, and not named .txt or .jsonl. "
            "Fix: "
            "--token-dtype u16 or u32 if it holds raw tokens; of a model or a store, name the "
            "directory.",
            look->path);
    if (native)
        fail_fix(error, "name another file, or make it again");
    return native;
}

static int pack_file(struct look *look, struct hst_error *error)
{
    const struct inspect_options *o = look->options;
    const struct data_config config = {.files = look->path, .pack = o->pack, .longer = o->longer};
    uint64_t seq_len = o->seq_len;
    return seq_len ? data_pack_files((struct token_files){&look->file, 1}, &config, &seq_len,
                                     &look->pack, &look->packing, error)
                   : 0;
}

static int read_learned(struct look *look, struct hst_error *error)
{
    size_t count;
    const struct pack_piece *pieces = pack_row(&look->pack, look->options->row - 1, &count);
    int native = 0;
    for (size_t i = 0; i < count && !native; i++)
        native = token_file_learned(&look->file, pieces[i].first + 1, pieces[i].count,
                                    look->learned + pieces[i].column, error);
    return native;
}

/* It reads all that a model would get of the row that is asked for. */
static int read_row(struct look *look, struct hst_error *error)
{
    const struct inspect_options *o = look->options;
    if (!o->row)
        return 0;
    if (o->row > look->pack.row_count)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--row %" PRIu64 ", and there are %" PRIu64 ". Fix: a smaller one.", o->row,
                    look->pack.row_count);
    uint32_t *all = calloc(o->seq_len, 4 * sizeof *all);
    void *buffer = malloc(TOKEN_BUFFER_BYTES);
    look->batch = (struct data_batch){.inputs = all};
    look->learned = calloc(o->seq_len, 1);
    if (!all || !buffer || !look->learned) {
        free(buffer);
        return fail(error, FAIL_BUDGET, -ENOMEM, "no memory. Fix: end other programs.");
    }
    look->batch.targets = all + o->seq_len;
    look->batch.first = all + 2 * o->seq_len;
    look->batch.position = all + 3 * o->seq_len;
    int native = data_row_read((struct token_files){&look->file, 1}, &look->pack, o->row - 1,
                               (uint32_t)o->seq_len, UINT64_MAX, buffer, &look->batch, error);
    free(buffer);
    return native ? native : read_learned(look, error);
}

static double fill_of(const struct look *look)
{
    const double room = (double)look->pack.row_count * (double)look->options->seq_len;
    return room > 0 ? (double)look->pack.input_count / room : 0;
}

static const char *dtype_of(const struct token_file *file)
{
    return file->format == DATA_FORMAT_BYTES ? "bytes"
           : file->rows                      ? "numbers"
           : file->width == 4                ? "u32"
                                             : "u16";
}

/* It returns what says that it is tokens. */
static const char *header_of(const struct token_file *file)
{
    return file->tensors                                    ? "safetensors"
           : file->rows                                     ? "jsonl"
           : file->llmq                                     ? "llmq"
           : file->raw || file->format == DATA_FORMAT_BYTES ? NULL
                                                            : "llm.c";
}

/* Each pair of the metadata; null behind the last one. */
struct pairs {
    struct jsn_reader reader;
    char *key, *value; /* owned */
};

static struct pairs pairs_of(const struct token_tensors *tensors)
{
    const struct jsn_value m = tensors->metadata;
    struct pairs pairs = {.reader = jsn_reader(tensors->text + m.begin, m.end - m.begin)};
    jsn_next(&pairs.reader);
    return pairs;
}

static char *unescaped(const struct jsn_reader *r, struct jsn_value v)
{
    char *text = malloc(v.end - v.begin + 1);
    if (text)
        jsn_unescape(r->text + v.begin, v.end - v.begin, text);
    return text;
}

static bool pairs_next(struct pairs *p)
{
    const struct jsn_value key = jsn_next(&p->reader);
    free(p->key);
    free(p->value);
    p->key = p->value = NULL;
    if (key.type != JSN_KEY)
        return false;
    p->key = unescaped(&p->reader, key);
    p->value = unescaped(&p->reader, jsn_next(&p->reader));
    return p->key && p->value;
}

/* ---- JSON ---- */

static void put_pairs(struct json_writer *json, const struct token_tensors *tensors)
{
    json_put_object(json, "metadata");
    for (struct pairs pairs = pairs_of(tensors); pairs_next(&pairs);)
        json_put_text(json, pairs.key, pairs.value);
    json_put_end(json);
}

static void put_packing(struct json_writer *json, const struct look *look)
{
    json_put_object(json, "packing");
    json_put_whole(json, "seq_len", look->options->seq_len);
    json_put_whole(json, "rows", look->pack.row_count);
    json_put_real(json, "fill", fill_of(look));
    json_put_whole(json, "pieces", look->pack.piece_count);
    json_put_whole(json, "long_documents", look->pack.long_count);
    json_put_whole(json, "lost_inputs", look->pack.lost_count);
    json_put_whole(json, "idle_rows", look->packing.idle_count);
    json_put_end(json);
}

static void put_numbers(struct json_writer *json, const char *key, const uint32_t *numbers,
                        uint64_t count)
{
    json_put_array(json, key);
    for (uint64_t i = 0; i < count; i++)
        json_put_whole(json, NULL, numbers[i]);
    json_put_end(json);
}

static void put_targets(struct json_writer *json, const struct look *look)
{
    json_put_array(json, "targets");
    for (uint64_t i = 0; i < look->options->seq_len; i++) {
        if (look->learned[i])
            json_put_whole(json, NULL, look->batch.targets[i]);
        else
            json_put_null(json, NULL);
    }
    json_put_end(json);
}

static void put_row(struct json_writer *json, const struct look *look)
{
    const struct inspect_options *o = look->options;
    json_put_object(json, "row");
    put_numbers(json, "inputs", look->batch.inputs, o->seq_len);
    put_targets(json, look);
    put_numbers(json, "first", look->batch.first, o->seq_len);
    put_numbers(json, "position", look->batch.position, o->seq_len);
    json_put_end(json);
}

static void print_json(const struct look *look)
{
    const struct token_file *file = &look->file;
    const struct token_documents *d = &file->documents;
    struct json_writer json = {.out = stdout};
    json_put_object(&json, NULL);
    json_put_text(&json, "kind", file->format == DATA_FORMAT_BYTES ? "text" : "tokens");
    json_put_text(&json, "path", look->path);
    json_put_text(&json, "dtype", dtype_of(file));
    json_put_text(&json, "header", header_of(file));
    json_put_whole(&json, "tokens", file->count);
    if (file->tensors || file->rows || file->llmq) {
        json_put_whole(&json, "documents", d->count);
        json_put_whole(&json, "longest", d->longest);
        json_put_bool(&json, "masked", d->masked);
        json_put_whole(&json, "targets", d->target_count);
        json_put_whole(&json, "learned", d->target_count - d->hidden_count);
    }
    if (file->tensors)
        put_pairs(&json, file->tensors);
    if (look->options->seq_len)
        put_packing(&json, look);
    if (look->options->row)
        put_row(&json, look);
    json_put_end(&json);
    putchar('\n');
}

/* ---- text ---- */

static void say_documents(struct screen *screen, const struct token_documents *d)
{
    const uint64_t learned = d->target_count - d->hidden_count;
    if (d->count)
        screen_say(screen, "  %" PRIu64 " document%s, the longest of %" PRIu64 " tokens", d->count,
                   text_s(d->count), d->longest);
    if (d->masked)
        screen_say(screen, "  a mask: %" PRIu64 " of %" PRIu64 " targets are learned, %.1f %%",
                   learned, d->target_count,
                   d->target_count ? 100.0 * (double)learned / (double)d->target_count : 0.0);
}

static void say_tensors(struct screen *screen, const struct token_tensors *tensors)
{
    const struct token_tensor *bytes = &tensors->parts[TOKEN_PART_BYTE_OFFSETS];
    const struct token_tensor *prompts = &tensors->parts[TOKEN_PART_PROMPT_OFFSETS];
    struct hst_error key, value;
    if (bytes->width)
        screen_say(screen, "  what %" PRIu64 " ids stand for", bytes->count - 1);
    if (prompts->width)
        screen_say(screen, "  %" PRIu64 " prompt%s", prompts->count - 1,
                   text_s(prompts->count - 1));
    for (struct pairs pairs = pairs_of(tensors); pairs_next(&pairs);)
        screen_say(screen, "  %.30s: %.300s", screen_name(pairs.key, &key),
                   screen_name(pairs.value, &value));
}

static void say_packing(struct screen *screen, const struct look *look)
{
    const struct pack *pack = &look->pack;
    screen_say(screen, "  %s rows of %" PRIu64 ": %" PRIu64 ", %.2f %% full",
               look->options->pack == DATA_PACK_OFF ? "one document a row," : "packed into",
               look->options->seq_len, pack->row_count, 100 * fill_of(look));
    if (pack->long_count && look->file.documents.count)
        screen_say(screen, "  %" PRIu64 " of the documents %s longer: %" PRIu64 " input%s left out",
                   pack->long_count, pack->long_count == 1 ? "is" : "are", pack->lost_count,
                   text_s(pack->lost_count));
    if (look->packing.idle_count)
        screen_say(screen, "  %" PRIu64 " more row%s no target: train leaves %s out",
                   look->packing.idle_count, look->packing.idle_count == 1 ? " has" : "s have",
                   look->packing.idle_count == 1 ? "it" : "them");
}

static void say_row(struct screen *screen, const struct look *look)
{
    size_t count;
    const uint64_t row = look->options->row;
    const struct pack_piece *pieces = pack_row(&look->pack, row - 1, &count);
    const unsigned left = screen_left(screen, look->options);
    const size_t shown = count < left ? count : left > 1 ? left - 2 : 0;
    screen_say(screen, "  row %" PRIu64 ": %zu piece%s", row, count, text_s(count));
    for (size_t i = 0; i < shown; i++) {
        const struct pack_piece *p = &pieces[i];
        uint32_t learned = 0;
        for (uint32_t k = 0; k < p->count; k++)
            learned += look->learned[p->column + k] != 0;
        screen_say(screen,
                   "    document %" PRIu32 ", %" PRIu32 " inputs from token %" PRIu64
                   " on in column %" PRIu32 ", %" PRIu32 " learned",
                   p->document, p->count, p->first, p->column, learned);
    }
    if (shown < count)
        screen_say(screen, "    and %zu more; --all tells them", count - shown);
}

static void print_text(const struct look *look)
{
    const struct token_file *file = &look->file;
    const char *header = header_of(file);
    struct screen screen = {0};
    struct hst_error name;
    screen_say(&screen, "%s %s: %" PRIu64 " token%s, %s%s%s",
               file->format == DATA_FORMAT_BYTES ? "text" : "token file",
               screen_name(look->path, &name), file->count, text_s(file->count), dtype_of(file),
               !header         ? ""
               : file->tensors ? " in "
               : file->rows    ? " in rows of "
                               : ", with a header of ",
               file->rows ? "JSON"
               : header   ? header
                          : "");
    say_documents(&screen, &file->documents);
    if (file->tensors)
        say_tensors(&screen, file->tensors);
    if (look->options->seq_len)
        say_packing(&screen, look);
    if (look->options->row)
        say_row(&screen, look);
}

int inspect_tokens(const char *path, const struct inspect_options *options, struct hst_error *error)
{
    struct look look = {.path = path, .options = options};
    int native = open_file(&look, error);
    if (native)
        return native;
    native = pack_file(&look, error);
    native = native ? native : read_row(&look, error);
    if (!native && options->json)
        print_json(&look);
    else if (!native)
        print_text(&look);
    pack_free(&look.pack);
    free(look.batch.inputs);
    free(look.learned);
    token_file_close(&look.file);
    return native;
}
