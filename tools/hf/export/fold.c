/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model has hundreds of tensors and a dozen kinds of them. Numbers between dots are what tells
 * those of a kind apart. Pure; sorted rather than searched, so that no choice of names makes it
 * slow.
 */
#include "hf/export/fold.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS 4u /* of a name; those behind them stay as they are */
#define DIGITS  9u
#define HOLE    '\1' /* in the place of a number */

struct item {
    const struct hf_look_tensor *tensor;
    char *pattern;
    uint32_t number_count;
    uint32_t numbers[NUMBERS];
};

/* Takes the numbers out of item->pattern. */
static void take_numbers(struct item *item)
{
    char *to = item->pattern;
    for (const char *at = item->pattern; *at;) {
        const size_t n = strcspn(at, "."), dot = at[n] == '.';
        if (n > 0 && n <= DIGITS && strspn(at, "0123456789") == n && item->number_count < NUMBERS) {
            item->numbers[item->number_count++] = (uint32_t)strtoul(at, NULL, 10);
            *to++ = HOLE;
            if (dot)
                *to++ = '.';
        } else {
            memmove(to, at, n + dot);
            to += n + dot;
        }
        at += n + dot;
    }
    *to = '\0';
}

static int compare_kinds(const struct item *a, const struct item *b)
{
    int order = strcmp(a->pattern, b->pattern);
    order = order ? order : strcmp(a->tensor->dtype, b->tensor->dtype);
    const uint32_t dims = a->tensor->dim_count;
    if (!order && dims != b->tensor->dim_count)
        return dims < b->tensor->dim_count ? -1 : 1;
    return order || !dims ? order
                          : memcmp(a->tensor->dims, b->tensor->dims, dims * sizeof(uint64_t));
}

static int compare_items(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    const int order = compare_kinds(x, y);
    return order ? order : (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static int compare_rows(const void *a, const void *b)
{
    const struct hf_fold_row *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

struct range {
    uint32_t least, most;
};

static char *row_name(const struct item *first, size_t count)
{
    struct range ranges[NUMBERS];
    char *text = NULL;
    size_t bytes, width = 1;
    uint32_t number = 0;
    for (uint32_t n = 0; n < first->number_count; n++) {
        ranges[n] = (struct range){first->numbers[n], first->numbers[n]};
        for (size_t i = 1; i < count; i++) {
            const uint32_t is = first[i].numbers[n];
            ranges[n].least = is < ranges[n].least ? is : ranges[n].least;
            ranges[n].most = is > ranges[n].most ? is : ranges[n].most;
        }
        if (__builtin_mul_overflow(width, (size_t)ranges[n].most - ranges[n].least + 1, &width))
            width = SIZE_MAX;
    }
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    for (const char *at = first->pattern; *at; at++) {
        if (*at != HOLE || number == first->number_count) {
            putc(*at, out);
            continue;
        }
        const struct range r = ranges[number++];
        fprintf(out,
                r.least == r.most ? "%u"
                : width == count  ? "%u..%u"
                                  : "%u,..,%u",
                r.least, r.most);
    }
    const bool full = ferror(out);
    if (fclose(out) || full) {
        free(text);
        return NULL;
    }
    return text;
}

/* It adds the row of those of one kind. */
static int add_row(const struct hf_look_tensor *tensors, const struct item *items, size_t count,
                   struct hf_fold_row *row)
{
    const struct hf_look_tensor *t = items->tensor;
    *row = (struct hf_fold_row){
        .name = row_name(items, count),
        .dtype = t->dtype,
        .dim_count = t->dim_count,
        .dims = t->dims,
        .count = count,
        .bytes = t->bytes * count,
        .first = (size_t)(t - tensors),
    };
    return row->name ? 0 : -ENOMEM;
}

int hf_fold(const struct hf_look_tensor *tensors, size_t count, struct hf_fold_row **rows,
            size_t *row_count)
{
    struct item *items = calloc(count + 1, sizeof *items);
    struct hf_fold_row *found = calloc(count + 1, sizeof *found);
    size_t n = 0;
    int rc = items && found ? 0 : -ENOMEM;
    for (size_t i = 0; i < count && !rc; i++) {
        items[i] = (struct item){.tensor = &tensors[i], .pattern = strdup(tensors[i].name)};
        if (items[i].pattern)
            take_numbers(&items[i]);
        else
            rc = -ENOMEM;
    }
    if (!rc)
        qsort(items, count, sizeof *items, compare_items);
    for (size_t i = 0, end; i < count && !rc; i = end) {
        for (end = i + 1; end < count && compare_kinds(&items[i], &items[end]) == 0;)
            end++;
        rc = add_row(tensors, &items[i], end - i, &found[n++]);
    }
    for (size_t i = 0; items && i < count; i++)
        free(items[i].pattern);
    free(items);
    if (rc) {
        hf_fold_free(found, n);
        return rc;
    }
    qsort(found, n, sizeof *found, compare_rows);
    *rows = found;
    *row_count = n;
    return 0;
}

void hf_fold_free(struct hf_fold_row *rows, size_t count)
{
    for (size_t i = 0; rows && i < count; i++)
        free(rows[i].name);
    free(rows);
}
