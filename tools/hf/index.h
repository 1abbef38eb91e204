/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_HF_INDEX_H
#define HOISTWAY_TOOLS_HF_INDEX_H
/* model.safetensors.index.json: which tensor is in which file. Pure. */
#include "base/fail.h"

#define INDEX_MAX_BYTES 100000000u
#define INDEX_MAX_FILES 4096u

struct index_entry {
    char *name; /* both in the index's text */
    char *file_name;
    uint32_t file; /* into files */
};

struct index {
    struct index_entry *entries; /* sorted by name */
    size_t count;
    char **files; /* sorted, each once */
    uint32_t file_count;
    bool has_total;
    uint64_t total_bytes; /* what the index says; advisory */
};

/**
 * Parses text[size], followed by a NUL, and unescapes strings in place: it must live as long as the
 * index. File names are plain names. Errors: -EBADMSG (E411), -ENOMEM.
 */
int index_parse(const char *path, char *text, size_t size, struct index *index,
                struct hst_error *error);
void index_free(struct index *index);
#endif
