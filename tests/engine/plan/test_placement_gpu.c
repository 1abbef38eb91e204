/* SPDX-License-Identifier: Apache-2.0 */
/* Placement for a device with memory of its own: what leaves HBM, in which order, by budgets. */
#include "placement_checks.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct placement_in gpu_inputs(const struct layout *layout, const char *place)
{
    struct placement_in in = inputs(layout, place);
    in.compute_tier = HST_TIER_HBM;
    in.hbm_budget = 1u << 30;
    in.drive_count = 1;
    in.drive_budgets[0] = 1u << 30;
    return in;
}

static uint64_t all_tiers(const struct placement *p, enum hst_class class)
{
    return p->table[class][HST_TIER_HBM] + p->table[class][HST_TIER_DRAM] +
           p->table[class][HST_TIER_NVME];
}

/* An embedding and a head of `rows` rows, four layers of 100 between them. */
static struct layout model_with_ends(uint32_t rows)
{
    return model_of_rows((uint32_t[]){rows, 100, 100, 100, 100, rows}, 6, 4096);
}

static bool is_all_resident(const struct placement *p)
{
    return p->resident_units == p->layout->unit_count;
}

/* Of a unit that is offloaded, the device's buffers hold what it computes with. */
static void check_offloaded(const struct placement_in *in, const struct placement *p, uint32_t unit)
{
    struct gather gathers[GATHER_MAX];
    const uint64_t element = optimizer_weight_bytes(in->optimizer);
    int n = placement_gather(in->layout, element, unit, gathers);
    for (int g = 0; g < n; g++)
        assert_true(gathers[g].reservation_at + gathers[g].bytes <= p->device_weights[0].bytes);
    assert_true(in->layout->units[unit].elements * element <= p->device_grads[0].bytes);
    assert_true(p->units[unit].weights.tier != HST_TIER_HBM);
    assert_true(p->units[unit].grads.tier != HST_TIER_HBM);
}

static void check_resident(const struct placement_in *in, const struct placement *p, uint32_t unit)
{
    const struct layout_unit *u = &in->layout->units[unit];
    assert_true(p->units[unit].weights.tier == HST_TIER_HBM);
    assert_true(p->units[unit].grads.tier == HST_TIER_HBM);
    for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count; t++)
        assert_true(placement_states(p, t).tier == HST_TIER_HBM);
}

/* Whoever updates has weights, gradients and states; what is tied is updated by one of both. */
static void check_gpu(const struct placement_in *in, const struct placement *p)
{
    bool all = is_all_resident(p);
    uint32_t resident = 0;
    assert_int_equal(p->table[HST_CLASS_HIDDEN][HST_TIER_HBM], all_tiers(p, HST_CLASS_HIDDEN));
    uint32_t others = p->layout->unit_count - p->resident_units, least = others < 2 ? others : 2;
    assert_true(p->device_weights[0].count + p->device_weights[1].count >= least);
    assert_true(all ? p->device_grads[0].count == 0 : p->device_grads[0].count >= 1);
    for (uint32_t i = 0; i < in->layout->param_count; i++) {
        const struct layout_param *param = &in->layout->params[i];
        uint32_t owner = in->layout->params[param->owner].unit;
        assert_int_equal(p->units[param->unit].offloaded, p->units[owner].offloaded);
    }
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        resident += placement_is_resident(p, u);
        if (placement_is_resident(p, u))
            check_resident(in, p, u);
        else
            check_offloaded(in, p, u);
        if (placement_copies_acts(p, u))
            assert_true(p->device_acts.count >= 1 && p->units[u].act_bytes <= p->device_acts.bytes);
    }
    assert_int_equal(p->resident_units, resident);
    check_addresses(in, p, HST_TIER_HBM);
    check_addresses(in, p, HST_TIER_DRAM);
    check_drives(in, p);
    check_table(p);
}

