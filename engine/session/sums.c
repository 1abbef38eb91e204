/* SPDX-License-Identifier: Apache-2.0 */
#include "session/sums.h"

#include <errno.h>

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

int hst_sum_agree(struct hst_engine *engine, double sums[HST_SUMS])
{
    if (engine->report.error.code)
        return engine->report.error.native;
    if (engine->phase != PHASE_LOADED || !sums)
        return report_refuse(&engine->report, "sums are agreed on between steps, or by a step");
    sums_take(engine, sums);
    return 0;
}

int hst_engine_part(const struct hst_engine *engine, struct hst_part *part)
{
    const struct ways *ways = &engine->ways;
    if (engine->phase < PHASE_SEALED || !part)
        return -EINVAL;
    *part = (struct hst_part){
        .ranks = 1,
        .nodes = 1,
        .ways = ways->tree.ways,
        .first_token = ways->first * ways->tokens,
        .tokens = ways->count * ways->tokens,
        .micro_count = ways_micro_count(ways),
        .transport = "self",
    };
    return 0;
}

int hst_engine_micro(const struct hst_engine *engine, uint32_t micro, struct hst_micro *found)
{
    if (engine->phase < PHASE_SEALED || !found || micro >= ways_micro_count(&engine->ways))
        return -EINVAL;
    *found = ways_micro(&engine->ways, micro);
    return 0;
}

int hst_engine_same(struct hst_engine *engine, const char *what, const char *text)
{
    return engine->report.error.code ? engine->report.error.native : what && text ? 0 : -EINVAL;
}

void hst_engine_abort(struct hst_engine *engine, int status)
{
    (void)engine;
    (void)status; /* nobody else waits */
}
