/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_STOP_H
#define HOISTWAY_TOOLS_CLI_STOP_H
/* A user ends a run like this: the first signal asks, the second does not wait. */
#include <signal.h>

enum { CLI_EXIT_STOPPED = 75, CLI_EXIT_STOPPED_AT_ONCE = 130 };

/**
 * From now on the first SIGINT, SIGTERM, SIGUSR1 or SIGHUP (where that is not ignored, as under
 * nohup) is noted and nothing else; one more ends the process at once, with
 * CLI_EXIT_STOPPED_AT_ONCE. May be called again. What the engine keeps on drives has no name until
 * it is committed, so nothing of that is left either way. Returns where the first one's number
 * stands; 0: none came.
 */
const volatile sig_atomic_t *stop_catch(void);

#endif
