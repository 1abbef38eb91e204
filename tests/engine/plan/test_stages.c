/* SPDX-License-Identifier: Apache-2.0 */
/* What the stages of ZeRO keep of a model on each rank, to the byte, and gradients in buckets. */
#include "placement_checks.h"
#include "plan/graph/step_graph.h"
#include "plan/placement/buckets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#define RANKS  4u
#define LAYERS 11u

/* Units of so many columns of 64 elements. */
static struct layout layers_of(uint64_t columns, uint64_t more)
{
    struct layout layout = {0};
    for (uint64_t u = 0; u < LAYERS; u++) {
        char why[256], names[2][32];
        snprintf(names[0], sizeof names[0], "layer.%u", (unsigned)u);
        snprintf(names[1], sizeof names[1], "layer.%u.weight", (unsigned)u);
        const struct hst_param_desc weight = {
            .name = names[1], .dim_count = 2, .dims = {64, columns + more * (u % 4) * (u % 4)}};
        const struct hst_unit_desc desc = {
            .name = names[0], .params = &weight, .param_count = 1, .act_bytes_per_token = 256};
        assert_int_equal(layout_add(&layout, &desc, why, sizeof why), 0);
    }
    return layout;
}

/* Units of one block to fifteen, small ones behind one another. */
static struct layout layers(void)
{
    return layers_of(20, 100);
}

/* In fp32, or in bf16 with sums that ranks hand over in f32. */
struct kind {
    enum hst_precision precision;
    uint64_t weight, grad, hand, state; /* bytes of an element */
};
static const struct kind KINDS[] = {{HST_PRECISION_FP32, 4, 4, 4, 8},
                                    {HST_PRECISION_BF16, 2, 2, 2, 10},
                                    {HST_PRECISION_BF16, 2, 2, 4, 10}};

/* Of a stage, for a rank; the layout is sealed for it. */
static struct placement_in stage_of(struct layout *layout, const struct kind *kind, int stage,
                                    uint32_t rank)
{
    const struct share share = stage == 0 ? SHARE_ALL : (struct share){rank, RANKS};
    assert_int_equal(layout_seal(layout, 8192, share), 0);
    struct placement_in in = inputs(layout, NULL);
    in.optimizer = optimizer_find(HST_OPTIMIZER_ADAMW, kind->precision, HST_STATE_FP32);
    in.way_dtype = kind->hand == 4 ? HST_F32 : HST_BF16;
    in.whole_weights = stage <= 2;
    in.whole_grads = stage <= 1;
    in.replicas = stage == 0 ? RANKS : 0;
    return in;
}

static struct placement placed(const struct placement_in *in)
{
    struct placement p = {0};
    char why[512];
    assert_int_equal(placement_plan(in, &p, why, sizeof why), 0);
    check_table(&p);
    return p;
}

/* All rows, each of RANKS shards of whole blocks; and as one rank has them. */
static uint64_t padded(const struct placement_in *in)
{
    uint64_t elements = 0;
    for (uint32_t u = 0; u < LAYERS; u++)
        elements += shard_elements(in->layout->units[u].elements, RANKS) * RANKS;
    return elements;
}

static uint64_t table_of(const struct placement *p, enum hst_class class)
{
    return p->table[class][HST_TIER_DRAM];
}

/* A record is as long as its states where tiles are whole pages of each, and padded else. */
static uint64_t records_of(const struct placement_in *in)
{
    uint64_t bytes = 0;
    for (uint32_t u = 0; u < LAYERS; u++) {
        uint64_t left = placement_shard_elements(in->layout, u);
        for (uint64_t tile; left > 0; left -= tile) {
            tile = left < 8192 ? left : 8192;
            bytes += record_layout(in->optimizer, tile).bytes;
        }
    }
    return bytes;
}

static void each_stage_keeps_what_zero_says(void **state)
{
    (void)state;
    struct layout layout = layers();
    for (size_t k = 0; k < sizeof KINDS / sizeof KINDS[0]; k++)
        for (int stage = 0; stage <= 3; stage++) {
            const struct kind *kind = &KINDS[k];
            const struct placement_in in = stage_of(&layout, kind, stage, 1);
            const uint64_t all = padded(&in), own = layout.elements;
            struct placement p = placed(&in);
            const uint64_t sums = kind->hand == kind->grad ? 0 : kind->grad * all / RANKS;
            const uint64_t weights[] = {own, all, all, all / RANKS};
            const uint64_t grads[] = {kind->grad * all, kind->hand * all + sums,
                                      kind->grad * all / RANKS, kind->grad * all / RANKS};
            assert_int_equal(table_of(&p, HST_CLASS_WEIGHTS), weights[stage] * kind->weight);
            assert_int_equal(table_of(&p, HST_CLASS_GRADS), grads[stage]);
            assert_int_equal(table_of(&p, HST_CLASS_STATES), records_of(&in));
            assert_true(records_of(&in) >= kind->state * (stage == 0 ? own : all / RANKS));
            placement_free(&p);
        }
    layout_free(&layout);
}

