/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_BASE_DEVICE_FAILURE_H
#define HOISTWAY_ENGINE_BASE_DEVICE_FAILURE_H
/* It says what a device's failure means to the engine's client. */
#include "base/report.h"

#include <hoistway/hoistway.h>
#include <hoistway/kernels.h>

/** This is what options can do instead, behind hst_dev_fix: ", or --device host"; "" where
 * nothing. */
const char *device_way_round(enum hst_dev_why why);
/** The HST_E_ code that it is told as. */
int device_error_code(enum hst_dev_why why);
/** Records an error of a device that was opened by that name: what it says itself, and what it was
 * about. Returns what report_fail does. */
int device_fail(struct report *report, struct hst_dev *dev, const char *name, int native,
                const char *what);

#endif
