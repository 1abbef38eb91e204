/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what one row of JSONL says: {"input_ids": […]} and, at most one of them, "labels" or
 * "mask". Labels are transformers': as many as ids, each the id itself or -100, which is not
 * learned.
 */
#include "base/fail.h"
#include "base/utf8.h"
#include "data/rows.h"
#include "hf/json/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HIDDEN UINT32_MAX /* of labels: -100 */

struct parse {
    const char *text;
    struct jsn_reader r;
    struct token_row *row;
    struct row_fault *fault;
    uint64_t vocab;
};

static int refuse(struct parse *p, size_t at, enum fail_code code, int native, const char *format,
                  ...) __attribute__((format(printf, 5, 6)));

static int refuse(struct parse *p, size_t at, enum fail_code code, int native, const char *format,
                  ...)
{
    va_list args;
    *p->fault = (struct row_fault){.at = at, .native = native, .code = (int)code};
    va_start(args, format);
    vsnprintf(p->fault->what, sizeof p->fault->what, format, args);
    va_end(args);
    return native;
}

static int broken(struct parse *p)
{
    const size_t at = p->r.at;
    const bool utf8 = at >= p->r.size || (unsigned char)p->text[at] < 0x80 ||
                      utf8_length(p->text + at, p->r.size - at) > 0;
    return refuse(p, at, FAIL_DATA_FORMAT, -EBADMSG, "the row has %s",
                  utf8 ? p->r.why : "bytes that are not UTF-8");
}

/* Room for one more item of `bytes`. */
static int grow(struct parse *p, void *items, size_t bytes, size_t count, size_t *capacity)
{
    if (count < *capacity)
        return 0;
    const size_t wish = *capacity ? 2 * *capacity : 1024;
    void *grown = realloc(*(void **)items, wish * bytes);
    if (!grown)
        return refuse(p, p->r.at, FAIL_DATA_FILE, -ENOMEM, "out of memory");
    *(void **)items = grown;
    *capacity = wish;
    return 0;
}

static int show(struct jsn_value v)
{
    return (int)(v.end - v.begin < 24 ? v.end - v.begin : 24);
}

static int add_id(struct parse *p, struct jsn_value v)
{
    struct token_row *row = p->row;
    uint64_t id;
    if (!jsn_u64(p->text, v, &id) || id > UINT32_MAX) {
        v = jsn_shown(v);
        return refuse(p, v.begin, FAIL_DATA_FORMAT, -EBADMSG,
                      "input_ids holds %.*s, want whole numbers from 0 to 4294967295", show(v),
                      p->text + v.begin);
    }
    if (p->vocab && id >= p->vocab)
        return refuse(p, v.begin, FAIL_DATA_TOKEN, -EDOM,
                      "token id %" PRIu64 ", but the vocabulary of the model has %" PRIu64, id,
                      p->vocab);
    const size_t run = row->count / TOKEN_RUN;
    int rc = grow(p, &row->ids, sizeof *row->ids, row->count, &row->capacity);
    rc = rc ? rc : grow(p, &row->at, sizeof *row->at, run, &row->at_capacity);
    if (rc)
        return rc;
    if (row->count % TOKEN_RUN == 0)
        row->at[run] = v.begin;
    row->ids[row->count++] = (uint32_t)id;
    return 0;
}

static int add_label(struct parse *p, struct jsn_value v)
{
    struct token_row *row = p->row;
    uint64_t id = HIDDEN;
    const bool hidden =
        v.type == JSN_NUMBER && v.end - v.begin == 4 && memcmp(p->text + v.begin, "-100", 4) == 0;
    if (!hidden && (!jsn_u64(p->text, v, &id) || id >= HIDDEN)) {
        v = jsn_shown(v);
        return refuse(p, v.begin, FAIL_DATA_FORMAT, -EBADMSG,
                      "labels holds %.*s, want the token's id or -100", show(v), p->text + v.begin);
    }
    int rc = grow(p, &row->labels, sizeof *row->labels, row->label_count, &row->label_capacity);
    if (!rc)
        row->labels[row->label_count++] = (uint32_t)id;
    return rc;
}

static int add_mark(struct parse *p, struct jsn_value v)
{
    struct token_row *row = p->row;
    uint64_t mark;
    if (!jsn_u64(p->text, v, &mark) || mark > 1) {
        v = jsn_shown(v);
        return refuse(p, v.begin, FAIL_DATA_FORMAT, -EBADMSG, "mask holds %.*s, want 0 or 1",
                      show(v), p->text + v.begin);
    }
    int rc = grow(p, &row->marks, sizeof *row->marks, row->mark_count, &row->mark_capacity);
    if (!rc)
        row->marks[row->mark_count++] = (uint8_t)mark;
    return rc;
}

