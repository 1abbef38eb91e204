/* SPDX-License-Identifier: Apache-2.0 */
#include "session/sums.h"

#include "exec/visit/execute.h"
#include "session/ranks/ranks.h"

#include <errno.h>
#include <string.h>

void sums_take(struct hst_engine *engine, double sums[HST_SUMS])
{
    for (int i = 0; i < HST_SUMS; i++) {
        sums[i] = exact_value(&engine->sums[i]);
        engine->sums[i] = (struct exact_sum){.unsettled = 0};
    }
}

int hst_sum_add(struct hst_engine *engine, uint32_t sum, double value)
{
    if (sum >= HST_SUMS)
        return report_refuse(&engine->report, "sum %u of %d", sum, HST_SUMS);
    exact_add(&engine->sums[sum], value);
    return 0;
}

static int agree(struct hst_engine *engine)
{
    int64_t numbers[HST_SUMS][EXACT_NUMBERS];
    for (int i = 0; i < HST_SUMS; i++) {
        exact_settle(&engine->sums[i]);
        memcpy(numbers[i], engine->sums[i].number, sizeof numbers[i]);
    }
    int rc = ranks_sum(engine, numbers[0], HST_SUMS * EXACT_NUMBERS);
    for (int i = 0; i < HST_SUMS && rc == 0; i++)
        memcpy(engine->sums[i].number, numbers[i], sizeof numbers[i]);
    return rc;
}

int hst_sum_agree(struct hst_engine *engine, double sums[HST_SUMS])
{
    if (engine->report.error.code)
        return engine->report.error.native;
    if (engine->phase != PHASE_LOADED || !sums)
        return report_refuse(&engine->report, "sums are agreed on between steps, or by a step");
    /* nothing of the graph is under way then, which has an order of its own */
    int rc = engine->comm ? execute_drain(&engine->exec) : 0;
    rc = rc ? rc : agree(engine);
    if (rc == 0)
        sums_take(engine, sums);
    return rc;
}

int hst_engine_sum(struct hst_engine *engine, int64_t *values, size_t count)
{
    if (engine->report.error.code)
        return engine->report.error.native;
    if (engine->phase != PHASE_LOADED || !values)
        return report_refuse(&engine->report, "values are added up between steps");
    int rc = engine->comm ? execute_drain(&engine->exec) : 0;
    return rc ? rc : ranks_sum(engine, values, count);
}
