/* SPDX-License-Identifier: Apache-2.0 */
/* It tells how every verb begins: its arguments are read, or its help is printed, or they are
   refused. */
#include "cli/options/verb.h"

#include "cli/message/message.h"

bool cli_ready(const struct cli_verb *verb, int argc, char *const *argv, int *code)
{
    struct hst_error error = {0};
    bool help = false;
    if (cli_parse(verb, argc, argv, &help, &error)) {
        *code = cli_fail(&error);
        return false;
    }
    if (help)
        cli_help(verb, stdout);
    *code = CLI_EXIT_OK;
    return !help;
}
