/* SPDX-License-Identifier: Apache-2.0 */
/* A store as text and as JSON: its last version and the kept ones, none of which is written to. */
#include "base/text.h"
#include "cli/log/json.h"
#include "cli/message/message.h"
#include "verbs/ckpt/ckpt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_MAX     1024u
#define REPLICAS_MAX 1024u

struct replicas {
    size_t count;
    uint32_t numbers[REPLICAS_MAX]; /* rising */
};

struct row {
    struct hst_ckpt *ckpt; /* null: it cannot be opened */
    struct hst_ckpt_info info;
    uint64_t step; /* HST_NO_VERSION: that of a last version that cannot be opened */
    bool kept;
    struct replicas *without; /* they have no copy of it, and others do; null: there are none */
    struct hst_error error;
};

/* ---- what a version says of the data, in the words of `train` ---- */

/* The rest of a line of text[bytes]: key "seq-len ". Null: there is none. */
static const char *find(const char *text, size_t bytes, const char *key, size_t *length)
{
    const char *end = text + bytes;
    const size_t n = strlen(key);
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        stop = stop ? stop : end;
        if ((size_t)(stop - text) >= n && memcmp(text, key, n) == 0) {
            *length = (size_t)(stop - text) - n;
            return text + n;
        }
        text = stop + 1;
    }
    return NULL;
}

static uint64_t number(const char *text, size_t bytes, const char *key)
{
    size_t length;
    const char *value = find(text, bytes, key, &length);
    uint64_t n = 0;
    for (size_t i = 0; value && i < length && i < 18 && value[i] >= '0' && value[i] <= '9'; i++)
        n = 10 * n + (uint64_t)(value[i] - '0');
    return n;
}

/* It counts the sequences that were trained on, and those of a pass; 0: not a run of `train`. */
struct position {
    uint64_t sequences, of_pass;
};

static struct position position_of(const struct hst_ckpt_info *info)
{
    const uint64_t seq_len = number(info->cursor, info->cursor_bytes, "seq-len ");
    const uint64_t tokens = number(info->cursor, info->cursor_bytes, "tokens ");
    const uint64_t batch = number(info->settings, strlen(info->settings), "batch-tokens ");
    uint64_t rows = number(info->cursor, info->cursor_bytes, "rows "); /* of documents */
    if (rows == 0 && seq_len > 0 && tokens > 0)
        rows = (tokens - 1) / seq_len;
    if (rows == 0 || seq_len == 0)
        return (struct position){0};
    return (struct position){info->step * (batch / seq_len), rows};
}

/* The digest of the model's tensors, of a line "parameters 134592 (digest 0123456789abcdef)". */
static void model_of(const struct hst_ckpt_info *info, char text[24])
{
    size_t length;
    const char *value = find(info->settings, strlen(info->settings), "parameters ", &length);
    if (!value || sscanf(value, "%*u (digest %16[0-9a-f])", text) != 1)
        snprintf(text, 24, "?");
}

/* ---- rows ---- */

/* Files of a copy are there, and those of some ranks are missing. */
static bool is_in_part(const struct row *row)
{
    return row->without ||
           (row->kept && row->error.code == HST_E_STORE_MIXED && row->error.native == -ENODATA);
}

static const char *state_of(const struct row *row)
{
    return is_in_part(row)            ? "not on all ranks"
           : !row->ckpt               ? "damaged"
           : row->info.in_use         ? "in use"
           : row->info.stepped_back   ? "newest damaged"
           : row->info.damaged_copies ? "damaged copies"
           : row->info.clean          ? "clean"
                                      : "not closed";
}

static int open_row(const struct ckpt_source *source, uint64_t step, struct row *row)
{
    *row = (struct row){.step = step, .kept = step != HST_NO_VERSION};
    const int native = ckpt_source_version(source, step, false, &row->ckpt, &row->error);
    if (native)
        return native;
    hst_ckpt_info(row->ckpt, &row->info);
    row->step = row->info.step;
    return 0;
}

