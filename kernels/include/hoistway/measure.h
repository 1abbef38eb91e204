/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_MEASURE_H
#define HOISTWAY_MEASURE_H
/*
 * A device has this for who measures it, beside kernels.h: the time of its own clock at a mark, and
 * page-locking of memory that the caller chose. Nothing that trains needs either.
 */
#include <hoistway/kernels.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * An event that also takes the time when its mark is passed, by the device's own clock. All else is
 * as with hst_event_create's.
 */
int hst_event_create_timed(struct hst_dev *dev, struct hst_event **event);
/**
 * Seconds from begin's mark to end's, of one device. Errors: -EINVAL an event that takes no time or
 * was never recorded, -EAGAIN one that is not passed yet, or the sticky error of a stream that one
 * was recorded in; *seconds is then untouched.
 */
int hst_event_seconds(struct hst_event *begin, struct hst_event *end, double *seconds);

/**
 * Page-locks memory that the caller has mapped and written to, whole pages of 4 KiB, and lets it go
 * again. Memory for copies is hst_dev_host_alloc's; the budget does not count what is locked here.
 * Errors: -EINVAL, -ENOMEM (the machine or its limit of locked memory has none left), -ENOTSUP a
 * device that locks no pages (the host).
 */
int hst_dev_host_lock(struct hst_dev *dev, void *memory, size_t size_bytes);
int hst_dev_host_unlock(struct hst_dev *dev, void *memory, size_t size_bytes);

#ifdef __cplusplus
}
#endif
#endif
