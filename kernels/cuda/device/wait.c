/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The choice between sleeping and looking, made once, when a device is opened, for all waits of
 * that device. README.md says why looking is the default. To sleep until a stream is done takes
 * an event, too: the runtime's own way to wait for a stream is a setting of the whole context.
 */
#include "wait.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int wait_open(bool *sleeps, struct hst_dev_failure *failure)
{
    const char *wish = getenv("HOISTWAY_WAIT");
    *sleeps = wish && strcmp(wish, "block") == 0;
    if (*sleeps || !wish || !*wish || strcmp(wish, "spin") == 0)
        return 0;
    cuda_failure_set(failure, HST_DEV_ENVIRONMENT, 0,
                     "HOISTWAY_WAIT is \"%.100s\": none of \"block\", \"spin\"", wish);
    return -EINVAL;
}

unsigned wait_event_flags(const struct cuda_dev *dev)
{
    return dev->sleeps ? cudaEventBlockingSync : cudaEventDefault;
}
