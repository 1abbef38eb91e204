/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_CUDA_WAIT_H
#define HST_CUDA_WAIT_H
/* The host waits for the card like this: asleep until it is woken, or looking all the time. */
#include "cuda.h"

/*
 * It goes by the environment's HOISTWAY_WAIT: `block` sleeps, `spin`, unset or empty looks all the
 * time. Errors: -EINVAL another value, with *failure (may be null) written.
 */
int wait_open(bool *sleeps, struct hst_dev_failure *failure);
/* An event's flags beside those about time: for cudaEventCreateWithFlags. */
unsigned wait_event_flags(const struct cuda_dev *dev);

#endif