static bool has_number(const struct replicas *replicas, uint32_t number)
{
    bool found = false;
    for (size_t i = 0; i < replicas->count; i++)
        found = found || replicas->numbers[i] == number;
    return found;
}

static int find_replicas(const struct ckpt_source *source, uint64_t step, struct replicas *replicas,
                         struct hst_error *error)
{
    const int native = ckpt_source_replicas(source, step, replicas->numbers, REPLICAS_MAX,
                                            &replicas->count, error);
    replicas->count = replicas->count < REPLICAS_MAX ? replicas->count : REPLICAS_MAX;
    return native;
}

/* all: the store's replicas, but number 0, which has the copy where `first`. */
static int find_without(const struct ckpt_source *source, const struct replicas *all, bool first,
                        struct row *row, struct hst_error *error)
{
    struct replicas have = {.count = 0}, without = {.count = first ? 0 : 1};
    const int native = find_replicas(source, row->step, &have, error);
    for (size_t i = 0; i < all->count && without.count < REPLICAS_MAX && native == 0; i++)
        if (!has_number(&have, all->numbers[i]))
            without.numbers[without.count++] = all->numbers[i];
    if (native || without.count == 0)
        return native;
    row->without = malloc(sizeof without);
    if (!row->without)
        return fail(error, FAIL_BUDGET, -ENOMEM, "no memory. Fix: end other programs.");
    *row->without = without;
    return 0;
}

static const char *precision_name(const struct hst_ckpt_info *info)
{
    return info->precision == HST_PRECISION_FP32   ? "fp32"
           : info->precision == HST_PRECISION_BF16 ? "bf16"
                                                   : "fp16";
}

/* As part of a line: what is no letter in it is escaped. */
static const char *on_a_line(const char *text, struct hst_error *line)
{
    fail(line, FAIL_USAGE, 0, "%s", text);
    return line->message;
}

/* "replicas 0, 2 have none", as part of a line. */
static void name_without(const struct replicas *without, char *text, size_t bytes)
{
    size_t n = (size_t)snprintf(text, bytes, "replica%s", text_s(without->count));
    for (size_t i = 0; i < without->count && n < bytes; i++)
        n +=
            (size_t)snprintf(text + n, bytes - n, "%s %" PRIu32, i ? "," : "", without->numbers[i]);
    if (n < bytes)
        snprintf(text + n, bytes - n, " %s none", without->count == 1 ? "has" : "have");
}

static void print_unread(const struct row *row)
{
    char step[24], without[200];
    struct hst_error line;
    snprintf(step, sizeof step, "%" PRIu64, row->step);
    if (row->without)
        name_without(row->without, without, sizeof without);
    printf("%8s  %-9s  %s: %s\n", row->step == HST_NO_VERSION ? "?" : step,
           row->kept ? "kept" : "committed", state_of(row),
           row->without ? without : on_a_line(row->error.message, &line));
}

static void print_row(const struct row *row)
{
    char bytes[TEXT_BYTES], model[24], data[64] = "-", without[200] = "";
    const struct hst_ckpt_info *i = &row->info;
    if (!row->ckpt) {
        print_unread(row);
        return;
    }
    if (row->without)
        name_without(row->without, without, sizeof without);
    const struct position p = position_of(i);
    if (p.of_pass > 0)
        snprintf(data, sizeof data, "%" PRIu64 " of %" PRIu64, p.sequences, p.of_pass);
    model_of(i, model);
    printf("%8" PRIu64 "  %-9s  %9s  %17s  %-16s  %s%s%s\n", i->step,
           row->kept ? "kept" : "committed", text_size(i->weights_bytes + i->states_bytes, bytes),
           data, model, state_of(row), row->without ? ": " : "", without);
}

/* The first row is the last version's; behind it kept ones, the newest of them last. */
static void print_rows(const struct row *rows, size_t count, size_t most)
{
    print_row(&rows[0]);
    const size_t left_out = count > most ? count - (most - 1) : 0;
    if (left_out)
        printf("%zu older version%s kept, too: hoistway ckpt list\n", left_out,
               left_out == 1 ? " is" : "s are");
    for (size_t r = 1 + left_out; r < count; r++)
        print_row(&rows[r]);
}

