/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_KERNELS_FAILURE_H
#define HST_KERNELS_FAILURE_H
/* Why a device does not open, written down where the reason is known. */
#include <hoistway/kernels.h>
#include <limits.h>

/* Writes *failure, cut to fit, and returns rc. */
__attribute__((format(printf, 5, 6))) int dev_fail(struct hst_dev_failure *failure, int rc,
                                                   enum hst_dev_why why, int native,
                                                   const char *format, ...);
/*
 * The folder of the library (or program) that holds this code. False where it is not known: a
 * library loaded by a relative path has none, because by now that path may name another file.
 */
bool dev_own_folder(char folder[PATH_MAX]);

#endif
