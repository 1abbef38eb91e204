/* SPDX-License-Identifier: Apache-2.0 */
/* What a placement that does not fit says can be done. */
#include "placement_checks.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct placement_in gpu_inputs(const struct layout *layout, const char *place)
{
    struct placement_in in = inputs(layout, place);
    in.compute_tier = HST_TIER_HBM;
    in.drive_count = 1;
    in.drive_budgets[0] = 1u << 30;
    return in;
}

/* Where the card has no more than the budget, or less than the need, another budget is no fix. */
static void a_budget_is_raised_as_far_as_the_card_goes(void **state)
{
    (void)state;
    struct layout layout = model(4096);
    struct placement p = {0};
    char why[512];
    struct placement_in in = gpu_inputs(&layout, "acts=hbm,weights=hbm");
    in.hbm_budget = 1u << 20;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -ENOSPC);
    uint64_t need = named_budget(why); /* rounded up */
    assert_non_null(strstr(why, "the budget is 1.0 MiB. Fix: raise --hbm, or leave weights, grads "
                                "and states out of --place, or "));
    assert_null(strstr(why, "more memory"));
    in.hbm_most = need;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -ENOSPC);
    assert_non_null(strstr(why, "Fix: raise --hbm, "));
    in.hbm_most = 2u << 20;
    assert_true(in.hbm_most < need);
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -ENOSPC);
    assert_null(strstr(why, "--hbm"));
    assert_non_null(strstr(why, "the budget is 1.0 MiB, and the GPU has no more than 2.0 MiB. "
                                "Fix: leave weights, grads and states out of --place, or leave "
                                "acts out of --place, or "));
    assert_non_null(strstr(why, ", or take a GPU with more memory"));
    in = gpu_inputs(&layout, NULL);
    in.batch_tokens = in.micro_batch_tokens = 1u << 20; /* what depends on it is most of the need */
    in.hbm_budget = in.hbm_most = 4u << 20;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -ENOSPC);
    assert_non_null(strstr(why, "Fix: lower --batch-tokens or --grain, or train on the host "));
    layout_free(&layout);
}

static bool ends_with(const char *text, const char *end)
{
    return strlen(text) >= strlen(end) && strcmp(text + strlen(text) - strlen(end), end) == 0;
}

/* The same of the machine's memory: `why` is as long as plan_seal.h has it. */
static void a_budget_is_raised_as_far_as_the_machine_goes(void **state)
{
    (void)state;
    struct layout layout = model(4096);
    struct placement p = {0};
    char why[384];
    struct placement_in in = inputs(&layout, "weights=dram,states=dram");
    in.dram_budget = 1u << 20;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -ENOSPC);
    uint64_t need = named_budget(why); /* rounded up */
    assert_non_null(strstr(why, "the budget is 1.0 MiB. Fix: raise --dram"));
    in.dram_most = need;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -ENOSPC);
    assert_non_null(strstr(why, "the budget is 1.0 MiB. Fix: raise --dram"));
    in.dram_most = 3u << 19;
    assert_true(in.dram_most < need);
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -ENOSPC);
    assert_null(strstr(why, "--dram"));
    assert_non_null(strstr(why,
                           "the budget is 1.0 MiB, and only 1.5 MiB are free (least of free "
                           "memory, cgroup limit, and RLIMIT_AS less what threads need). "
                           "Fix: take a machine with more memory or raise the limit that is least, "
                           "take dram out of --place"));
    in = inputs(&layout, "weights=dram");
    in.has_nvme = false;
    in.batch_tokens = in.micro_batch_tokens = 1u << 20;
    in.dram_budget = in.dram_most = 4u << 20;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -ENOSPC);
    assert_true(ends_with(why, "Fix: take a machine with more memory or raise the limit that "
                               "is least, give a --store, or lower --batch-tokens or --grain"));
    layout_free(&layout);
}

/* What the drives have no room for would be in memory, as far as the machine has any. */
static void full_drives_name_memory_that_is_there(void **state)
{
    (void)state;
    struct layout layout = model(4096);
    struct placement all, p = {0};
    char why[384];
    struct placement_in in = inputs(&layout, NULL);
    assert_int_equal(placement_plan(&in, &all, why, sizeof why), 0);
    in.dram_budget = all.dram_bytes - (1u << 20);
    in.nvme_budget = 4096;
    for (int i = 0; i < 2; i++) { /* nothing is known of the machine; it has enough */
        in.dram_most = i ? 2 * all.dram_bytes : 0;
        assert_int_equal(placement_plan(&in, &p, why, sizeof why), -EDQUOT);
        assert_non_null(strstr(why, "raise --nvme, raise --dram, or give another --store"));
    }
    in.dram_most = in.dram_budget;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -EDQUOT);
    assert_non_null(strstr(why, "Fix: free space or raise --nvme, or give another --store"));
    placement_free(&all);
    layout_free(&layout);
}

/* --dram and --nvme are the node's, of which a rank has its part: so are the figures. */
static void ranks_of_a_node_are_told_what_all_of_them_need(void **state)
{
    (void)state;
    struct layout layout = model(4096);
    struct placement whole, p = {0};
    char why[384], all[384];
    struct placement_in in = inputs(&layout, NULL);
    assert_int_equal(placement_plan(&in, &whole, why, sizeof why), 0);
    in.has_nvme = false;
    in.dram_budget = 1u << 20;
    in.dram_most = 2u << 20;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -ENOSPC);
    const uint64_t one = named_budget(why);
    in.sharers = 4;
    assert_int_equal(placement_plan(&in, &p, all, sizeof all), -ENOSPC);
    assert_in_range(named_budget(all), 4 * one - 4 * (one / 32), 4 * one); /* both rounded up */
    assert_non_null(strstr(all, " for the node's 4 ranks, the budget is 4.0 MiB, and only 8.0 MiB "
                                "are free"));
    assert_null(strstr(why, "ranks"));
    in.has_nvme = true;
    in.dram_budget = whole.dram_bytes - (1u << 20);
    in.nvme_budget = 4096;
    assert_int_equal(placement_plan(&in, &p, all, sizeof all), -EDQUOT);
    assert_non_null(strstr(all, " for the node's 4 ranks, its budget is 16.0 KiB. Fix"));
    in.scarcest = 3;
    assert_int_equal(placement_plan(&in, &p, all, sizeof all), -EDQUOT);
    assert_non_null(strstr(all, "its budget is 16.0 KiB (rank 2 has the least). Fix"));
    placement_free(&whole);
    layout_free(&layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_budget_is_raised_as_far_as_the_card_goes),
        cmocka_unit_test(a_budget_is_raised_as_far_as_the_machine_goes),
        cmocka_unit_test(full_drives_name_memory_that_is_there),
        cmocka_unit_test(ranks_of_a_node_are_told_what_all_of_them_need),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
