/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepts what the format's reference implementation accepts and nothing else, with limits where it
 * has none: 8 dimensions, names of 1 KiB, a million tensors. The order of the checks is: sizes,
 * syntax, each tensor by itself, then all together (no name twice, no hole, no overlap, no byte
 * that belongs to nobody).
 */
#include "hf/safetensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct st_dtype st_dtypes[] = {
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
};
const size_t st_dtype_count = sizeof st_dtypes / sizeof *st_dtypes;

struct parse {
    const char *path;
    char *text;
    size_t size;
    struct jsn_reader r;
    const char *name; /* of the tensor that is being read */
    struct hst_error *error;
};

#define refuse(p, ...) fail((p)->error, FAIL_SAFETENSORS, -EBADMSG, __VA_ARGS__)

int st_header_bytes(const char *path, const unsigned char first[8], uint64_t file_bytes,
                    uint64_t *header_bytes, struct hst_error *error)
{
    struct parse p = {.path = path, .error = error};
    if (file_bytes < 8)
        return refuse(&p, "%s: %llu bytes, shorter than 8-byte header length", path,
                      (unsigned long long)file_bytes);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | first[i];
    if (n > ST_MAX_HEADER_BYTES)
        return refuse(&p,
                      "%s: header length %llu, at most %u allowed: no safetensors file, perhaps",
                      path, (unsigned long long)n, ST_MAX_HEADER_BYTES);
    if (n > file_bytes - 8)
        return refuse(&p, "%s: header length %llu, but only %llu bytes follow: the file is cut off",
                      path, (unsigned long long)n, (unsigned long long)(file_bytes - 8));
    if (n < 2)
        return refuse(&p, "%s: header length %llu, at least 2 needed", path, (unsigned long long)n);
    *header_bytes = n;
    return 0;
}

int st_elements(const uint64_t *dims, uint32_t dim_count, uint64_t *elements)
{
    uint64_t product = 1;
    for (uint32_t i = 0; i < dim_count; i++)
        if (__builtin_mul_overflow(product, dims[i], &product))
            return -EOVERFLOW;
    *elements = product;
    return 0;
}

static int parse_dtype(struct parse *p, struct jsn_value v, struct st_tensor *t)
{
    for (size_t i = 0; i < st_dtype_count; i++)
        if (jsn_equals(p->text, v, st_dtypes[i].name)) {
            t->dtype = &st_dtypes[i];
            return 0;
        }
    char list[256] = "";
    for (size_t i = 0; i < st_dtype_count; i++) {
        strcat(list, i ? " " : "");
        strcat(list, st_dtypes[i].name);
    }
    size_t shown = v.end - v.begin < 20 ? v.end - v.begin : 20;
    return refuse(p, "%s: tensor %.80s has unknown dtype %.*s; known: %s", p->path, p->name,
                  (int)shown, p->text + v.begin, list);
}

/* An array of whole numbers, at most `max`. */
static int parse_numbers(struct parse *p, struct jsn_value v, const char *what, uint32_t max,
                         uint64_t *out, uint32_t *count)
{
    if (v.type != JSN_ARRAY)
        return refuse(p, "%s: %s of tensor %.80s is not an array", p->path, what, p->name);
    for (*count = 0;; ++*count) {
        v = jsn_next(&p->r);
        if (v.type == JSN_ARRAY_END)
            return 0;
        if (*count == max)
            return refuse(p, "%s: %s of tensor %.80s has more than %u numbers", p->path, what,
                          p->name, max);
        if (!jsn_u64(p->text, v, &out[*count]) || out[*count] > INT64_MAX) {
            v = jsn_shown(v);
            return refuse(p,
                          "%s: %s of tensor %.80s holds %.*s, want whole numbers from 0 to 2^63-1",
                          p->path, what, p->name,
                          (int)(v.end - v.begin < 24 ? v.end - v.begin : 24), p->text + v.begin);
        }
    }
}

static int parse_offsets(struct parse *p, struct jsn_value v, struct st_tensor *t)
{
    uint64_t offsets[2];
    uint32_t count;
    int rc = parse_numbers(p, v, "data_offsets", 2, offsets, &count);
    if (rc)
        return rc;
    if (count != 2)
        return refuse(p, "%s: data_offsets of tensor %.80s has %u numbers, want 2", p->path,
                      p->name, count);
    t->begin = offsets[0];
    t->end = offsets[1];
    return 0;
}