static void on_a_gpu_all_classes_live_in_hbm_where_they_fit(void **state)
{
    (void)state;
    struct layout layout = model(4096);
    struct placement p = {0};
    char why[512];
    struct placement_in in = gpu_inputs(&layout, NULL);
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    check_gpu(&in, &p);
    for (int c = 0; c < HST_CLASS_BUFFERS; c++) {
        assert_true(p.table[c][HST_TIER_HBM] > 0);
        assert_int_equal(p.table[c][HST_TIER_DRAM] + p.table[c][HST_TIER_NVME], 0);
    }
    assert_int_equal(p.slots.count, 2); /* tiles pass through DRAM at load and save */
    assert_int_equal(p.reservations[0].count, 0);
    uint64_t hbm = p.hbm_bytes, dram = p.dram_bytes;
    placement_free(&p);

    in.hbm_budget = hbm; /* exact, to the byte */
    in.dram_budget = dram;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_true(is_all_resident(&p));
    placement_free(&p);
    in.hbm_budget = hbm - 1;
    in.dram_budget = 1u << 30;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_true(p.table[HST_CLASS_ACTS][HST_TIER_DRAM] > 0 || !is_all_resident(&p));
    placement_free(&p);
    in.hbm_budget = hbm;
    in.dram_budget = 4096;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -ENOSPC);
    assert_non_null(strstr(why, "--dram"));
    layout_free(&layout);
}

/* From all in HBM on: checkpoints leave, then what is updated, and a budget that is named works. */
static void every_budget_of_hbm_down_to_the_smallest_is_kept(void **state)
{
    (void)state;
    struct layout layout = model(4096);
    struct placement_in in = gpu_inputs(&layout, NULL);
    struct placement p = {0};
    char why[512];
    in.batch_tokens = 5000; /* checkpoints worth moving */
    uint64_t smallest = 0;
    uint32_t resident = UNITS;
    bool checkpoints_alone = false, some = false, kept = false;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    in.hbm_budget = p.hbm_bytes;
    placement_free(&p);
    for (; placement_plan(&in, &p, why, sizeof why) == 0; in.hbm_budget -= 16384) {
        assert_true(p.hbm_bytes <= in.hbm_budget);
        /* the first unit leaves with the one it is tied to, and nearly all others stay */
        resident = p.resident_units;
        checkpoints_alone |= is_all_resident(&p) && p.table[HST_CLASS_ACTS][HST_TIER_DRAM] > 0;
        some |= resident > 1 && resident < UNITS;
        kept |= p.device_weights[0].count > 3;
        smallest = p.hbm_bytes;
        check_gpu(&in, &p);
        assert_int_equal(p.nvme_bytes, 0); /* there is DRAM for all of it */
        placement_free(&p);
    }
    assert_true(checkpoints_alone && some && kept && resident == 0);
    assert_non_null(strstr(why, "--hbm"));
    in.hbm_budget = named_budget(why);
    assert_true(in.hbm_budget + 16384 >= smallest && in.hbm_budget < smallest + 1048576 / 5);
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    /* the least of HBM and the least of DRAM together */
    in.dram_budget = p.dram_bytes;
    placement_free(&p);
    for (; placement_plan(&in, &p, why, sizeof why) == 0; in.dram_budget -= 65536) {
        assert_true(p.hbm_bytes <= in.hbm_budget && p.dram_bytes <= in.dram_budget);
        check_gpu(&in, &p);
        smallest = p.table[HST_CLASS_WEIGHTS][HST_TIER_DRAM];
        placement_free(&p);
    }
    assert_int_equal(smallest, 0); /* they left last */
    assert_non_null(strstr(why, "of DRAM"));
    layout_free(&layout);
}

/* What the resident ones leave in DRAM leaves that as ever, and none of theirs does. */
static void resident_units_stay_while_the_others_leave_dram(void **state)
{
    (void)state;
    struct layout layout = model(4096);
    struct placement_in in = gpu_inputs(&layout, "acts=hbm");
    struct placement p = {0};
    char why[512];
    in.deferred = true;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    in.hbm_budget = p.hbm_bytes - 4096;
    placement_free(&p);
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    uint32_t rows = 0;
    in.dram_budget = p.dram_bytes;
    placement_free(&p);
    for (; placement_plan(&in, &p, why, sizeof why) == 0; in.dram_budget -= 16384, rows++) {
        assert_in_range(p.resident_units, 1, UNITS - 1);
        check_gpu(&in, &p);
        placement_free(&p);
    }
    assert_true(rows > 3);
    layout_free(&layout);
}

/* They are loaded and saved by way of DRAM: two slots of the largest tile may be more than what the
 * small ones have left there. */