/* In the memory of devices that hand each other all of it. Where an update follows at once it takes
 * the sum from the buffer that it was made in, which replicas have to put together first. */
static void joined_devices_keep_what_zero_says(void **state)
{
    (void)state;
    struct layout layout = layers();
    for (int i = 0; i < 8; i++) {
        const int stage = i % 4;
        struct placement_in in = stage_of(&layout, &KINDS[1], stage, 1);
        in.compute_tier = HST_TIER_HBM;
        in.hbm_budget = in.dram_budget;
        in.joined = true;
        in.deferred = i < 4;
        const uint64_t all = padded(&in), own = layout.elements;
        const uint64_t weights[] = {own, 0, all, all / RANKS};
        const uint64_t grads[] = {all, 0, all / RANKS, all / RANKS};
        const bool near = stage != 1; /* buckets are in DRAM */
        struct placement p = placed(&in);
        assert_int_equal(p.resident_units, near ? LAYERS : 0);
        assert_int_equal(p.table[HST_CLASS_WEIGHTS][HST_TIER_HBM],
                         weights[stage] * KINDS[1].weight);
        assert_int_equal(p.table[HST_CLASS_GRADS][HST_TIER_HBM],
                         in.deferred || stage == 0 ? grads[stage] * KINDS[1].grad : 0);
        assert_int_equal(p.table[HST_CLASS_STATES][HST_TIER_HBM], near ? records_of(&in) : 0);
        assert_int_equal(p.device_weights[UNIT_USUAL].count > 0, stage == 1 || stage == 3);
        assert_true(p.device_grads[UNIT_USUAL].count > 0);
        placement_free(&p);
    }
    layout_free(&layout);
}

/* What a backward leaves of an element, in which part, and where its sum comes to lie. */
static void check_row(const struct placement *p, uint32_t unit, uint64_t hand, uint64_t grad)
{
    const struct bucket bucket = bucket_of(p, unit);
    const struct bucket_row row = bucket_row(p, unit, hand);
    const struct layout_unit *u = &p->layout->units[unit];
    const uint64_t part = bucket.elements * hand;
    assert_true(row.stride == bucket.elements && row.shard <= bucket.elements);
    assert_true(row.at >= bucket.at && row.at + row.shard * hand <= bucket.at + part);
    /* a rank that hands over less of each has the same elements before it */
    const uint64_t narrow = bucket_row(p, unit, grad).at - bucket.at;
    assert_int_equal(narrow * hand, (row.at - bucket.at) * grad);
    for (uint32_t t = u->first_tile; t < u->first_tile + u->tile_count; t++) {
        uint64_t bytes;
        const uint64_t at = placement_extent(p, EXTENT_GRADS, t, &bytes).offset;
        const uint64_t in_part =
            (row.at - bucket.at) / hand + (layout_tile(p->layout, t).offset - u->shard.first);
        assert_int_equal(at, bucket.sum_at + in_part * grad);
        if (hand == grad) /* in place: what is summed there was the rank's own */
            assert_int_equal(at, bucket.at + p->layout->share.rank * part + in_part * hand);
        else
            assert_true(at >= bucket.at + RANKS * part);
    }
}

/* Rows of two units have no byte in common. */
static void check_apart(const struct placement *p, uint64_t hand)
{
    for (uint32_t a = 0; a < LAYERS; a++)
        for (uint32_t b = 0; b < a; b++) {
            const struct bucket_row x = bucket_row(p, a, hand), y = bucket_row(p, b, hand);
            const bool same = p->units[a].bucket == p->units[b].bucket;
            assert_true(same == (bucket_of(p, a).at == bucket_of(p, b).at));
            assert_true(x.shard == 0 || y.shard == 0 || x.at + x.shard * hand <= y.at ||
                        y.at + y.shard * hand <= x.at);
        }
}

static void sums_come_to_lie_in_the_ranks_own_part(void **state)
{
    (void)state;
    struct layout layout = layers();
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (size_t k = 0; k < sizeof KINDS / sizeof KINDS[0]; k++) {
            const struct placement_in in = stage_of(&layout, &KINDS[k], 1, rank);
            struct placement p = placed(&in);
            for (uint32_t u = 0; u < LAYERS; u++)
                check_row(&p, u, KINDS[k].hand, KINDS[k].grad);
            check_apart(&p, KINDS[k].hand);
            placement_free(&p);
        }
    layout_free(&layout);
}

