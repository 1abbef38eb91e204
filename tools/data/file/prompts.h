/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_DATA_FILE_PROMPTS_H
#define HOISTWAY_TOOLS_DATA_FILE_PROMPTS_H
/* This is what a model can be asked while it trains, and what its ids stand for: of a token
   file. */
#include "data/file/files.h"

struct prompts {
    const char *path; /* of their file, which has to stay open; borrowed */
    uint64_t count;   /* of those that were read */
    uint64_t all;     /* of those that the file has */
    uint64_t *starts; /* [count + 1] */
    uint32_t *ids;    /* [starts[count]] */
    uint64_t id_count; /* that the file has bytes of; 0: of none */
    uint64_t *byte_starts; /* [id_count + 1] */
    unsigned char *bytes;  /* [byte_starts[id_count]] */
};

/**
 * Reads the first `most` prompts of the first file that has prompts, and its bytes. Each prompt has
 * an id, and all ids are below vocab (0: any). *prompts, to be freed whatever comes of it, has none
 * where no file has. Errors: E106 (also: not what was checked when the file was opened), E420 (no
 * memory).
 */
int prompts_read(struct token_files files, uint64_t vocab, uint64_t most, struct prompts *prompts,
                 struct hst_error *error);
void prompts_free(struct prompts *prompts);
/** Bytes of an id, *count of them, which stand in no other's; none of one that the file lacks. */
const unsigned char *prompts_bytes(const struct prompts *prompts, uint32_t id, size_t *count);
#endif
