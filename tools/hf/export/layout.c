/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides file, place and header of every tensor from names, shapes and dtype alone, so that equal
 * input gives equal bytes. Tensors stand in the order of their names; data starts at a multiple of
 * 4,096 bytes, so that it can be read with O_DIRECT.
 */
#include "hf/export/export.h"

#include "hf/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DATA_ALIGNMENT      4096u
#define DEFAULT_SHARD_BYTES 5000000000ull

int spans_add(struct spans *s, uint64_t begin, uint64_t end)
{
    if (begin == end)
        return 0;
    size_t i = s->count, j;
    while (i && s->items[i - 1].end >= begin)
        i--;
    for (j = i; j < s->count && s->items[j].begin <= end; j++) {
        if (s->items[j].begin < begin)
            begin = s->items[j].begin;
        if (s->items[j].end > end)
            end = s->items[j].end;
    }
    if (i == j && s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 4;
        struct span *items = realloc(s->items, capacity * sizeof *items);
        if (!items)
            return -ENOMEM;
        s->items = items;
        s->capacity = capacity;
    }
    memmove(s->items + i + 1, s->items + j, (s->count - j) * sizeof *s->items);
    s->items[i] = (struct span){begin, end};
    s->count = s->count + 1 - (j - i);
    return 0;
}

bool spans_cover(const struct spans *s, uint64_t size)
{
    if (!size)
        return true;
    return s->count == 1 && s->items[0].begin == 0 && s->items[0].end == size;
}

static int compare_tensors(const void *a, const void *b)
{
    return strcmp(((const struct export_layout_tensor *)a)->name,
                  ((const struct export_layout_tensor *)b)->name);
}

static int copy_tensors(const struct hf_export_desc *desc, struct export_layout *l)
{
    l->tensors = calloc(desc->tensor_count + 1, sizeof *l->tensors);
    if (!l->tensors)
        return -ENOMEM;
    for (size_t i = 0; i < desc->tensor_count; i++) {
        const struct hf_tensor *from = &desc->tensors[i];
        struct export_layout_tensor *t = &l->tensors[i];
        uint64_t bytes;
        if (from->dim_count > HST_MAX_DIMS || strlen(from->name) > ST_MAX_NAME_BYTES)
            return -EINVAL;
        memcpy(t->dims, from->dims, from->dim_count * sizeof *t->dims);
        t->dim_count = from->dim_count;
        if (st_elements(t->dims, t->dim_count, &t->elements) ||
            __builtin_mul_overflow(t->elements, l->width, &bytes) ||
            __builtin_add_overflow(l->total_bytes, bytes, &l->total_bytes) ||
            l->total_bytes > INT64_MAX)
            return -EINVAL;
        t->name = strdup(from->name);
        if (!t->name)
            return -ENOMEM;
        l->tensor_count++;
    }
    qsort(l->tensors, l->tensor_count, sizeof *l->tensors, compare_tensors);
    for (size_t i = 1; i < l->tensor_count; i++)
        if (compare_tensors(&l->tensors[i - 1], &l->tensors[i]) == 0)
            return -EINVAL;
    return 0;
}

static int cut_into_files(struct export_layout *l, uint64_t shard_bytes)
{
    l->files =
        calloc(l->tensor_count + 1, sizeof *l->files); /* no file without a tensor but the first */
    if (!l->files)
        return -ENOMEM;
    l->file_count = 1;
    for (size_t i = 0; i < l->tensor_count; i++) {
        struct export_layout_tensor *t = &l->tensors[i];
        struct export_layout_file *f = &l->files[l->file_count - 1];
        uint64_t bytes = t->elements * l->width;
        if (f->tensor_count &&
            (f->data_bytes > shard_bytes || bytes > shard_bytes - f->data_bytes)) {
            f++;
            l->file_count++;
        }
        t->file = l->file_count - 1;
        t->begin = f->data_bytes;
        f->data_bytes += bytes;
        f->tensor_count++;
    }
    for (uint32_t i = 0; i < l->file_count; i++) {
        if (l->file_count == 1)
            strcpy(l->files[i].name, "model.safetensors");
        else
            snprintf(l->files[i].name, sizeof l->files[i].name, "model-%05u-of-%05u.safetensors",
                     i + 1, l->file_count);
    }
    return 0;
}