static int check_extent(struct parse *p, const struct st_tensor *t, uint64_t data_bytes)
{
    if (t->begin > t->end || t->end > data_bytes)
        return refuse(p, "%s: tensor %.80s has data_offsets %llu to %llu in %llu bytes of data",
                      p->path, p->name, (unsigned long long)t->begin, (unsigned long long)t->end,
                      (unsigned long long)data_bytes);
    uint64_t elements, bits;
    if (st_elements(t->dims, t->dim_count, &elements) ||
        __builtin_mul_overflow(elements, t->dtype->bits, &bits))
        return refuse(p, "%s: the size of tensor %.80s overflows 64 bits", p->path, p->name);
    if (bits % 8)
        return refuse(p, "%s: tensor %.80s of dtype %s does not fill whole bytes", p->path, p->name,
                      t->dtype->name);
    if (bits / 8 != t->end - t->begin)
        return refuse(p, "%s: tensor %.80s needs %llu bytes, its data_offsets hold %llu", p->path,
                      p->name, (unsigned long long)(bits / 8),
                      (unsigned long long)(t->end - t->begin));
    return 0;
}

/* The object of one tensor, whose brace has been read. */
static int parse_entry(struct parse *p, struct st_tensor *t, uint64_t data_bytes)
{
    static const char *const keys[] = {"dtype", "shape", "data_offsets"};
    unsigned seen = 0;
    for (;;) {
        struct jsn_value key = jsn_next(&p->r);
        if (key.type == JSN_OBJECT_END)
            break;
        unsigned which = 0;
        while (which < 3 && !jsn_equals(p->text, key, keys[which]))
            which++;
        size_t shown = key.end - key.begin < 40 ? key.end - key.begin : 40;
        if (which == 3)
            return refuse(p, "%s: tensor %.80s has unknown key %.*s", p->path, p->name, (int)shown,
                          p->text + key.begin);
        if (seen & 1u << which)
            return refuse(p, "%s: tensor %.80s has %s twice", p->path, p->name, keys[which]);
        seen |= 1u << which;
        struct jsn_value v = jsn_next(&p->r);
        int rc = which == 0   ? parse_dtype(p, v, t)
                 : which == 1 ? parse_numbers(p, v, "shape", HST_MAX_DIMS, t->dims, &t->dim_count)
                              : parse_offsets(p, v, t);
        if (rc)
            return rc;
    }
    for (unsigned i = 0; i < 3; i++)
        if (!(seen & 1u << i))
            return refuse(p, "%s: tensor %.80s has no %s", p->path, p->name, keys[i]);
    return check_extent(p, t, data_bytes);
}

static int parse_metadata(struct parse *p, struct st_header *h)
{
    struct jsn_value v = jsn_next_value(&p->r);
    if (v.type != JSN_OBJECT)
        return refuse(p, "%s: __metadata__ is not an object", p->path);
    struct jsn_fault fault;
    int rc = jsn_check(p->text + v.begin, v.end - v.begin, 65536, &fault);
    if (rc == -ENOMEM)
        return fail(p->error, FAIL_SAFETENSORS, rc, "%s: no memory for its header", p->path);
    if (rc)
        return refuse(p, "%s: __metadata__ has %s%s%s", p->path, fault.why,
                      fault.key[0] ? ": " : "", fault.key);
    struct jsn_reader r = jsn_reader(p->text + v.begin, v.end - v.begin);
    jsn_next(&r);
    while (jsn_next(&r).type == JSN_KEY)
        if (jsn_next(&r).type != JSN_STRING)
            return refuse(p, "%s: __metadata__ has a value that is not a string", p->path);
    h->metadata = v;
    return 0;
}

/* Syntax of the whole header, which is not looked at again, and how many members it has. */
static int count_members(struct parse *p, size_t *members)
{
    struct jsn_reader r = jsn_reader(p->text, p->size);
    struct jsn_value v = jsn_next(&r);
    bool object = v.type == JSN_OBJECT;
    for (*members = 0; v.type != JSN_END && v.type != JSN_ERROR; v = jsn_next(&r))
        *members += v.type == JSN_KEY && r.depth == 1;
    if (v.type == JSN_ERROR)
        return refuse(p, "%s: the header is not valid JSON: it has %s at byte %zu", p->path, r.why,
                      r.at);
    if (!object)
        return refuse(p, "%s: the header does not start with {", p->path);
    return 0;
}