static void no_unit_is_resident_where_dram_has_no_room_for_its_way(void **state)
{
    (void)state;
    uint32_t rows[22] = {10, 10};
    for (uint32_t u = 2; u < 22; u++)
        rows[u] = 100;
    struct layout layout = model_of_rows(rows, 22, 20 * 4096);
    struct placement p = {0};
    char why[512];
    struct placement_in in = gpu_inputs(&layout, "weights=dram");
    in.has_nvme = false;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    uint64_t dram = p.dram_bytes;
    placement_free(&p);
    in.wish = (struct place_wish){0};
    in.hbm_budget = 14u << 20;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_int_equal(p.resident_units, 2);
    assert_true(p.dram_bytes > dram);
    placement_free(&p);
    in.dram_budget = dram;
    for (int drives = 0; drives < 2; drives++) { /* nor where something would leave for it */
        in.has_nvme = drives;
        assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
        assert_int_equal(p.resident_units, 0);
        assert_int_equal(p.nvme_bytes, 0);
        check_gpu(&in, &p);
        placement_free(&p);
    }
    layout_free(&layout);
}

/* Of equal units no more leave than must, after all checkpoints have; what they leave is room for
 * checkpoints again. */
static void units_leave_hbm_behind_the_checkpoints(void **state)
{
    (void)state;
    struct layout layout =
        model_of_rows((uint32_t[]){100, 100, 100, 100, 100, 100, 100, 100}, 8, 4096);
    struct placement p = {0}, out = {0};
    char why[512];
    bool both = false, some = false;
    struct placement_in in = gpu_inputs(&layout, NULL), acts = gpu_inputs(&layout, "acts=dram");
    in.deferred = acts.deferred = true;
    in.batch_tokens = acts.batch_tokens = 10000; /* checkpoints as large as three units */
    for (in.hbm_budget = 128u << 20; placement_plan(&in, &p, why, sizeof why) == 0;
         in.hbm_budget -= 1u << 20) {
        acts.hbm_budget = in.hbm_budget;
        assert_int_equal(placement_plan(&acts, &out, why, sizeof why), 0);
        assert_int_equal(p.resident_units, out.resident_units);
        bool mixed = p.resident_units > 0 && p.resident_units < 8;
        some |= mixed;
        both |= mixed && p.table[HST_CLASS_ACTS][HST_TIER_HBM] > 0;
        check_gpu(&in, &p);
        placement_free(&p);
        placement_free(&out);
    }
    assert_true(some && both);
    layout_free(&layout);
}

/* A first unit that is too large stays out alone; buffers are as many as units that borrow them. */
static void large_ends_do_not_keep_layers_out_of_hbm(void **state)
{
    (void)state;
    struct layout layout = model_with_ends(1000);
    struct placement_in in = gpu_inputs(&layout, "acts=dram");
    struct placement p = {0};
    char why[512];
    in.deferred = true;
    in.hbm_budget = 256u << 20;
    for (bool all = true; all; in.hbm_budget -= 65536) {
        placement_free(&p);
        assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
        all = p.resident_units == 6;
    }
    assert_int_equal(p.resident_units, 5); /* all but the head */
    assert_int_equal(p.device_weights[0].count + p.device_weights[1].count, 1);
    placement_free(&p);
    in.hbm_budget = 110u << 20;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_true(p.units[0].offloaded && p.units[5].offloaded && p.resident_units == 4);
    assert_int_equal(p.device_weights[0].count + p.device_weights[1].count, 2);
    placement_free(&p);
    layout_free(&layout);
}

/* Of DRAM: with resident units it is less than without. */
static void the_smallest_budget_that_is_named_is_the_smallest(void **state)
{
    (void)state;
    struct layout layout = model_with_ends(100);
    struct placement p = {0};
    char why[512];
    struct placement_in in = gpu_inputs(&layout, NULL);
    in.has_nvme = false;
    in.hbm_budget = 24u << 20;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_in_range(p.resident_units, 2, 4);
    in.dram_budget = p.dram_bytes - 4096;
    placement_free(&p);
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -ENOSPC);
    uint64_t named = named_budget(why);
    assert_in_range(named, in.dram_budget + 4096, in.dram_budget + (in.dram_budget >> 5));
    layout_free(&layout);
}

