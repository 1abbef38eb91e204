/* SPDX-License-Identifier: Apache-2.0 */
/* Rates between ranks, from seconds worked by hand; which bytes cross nodes. */
#include "comm/rates.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct comm_info world(uint32_t ranks, uint32_t nodes, uint32_t locals, bool shared)
{
    return (struct comm_info){.ranks = ranks, .nodes = nodes, .locals = locals, .shared = shared};
}

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want)))
        fail_msg("got %.17g, want %.17g", got, want);
}

/* As the transport counts them: engine/comm/mpi, count_gather and count_exchange. */
static void what_crosses_nodes_follows_from_the_world(void **state)
{
    (void)state;
    static const struct {
        uint32_t ranks, nodes, locals;
        bool shared;
        double gather, exchange; /* of ranks - 1 parts */
    } rows[] = {
        {4, 1, 4, true, 0, 0},      {4, 1, 4, false, 0, 0}, {2, 2, 1, false, 1, 1},
        {8, 2, 4, true, 1, 1},      {8, 2, 4, false, 4, 1}, /* a gather by messages is one hop */
        {6, 2, 3, true, 1, 3},  /* no power of two divides 3: an exchange is one hop */
        {12, 2, 6, true, 1, 3}, /* groups of 2 */
        {3, 2, 2, false, 1, 1}, /* nodes of different sizes */
        {512, 64, 8, true, 63, 63},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct comm_info info =
            world(rows[i].ranks, rows[i].nodes, rows[i].locals, rows[i].shared);
        const struct comm_crossing c = comm_crossing(&info);
        assert_near(c.gather * (rows[i].ranks - 1), rows[i].gather);
        assert_near(c.exchange * (rows[i].ranks - 1), rows[i].exchange);
    }
}

static void assert_messages(struct comm_messages got, double in_node, double between)
{
    assert_near(got.in_node, in_node);
    assert_near(got.between, between);
}

/* As the transports send them: engine/comm/mpi hops.c, operations.c; engine/comm/nccl exchange.c.
 * Where a device gathers NCCL passes parts on in a ring. */
