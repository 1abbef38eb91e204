/* SPDX-License-Identifier: Apache-2.0 */
/* File names come from whoever made the model: only plain names of the same directory pass. */
#include "hf/index.h"

#include "hf/json/input.h"
#include "hf/json/json.h"
#include "hf/safetensors.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define refuse(...) fail(error, FAIL_INDEX, -EBADMSG, __VA_ARGS__)

/* weight_map: counted, then read into entries. */
static int read_map(const char *path, char *text, struct jsn_value map, struct index *index,
                    struct hst_error *error)
{
    size_t count = 0, size = map.end - map.begin;
    struct jsn_reader r = jsn_reader(text + map.begin, size);
    for (struct jsn_value v = jsn_next(&r); v.type != JSN_END; v = jsn_next(&r))
        count += v.type == JSN_KEY && r.depth == 1;
    if (count > ST_MAX_TENSORS)
        return refuse("%s: %zu entries in weight_map, at most %u allowed", path, count,
                      ST_MAX_TENSORS);
    index->entries = calloc(count + 1, sizeof *index->entries);
    index->files = calloc(count + 1, sizeof *index->files);
    if (!index->entries || !index->files)
        return fail(error, FAIL_INDEX, -ENOMEM, "%s: no memory to read it", path);
    r = jsn_reader(text + map.begin, size);
    jsn_next(&r);
    for (;;) {
        struct jsn_value key = jsn_next(&r), v;
        if (key.type != JSN_KEY)
            return 0;
        v = jsn_next_value(&r);
        struct index_entry *e = &index->entries[index->count];
        e->name = text + map.begin + key.begin;
        jsn_unescape(e->name, key.end - key.begin, e->name);
        if (v.type != JSN_STRING)
            return refuse("%s: weight_map gives tensor %.80s something that is no file name", path,
                          e->name);
        e->file_name = text + map.begin + v.begin;
        jsn_unescape(e->file_name, v.end - v.begin, e->file_name);
        if (!input_name_is_plain(e->file_name))
            return refuse(
                "%s: weight_map names file \"%.80s\", want a plain file name without a path", path,
                e->file_name);
        index->files[index->count++] = e->file_name;
    }
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct index_entry *)a)->name, ((const struct index_entry *)b)->name);
}

/* files: each once; entries: sorted, each with its file's number. */
static int number_files(const char *path, struct index *index, struct hst_error *error)
{
    size_t unique = 0;
    qsort(index->files, index->count, sizeof *index->files, compare_text);
    for (size_t i = 0; i < index->count; i++)
        if (!unique || strcmp(index->files[unique - 1], index->files[i]) != 0)
            index->files[unique++] = index->files[i];
    if (unique > INDEX_MAX_FILES)
        return refuse("%s: %zu files, at most %u allowed", path, unique, INDEX_MAX_FILES);
    index->file_count = (uint32_t)unique;
    for (size_t i = 0; i < index->count; i++) {
        assert(index->entries[i].file_name); /* read_map gave each entry one */
        char **found = bsearch(&index->entries[i].file_name, index->files, unique,
                               sizeof *index->files, compare_text);
        index->entries[i].file = (uint32_t)(found - index->files);
    }
    qsort(index->entries, index->count, sizeof *index->entries, compare_entries);
    return 0;
}

static int read_index(const char *path, char *text, size_t size, struct index *index,
                      struct hst_error *error)
{
    struct jsn_fault fault;
    int rc = jsn_check(text, size, ST_MAX_TENSORS + 1024, &fault);
    if (rc == -ENOMEM)
        return fail(error, FAIL_INDEX, rc, "%s: no memory to read it", path);
    if (rc && fault.key[0])
        return refuse("%s: it has %s: %s", path, fault.why, fault.key);
    if (rc)
        return refuse("%s: not a valid index: it has %s at byte %zu", path, fault.why, fault.at);
    static const char *const keys[] = {"metadata", "weight_map"};
    struct jsn_value v[2];
    jsn_members(text, size, keys, 2, v);
    if (v[1].type != JSN_OBJECT)
        return refuse("%s: weight_map is not there or not an object", path);
    if (v[0].type == JSN_OBJECT) {
        static const char *const inner[] = {"total_size"};
        struct jsn_value total;
        jsn_members(text + v[0].begin, v[0].end - v[0].begin, inner, 1, &total);
        index->has_total = jsn_u64(text + v[0].begin, total, &index->total_bytes);
    }
    rc = read_map(path, text, v[1], index, error);
    return rc ? rc : number_files(path, index, error);
}

int index_parse(const char *path, char *text, size_t size, struct index *index,
                struct hst_error *error)
{
    struct index parsed = {0};
    int rc = read_index(path, text, size, &parsed, error);
    if (rc)
        index_free(&parsed);
    else
        *index = parsed;
    return rc;
}

void index_free(struct index *index)
{
    free(index->entries);
    free(index->files);
    *index = (struct index){0};
}
