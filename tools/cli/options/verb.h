/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_OPTIONS_VERB_H
#define HOISTWAY_TOOLS_CLI_OPTIONS_VERB_H
/* It tells how every verb begins. */
#include "cli/options/options.h"

/**
 * As cli_parse; true: the options are filled, and the verb goes on. False: nothing is left to do,
 * the help has been printed or a refusal told, and *code is the exit code.
 */
bool cli_ready(const struct cli_verb *verb, int argc, char *const *argv, int *code);

#endif
