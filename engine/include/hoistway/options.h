/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_OPTIONS_H
#define HOISTWAY_OPTIONS_H
/*
 * The options of the engine: one table for command line, help, ds_config.json. Part of
 * <hoistway/hoistway.h>, which says what each field is for. Thread-safety: safe.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum hst_option_type {
    HST_OPTION_SIZE,   /* uint64_t bytes: 4K, 1M, 2GiB, 5e8 */
    HST_OPTION_COUNT,  /* uint64_t: 512, 1e6, 4K */
    HST_OPTION_UINT32, /* uint32_t */
    HST_OPTION_REAL,   /* double; an explicit 0 is stored as HST_NONE where zero_is_none */
    HST_OPTION_PAIR,   /* double[2]: "0.9,0.999"; explicit zeros as in REAL */
    HST_OPTION_CHOICE, /* int: first_choice + index into choices */
    HST_OPTION_TEXT,   /* const char *, borrowed from the argument */
    HST_OPTION_FLAG,   /* bool, takes no value */
    HST_OPTION_SHARE,  /* struct hst_share: 100, 1e3, 3% */
    /* const char *[HST_OPTION_TEXTS_MOST], one each time it is given, borrowed; the rest is null */
    HST_OPTION_TEXTS,
};

#define HST_OPTION_TEXTS_MOST  8u
#define HST_OPTION_TEXTS_BYTES 1024u /* of all texts of one, with a ';' behind each */

/** A count, or a percentage of what is counted where that is known later. Both 0: none. */
struct hst_share {
    uint64_t count; /* 0 where a percentage was given */
    double percent; /* 0 to 100 */
};

/** One option: everything its parser, its help line and its manual entry need. */
struct hst_option {
    const char *name;  /* "batch-tokens", without dashes */
    const char *group; /* heading in the help: "input", "training", "placement", "output" */
    enum hst_option_type type;
    size_t offset;            /* of the field in the struct the option belongs to */
    const char *argument;     /* "N", "SIZE", "DIR"; null for a flag */
    const char *default_text; /* shown in help; null: none, shown as such */
    /* range, inclusive; of SIZE, COUNT, UINT32, REAL, each of PAIR, the count of SHARE, whose
       percentage may be 0 only where least is 0 */
    double least, greatest;
    bool greatest_excluded;   /* [least, greatest) */
    bool zero_is_none;
    const char *const *choices; /* null-terminated, for CHOICE */
    int first_choice;           /* what choices[0] stands for; the others follow it */
    const char *help;
};

/** Options that fill a struct hst_config; static, immutable. */
const struct hst_option *hst_engine_options(size_t *count);
/**
 * Parses one value into the field of `target`. Nothing is written on failure; `why` then holds the
 * value seen, what is expected and the range. Errors: -EINVAL, -ERANGE.
 */
int hst_option_parse(const struct hst_option *option, const char *text, void *target, char *why,
                     size_t why_bytes);

#ifdef __cplusplus
}
#endif
#endif
