/* SPDX-License-Identifier: Apache-2.0 */
/* What is common to all providers of extents. */
#include "tier/extent.h"

int extents_wait(struct extents *extents, struct transfer *transfer)
{
    while (transfer->active) {
        int rc = extents->ops->progress(extents, true);
        if (rc)
            return rc;
    }
    return transfer->error;
}
