/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a GPU whether it can be used, and has the words where a device cannot. */
#include "cli/options/device.h"

#include <stdio.h>
#include <string.h>

/* No reason to worry anyone. */
bool device_absent(enum hst_dev_why why)
{
    return why == HST_DEV_NO_PLUGIN || why == HST_DEV_NO_DRIVER || why == HST_DEV_NO_DEVICE;
}

int device_refused(const char *name, int native, const struct hst_dev_failure *failure,
                   struct hst_error *error)
{
    if (failure->why == HST_DEV_OK)
        return fail(error, FAIL_DEVICE, native, "device \"%.40s\" cannot be opened: %s", name,
                    strerror(-native));
    return fail(error, FAIL_DEVICE, native, "device \"%.40s\" cannot be opened: %s. Fix: %s", name,
                failure->text, hst_dev_fix(failure->why));
}

void device_choose(const char *wish, unsigned local, struct device_choice *choice)
{
    *choice = (struct device_choice){.name = wish, .gpu = wish && strcmp(wish, "host") != 0};
    snprintf(choice->indexed, sizeof choice->indexed, "cuda:%u", local);
    if (wish) {
        if (local > 0 && strcmp(wish, "cuda") == 0)
            choice->name = choice->indexed;
        return;
    }
    const struct hst_dev_config config = {.size = sizeof config};
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    struct hst_dev *dev;
    if (hst_dev_open(choice->indexed, &config, &dev, &failure) == 0) {
        hst_dev_close(&dev);
        choice->name = choice->indexed;
        choice->gpu = true;
        return;
    }
    choice->name = "host";
    choice->warn = !device_absent(failure.why);
    snprintf(choice->why, sizeof choice->why, "%s", failure.text);
}
