/* SPDX-License-Identifier: Apache-2.0 */
/* Opens devices by name. */
#include "base.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

int hst_dev_open(const char *name, const struct hst_dev_config *config, struct hst_dev **dev,
                 struct hst_dev_failure *failure)
{
    if (strcmp(name, "host") == 0)
        return hst_dev_host_open(config, dev);
    if (failure) {
        failure->why = HST_DEV_NO_PLUGIN;
        snprintf(failure->text, sizeof failure->text, "no plugin was found for \"%s\"", name);
    }
    return -ENODEV;
}
