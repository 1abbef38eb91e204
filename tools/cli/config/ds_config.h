/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_CONFIG_DS_CONFIG_H
#define HOISTWAY_TOOLS_CLI_CONFIG_DS_CONFIG_H
/* A DeepSpeed configuration: read, checked against the table of keys, and turned into options. */
#include "base/fail.h"
#include "cli/config/ds_keys.h"
#include "cli/config/hjson.h"
#include "cli/schedule_peer.h"

enum ds_place {
    DS_AT_REFUSED = 0, /* not reached: the whole file is refused */
    DS_AT_SECTION,
    DS_AT_USED, /* a row that decides an option */
    DS_AT_NOTED,
    DS_AT_PASSED, /* a part of a noted tree, an element, or null, which counts as absent */
};

struct ds_config {
    char name[128]; /* of the file, in messages */
    struct hjson hjson;
    const struct hjson_entry *of[DS_MAX_KEYS]; /* by row; null: not there */
    unsigned char place[HJSON_MAX_ENTRIES];    /* by entry: enum ds_place */
    bool worded[HJSON_MAX_ENTRIES]; /* by entry: a true or false that stands there as a text */
};

/**
 * Reads `source`, a file, or where there is none of that name the text itself, as it is or in
 * base64 (also the one of URLs), as DeepSpeed does. Every key is then known, has its type and is
 * not refused.
 * Errors: E404 no such file, not readable, too large, not Hjson; E405 a key that is unknown, stands
 * there twice under two names, has another type, or is refused.
 * Ownership: ds_config_close, also after an error.
 */
int ds_config_read(struct ds_config *config, const char *source, struct hst_error *error);
void ds_config_close(struct ds_config *config);

#define DS_ENTRY_BYTES 180u
/** dst ← "KEY VALUE" of an entry, a long one cut. Returns dst. */
const char *ds_entry_text(const struct ds_config *config, const struct hjson_entry *entry,
                          char dst[DS_ENTRY_BYTES]);
/** Fills *error: "FILE:LINE:COLUMN: KEY VALUE: text"; entry null: "FILE: text". Returns -EINVAL. */
int ds_refuse(const struct ds_config *config, const struct hjson_entry *entry,
              struct hst_error *error, const char *text);

/* ---- as options ---- */

/** True of DeepSpeed's name of a class of optimizers that hoistway has. */
bool ds_has_optimizer(const char *type);
/** All of these classes, as a sentence lists them. */
extern const char ds_optimizers[];

enum ds_why { DS_SAID = 0, DS_ABSENT, DS_AUTO };

#define DS_MAX_ALSO 3u
/** An option of ours that a configuration decides. */
struct ds_option {
    const char *option; /* "clip" */
    const char *value;  /* in the words of the command line; null: refused unless that has it */
    const char *refusal;
    const struct ds_key *key;
    const struct hjson_entry *entry; /* null: its section is there without it */
    /* Others of the file that it comes from, too, or that give way to `entry`; null where fewer. */
    const struct hjson_entry *also[DS_MAX_ALSO];
    enum ds_why why;
};

#define DS_MAX_OPTIONS 24u
struct ds_options {
    struct ds_option list[DS_MAX_OPTIONS];
    size_t count;
    char texts[8192]; /* of values */
    size_t used;
    /* kind 0: none; steps 0: "auto", those of --warmup and of the run */
    struct schedule_peer scheduler;
};

/** A batch needs this beside the file. */
struct ds_run {
    uint64_t seq_len; /* 0: not given */
    uint32_t ranks;
    bool own_optimizer; /* the command line has one */
    bool own_schedule;  /* the command line has one: the scheduler of the file does not count */
    /* "fp16", of the command line; null: it has none. What a section says of another one does not
       count, and where one is "auto" it is this. */
    const char *precision;
};

/**
 * It turns a configuration that was read into options, in the order of the table. Pure.
 * Errors: E405 values that contradict each other or have no counterpart.
 */
int ds_config_options(const struct ds_config *config, struct ds_run run, struct ds_options *options,
                      struct hst_error *error);

#endif
