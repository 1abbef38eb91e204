/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BENCH_BUDGET_H
#define HOISTWAY_TOOLS_BENCH_BUDGET_H
#include <hoistway/kernels.h>

/**
 * The budget of device memory that training takes where nobody says one: attention's workspace
 * follows it, and with that who serves the backward of long sequences. 0 on the host, which has
 * none.
 */
uint64_t bench_budget_bytes(struct hst_dev *dev);
/** Takes that budget; none on the host, and none of host memory. Errors: -ENOSPC. */
int bench_budget_take(struct hst_dev *dev, uint64_t budget_bytes);

#endif