static void a_small_hbm_leaves_the_pools_of_drives_as_deep_as_dram_lets_them_be(void **state)
{
    (void)state;
    struct layout layout = model(4096);
    struct placement_in in = gpu_inputs(&layout, "states=nvme,weights=nvme,grads=nvme,acts=nvme");
    struct placement p = {0};
    char why[512];
    in.hbm_budget = 4096;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -ENOSPC);
    in.hbm_budget = named_budget(why);
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_int_equal(p.device_weights[0].count, 2);
    assert_int_equal(p.device_grads[0].count + p.device_acts.count, 2);
    assert_int_equal(p.slots.count, 24);
    assert_int_equal(p.reservations[0].count, 3);
    assert_int_equal(p.grad_buffers[0].count, 2);
    check_gpu(&in, &p);
    placement_free(&p);
    layout_free(&layout);
}

static void assert_buffer_pool(struct buffer_pool buffer_pool, uint64_t rows, uint32_t count)
{
    assert_int_equal(buffer_pool.bytes, rows * 4096 * sizeof(float));
    assert_int_equal(buffer_pool.count, count);
}

static void ends_much_larger_than_layers_have_pools_of_their_own(void **state)
{
    (void)state;
    struct layout layout = model_with_ends(1000);
    struct placement_in in = gpu_inputs(&layout, "states=nvme,weights=nvme,grads=nvme");
    struct placement p = {0};
    char why[512];
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    for (uint32_t u = 0; u < 6; u++)
        assert_int_equal(p.units[u].size, u == 0 || u == 5 ? UNIT_WIDE : UNIT_USUAL);
    assert_buffer_pool(p.reservations[0], 100, 3);
    assert_buffer_pool(p.reservations[1], 1000, 1);
    assert_buffer_pool(p.grad_buffers[0], 100, 2);
    assert_buffer_pool(p.grad_buffers[1], 1000, 1);
    assert_buffer_pool(p.device_weights[0], 100, 4);  /* HBM has room for all of them */
    assert_buffer_pool(p.device_weights[1], 1000, 2); /* gradients have partials behind them */
    assert_true(p.device_grads[0].bytes == 401 * 4096 && p.device_grads[0].count == 2);
    assert_true(p.device_grads[1].bytes == 4002 * 4096 && p.device_grads[1].count == 1);
    check_addresses(&in, &p, HST_TIER_HBM);
    check_addresses(&in, &p, HST_TIER_DRAM);
    check_table(&p);
    in.hbm_budget = p.hbm_bytes - 1;
    placement_free(&p);
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_buffer_pool(p.device_weights[0], 100, 4);
    assert_buffer_pool(p.device_weights[1], 1000, 1);
    placement_free(&p);
    layout_free(&layout);
    /* where that would take more, all take turns at the same: of gradients sooner */
    layout = model_with_ends(180);
    in = gpu_inputs(&layout, "states=nvme,weights=nvme,grads=nvme");
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_buffer_pool(p.reservations[0], 100, 3);
    assert_buffer_pool(p.reservations[1], 180, 1);
    assert_buffer_pool(p.grad_buffers[0], 180, 2);
    assert_int_equal(p.grad_buffers[1].count, 0);
    check_addresses(&in, &p, HST_TIER_DRAM);
    placement_free(&p);
    layout_free(&layout);
    layout = model_with_ends(120);
    in = gpu_inputs(&layout, "states=nvme,weights=nvme,grads=nvme");
    in.hbm_budget = 12u << 20;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_buffer_pool(p.device_weights[0], 120, 3);
    assert_int_equal(p.reservations[1].count + p.device_weights[1].count, 0);
    placement_free(&p);
    layout_free(&layout);
}

/* Each class in each tier: what is updated in HBM together or not there. */
static void on_a_gpu_each_class_goes_where_it_is_wished(void **state)
{
    (void)state;
    static const enum hst_class classes[] = {HST_CLASS_WEIGHTS, HST_CLASS_GRADS, HST_CLASS_STATES,
                                             HST_CLASS_ACTS};
    struct layout layout = model(4096);
    for (unsigned wish = 0; wish < 81 * 2; wish++) {
        struct placement p = {0};
        char why[512];
        struct placement_in in = gpu_inputs(&layout, NULL);
        unsigned left = wish % 81, near = 0, nvme = 0;
        in.has_nvme = wish < 81;
        for (int i = 0; i < 4; i++, left /= 3) {
            in.wish.fixed[classes[i]] = true;
            in.wish.tier[classes[i]] = (enum hst_tier)(left % 3);
            near += i < 3 && left % 3 == HST_TIER_HBM;
            nvme += left % 3 == HST_TIER_NVME;
        }
        bool possible = (near == 0 || near == 3) && (in.has_nvme || nvme == 0);
        assert_int_equal(placement_plan(&in, &p, why, sizeof why), possible ? 0 : -EINVAL);
        for (int i = 0; possible && i < 4; i++) {
            enum hst_class c = classes[i];
            assert_true(p.table[c][in.wish.tier[c]] > 0);
            assert_int_equal(p.table[c][in.wish.tier[c]], all_tiers(&p, c));
        }
        if (possible)
            check_gpu(&in, &p);
        placement_free(&p);
    }
    layout_free(&layout);
}

