/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's own operations, by turns, in the memory that GEMMs were measured in. Each begins as
 * its least part and grows until it is long enough to be measured, whole, or as large as memory
 * allows.
 */
#include "probe/probe.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define OPERATIONS_S 0.4 /* all of them */

struct turn {
    const struct hst_operation *operation;
    const struct hst_room *room;
    double most, amount; /* that is asked for, and that was enqueued */
};

static int enqueue(void *arg)
{
    struct turn *t = arg;
    t->amount = 0;
    int rc = t->operation->enqueue(t->operation->context, t->room, t->most, &t->amount);
    return rc || (t->amount > 0 && isfinite(t->amount)) ? rc : -EINVAL;
}

static int finish(void *arg)
{
    struct turn *t = arg;
    return hst_stream_sync(t->room->stream);
}

/* The largest part that takes no longer than about `wish_s`. */
static int grow(struct turn *t, double wish_s)
{
    const struct probe_work work = {enqueue, finish, t, 0};
    for (double before = 0, seconds = 0;; before = t->amount) {
        int rc = probe_once(&work, &seconds);
        bool more = rc == 0 && t->amount > before && t->amount < t->operation->amount;
        if (!more || seconds >= wish_s / 2)
            return rc;
        t->most = fmin(t->amount * probe_growth(seconds, wish_s), t->operation->amount);
    }
}

static void tell(const struct turn *t, int rc, struct hst_figure *figure)
{
    const struct hst_operation *o = t->operation;
    if (rc)
        probe_fail(figure, "%.*s: %s", HST_OPERATION_TEXT_MAX / 2, o->what,
                   rc == -ENOSPC ? "memory is too small for the least part" : strerror(-rc));
    else
        snprintf(figure->how, sizeof figure->how, "%s%s", o->what,
                 t->amount < o->amount ? ", a part" : "");
}

void probe_operations(struct probe *probe, const struct hst_room *room)
{
    const uint32_t count = probe->in->operation_count;
    const double deadline_s = clock_seconds() + OPERATIONS_S;
    struct turn turns[HST_OPERATIONS_MAX];
    struct probe_work works[HST_OPERATIONS_MAX];
    struct hst_figure *figures = probe->out->operations;
    int rcs[HST_OPERATIONS_MAX] = {0};
    uint32_t grown = 0;
    for (; grown < count && !probe_is_stopped(probe); grown++) {
        const uint32_t i = grown;
        turns[i] = (struct turn){.operation = &probe->in->operations[i], .room = room};
        rcs[i] = grow(&turns[i], OPERATIONS_S / count / PROBE_SHARE_ROUNDS);
        works[i] = (struct probe_work){enqueue, finish, &turns[i], rcs[i] ? 0 : turns[i].amount};
    }
    probe_by_turns(probe, works, grown, deadline_s, figures, rcs);
    for (uint32_t i = 0; i < grown; i++)
        tell(&turns[i], rcs[i], &figures[i]);
}
