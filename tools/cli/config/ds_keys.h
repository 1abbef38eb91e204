/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_CONFIG_DS_KEYS_H
#define HOISTWAY_TOOLS_CLI_CONFIG_DS_KEYS_H
/* One row for each key that a DeepSpeed configuration can have, and what becomes of it here. */
#include <stdbool.h>
#include <stddef.h>

enum ds_verdict {
    DS_OPTION = 0, /* decides an option of ours, or is checked against one */
    DS_NOTED,      /* named in a line of its own, without effect */
    DS_REFUSED,    /* would change numbers, or promises what is not there */
};

enum ds_type {
    DS_BOOL = 0,
    DS_WHOLE, /* a whole number; 5e8 is one */
    DS_REAL,
    DS_TEXT,
    DS_REALS,   /* an array of numbers */
    DS_SECTION, /* an object whose keys have rows */
    DS_TREE,    /* anything; what stands in it needs no row */
};

struct ds_key {
    const char *path;
    const char *aliases; /* other paths, "a|b"; may be null */
    enum ds_type type;
    enum ds_verdict verdict;
    /* values with which a refused key is noted, "false|0"; of an object what stands in it, or does
       not: "size: 0|no size"; may be null */
    const char *harmless;
    const char *absent;    /* what it is where its section is there without it; null: nothing */
    const char *automatic; /* "auto", where the command line does not say it; null: ours */
    bool older;            /* DeepSpeed 0.19.8 does not read it: others did, or people write it */
    const char *words;     /* what becomes of it; of a refused one also what to do */
};

extern const struct ds_key ds_keys[];
extern const size_t ds_key_count;
#define DS_MAX_KEYS 256u

/** The row of a path, by its name or an alias of it; null: unknown. */
const struct ds_key *ds_key_find(const char *path);
/** An unknown path may mean: a key of its section, or the path of one that stands in another;
 * null where none is near. */
const char *ds_key_nearest(const char *path);
/** True where `word` is one of "a|b"; of null never. */
bool ds_among(const char *list, const char *word);
/** "option", "noted", "refused". */
const char *ds_verdict_name(enum ds_verdict verdict);
/** "true or false", "a whole number", … */
const char *ds_type_name(enum ds_type type);

#endif
