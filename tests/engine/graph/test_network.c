/* SPDX-License-Identifier: Apache-2.0 */
/* Seconds of what ranks do together, by hand. */
#include "plan/graph/simulate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void assert_close(double got, double want)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want)))
        fail_msg("got %.17g, want %.17g", got, want);
}

static void assert_net(const struct sim_net *net, enum node_kind kind, double bytes,
                       uint8_t operands, double seconds)
{
    const struct node node = {
        .kind = (uint8_t)kind, .lane = LANE_NET, .work = bytes, .operand_count = operands};
    assert_close(sim_node_seconds(&(struct sim_rates){.net = *net}, &node), seconds);
}

static void what_ranks_do_together_takes_its_begin_and_its_bytes(void **state)
{
    (void)state;
    const struct sim_net one = {.gather = 200, .exchange = 50, .operation_s = 0.5};
    assert_net(&one, NODE_GATHER, 1000, 1, 0.5 + 5);
    assert_net(&one, NODE_GATHER, 1000, 3, 1.5 + 5); /* of the rows of three units */
    assert_net(&one, NODE_EXCHANGE, 1000, 1, 0.5 + 20);
    assert_net(&one, NODE_AGREE, 0, 0, 0.5);
    assert_net(&one, NODE_VOTE, 0, 0, 0.5);
    const struct sim_net nodes = {.gather = 200,
                                  .exchange = 50,
                                  .between = 10,
                                  .gather_crossing = 0.25,
                                  .exchange_crossing = 0.5};
    assert_net(&nodes, NODE_GATHER, 1000, 1, 3.75 + 25);
    assert_net(&nodes, NODE_EXCHANGE, 1000, 1, 10 + 50);
    struct sim_net fewer = nodes;
    fewer.gather_saved = 0.2;
    fewer.gather_saved_between = 0.5;
    assert_net(&fewer, NODE_GATHER, 1000, 1, 3 + 12.5);
    assert_net(&fewer, NODE_EXCHANGE, 1000, 1, 10 + 50);
    fewer.exchange_saved = 0.3;
    fewer.exchange_saved_between = 0.75;
    assert_net(&fewer, NODE_EXCHANGE, 1000, 1, 7 + 12.5);
    assert_net(&fewer, NODE_GATHER, 1000, 1, 3 + 12.5);
    assert_net(&(struct sim_net){0}, NODE_GATHER, 1000, 1, 0); /* nothing limits it */
}

/* A gather, one of a node's ranks and an exchange have as many as they have, votes none. */
static void messages_take_their_time_whatever_is_in_them(void **state)
{
    (void)state;
    const struct sim_net net = {.gather = 200,
                                .exchange = 50,
                                .operation_s = 0.5,
                                .gather_messages_s = 3,
                                .near_messages_s = 0.25,
                                .exchange_messages_s = 7};
    assert_net(&net, NODE_GATHER, 1000, 1, 0.5 + 3 + 5);
    assert_net(&net, NODE_GATHER, 1000, 3, 1.5 + 9 + 5);
    assert_net(&net, NODE_GATHER_NEAR, 1000, 1, 0.5 + 0.25 + 5);
    assert_net(&net, NODE_EXCHANGE, 1000, 1, 0.5 + 7 + 20);
    assert_net(&net, NODE_AGREE, 0, 0, 0.5);
    assert_net(&net, NODE_VOTE, 0, 0, 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_take_their_time_whatever_is_in_them),
        cmocka_unit_test(what_ranks_do_together_takes_its_begin_and_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
