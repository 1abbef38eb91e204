/* SPDX-License-Identifier: Apache-2.0 */
/* A configuration as Hjson: whatever is accepted is a list in which each entry stands in its place.
 */
#include "fuzz.h"

#include "cli/config/hjson.h"

#include <errno.h>

static void check_entry(const struct hjson *h, size_t i)
{
    const struct hjson_entry *e = &h->entries[i], *before = &h->entries[i - 1];
    char path[HJSON_PATH_BYTES];
    MUST(e->parent < i && e->type != JSN_ERROR);
    MUST(h->entries[e->parent].type == JSN_OBJECT ||
         (h->entries[e->parent].type == JSN_ARRAY && e->key[0] == '\0'));
    MUST(e->line > before->line || (e->line == before->line && e->column > before->column));
    for (size_t j = 1; j < i && h->entries[e->parent].type == JSN_OBJECT; j++)
        MUST(h->entries[j].parent != e->parent || strcmp(h->entries[j].key, e->key) != 0);
    MUST(strlen(hjson_path(h, i, path)) < sizeof path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = exact_copy(data, size);
    struct hjson h;
    struct hjson_fault fault = {.why = ""};
    const int native = hjson_read(text, size, &h, &fault);
    if (native) {
        MUST(native == -EFBIG || (fault.why[0] && fault.line >= 1 && fault.column >= 1));
        MUST(!h.entries && !h.bytes);
    } else {
        MUST(h.count >= 1 && h.count <= HJSON_MAX_ENTRIES && h.entries[0].type == JSN_OBJECT);
        for (size_t i = 1; i < h.count; i++)
            check_entry(&h, i);
        hjson_free(&h);
    }
    free(text);
    return 0;
}
