/* SPDX-License-Identifier: Apache-2.0 */
#include "smallest_budget.h"

#include "session/engine_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Units that are resident where it is sealed, and all units; 0 where it is not. */
struct sealed {
    uint32_t resident, units;
};

static struct sealed seal(const struct hst_config *config, int (*describe)(struct hst_engine *))
{
    struct hst_engine *engine = NULL;
    struct sealed sealed = {0};
    int rc = hst_engine_create(config, &engine);
    rc = rc ? rc : describe(engine);
    rc = rc ? rc : hst_engine_seal(engine, HST_ORDER_FORWARD);
    if (rc == 0)
        sealed = (struct sealed){engine->placement.resident_units, engine->layout.unit_count};
    hst_engine_destroy(&engine);
    return sealed;
}

bool seals(const struct hst_config *config, int (*describe)(struct hst_engine *engine))
{
    return seal(config, describe).units > 0;
}

void share_units(struct hst_config *config, uint64_t most,
                 int (*describe)(struct hst_engine *engine))
{
    uint64_t page = 4096, low = 0, high = most;
    struct hst_config waits = *config;
    waits.update_time = HST_UPDATE_DEFERRED; /* which all of them may be resident with */
    while (high - low > page) {
        waits.hbm_bytes = (low + high) / 2 / page * page;
        struct sealed sealed = seal(&waits, describe);
        if (sealed.units > 0 && sealed.resident == sealed.units)
            high = waits.hbm_bytes;
        else
            low = waits.hbm_bytes;
    }
    config->hbm_bytes = low;
    struct sealed sealed = seal(config, describe);
    assert_in_range(sealed.resident, 1, sealed.units - 1);
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