static void messages_follow_from_the_world(void **state)
{
    (void)state;
    static const struct {
        uint32_t ranks, nodes, locals;
        bool shared, device;
        struct comm_messages gather, near, exchange;
    } rows[] = {
        {1, 1, 1, true, false, {0, 0}, {0, 0}, {0, 0}},
        {4, 1, 4, true, false, {0, 0}, {0, 0}, {0, 0}}, /* read in place */
        {4, 1, 4, false, false, {3, 0}, {3, 0}, {3, 0}},
        {4, 1, 4, true, true, {3, 0}, {3, 0}, {3, 0}},
        {2, 2, 1, true, false, {0, 1}, {0, 0}, {0, 1}},
        {8, 2, 4, true, false, {0, 1}, {0, 0}, {0, 1}},
        {8, 2, 4, false, false, {3, 4}, {3, 0}, {3, 1}},
        {8, 2, 4, true, true, {6, 1}, {3, 0}, {3, 1}},
        {6, 2, 3, false, false, {2, 3}, {2, 0}, {2, 3}},  /* no power of two divides 3 */
        {12, 2, 6, false, false, {5, 6}, {5, 0}, {3, 3}}, /* groups of 2: 1 + 2 in a node */
        {3, 2, 2, true, false, {1, 1}, {1, 0}, {1, 1}},   /* nodes of different sizes */
        {1024, 128, 8, true, true, {896, 127}, {7, 0}, {7, 127}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct comm_info info =
            world(rows[i].ranks, rows[i].nodes, rows[i].locals, rows[i].shared);
        struct comm_op op = {.kind = COMM_GATHER, .on_device = rows[i].device};
        assert_messages(comm_messages(&info, &op), rows[i].gather.in_node, rows[i].gather.between);
        op.near = true;
        assert_messages(comm_messages(&info, &op), rows[i].near.in_node, rows[i].near.between);
        op = (struct comm_op){.kind = COMM_EXCHANGE, .on_device = rows[i].device};
        assert_messages(comm_messages(&info, &op), rows[i].exchange.in_node,
                        rows[i].exchange.between);
    }
}

/* Begin and end take 1 ms of each. */
static void one_node_has_rates_of_its_own(void **state)
{
    (void)state;
    const struct comm_info info = world(4, 1, 4, true);
    const struct comm_rates r = comm_rates_of(&info, &(struct comm_times){.empty_s = 1e-3,
                                                                          .gather_s = 3e-3,
                                                                          .exchange_s = 5e-3,
                                                                          .gather_bytes = 2e6,
                                                                          .exchange_bytes = 2e6});
    assert_near(r.gather, 1e9);
    assert_near(r.exchange, 5e8);
    assert_near(r.operations, 1000);
    assert_true(r.between == 0 && r.operations_between == 0);
}

static void a_rank_a_node_has_what_crosses_alone(void **state)
{
    (void)state;
    const struct comm_info info = world(2, 2, 1, false);
    const struct comm_rates r = comm_rates_of(&info, &(struct comm_times){.empty_s = 1e-3,
                                                                          .gather_s = 3e-3,
                                                                          .exchange_s = 5e-3,
                                                                          .gather_bytes = 2e6,
                                                                          .exchange_bytes = 2e6});
    assert_near(r.between, 5e8); /* of the slower one */
    assert_near(r.operations_between, 1000);
    assert_true(r.gather == 0 && r.exchange == 0 && r.operations == 0);
}

/* 8 ranks on 2 nodes, each with 6 of 7 parts on its own: what was measured comes out again. */
static void both_are_told_apart_by_a_copy(void **state)
{
    (void)state;
    const double in = 6e6, out = 1e6, gather = 3e9, exchange = 2e9, between = 5e8;
    const struct comm_info info = world(8, 2, 4, true);
    const struct comm_rates r = comm_rates_of(
        &info, &(struct comm_times){.empty_s = 1e-4,
                                    .gather_s = 1e-4 + in / gather + out / between,
                                    .exchange_s = 1e-4 + in / exchange + out / between,
                                    .gather_bytes = in + out,
                                    .exchange_bytes = in + out,
                                    .copy_s = in / gather});
    assert_near(r.gather, gather);
    assert_near(r.exchange, exchange);
    assert_near(r.between, between);
    assert_true(r.operations == 0);
}

static void messages_take_one_way_within_nodes_and_between(void **state)
{
    (void)state;
    const struct comm_info info = world(4, 2, 2, false);
    const struct comm_rates r = comm_rates_of(&info, &(struct comm_times){.empty_s = 1e-4,
                                                                          .gather_s = 31e-4,
                                                                          .exchange_s = 31e-4,
                                                                          .gather_bytes = 3e6,
                                                                          .exchange_bytes = 3e6});
    assert_near(r.gather, 1e9);
    assert_near(r.between, 1e9);
    assert_near(r.exchange, 1e9);
}

/* A machine that is busy measures a copy, or an operation that moves nothing, longer than all. */
static void noise_leaves_rates_that_are_above_0(void **state)
{
    (void)state;
    const struct comm_info info = world(8, 2, 4, true);
    const struct comm_rates r = comm_rates_of(&info, &(struct comm_times){.empty_s = 1,
                                                                          .gather_s = 0.5,
                                                                          .exchange_s = 0.5,
                                                                          .gather_bytes = 7e6,
                                                                          .exchange_bytes = 7e6,
                                                                          .copy_s = 2});
    assert_true(r.gather > 0 && r.exchange > 0 && r.between > 0);
    assert_true(isfinite(r.gather) && isfinite(r.exchange) && isfinite(r.between));
}

static void rates_are_put_among_those_of_a_machine(void **state)
{
    (void)state;
    struct hst_rates rates = {.figures[HST_RATE_NET_BETWEEN] = {.how = "not here"}};
    comm_rates_put(&(struct comm_rates){.gather = 2e9, .exchange = 1e9, .operations = 1e4},
                   "4 ranks", &rates);
    assert_near(rates.figures[HST_RATE_NET_GATHER].value, 2e9);
    assert_near(rates.figures[HST_RATE_NET_EXCHANGE].value, 1e9);
    assert_near(rates.figures[HST_RATE_NET_OPERATIONS].value, 1e4);
    assert_string_equal(rates.figures[HST_RATE_NET_GATHER].how, "4 ranks");
    assert_string_equal(rates.figures[HST_RATE_NET_BETWEEN].how, "not here");
    assert_true(rates.figures[HST_RATE_NET_BETWEEN].value == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_crosses_nodes_follows_from_the_world),
        cmocka_unit_test(messages_follow_from_the_world),
        cmocka_unit_test(one_node_has_rates_of_its_own),
        cmocka_unit_test(a_rank_a_node_has_what_crosses_alone),
        cmocka_unit_test(both_are_told_apart_by_a_copy),
        cmocka_unit_test(messages_take_one_way_within_nodes_and_between),
        cmocka_unit_test(noise_leaves_rates_that_are_above_0),
        cmocka_unit_test(rates_are_put_among_those_of_a_machine),
    };
    return cmocka_run_group_tests_name("comm/rates", tests, NULL, NULL);
}
