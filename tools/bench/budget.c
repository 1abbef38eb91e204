/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/budget.h"

#define NO_LIMIT_BYTES ((uint64_t)1 << 46) /* the machine's own memory is the limit */

uint64_t bench_budget_bytes(struct hst_dev *dev)
{
    struct hst_dev_info info;
    if (hst_dev_flags(dev) & HST_DEV_HOST_MEMORY)
        return 0;
    hst_dev_info(dev, &info);
    return hst_dev_usual_bytes(info.memory_free_bytes);
}

int bench_budget_take(struct hst_dev *dev, uint64_t budget_bytes)
{
    return hst_dev_budget(dev, budget_bytes ? budget_bytes : NO_LIMIT_BYTES, NO_LIMIT_BYTES);
}