static void print_text(const char *store, const struct row *rows, size_t count, size_t most)
{
    char size[TEXT_BYTES], elements[TEXT_BYTES];
    struct hst_error line;
    const struct hst_ckpt_info *i = &rows[0].info;
    store = on_a_line(store, &line);
    if (rows[0].ckpt)
        printf("store %s: %s elements in %s, %" PRIu32 " rank%s, %" PRIu32
               " drive%s, %s of files\n",
               store, text_count((double)i->elements, elements), precision_name(i), i->world,
               text_s(i->world), i->drives, text_s(i->drives), text_size(i->file_bytes, size));
    else
        printf("store %s\n", store);
    printf("%8s  %-9s  %9s  %17s  %-16s  %s\n", "step", "version", "bytes", "sequences trained",
           "model", "state");
    print_rows(rows, count, most);
}

static void put_row(struct json_writer *json, const struct row *row)
{
    char model[24];
    const struct hst_ckpt_info *i = &row->info;
    json_put_object(json, NULL);
    if (row->step == HST_NO_VERSION)
        json_put_null(json, "step");
    else
        json_put_whole(json, "step", row->step);
    json_put_text(json, "kind", row->kept ? "kept" : "committed");
    json_put_text(json, "state", state_of(row));
    if (row->without) {
        json_put_array(json, "replicas_without");
        for (size_t k = 0; k < row->without->count; k++)
            json_put_whole(json, NULL, row->without->numbers[k]);
        json_put_end(json);
    }
    if (row->ckpt) {
        const struct position p = position_of(i);
        model_of(i, model);
        json_put_whole(json, "version", i->version);
        json_put_text(json, "commit_id", i->commit_id);
        json_put_whole(json, "updates", i->updates);
        json_put_real(json, "loss_scale", i->loss_scale);
        json_put_whole(json, "weights_bytes", i->weights_bytes);
        json_put_whole(json, "states_bytes", i->states_bytes);
        json_put_whole(json, "sequences", p.sequences);
        json_put_whole(json, "sequences_of_a_pass", p.of_pass);
        json_put_text(json, "model", model);
        json_put_whole(json, "damaged_copies", i->damaged_copies);
    } else if (row->error.code) {
        json_put_text(json, "error", row->error.message);
    }
    json_put_end(json);
}

static void print_json(const char *store, const struct row *rows, size_t count)
{
    struct json_writer json = {.out = stdout};
    const struct hst_ckpt_info *i = &rows[0].info;
    json_put_object(&json, NULL);
    json_put_text(&json, "kind", "store");
    json_put_text(&json, "store", store);
    json_put_text(&json, "state", state_of(&rows[0]));
    if (rows[0].ckpt) {
        json_put_text(&json, "uuid", i->uuid);
        json_put_whole(&json, "world", i->world);
        json_put_whole(&json, "drives", i->drives);
        json_put_whole(&json, "file_bytes", i->file_bytes);
        json_put_text(&json, "precision", precision_name(i));
        json_put_text(&json, "state_format", hst_state_name(i->state));
        json_put_whole(&json, "elements", i->elements);
        json_put_whole(&json, "units", i->units);
        json_put_whole(&json, "tiles", i->tiles);
        json_put_whole(&json, "tile_elements", i->tile_elements);
    }
    json_put_array(&json, "versions");
    for (size_t r = 0; r < count; r++)
        put_row(&json, &rows[r]);
    json_put_end(&json);
    json_put_end(&json);
    putchar('\n');
}

static bool has_step(const uint64_t *steps, size_t count, uint64_t step)
{
    bool found = false;
    for (size_t i = 0; i < count; i++)
        found = found || steps[i] == step;
    return found;
}

/* A list is made of these before any is opened. */
struct copies {
    size_t count, first_count;
    uint64_t steps[KEPT_MAX], first[KEPT_MAX]; /* of any rank; of rank 0 */
    struct replicas replicas;                  /* of the store, but number 0 */
};

