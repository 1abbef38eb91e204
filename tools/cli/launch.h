/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_LAUNCH_H
#define HOISTWAY_TOOLS_CLI_LAUNCH_H
/* Whether a launcher has started this process as one of several, which one process does not know
   of. */
#include "base/fail.h"

/** Value of a variable of the environment, or null: getenv, or a test's. */
typedef const char *(*launch_getenv)(const char *name);

struct launch {
    const char *launcher; /* "Slurm"; null where the process is alone */
    const char *variable; /* that says so */
    unsigned long count;  /* of processes */
    const char *alone;    /* how it is started alone */
};
/** Pure but for the getter. */
struct launch launch_of(launch_getenv get);
/** Refuses to be one of several: E501. To be called before anything is written. */
int launch_check(struct hst_error *error);
#endif
