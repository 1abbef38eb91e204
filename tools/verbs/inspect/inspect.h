/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_INSPECT_INSPECT_H
#define HOISTWAY_TOOLS_VERBS_INSPECT_INSPECT_H
/* Between the files of `hoistway inspect`: one function for each kind of thing. */
#include "base/fail.h"
#include "data/data.h"
#include "data/pack.h"
#include "hf/json/json.h"
#include "views/views.h"

#include <stdio.h>

struct inspect_options {
    enum token_dtype token_dtype;
    uint64_t seq_len; /* 0: packing is not told */
    uint64_t row; /* from 1; 0: none is told */
    enum data_pack pack;
    enum pack_long longer; /* 0: by what the file is */
    bool json, all;
    struct views_paths views; /* of a log */
};

/* ---- a screen: 24 lines of 80 columns, one of them the next prompt ---- */

#define SCREEN_LINES   23u
#define SCREEN_COLUMNS 80u

struct screen {
    unsigned used; /* lines; a text that is wider takes several */
};
void screen_say(struct screen *screen, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** Lines that are left; all of them are told: many. */
unsigned screen_left(const struct screen *screen, const struct inspect_options *options);
/** It returns what a path or a name may look like on a line; line: where it is kept. */
const char *screen_name(const char *name, struct hst_error *line);

#define INSPECT_TEXT_BYTES 256u /* a longer one is left out */

/* ---- kinds. Errors: 0 or negative errno with *error ---- */

/** A model's directory, or a file of weights. */
int inspect_weights(const char *path, bool directory, const struct inspect_options *options,
                    struct hst_error *error);
int inspect_log(const char *path, const struct inspect_options *options, struct hst_error *error);
int inspect_trace(const char *path, const struct inspect_options *options,
                  struct hst_error *error);
int inspect_rates(const char *path, const struct inspect_options *options,
                  struct hst_error *error);
int inspect_bench(const char *path, const struct inspect_options *options,
                  struct hst_error *error);
/** Data: text, tokens, rows of ids. */
int inspect_tokens(const char *path, const struct inspect_options *options,
                   struct hst_error *error);
/** It tells whether a file of safetensors is one of tokens. */
bool inspect_has_tokens(const char *path);
/** Options of packing without a length of rows. E402. */
int inspect_check_packing(const struct inspect_options *options, struct hst_error *error);
/** One file of a store. */
int inspect_store_file(const char *path, const struct inspect_options *options,
                       struct hst_error *error);

#endif
