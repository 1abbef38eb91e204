/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_TRAIN_OPTIONS_FILE_H
#define HOISTWAY_TOOLS_VERBS_TRAIN_OPTIONS_FILE_H
/* --options FILE of train and plan, and what a run writes to be one. */
#include "cli/config/options_file.h"
#include "cli/log/json.h"
#include "cli/schedule_peer.h"
#include "verbs/train/train.h"

#define TRAIN_OPTIONS_LINE_BYTES 300u
struct train_options_file {
    struct options_file file;
    char overruled[TRAIN_OPTIONS_LINE_BYTES], idle[TRAIN_OPTIONS_LINE_BYTES]; /* "--lr, --seed" */
    bool taken[HJSON_MAX_ENTRIES]; /* by entry: an option of the run has its value from there */
    bool unseen; /* its --eval-every: nothing is evaluated on */
};

/** Takes from options->options_path what the command line does not say. E401 a name that no option
 * has, E402 a value, E404; each names file, line and column. */
int train_options_file_take(struct cli_parser *parser, struct train_options *options,
                            struct hst_error *error);
/** Tells what of the file the command line wins over, and what plan has no use for. */
void train_options_file_tell(const struct train_options *options);
void train_options_file_close(struct train_options *options);

/**
 * Writes the members of such a file: what was given, and the defaults that are values. Without what
 * the data or the machine decides, paths, and what goes with --resume. The scheduler of a
 * configuration, which has no option, is a --config of its own.
 */
void train_options_put(struct json_writer *json, const struct train_options *options,
                       const struct schedule_peer *peer);
/** --print-options: the same as a whole file on stdout. Errors: -EINVAL (E402) the optimizer cannot
 * have these numbers. */
int train_options_print(const struct train_options *options, struct hst_error *error);

#endif
