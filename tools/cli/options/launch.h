/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_OPTIONS_LAUNCH_H
#define HOISTWAY_TOOLS_CLI_OPTIONS_LAUNCH_H
/* True where a launcher has started this process as one of several, which one process does not know
   of. */
#include "base/fail.h"

/** Refuses to be one of several: E501. To be called before anything is written. */
int launch_check(struct hst_error *error);
#endif