static int parse_array(struct parse *p, const char *key,
                       int (*add)(struct parse *p, struct jsn_value v), size_t *begin)
{
    struct jsn_value v = jsn_next(&p->r);
    if (v.type == JSN_ERROR)
        return broken(p);
    *begin = jsn_shown(v).begin;
    if (v.type != JSN_ARRAY)
        return refuse(p, *begin, FAIL_DATA_FORMAT, -EBADMSG, "%s is no array", key);
    for (;;) {
        v = jsn_next(&p->r);
        if (v.type == JSN_ARRAY_END)
            return 0;
        if (v.type == JSN_ERROR)
            return broken(p);
        int rc = add(p, v);
        if (rc)
            return rc;
    }
}

static int parse_member(struct parse *p, struct jsn_value key)
{
    struct token_row *row = p->row;
    const bool ids = jsn_equals(p->text, key, "input_ids");
    const bool labels = jsn_equals(p->text, key, "labels"), mask = jsn_equals(p->text, key, "mask");
    const size_t at = jsn_shown(key).begin;
    if (!ids && !labels && !mask)
        return refuse(p, at, FAIL_DATA_FORMAT, -EBADMSG,
                      "unknown key \"%.*s\"; known: input_ids, and labels or mask. Fix: make a "
                      "file of tokens of it with the model's own tokenizer",
                      show(key), p->text + key.begin);
    if (ids ? row->has_ids : labels ? row->has_labels : row->has_mask)
        return refuse(p, at, FAIL_DATA_FORMAT, -EBADMSG, "%.*s stands there twice", show(key),
                      p->text + key.begin);
    if (!ids && (row->has_labels || row->has_mask))
        return refuse(p, at, FAIL_DATA_FORMAT, -EBADMSG, "the row has both labels and mask");
    row->has_ids = row->has_ids || ids;
    row->has_labels = row->has_labels || labels;
    row->has_mask = row->has_mask || mask;
    return ids      ? parse_array(p, "input_ids", add_id, &row->ids_at)
           : labels ? parse_array(p, "labels", add_label, &row->marks_at)
                    : parse_array(p, "mask", add_mark, &row->marks_at);
}

static int check_together(struct parse *p)
{
    const struct token_row *row = p->row;
    const size_t marks = row->has_mask ? row->mark_count : row->label_count;
    uint64_t targets, hidden;
    if (!row->has_ids)
        return refuse(p, 0, FAIL_DATA_FORMAT, -EBADMSG, "the row has no input_ids");
    if ((row->has_mask || row->has_labels) && marks != row->count)
        return refuse(p, row->marks_at, FAIL_DATA_FORMAT, -EBADMSG,
                      "%s has %zu values, and input_ids %zu", row->has_mask ? "mask" : "labels",
                      marks, row->count);
    for (size_t i = 0; row->has_labels && i < row->count; i++)
        if (row->labels[i] != HIDDEN && row->labels[i] != row->ids[i])
            return refuse(p, row->marks_at, FAIL_DATA_FORMAT, -EBADMSG,
                          "labels[%zu] is %" PRIu32 ", and input_ids[%zu] is %" PRIu32
                          ": want the same or -100",
                          i, row->labels[i], i, row->ids[i]);
    token_row_targets(row, &targets, &hidden);
    if (targets == 0)
        return refuse(p, row->ids_at, FAIL_DATA_SHORT, -ENODATA,
                      "a document of %zu token%s has no target. Fix: leave it out", row->count,
                      row->count == 1 ? "" : "s");
    if (hidden == targets)
        return refuse(p, row->marks_at, FAIL_DATA_SHORT, -ENODATA,
                      "the document has no target: %s learns none of its tokens but perhaps the "
                      "first. Fix: leave it out",
                      row->has_mask ? "mask" : "labels");
    return 0;
}

int token_row_parse(const char *text, size_t size, uint64_t vocab, struct token_row *row,
                    struct row_fault *fault)
{
    struct parse p = {text, jsn_reader(text, size), row, fault, vocab};
    row->count = row->mark_count = row->label_count = row->ids_at = row->marks_at = 0;
    row->has_ids = row->has_mask = row->has_labels = false;
    struct jsn_value v = jsn_next(&p.r);
    if (v.type != JSN_ERROR && v.type != JSN_OBJECT)
        return refuse(&p, jsn_shown(v).begin, FAIL_DATA_FORMAT, -EBADMSG, "the row is no object");
    for (;;) {
        if (v.type == JSN_ERROR)
            return broken(&p);
        if (v.type == JSN_END)
            return check_together(&p);
        int rc = v.type == JSN_KEY ? parse_member(&p, v) : 0;
        if (rc)
            return rc;
        v = jsn_next(&p.r);
    }
}

bool token_row_learned(const struct token_row *row, size_t i)
{
    return row->has_mask ? row->marks[i] : !row->has_labels || row->labels[i] != HIDDEN;
}

void token_row_targets(const struct token_row *row, uint64_t *targets, uint64_t *hidden)
{
    *targets = row->count > 0 ? row->count - 1 : 0;
    *hidden = 0;
    for (size_t i = 1; i < row->count; i++)
        *hidden += !token_row_learned(row, i);
}

void token_row_free(struct token_row *row)
{
    free(row->ids);
    free(row->at);
    free(row->marks);
    free(row->labels);
    *row = (struct token_row){0};
}
