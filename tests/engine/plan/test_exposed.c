/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks of a node read of each other: which parts of the arena. */
#include "placement_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static bool is_within(struct exposed part, uint64_t at, uint64_t bytes)
{
    return bytes == 0 || (at >= part.at && at + bytes <= part.at + part.bytes);
}

static bool is_apart(struct exposed part, uint64_t at, uint64_t bytes)
{
    return bytes == 0 || at + bytes <= part.at || at >= part.at + part.bytes;
}

struct parts {
    struct exposed of[EXPOSED_MAX];
    uint32_t count;
};

static bool are_exposed(const struct parts *parts, uint64_t at, uint64_t bytes)
{
    bool found = bytes == 0;
    for (uint32_t i = 0; i < parts->count; i++)
        found = found || is_within(parts->of[i], at, bytes);
    return found;
}

static bool are_apart(const struct parts *parts, uint64_t at, uint64_t bytes)
{
    bool apart = true;
    for (uint32_t i = 0; i < parts->count; i++)
        apart = apart && is_apart(parts->of[i], at, bytes);
    return apart;
}

static void check_homes(const struct placement *p, const struct parts *parts, bool weights)
{
    for (uint32_t u = 0; u < UNITS; u++) {
        const uint64_t row = placement_row_elements(p->layout, u) * 4;
        const uint64_t home = p->units[u].weights.offset, grads = p->units[u].grads.offset;
        if (placement_is_resident(p, u))
            continue;
        assert_true(are_apart(parts, p->units[u].states_at, 8));
        assert_true(!weights || (are_exposed(parts, home, row) &&
                                 are_exposed(parts, home + p->weights_slot, row)));
        assert_true(weights || are_apart(parts, home, 8));
        if (p->buckets || p->replicas > 0)
            assert_true(are_exposed(parts, grads, row));
        else
            assert_true(are_apart(parts, grads, 8));
    }
}

/* What ranks hand one another is exposed, and of the rest nothing. */
static void check_exposed(const struct placement *p)
{
    struct parts parts;
    parts.count = placement_exposed(p, parts.of);
    assert_true(parts.count > 0 || (p->device_rows && p->device_sums) ||
                p->resident_units == UNITS);
    for (int i = 0; i < 2 * UNIT_SIZES; i++) {
        const bool sums = i >= UNIT_SIZES, joined = sums ? p->device_sums : p->device_rows;
        const struct buffer_pool *pool =
            &(sums ? p->grad_buffers : p->reservations)[i % UNIT_SIZES];
        const uint64_t bytes = pool->count * pool->bytes;
        assert_true(joined ? bytes == 0 || are_apart(&parts, pool->at, bytes)
                           : are_exposed(&parts, pool->at, bytes));
    }
    for (uint32_t i = 0; i < parts.count; i++) {
        assert_true(parts.of[i].bytes > 0 && (parts.of[i].at | parts.of[i].bytes) % 4096 == 0);
        assert_true(
            is_within((struct exposed){0, p->dram_bytes}, parts.of[i].at, parts.of[i].bytes));
    }
    const bool here = p->compute_tier == HST_TIER_DRAM; /* else they are in the other arena */
    assert_true(are_apart(&parts, p->host_partials, 8));
    assert_true(!here || (are_apart(&parts, p->accumulator, 8) && are_apart(&parts, p->hidden, 8)));
    assert_true(are_apart(&parts, p->slots.at, p->slots.count * p->slots.bytes));
    assert_true(are_apart(&parts, p->act_buffers.at, p->act_buffers.count));
    check_homes(p, &parts, p->whole_weights && p->replicas == 0);
}

static uint32_t some_resident; /* placements with units of both kinds */

static void check_all(struct layout *layout)
{
    static const char *const places[] = {NULL, "states=nvme,weights=nvme,grads=nvme,acts=nvme"};
    for (int i = 0; i < 64; i++) {
        const int stage = i % 4;
        const struct share share = stage == 0 ? SHARE_ALL : (struct share){0, 3};
        assert_int_equal(layout_seal(layout, 8192, share), 0);
        struct placement_in in = inputs(layout, places[i / 4 % 2 && stage == 3]);
        struct placement p = {0};
        char why[512];
        in.whole_weights = stage <= 2;
        in.whole_grads = stage <= 1;
        in.replicas = stage == 0 ? 3 : 0;
        in.second_slots = i / 8 % 2;
        in.joined = i / 16 % 2; /* devices' memory: what meets there passes by no buffer */
        in.compute_tier = in.joined ? HST_TIER_HBM : HST_TIER_DRAM;
        in.hbm_budget = i / 32 ? 1u << 30 : 1u << 24; /* all units are there, or some, or none */
        in.way_dtype = HST_F32;
        assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
        some_resident += p.resident_units > 0 && p.resident_units < UNITS;
        check_exposed(&p);
        placement_free(&p);
    }
}

/* Of units of much the same size, and of two sizes, which have buffers of their own. */
static void what_ranks_read_of_each_other_is_exposed_and_nothing_else(void **state)
{
    (void)state;
    struct layout layout = model(8192);
    check_all(&layout);
    layout_free(&layout);
    layout = model_of_rows((uint32_t[]){60, 50, 100, 50, 100, 40}, UNITS, 8192);
    check_all(&layout);
    assert_true(some_resident > 0);
    layout_free(&layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_ranks_read_of_each_other_is_exposed_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
