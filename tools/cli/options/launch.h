/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_OPTIONS_LAUNCH_H
#define HOISTWAY_TOOLS_CLI_OPTIONS_LAUNCH_H
/* Who this process is among those that a launcher has started together. */
#include "base/fail.h"

#include <hoistway/ranks.h>

/**
 * Of a verb that may be one of several ranks: reads which. Refuses a world that no transport
 * carries, launchers that contradict each other, and flags of which one is missing. E501.
 * Variables that are half set are nobody's: such a process is alone.
 */
int launch_read(const struct hst_launch_flags *flags, struct hst_launch *launch,
                struct hst_error *error);
#endif
