/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_OPTIONS_OPTIONS_H
#define HOISTWAY_TOOLS_CLI_OPTIONS_OPTIONS_H
/* A verb's command line: one or several option tables (the engine's, the verb's own), each filling
   a struct. */
#include "base/fail.h"

#include <hoistway/hoistway.h>
#include <stdio.h>

struct cli_set {
    const struct hst_option *options;
    size_t count;
    void *target; /* filled with what is given; defaults are there before */
};

#define CLI_MAX_OPERANDS 16u
/** Arguments that are not options, in order. */
struct cli_operands {
    const char *argument; /* as shown in the help: "DIR..." */
    size_t count;
    const char *values[CLI_MAX_OPERANDS]; /* borrowed from the arguments */
};

struct cli_parser;
/** Says more than the arguments do: what a file has. Behind all of them, before the required ones
 * are looked for. *done: nothing else is wanted, as with --help. Returns 0, or negative with
 * *error. */
typedef int cli_more_fn(struct cli_parser *parser, void *context, bool *done,
                        struct hst_error *error);

#define CLI_MAX_SETS    6u
#define CLI_MAX_OPTIONS 96u /* of a verb, all sets together */

struct cli_verb {
    const char *name;            /* "train" */
    const char *command;         /* what is typed; null: "hoistway " and the name */
    const char *about;           /* one line */
    const char *see;             /* the help's last line; may be null */
    const char *const *required; /* option names, or "one|other"; null-terminated; may be null */
    struct cli_set sets[CLI_MAX_SETS];
    size_t set_count;
    struct cli_operands *operands; /* null: only options are taken */
    const struct cli_verb *kin; /* whose options are told to be its own; may be null */
    cli_more_fn *more;          /* may be null */
    void *more_context;
};

/** It returns what is typed before the options: "hoistway train", "nvme-bench". Static storage of
   the verb's strings, or dst. */
const char *cli_command(const struct cli_verb *verb, char dst[64]);

/**
 * Reads `--name value`, `--name=value` and flags. argv holds what follows the verb. Strict: an
 * unknown option, a second use of the same one and a value out of its range are refused, and
 * nothing is guessed. *help is set where --help or -h is found; the rest is then neither checked
 * nor required.
 * Returns 0 or -EINVAL with *error (E401 unknown, E402 value, E403 missing).
 */
int cli_parse(const struct cli_verb *verb, int argc, char *const *argv, bool *help,
              struct hst_error *error);

enum cli_supplied { CLI_TAKEN = 0, CLI_OVERRULED, CLI_NO_OPTION, CLI_BAD_VALUE };
#define CLI_WHY_BYTES 400u
/** For cli_more_fn: an option's value that is not of the command line. Where that has the option,
 * it stays. The text must stay where it is. CLI_BAD_VALUE: *why says what is wrong with it. A null
 * value asks alone. */
enum cli_supplied cli_supply(struct cli_parser *parser, const char *option, const char *value,
                             char why[CLI_WHY_BYTES]);

/** For cli_more_fn: the option of a name; null: the verb has none. *kin is then its kin's option,
 * or null. */
const struct hst_option *cli_option_find(const struct cli_parser *parser, const char *name,
                                         const struct hst_option **kin);
/** For cli_more_fn: refuses a name that no option has (E401), as on the command line. `place`
 * stands before the text: "FILE:2:5: ". Returns -EINVAL. */
int cli_option_unknown(const struct cli_parser *parser, const char *name, const char *place);

/** The entry of verb->required that holds an option's name, or null. */
const char *cli_required(const struct cli_verb *verb, const char *name);

/** The help of a verb, made from its tables. */
void cli_help(const struct cli_verb *verb, FILE *out);

/** The candidate that other programs call `name`, null where there is none. */
const char *cli_synonym(const char *name, const char *const *candidates, size_t count);
/** The same, else the name nearest to `name` by edit distance; null where none is near. */
const char *cli_nearest(const char *name, const char *const *candidates, size_t count);

#define CLI_TEXT_BYTES HST_OPTION_TEXTS_BYTES
/**
 * A value in the words of the command line, from its field of `target`; of a flag that is set "".
 * Null: it was not given. Returns dst, a choice's name or the text itself.
 */
const char *cli_option_text(const struct hst_option *option, const void *target,
                            char dst[CLI_TEXT_BYTES]);

#define CLI_MEANT_BYTES 64u
/** It guesses what a value that `option` has refused was meant to be, a value that it takes. False:
   not known.
 */
bool cli_value_meant(const struct hst_option *option, const char *text, char dst[CLI_MEANT_BYTES]);

#endif
