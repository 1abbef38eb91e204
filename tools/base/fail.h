/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_FAIL_H
#define HOISTWAY_TOOLS_FAIL_H
/* A tool says like this that something failed: E-code, native errno, one line of text.
   docs/errors.md lists the codes. */
#include <hoistway/hoistway.h>

enum fail_code {
    FAIL_IO_URING = 101,        /* io_uring is blocked and was forced */
    FAIL_STORE_DIR = 105,       /* store directory missing, not a directory, not writable */
    FAIL_READ = 106,            /* a read failed or was short while the run went on */
    FAIL_WRITE = 107,           /* a write failed */
    FAIL_DEVICE = 201,
    FAIL_DISK_SPACE = 301,
    FAIL_BUDGET = 302,          /* no placement fits the budgets */
    FAIL_USAGE = 401,           /* unknown verb, option or key; the nearest is named */
    FAIL_VALUE = 402,           /* a value out of its range, or contradictory options */
    FAIL_MISSING = 403,         /* a required option is missing */
    FAIL_DS_FILE = 404,         /* --config or --options: unreadable, or no Hjson */
    FAIL_DS_KEY = 405,          /* a key of it is unknown, refused, or has a value that is */
    FAIL_MACHINE = 406,         /* a machine file: unreadable, malformed, no such machine */
    FAIL_SAFETENSORS = 410,     /* malformed safetensors file */
    /* malformed model.safetensors.index.json, or shards that contradict it */
    FAIL_INDEX = 411,
    FAIL_CONFIG_FILE = 412,     /* config.json missing, unreadable, not JSON */
    FAIL_CONFIG_VALUE = 413,    /* a key of config.json out of its range */
    FAIL_ARCHITECTURE = 414,    /* not a model that can be trained here */
    FAIL_TENSOR = 415,          /* tensor missing, of another shape or of an unsupported type */
    FAIL_DATA_FILE = 420,       /* missing, unreadable, not a regular file */
    FAIL_DATA_SHORT = 421,      /* fewer tokens than one sequence */
    FAIL_DATA_TOKEN = 422,      /* a token id beyond the vocabulary */
    FAIL_DATA_FORMAT = 423,     /* unknown or malformed format */
    FAIL_TOKENIZER = 427,       /* the data's tokenizer is not the model's */
    FAIL_PYTHON = 428,          /* prep: no Python, or a package that it needs is missing */
    FAIL_EXPORT = 430,          /* export directory refused or not writable */
    FAIL_RANKS = 501,           /* started by a launcher as one of several */
    FAIL_NONFINITE = 701,
};

/**
 * Fills *error (may be null) and returns `native`, a negative errno. Bytes that are no UTF-8, and
 * what utf8.h does not let be shown, are escaped, so that hostile names cannot forge lines.
 */
int fail(struct hst_error *error, enum fail_code code, int native, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** Appends " Fix: …" to the message, unless it names one. */
void fail_fix(struct hst_error *error /* may be null */, const char *fix);

#endif