static int parse_members(struct parse *p, uint64_t data_bytes, struct st_header *h)
{
    bool metadata = false;
    p->r = jsn_reader(p->text, p->size);
    jsn_next(&p->r);
    for (;;) {
        struct jsn_value key = jsn_next(&p->r);
        if (key.type == JSN_OBJECT_END)
            return 0;
        if (jsn_equals(p->text, key, "__metadata__")) {
            if (metadata)
                return refuse(p, "%s: __metadata__ stands there twice", p->path);
            metadata = true;
            int rc = parse_metadata(p, h);
            if (rc)
                return rc;
            continue;
        }
        struct st_tensor *t = &h->tensors[h->count++];
        /* In place: the name's closing quote and colon have been read, so that its NUL has room. */
        t->name = p->text + key.begin;
        size_t bytes = jsn_unescape(t->name, key.end - key.begin, t->name);
        p->name = t->name;
        if (bytes > ST_MAX_NAME_BYTES)
            return refuse(p, "%s: a tensor's name has %zu bytes, at most %u allowed: %.40s",
                          p->path, bytes, ST_MAX_NAME_BYTES, t->name);
        if (jsn_next(&p->r).type != JSN_OBJECT)
            return refuse(p, "%s: the value of tensor %.80s is not an object", p->path, p->name);
        int rc = parse_entry(p, t, data_bytes);
        if (rc)
            return rc;
    }
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const struct st_tensor *const *)a)->name,
                  (*(const struct st_tensor *const *)b)->name);
}

static int compare_extents(const void *a, const void *b)
{
    const struct st_tensor *x = *(const struct st_tensor *const *)a,
                           *y = *(const struct st_tensor *const *)b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* No name twice; extents cover the data once. */
static int check_together(struct parse *p, const struct st_header *h, uint64_t data_bytes)
{
    const struct st_tensor **order = malloc((h->count + 1) * sizeof *order);
    if (!order)
        return fail(p->error, FAIL_SAFETENSORS, -ENOMEM, "%s: no memory for its header", p->path);
    for (size_t i = 0; i < h->count; i++)
        order[i] = &h->tensors[i];
    int rc = 0;
    qsort(order, h->count, sizeof *order, compare_names);
    for (size_t i = 1; i < h->count && !rc; i++)
        if (strcmp(order[i - 1]->name, order[i]->name) == 0)
            rc = refuse(p, "%s: tensor %.80s stands there twice", p->path, order[i]->name);
    uint64_t covered = 0;
    qsort(order, h->count, sizeof *order, compare_extents);
    for (size_t i = 0; i < h->count && !rc; i++) {
        if (order[i]->begin != covered)
            rc = refuse(p, "%s: tensor %.80s starts at byte %llu of the data, want %llu: %s",
                        p->path, order[i]->name, (unsigned long long)order[i]->begin,
                        (unsigned long long)covered,
                        order[i]->begin > covered ? "a hole" : "an overlap");
        covered = order[i]->end;
    }
    free(order);
    if (!rc && covered != data_bytes)
        rc = refuse(p, "%s: %llu bytes of data, its tensors cover %llu", p->path,
                    (unsigned long long)data_bytes, (unsigned long long)covered);
    return rc;
}

int st_parse(const char *path, char *text, size_t header_bytes, uint64_t data_bytes,
             size_t max_tensors, struct st_header *header, struct hst_error *error)
{
    struct parse p = {.path = path, .text = text, .size = header_bytes, .error = error};
    struct st_header h = {0};
    size_t members;
    int rc = count_members(&p, &members);
    if (rc)
        return rc;
    if (members > max_tensors)
        return refuse(&p, "%s: %zu entries, but a model may have at most %u tensors", path, members,
                      ST_MAX_TENSORS);
    h.tensors = calloc(members + 1, sizeof *h.tensors);
    if (!h.tensors)
        return fail(error, FAIL_SAFETENSORS, -ENOMEM, "%s: no memory for its header", path);
    rc = parse_members(&p, data_bytes, &h);
    if (!rc)
        rc = check_together(&p, &h, data_bytes);
    if (rc) {
        st_header_free(&h);
        return rc;
    }
    *header = h;
    return 0;
}

void st_header_free(struct st_header *header)
{
    free(header->tensors);
    *header = (struct st_header){0};
}