static void put_string(FILE *out, const char *s)
{
    putc('"', out);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            fprintf(out, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            fprintf(out, "\\u%04x", *s);
        else
            putc(*s, out);
    }
    putc('"', out);
}

static int make_header(const struct export_layout_tensor *tensors, const char *dtype,
                       uint32_t width, struct export_layout_file *f)
{
    FILE *out = open_memstream(&f->header, &f->header_bytes);
    if (!out)
        return -ENOMEM;
    fwrite("\0\0\0\0\0\0\0\0", 1, 8, out);
    fprintf(out, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (uint32_t i = 0; i < f->tensor_count; i++) {
        const struct export_layout_tensor *t = &tensors[i];
        putc(',', out);
        put_string(out, t->name);
        fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", dtype);
        for (uint32_t d = 0; d < t->dim_count; d++)
            fprintf(out, "%s%" PRIu64, d ? "," : "", t->dims[d]);
        fprintf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", t->begin,
                t->begin + t->elements * width);
    }
    putc('}', out);
    for (long n = ftell(out); n % DATA_ALIGNMENT; n++)
        putc(' ', out);
    bool full = ferror(out);
    if (fclose(out) || full)
        return -ENOMEM;
    uint64_t n = f->header_bytes - 8;
    if (n > ST_MAX_HEADER_BYTES)
        return -EINVAL;
    for (int i = 0; i < 8; i++)
        f->header[i] = (char)(n >> 8 * i);
    return 0;
}

static int make_index(struct export_layout *l)
{
    size_t size;
    FILE *out = open_memstream(&l->index, &size);
    if (!out)
        return -ENOMEM;
    fprintf(out, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {",
            l->total_bytes);
    for (size_t i = 0; i < l->tensor_count; i++) {
        fprintf(out, "%s\n    ", i ? "," : "");
        put_string(out, l->tensors[i].name);
        fprintf(out, ": \"%s\"", l->files[l->tensors[i].file].name);
    }
    fprintf(out, "\n  }\n}\n");
    bool full = ferror(out);
    return fclose(out) || full ? -ENOMEM : 0;
}

static int make_texts(struct export_layout *l, const char *dtype)
{
    const struct export_layout_tensor *first = l->tensors;
    for (uint32_t i = 0; i < l->file_count; i++) {
        int rc = make_header(first, dtype, l->width, &l->files[i]);
        if (rc)
            return rc;
        first += l->files[i].tensor_count;
    }
    return l->file_count > 1 ? make_index(l) : 0;
}

int export_layout_create(const struct hf_export_desc *desc, struct export_layout *layout)
{
    const char *const names[] = {[HST_F32] = "F32", [HST_BF16] = "BF16", [HST_F16] = "F16"};
    if (desc->dtype < HST_F32 || desc->dtype > HST_F16)
        return -EINVAL;
    struct export_layout l = {.width = desc->dtype == HST_F32 ? 4 : 2};
    int rc = copy_tensors(desc, &l);
    if (!rc)
        rc = cut_into_files(&l, desc->shard_bytes ? desc->shard_bytes : DEFAULT_SHARD_BYTES);
    if (!rc)
        rc = make_texts(&l, names[desc->dtype]);
    if (rc)
        export_layout_free(&l);
    else
        *layout = l;
    return rc;
}

void export_layout_free(struct export_layout *l)
{
    for (size_t i = 0; i < l->tensor_count; i++) {
        free(l->tensors[i].name);
        free(l->tensors[i].written.items);
    }
    for (uint32_t i = 0; i < l->file_count; i++)
        free(l->files[i].header);
    free(l->tensors);
    free(l->files);
    free(l->index);
    *l = (struct export_layout){0};
}

static int compare_name(const void *key, const void *item)
{
    return strcmp(key, ((const struct export_layout_tensor *)item)->name);
}

struct export_layout_tensor *export_layout_find(const struct export_layout *l, const char *name)
{
    return bsearch(name, l->tensors, l->tensor_count, sizeof *l->tensors, compare_name);
}