static void on_a_gpu_wishes_that_cannot_be_are_refused_with_a_reason(void **state)
{
    (void)state;
    static const struct {
        const char *place, *reason;
        bool host_updates;
    } cases[] = {
        {"carry=dram", "carry cannot be placed in dram here", false},
        {"states=hbm,weights=dram", "all three or none", false},
        {"states=hbm", "--state bf16", true},
    };
    struct layout layout = model(4096);
    struct placement p = {0};
    char why[512];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct placement_in in = gpu_inputs(&layout, cases[i].place);
        in.host_updates = cases[i].host_updates;
        assert_int_equal(placement_plan(&in, &p, why, sizeof why), -EINVAL);
        assert_non_null(strstr(why, cases[i].reason));
    }
    struct placement_in in = gpu_inputs(&layout, NULL);
    in.host_updates = true;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
    assert_int_equal(p.resident_units, 0); /* though there is room in HBM */
    assert_int_equal(p.device_weights[0].count, UNITS);
    check_gpu(&in, &p);
    placement_free(&p);
    /* a wish for HBM has a smallest budget of its own */
    in = gpu_inputs(&layout, "weights=hbm");
    in.hbm_budget = 1u << 20;
    assert_int_equal(placement_plan(&in, &p, why, sizeof why), -ENOSPC);
    assert_non_null(strstr(why, "out of --place"));
    layout_free(&layout);
}

/* Eight units of one tile, and of three: of what has weights, gradients and states in DRAM. */
static void a_share_of_what_is_in_dram_is_streamed(void **state)
{
    (void)state;
    static const struct {
        const char *place;
        bool host_updates;
        double share;
        uint32_t tiles, streamed; /* of a unit; of all */
    } of[] = {
        {"weights=dram,grads=dram,states=dram", false, 0.5, 1, 4},
        {"weights=dram,grads=dram,states=dram", false, 0.125, 3, 3},
        {"weights=dram,grads=dram,states=dram", false, 1, 3, 24},
        {"weights=dram,grads=dram,states=dram", false, 0, 3, 0},
        {"weights=dram,grads=dram,states=dram", true, 0.5, 3, 0},
        {"weights=nvme,grads=dram,states=dram", false, 0.5, 3, 0},
        {"weights=dram,grads=nvme,states=dram", false, 0.5, 3, 0},
        {"weights=dram,grads=dram,states=nvme", false, 0.5, 3, 0},
        {"weights=hbm", false, 0.5, 3, 0},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        uint32_t rows[8], streamed = 0;
        for (int u = 0; u < 8; u++)
            rows[u] = of[i].tiles;
        struct layout layout = model_of_rows(rows, 8, 4096);
        struct placement_in in = gpu_inputs(&layout, of[i].place);
        struct placement p = {0};
        char why[384];
        in.streams = true;
        in.stream_share = of[i].share;
        in.host_updates = of[i].host_updates;
        assert_int_equal(placement_plan(&in, &p, why, sizeof why), 0);
        for (int u = 0; u < 8; u++) {
            assert_true(p.units[u].streamed_tiles <= of[i].tiles);
            streamed += p.units[u].streamed_tiles;
        }
        assert_int_equal(streamed, of[i].streamed);
        assert_int_equal(p.streamed_tiles, streamed);
        /* a buffer for each, 16 at most: weights, gradients, record */
        uint32_t all = (uint32_t)(8 * of[i].tiles * of[i].share), buffers = all < 16 ? all : 16;
        assert_int_equal(p.device_tiles.count, streamed ? buffers : 0);
        uint64_t tile = 4096 * sizeof(float), record = record_layout(in.optimizer, 4096).bytes;
        assert_int_equal(p.device_tiles.bytes, streamed ? 2 * tile + record : 0);
        assert_true(p.device_tiles.at + p.device_tiles.count * p.device_tiles.bytes <= p.hbm_bytes);
        check_gpu(&in, &p);
        placement_free(&p);
        layout_free(&layout);
    }
}

