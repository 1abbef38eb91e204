/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_CONFIG_OPTIONS_FILE_H
#define HOISTWAY_TOOLS_CLI_CONFIG_OPTIONS_FILE_H
/* A file of our own options by name: {"lr": 1e-4, "precision": "bf16", "quiet": true}. */
#include "base/fail.h"
#include "cli/config/hjson.h"

#include <hoistway/options.h>

struct options_file {
    char name[128]; /* of the file, in messages */
    struct hjson hjson;
    size_t at; /* the entry that holds them: the object itself, or "options" of a log's line */
};

/**
 * Reads one object of options. Of a run's log, it reads the first line, which holds them.
 * Errors: E404 no such file, not readable, too large, not Hjson, a log without options.
 * Ownership: options_file_close, also after an error.
 */
int options_file_read(struct options_file *file, const char *path, struct hst_error *error);
void options_file_close(struct options_file *file);

/** The option behind `entry`, which is file->at at first; null: none. */
const struct hjson_entry *options_file_next(const struct options_file *file,
                                            const struct hjson_entry *entry);
#define OPTIONS_PLACE_BYTES 180u
/** "FILE:2:5: ". Returns place. */
const char *options_file_place(const struct options_file *file, const struct hjson_entry *entry,
                               char place[OPTIONS_PLACE_BYTES]);
/**
 * It finds what stands there for an option, in the words of the command line: *text, null of a flag
 * that is false. E402 where it is no value of that kind of option.
 */
int options_file_value(const struct options_file *file, const struct hjson_entry *entry,
                       const struct hst_option *option, const char **text, struct hst_error *error);

#endif