/* Behind one another from the last unit on, each no larger than it may be, nor smaller than with
 * the unit that comes next. */
static void check_buckets(const struct placement_in *in, const struct placement *p, uint64_t most)
{
    uint64_t bytes = 0;
    for (uint32_t u = LAYERS; u-- > 0;) {
        const uint64_t row = placement_exchange_bytes(in, u);
        const bool begins = u + 1 == LAYERS || p->units[u].bucket != p->units[u + 1].bucket;
        assert_int_equal(p->units[u].bucket, u + 1 == LAYERS ? 0 : p->units[u + 1].bucket + begins);
        if (begins && u + 1 < LAYERS)
            assert_true(bytes + row > most);
        bytes = begins ? row : bytes + row;
        assert_true(bytes <= most || bytes == row);
    }
}

static void a_bucket_has_as_many_units_as_it_may(void **state)
{
    (void)state;
    struct layout layout = layers();
    const struct placement_in in = stage_of(&layout, &KINDS[0], 1, 0);
    struct placement p = placed(&in);
    check_buckets(&in, &p, padded(&in)); /* a quarter, of four bytes each */
    assert_true(p.units[0].bucket > 0);
    placement_free(&p);
    layout_free(&layout);
}

/* Ranks plan as rank 0, which has most tiles: what it leaves on drives may be all that another one
 * has of a unit. Of a plan, the number of units of that kind whose other tiles are streamed. */
static uint32_t check_graphs(struct layout *layout, const struct placement_in *in,
                             const struct placement *p)
{
    uint32_t short_units = 0;
    const uint32_t in_dram = placement_tiles_in_dram(p);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        struct graph graph;
        assert_int_equal(layout_seal(layout, 4096, (struct share){rank, RANKS}), 0);
        assert_int_equal(step_graph(in, p, NULL, false, &graph), 0);
        assert_int_equal(placement_tiles_in_dram(p), in_dram);
        for (uint32_t u = 0; u < LAYERS; u++)
            short_units += p->units[u].streamed_tiles > 0 &&
                           layout->units[u].tile_count < p->units[u].nvme_states;
        graph_free(&graph);
    }
    return short_units;
}

static void a_rank_with_fewer_tiles_than_were_planned_has_a_graph(void **state)
{
    (void)state;
    struct layout layout = layers_of(9 * 64, 0); /* nine blocks: three a rank, the last has none */
    uint32_t short_units = 0;
    for (uint64_t dram = 1u << 24; dram > 1u << 19; dram -= 1u << 18) {
        assert_int_equal(layout_seal(&layout, 4096, (struct share){0, RANKS}), 0);
        struct placement_in in = inputs(&layout, "weights=dram,grads=dram");
        struct placement p = {0};
        char why[512];
        in.compute_tier = HST_TIER_HBM;
        in.way_dtype = HST_F32;
        in.hbm_budget = 1u << 21;
        in.dram_budget = dram;
        in.deferred = in.streams = true;
        in.stream_share = 0.5;
        if (placement_plan(&in, &p, why, sizeof why))
            continue;
        short_units += check_graphs(&layout, &in, &p);
        placement_free(&p);
    }
    assert_true(short_units > 0);
    layout_free(&layout);
}

static void a_backward_has_the_products_of_the_gradients_that_are_wanted(void **state)
{
    (void)state;
    static const struct {
        struct layout_unit unit;
        double products;
    } cases[] = {
        {{.act_bytes_per_token = 4}, 2},
        {{.act_bytes_per_token = 4, .frozen = true}, 1},
        {{.act_bytes_per_token = 4, .first_backward = true}, 2}, /* its own norm wants them */
        {{.first_backward = true}, 1},                           /* a head */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_true(step_backward_forwards(&cases[i].unit, true) == cases[i].products);
        assert_true(step_backward_forwards(&cases[i].unit, false) == cases[i].products + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_backward_has_the_products_of_the_gradients_that_are_wanted),
        cmocka_unit_test(each_stage_keeps_what_zero_says),
        cmocka_unit_test(joined_devices_keep_what_zero_says),
        cmocka_unit_test(sums_come_to_lie_in_the_ranks_own_part),
        cmocka_unit_test(a_bucket_has_as_many_units_as_it_may),
        cmocka_unit_test(a_rank_with_fewer_tiles_than_were_planned_has_a_graph),
    };
    return cmocka_run_group_tests_name("plan/stages", tests, NULL, NULL);
}
