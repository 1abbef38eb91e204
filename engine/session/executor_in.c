/* SPDX-License-Identifier: Apache-2.0 */
/* This is what the executor is given, and what it asks: versions, what they need, failures. */
#include "session/executor_in.h"

#include "session/store/failure.h"
#include "session/store/versions.h"

static unsigned phases(const void *context, uint64_t number)
{
    return versions_phases(context, number);
}

static void window_begins(void *context, uint64_t step_window)
{
    versions_window_begins(context, step_window);
}

static int commit_begin(void *context, uint64_t step_window, bool *made)
{
    return versions_begin(context, step_window, made);
}

static int commit_poll(void *context, bool *made)
{
    return versions_poll(context, made);
}

static int committed(void *context)
{
    return versions_committed(context);
}

static int revert(void *context)
{
    return versions_revert(context);
}

static int order_left(void *context)
{
    return versions_instead(context);
}

static int derive(void *context)
{
    return versions_derive(context);
}

static bool is_stopped(const void *context)
{
    return engine_stopped(context) != 0;
}

static int fail_transfer(void *context, const struct transfer *transfer)
{
    return engine_fail_transfer(context, transfer);
}

static int fail_extents(void *context, int native)
{
    return engine_fail_extents(context, native);
}

struct executor_in engine_executor_in(struct hst_engine *engine)
{
    return (struct executor_in){
        .config = &engine->config,
        .groups = &engine->groups,
        .layout = &engine->layout,
        .placement = &engine->placement,
        .plan_in = &engine->plan_in,
        .standing = &engine->standing,
        .report = &engine->report,
        .workers = engine->workers,
        .dev = engine->dev,
        .adam = engine->adam,
        .kernel = engine->kernel,
        .arena = engine->arena,
        .host_arena = engine->host_arena,
        .drive_count = engine->drive_count,
        .comm = engine->comm,
        .rank = engine->ranks.rank,
        .ways = &engine->ways,
        .sums = engine->sums,
        .words = engine->words,
        .optimistic = engine->optimistic,
        .owner = {.context = engine,
                  .phases = phases,
                  .window_begins = window_begins,
                  .commit_begin = commit_begin,
                  .commit_poll = commit_poll,
                  .committed = committed,
                  .revert = revert,
                  .order_left = order_left,
                  .derive = derive,
                  .is_stopped = is_stopped,
                  .fail_transfer = fail_transfer,
                  .fail_extents = fail_extents},
    };
}