static int find_copies(const struct ckpt_source *source, struct copies *copies,
                       struct hst_error *error)
{
    int native = ckpt_source_copies(source, copies->steps, KEPT_MAX, &copies->count, error);
    native = native
                 ? native
                 : ckpt_source_kept(source, copies->first, KEPT_MAX, &copies->first_count, error);
    copies->count = copies->count < KEPT_MAX ? copies->count : KEPT_MAX;
    copies->first_count = copies->first_count < KEPT_MAX ? copies->first_count : KEPT_MAX;
    return native ? native : find_replicas(source, HST_NO_VERSION, &copies->replicas, error);
}

/* A store of replicas is opened as rank 0 has it, or not at all. */
static int open_copy(const struct ckpt_source *source, const struct copies *copies, size_t nth,
                     struct row *row)
{
    const uint64_t step = copies->steps[nth];
    const bool first = has_step(copies->first, copies->first_count, step);
    if (copies->replicas.count == 0)
        return open_row(source, step, row);
    *row = (struct row){.step = step, .kept = true};
    int native = first ? open_row(source, step, row) : 0;
    if (native == 0 && row->ckpt && row->info.world > 1)
        return 0; /* of parts, from before ranks were replicas: all are there */
    return native ? native : find_without(source, &copies->replicas, first, row, &row->error);
}

static void free_rows(struct row *rows, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        hst_ckpt_close(&rows[k].ckpt);
        free(rows[k].without);
    }
    free(rows);
}

/* While a run has the store, what ranks lack of a copy is being made or removed. What nobody has is
   none: a directory is left. */
static bool is_passing(const struct row *row, int rc, bool in_use, size_t replicas)
{
    return (in_use && (rc == -ENOENT || rc == -ENODATA || row->without)) ||
           (row->without && row->without->count == replicas + 1);
}

/* Rows of copies are added behind the first. Returns whether they are to be shown. */
static bool open_copies(const struct ckpt_source *source, const struct copies *copies,
                        struct row *rows, size_t *count, int *native, struct hst_error *first)
{
    bool shown = true;
    for (size_t k = 0; k < copies->count && shown; k++) {
        struct row *row = &rows[*count];
        const int rc = open_copy(source, copies, k, row);
        if (is_passing(row, rc, rows[0].info.in_use, copies->replicas.count)) {
            hst_ckpt_close(&row->ckpt);
            free(row->without);
            *row = (struct row){.step = 0};
            continue;
        }
        shown = ckpt_source_goes_on(source, rc, &row->error);
        if (rc && *native == 0) {
            *native = rc;
            *first = row->error;
        }
        ++*count;
    }
    return shown;
}

/* A version that is damaged has a row; what is no store of this user's is refused. */
int ckpt_list(const struct ckpt_source *source, bool json, size_t rows_most, bool *goes_on,
              struct hst_error *error)
{
    struct copies copies = {.count = 0};
    int native = find_copies(source, &copies, error);
    *goes_on = ckpt_source_goes_on(source, native, error);
    if (native)
        return native;
    struct row *rows = calloc(copies.count + 1, sizeof *rows);
    if (!rows)
        return fail(error, FAIL_BUDGET, -ENOMEM, "no memory. Fix: end other programs.");
    native = open_row(source, HST_NO_VERSION, &rows[0]);
    *goes_on = ckpt_source_goes_on(source, native, &rows[0].error);
    bool shown = *goes_on && (native == 0 || rows[0].error.code == HST_E_STORE_DAMAGED);
    struct hst_error first = rows[0].error;
    size_t count = 1;
    if (shown)
        shown = *goes_on = open_copies(source, &copies, rows, &count, &native, &first);
    if (shown && json)
        print_json(source->store, rows, count);
    else if (shown)
        print_text(source->store, rows, count, rows_most);
    free_rows(rows, count);
    if (native)
        *error = first;
    return native;
}
