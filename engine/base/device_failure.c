/* SPDX-License-Identifier: Apache-2.0 */
#include "base/device_failure.h"

#include <string.h>

const char *device_way_round(enum hst_dev_why why)
{
    switch (why) {
    case HST_DEV_NO_PLUGIN:
        return "; --device takes host, cuda or cuda:INDEX";
    case HST_DEV_BROKEN_PLUGIN:
    case HST_DEV_NO_DRIVER:
    case HST_DEV_OLD_DRIVER:
    case HST_DEV_NO_DEVICE:
    case HST_DEV_ARCHITECTURE:
        return ", or --device host";
    case HST_DEV_LOCKED_MEMORY:
        return ", or lower --dram";
    case HST_DEV_MEMORY:
        return ", or lower --hbm";
    default:
        return "";
    }
}

int device_error_code(enum hst_dev_why why)
{
    return why == HST_DEV_MEMORY || why == HST_DEV_LOCKED_MEMORY ? HST_E_DEVICE_MEMORY
           : why == HST_DEV_EXECUTION || why == HST_DEV_CARD     ? HST_E_DEVICE_FAILED
           : why == HST_DEV_NAME                                 ? HST_E_VALUE
           : why == HST_DEV_CORE                                 ? HST_E_HOST_MATH
           : why == HST_DEV_ADDRESS_SPACE                        ? HST_E_BUDGET
                                                                 : HST_E_DEVICE;
}

int device_fail(struct report *report, struct hst_dev *dev, const char *name, int native,
                const char *what)
{
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    hst_dev_failure(dev, &failure);
    if (failure.why == HST_DEV_OK)
        return report_fail(report, HST_E_DEVICE_FAILED, native, "%s failed on device \"%s\": %s",
                           what, hst_dev_name(dev), strerror(-native));
    return report_fail(report, device_error_code(failure.why), native,
                       "%s failed on device \"%s\": %s. Fix: %s%s", what, name, failure.text,
                       hst_dev_fix(failure.why), device_way_round(failure.why));
}
