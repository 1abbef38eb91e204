/* SPDX-License-Identifier: Apache-2.0 */
#include "session/store/store_ranks.h"

#include "session/ranks/ranks.h"
#include "store/files.h"

#include <errno.h>

static int share_candidates(void *context, const struct store_candidates *own,
                            struct store_candidates *all)
{
    return ranks_share_all(context, "versions", own, all, sizeof *own);
}

static int damaged_anywhere(void *context, bool own, bool *any)
{
    int64_t damaged = own;
    int rc = ranks_sum(context, &damaged, 1);
    *any = damaged > 0;
    return rc;
}

struct store_peers store_ranks_peers(struct hst_engine *engine)
{
    return (struct store_peers){engine, engine->ranks.ranks, share_candidates, damaged_anywhere};
}

int store_ranks_ids(struct hst_engine *engine, struct store_agreed *agreed)
{
    struct hst_error error = {0};
    int rc = store_draw_id(&agreed->uuid, &error);
    rc = rc ? rc : store_draw_id(&agreed->incarnation, &error);
    return rc ? report_fail_as(&engine->report, &error)
              : ranks_take_first(engine, agreed, sizeof *agreed);
}

/* Files of any rank's in the first directory, by their least rank, for messages. */
static uint32_t rank_found(const struct hst_engine *engine)
{
    return store_rank_there(engine->drives[0].path);
}

int store_ranks_none_there(struct hst_engine *engine)
{
    const uint32_t found = rank_found(engine);
    int64_t there = found != UINT32_MAX;
    int rc = ranks_sum(engine, &there, 1);
    if (rc || there == 0)
        return rc;
    return report_fail(&engine->report, HST_E_STORE_TAKEN, -EEXIST,
                       "%lld of %u ranks find a store already; rank %u finds %s in %s. Fix: "
                       "--resume goes on from it; or give another --store",
                       (long long)there, engine->ranks.ranks, engine->ranks.rank,
                       found != UINT32_MAX ? "one" : "none", engine->config.store);
}
