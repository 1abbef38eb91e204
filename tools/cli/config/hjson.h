/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_CONFIG_HJSON_H
#define HOISTWAY_TOOLS_CLI_CONFIG_HJSON_H
/*
 * Reads JSON, and of Hjson what published configurations use of it: comments (#, //, and C's), keys
 * without quotes, commas before an end, and commas that are missing at the end of a line. A text
 * without quotes, one in single quotes or in three of them is refused: Hjson takes a comma that
 * follows the first of these as a part of it.
 */
#include "hf/json/json.h"

#define HJSON_MAX_BYTES   (1u << 20)
#define HJSON_MAX_DEPTH   16u
#define HJSON_MAX_ENTRIES 2048u

/** The object itself (entry 0), a member or an element, in the order of the text. */
struct hjson_entry {
    enum jsn_type type;    /* JSN_OBJECT, JSN_ARRAY, JSN_STRING, JSN_NUMBER, JSN_TRUE, … */
    uint32_t parent;       /* the entry that it stands in; entry 0 stands in itself */
    const char *key;       /* unescaped; "" of entry 0 and of elements */
    const char *text;      /* strings: unescaped; the others as they stand; "" of containers */
    uint32_t key_hash;     /* of the reader's own */
    uint32_t line, column; /* of the key, or of an element; from 1, columns in characters */
};

struct hjson {
    struct hjson_entry *entries;
    size_t count;
    char *bytes; /* of keys and texts */
};

struct hjson_fault {
    char why[128]; /* in words that follow "has" */
    uint32_t line, column;
};

/**
 * Reads a whole text, one object. Keys that stand in one object twice are refused, and so are bytes
 * that are no UTF-8, NUL, lone surrogates, numbers that a double does not hold, and what is above
 * the limits. text[size] must be readable. It allocates 84 KiB and the text's size.
 *
 * Errors: -EBADMSG with *fault, -EFBIG, -ENOMEM.   Ownership: hjson_free.   Thread-safety: safe.
 */
int hjson_read(const char *text, size_t size, struct hjson *hjson, struct hjson_fault *fault);
void hjson_free(struct hjson *hjson);

#define HJSON_VALUE_BYTES 64u
/** dst ← the value as a message shows it: "nvme" with its quotes, 1e-4, {...}; a long one cut.
 * Returns dst. */
const char *hjson_value(const struct hjson_entry *entry, char dst[HJSON_VALUE_BYTES]);

#define HJSON_PATH_BYTES 256u
/** "zero_optimization.offload_param.device", "optimizer.params.betas[0]"; cut where it is longer.
 * Returns path. */
const char *hjson_path(const struct hjson *hjson, size_t entry, char path[HJSON_PATH_BYTES]);
/** The entry at a path like these; null where there is none. A key with a dot has no such path. */
const struct hjson_entry *hjson_at(const struct hjson *hjson, const char *path);

#endif
