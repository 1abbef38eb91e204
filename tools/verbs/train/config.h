/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_TRAIN_CONFIG_H
#define HOISTWAY_TOOLS_VERBS_TRAIN_CONFIG_H
/* --config FILE of train and plan: what a DeepSpeed configuration says beside the command line. */
#include "cli/config/ds_config.h"
#include "cli/message/message.h"
#include "verbs/train/train.h"

struct train_config {
    struct ds_config config;
    struct ds_options options;
    enum cli_supplied how[DS_MAX_OPTIONS];
};

/** A cli_more_fn whose context is a struct train_options: reads its --options and its --config, if
 * there are any, and takes from them what the command line, and the first of them, does not say.
 * --explain-config and --print-options are then answered on stdout. E402 --explain-config alone,
 * E401 and E402 of --options, E404, E405, and E501 of ranks that contradict each other. */
cli_more_fn train_config_more;
/** The same of a verb that is one process, whatever has started it. */
int train_config_more_of(struct cli_parser *parser, struct train_options *options, uint32_t ranks,
                         bool *done, struct hst_error *error);
/** Tells what of the files is overruled, what the configuration was made into, and what has no
 * effect: a line each, unless options->quiet. A warning tells of what only looks like what it
 * means. */
void train_config_tell(const struct train_options *options);
/** A cli_origin_fn whose context is a struct train_options whose files were taken: an error that
 * names options which a file decides gets "FILE:LINE:COLUMN: KEY VALUE (--option value): " before
 * it, of --options without what is in parentheses, as the key is the option. E404 and E405 have
 * theirs, where the file could be read. */
cli_origin_fn train_origin;
/**
 * The scheduler that counts in place of --schedule, with the steps of the run where it leaves them
 * to it; kind 0: none. E405 where --warmup contradicts it, and where it leaves that to --warmup,
 * which is not given.
 */
int train_config_scheduler(const struct train_options *options, struct schedule_peer *peer,
                           struct hst_error *error);
void train_config_close(struct train_options *options);

#endif
