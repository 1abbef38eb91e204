/* SPDX-License-Identifier: Apache-2.0 */
#include "smallest_budget.h"

bool seals(const struct hst_config *config, int (*describe)(struct hst_engine *engine))
{
    struct hst_engine *engine = NULL;
    int rc = hst_engine_create(config, &engine);
    rc = rc ? rc : describe(engine);
    rc = rc ? rc : hst_engine_seal(engine, HST_ORDER_FORWARD);
    hst_engine_destroy(&engine);
    return rc == 0;
}

void lower_budget(struct hst_config *config, uint64_t *budget, uint64_t most,
                  int (*describe)(struct hst_engine *engine))
{
    uint64_t page = 4096, low = page, high = most;
    while (high - low > page) {
        *budget = (low + high) / 2 / page * page;
        if (seals(config, describe))
            high = *budget;
        else
            low = *budget;
    }
    *budget = high;
}
