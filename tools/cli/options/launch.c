/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Refuses what a launcher has started as one of several: they would be whole runs that know nothing
 * of each other, on one store, one log and one export. Variables that are half set, or that are no
 * numbers, are nobody's: such a process is alone.
 */
#include "cli/options/launch.h"

#include <hoistway/ranks.h>

#include <errno.h>

int launch_check(struct hst_error *error)
{
    struct hst_launch launch;
    hst_launch_read(NULL, NULL, &launch, NULL);
    if (launch.ranks == 1)
        return 0;
    return fail(error, FAIL_RANKS, -EINVAL,
                "%s has started this as one of %u (%s is %u), and each would be a whole run that "
                "knows nothing of the others: hoistway is one process yet. Fix: start it once, %s.",
                launch.launcher, launch.ranks, launch.variable, launch.ranks, launch.alone);
}