static void what_is_streamed_has_all_of_it_in_dram_whatever_the_budgets(void **state)
{
    (void)state;
    uint32_t rows[24];
    for (int u = 0; u < 24; u++)
        rows[u] = 4;
    struct layout layout = model_of_rows(rows, 24, 4096);
    struct placement_in in = gpu_inputs(&layout, NULL);
    struct placement p = {0};
    char why[384];
    uint32_t shared = 0;
    in.deferred = true;
    in.streams = true;
    for (in.dram_budget = 1u << 24; in.dram_budget > 1u << 19; in.dram_budget /= 2)
        for (in.stream_share = 0.1; in.stream_share <= 1; in.stream_share += 0.3)
            for (in.hbm_budget = 1u << 23; in.hbm_budget > 1u << 19; in.hbm_budget -= 1u << 18) {
                if (placement_plan(&in, &p, why, sizeof why))
                    continue;
                shared += p.streamed_tiles > 0 && p.resident_units > 0;
                for (uint32_t u = 0; u < layout.unit_count; u++) {
                    const struct unit_placement *home = &p.units[u];
                    bool may = home->offloaded && home->weights.tier == HST_TIER_DRAM &&
                               home->grads.tier == HST_TIER_DRAM;
                    assert_true(may || home->streamed_tiles == 0);
                    assert_true(home->nvme_states + home->streamed_tiles <=
                                layout.units[u].tile_count);
                }
                check_gpu(&in, &p);
                placement_free(&p);
            }
    assert_true(shared > 0);
    layout_free(&layout);
}

/* No HBM is won by what leaves DRAM: where the buffers of streamed tiles do not fit it is said. */
static void buffers_of_streamed_tiles_send_nothing_to_drives(void **state)
{
    (void)state;
    struct layout layout = model(4096);
    struct placement_in in = gpu_inputs(&layout, "acts=dram");
    struct placement p = {0};
    char why[384];
    uint32_t refused = 0;
    in.deferred = true;
    for (in.hbm_budget = 1u << 23; placement_plan(&in, &p, why, sizeof why) == 0;
         in.hbm_budget -= 1u << 15) {
        assert_int_equal(p.nvme_bytes, 0);
        placement_free(&p);
        in.streams = true;
        in.stream_share = 0.5;
        int rc = placement_plan(&in, &p, why, sizeof why);
        assert_true(rc == 0 || (rc == -ENOSPC && strstr(why, " lower --gpu-update, or ")));
        assert_int_equal(rc == 0 ? p.nvme_bytes : 0, 0);
        refused += rc != 0;
        placement_free(&p);
        in.streams = false;
    }
    assert_true(refused > 0);
    layout_free(&layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_a_gpu_all_classes_live_in_hbm_where_they_fit),
        cmocka_unit_test(every_budget_of_hbm_down_to_the_smallest_is_kept),
        cmocka_unit_test(units_leave_hbm_behind_the_checkpoints),
        cmocka_unit_test(large_ends_do_not_keep_layers_out_of_hbm),
        cmocka_unit_test(the_smallest_budget_that_is_named_is_the_smallest),
        cmocka_unit_test(resident_units_stay_while_the_others_leave_dram),
        cmocka_unit_test(no_unit_is_resident_where_dram_has_no_room_for_its_way),
        cmocka_unit_test(a_small_hbm_leaves_the_pools_of_drives_as_deep_as_dram_lets_them_be),
        cmocka_unit_test(ends_much_larger_than_layers_have_pools_of_their_own),
        cmocka_unit_test(a_share_of_what_is_in_dram_is_streamed),
        cmocka_unit_test(what_is_streamed_has_all_of_it_in_dram_whatever_the_budgets),
        cmocka_unit_test(buffers_of_streamed_tiles_send_nothing_to_drives),
        cmocka_unit_test(on_a_gpu_each_class_goes_where_it_is_wished),
        cmocka_unit_test(on_a_gpu_wishes_that_cannot_be_are_refused_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
