/* SPDX-License-Identifier: Apache-2.0 */
/* The comm of one rank, and what every comm refuses. */
#include "comm/comm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

static const struct hst_sum_tree tree = {1, 8, HST_BF16, HST_BF16, 0};
static const struct comm_config alone = {.size = sizeof alone, .launch = {.ranks = 1}};

static struct comm *opened(void)
{
    struct comm *comm = NULL;
    assert_int_equal(comm_open(&alone, &comm, NULL), 0);
    return comm;
}

static void one_rank_has_what_all_have(void **state)
{
    (void)state;
    struct comm *comm = opened();
    struct comm_info info;
    struct comm_failure failure;
    uint64_t ticket;
    uint16_t in[4] = {1, 2, 3, 4}, out[4] = {0};
    int64_t votes[2] = {5, -6};
    uint16_t all[4] = {0};
    comm_info(comm, &info);
    assert_int_equal(info.ranks, 1);
    assert_int_equal(info.nodes, 1);
    assert_int_equal(info.locals, 1);
    assert_string_equal(info.transport, "self");
    assert_int_equal(comm_exchange(comm, "unit", &tree, in, out, 4, &ticket), 0);
    assert_int_equal(comm_test(comm, ticket), 0);
    assert_memory_equal(out, in, sizeof in);
    assert_int_equal(comm_share(comm, "unit", in, all, sizeof in, &ticket), 0);
    assert_int_equal(comm_wait(comm, ticket), 0);
    assert_memory_equal(all, in, sizeof in);
    assert_int_equal(comm_gather(comm, "unit", all, sizeof all, &ticket), 0);
    assert_int_equal(comm_wait(comm, ticket), 0);
    assert_int_equal(comm_sum64(comm, "votes", votes, 2, &ticket), 0);
    assert_int_equal(comm_bcast(comm, "text", all, sizeof all, 0, &ticket), 0);
    assert_int_equal(comm_wait(comm, ticket), 0);
    assert_int_equal(votes[1], -6);
    assert_memory_equal(all, in, sizeof in);
    comm_info(comm, &info);
    assert_int_equal(info.net_bytes, 0);
    assert_int_equal(comm_number(comm, 0), 0);
    assert_int_equal(comm_number(comm, 1), -EINVAL);
    comm_failure(comm, &failure);
    assert_int_equal(failure.native, 0);
    comm_abort(comm, 3); /* there is nobody to end */
    comm_close(&comm);
    assert_null(comm);
    comm_close(&comm);
}

static void one_rank_computes_with_what_its_integers_give_back(void **state)
{
    (void)state;
    enum { COUNT = 33 * HST_QUANT_BLOCK };
    static float exact[COUNT], whole[COUNT], want[COUNT], scales[COUNT / HST_QUANT_BLOCK];
    static unsigned char codes[COUNT];
    struct comm *comm = opened();
    uint64_t ticket;
    for (int i = 0; i < COUNT; i++)
        exact[i] = (float)(i * 40503u % 65536) - 30000;
    const struct hst_quantise to = {HST_INT8, HST_F32, COUNT, exact, codes, scales};
    const struct hst_dequantise from = {HST_INT8, HST_F32, COUNT, codes, scales, want};
    assert_int_equal(hst_host_quantise(&to), 0);
    assert_int_equal(hst_host_dequantise(&from), 0);
    assert_int_equal(comm_gather_quantised(comm, "unit", exact, whole, COUNT, HST_F32, &ticket), 0);
    assert_int_equal(comm_wait(comm, ticket), 0);
    assert_memory_equal(whole, want, sizeof want);
    assert_memory_not_equal(whole, exact, sizeof exact);
    /* no whole blocks, no exact values, the same memory */
    assert_int_equal(comm_gather_quantised(comm, "unit", exact, whole, 500, HST_F32, &ticket),
                     -EINVAL);
    assert_int_equal(comm_gather_quantised(comm, "unit", NULL, whole, 512, HST_F32, &ticket),
                     -EINVAL);
    assert_int_equal(comm_gather_quantised(comm, "unit", whole, whole, 512, HST_F32, &ticket),
                     -EINVAL);
    assert_int_equal(comm_gather_near(comm, "unit", exact, whole, sizeof whole, &ticket), 0);
    assert_memory_equal(whole, exact, sizeof whole);
    assert_int_equal(comm_gather_near(comm, "unit", whole, whole, 512, &ticket), -EINVAL);
    comm_close(&comm);
}

static void memory_is_zero_and_begins_at_a_page(void **state)
{
    (void)state;
    struct comm *comm = opened();
    void *first, *second;
    assert_int_equal(comm_alloc(comm, 10000, &first), 0);
    assert_int_equal(comm_alloc(comm, 1, &second), 0);
    assert_true((uintptr_t)first % 4096 == 0 && (uintptr_t)second % 4096 == 0);
    for (int i = 0; i < 10000; i++)
        assert_int_equal(((char *)first)[i], 0);
    memset(first, 1, 10000);
    assert_int_equal(comm_alloc(comm, 0, &second), -EINVAL);
    assert_int_equal(comm_free(comm, first), 0);
    assert_int_equal(comm_free(comm, first), -EINVAL); /* it is freed */
    assert_int_equal(comm_free(comm, NULL), 0);
    comm_close(&comm); /* frees the other */
}

static void memory_that_is_exposed_is_whole_pages(void **state)
{
    (void)state;
    static _Alignas(4096) char memory[8192];
    struct comm *comm = opened();
    assert_int_equal(comm_expose(comm, memory, sizeof memory), 0);
    assert_int_equal(comm_expose(comm, memory, 4000), -EINVAL);
    assert_int_equal(comm_expose(comm, memory + 8, 4096), -EINVAL);
    assert_int_equal(comm_expose(comm, memory, 0), -EINVAL);
    assert_int_equal(comm_expose(comm, NULL, 4096), -EINVAL);
    assert_int_equal(comm_free(comm, memory), -EINVAL); /* it is the caller's */
    comm_close(&comm);
}

static void mistakes_are_refused(void **state)
{
    (void)state;
    struct comm *comm = opened();
    uint64_t ticket = 77;
    int64_t value = 0;
    char memory[8] = {0};
    const struct hst_sum_tree bad[] = {{0, 8, HST_F32, HST_F32, 0}, {1, 3, HST_F32, HST_F32, 0}};
    assert_int_equal(comm_gather(comm, "x", NULL, 8, &ticket), -EINVAL);
    assert_int_equal(comm_gather(comm, "x", memory, SIZE_MAX / 4, &ticket), -EINVAL);
    assert_int_equal(comm_exchange(comm, "x", NULL, memory, memory, 1, &ticket), -EINVAL);
    assert_int_equal(comm_exchange(comm, "x", &bad[0], memory, memory, 1, &ticket), -EINVAL);
    assert_int_equal(comm_exchange(comm, "x", &bad[1], memory, memory, 1, &ticket), -EINVAL);
    assert_int_equal(comm_exchange(comm, "x", &tree, NULL, memory, 1, &ticket), -EINVAL);
    assert_int_equal(comm_sum64(comm, "x", &value, (1 << 20) + 1, &ticket), -EINVAL);
    assert_int_equal(comm_bcast(comm, "x", memory, 8, 1, &ticket), -EINVAL);
    assert_int_equal(comm_share(comm, "x", NULL, memory, 8, &ticket), -EINVAL);
    assert_int_equal(comm_share(comm, "x", memory, memory, (1 << 20) + 1, &ticket), -EINVAL);
    assert_int_equal(comm_begin(comm, &(struct comm_op){.out = memory}, &ticket), -EINVAL);
    assert_int_equal(comm_gather(comm, "x", memory, 8, NULL), -EINVAL);
    assert_int_equal(ticket, 77);
    assert_int_equal(comm_test(comm, 1), -EINVAL); /* nothing was begun */
    comm_close(&comm);
}

/* Their memory is no device's: nothing of a device is asked for there. */
static void one_rank_joins_no_device(void **state)
{
    (void)state;
    struct comm *comm = opened();
    uint64_t ticket = 77;
    char memory[64] = {0};
    void *taken = memory;
    struct hst_event *event = (struct hst_event *)memory;
    struct hst_stream *stream = (struct hst_stream *)memory;
    struct comm_op op = {.kind = COMM_GATHER, .out = memory, .count = 8, .on_device = true};
    assert_int_equal(comm_begin(comm, &op, &ticket), -ENOTSUP);
    op.kind = COMM_SUM64;
    assert_int_equal(comm_begin(comm, &op, &ticket), -EINVAL); /* of no device ever */
    op = (struct comm_op){.kind = COMM_GATHER, .out = memory, .count = 8, .after = event};
    assert_int_equal(comm_begin(comm, &op, &ticket), -EINVAL);
    op = (struct comm_op){.kind = COMM_GATHER, .out = memory, .count = 8, .within_s = -1};
    assert_int_equal(comm_begin(comm, &op, &ticket), -EINVAL);
    assert_int_equal(ticket, 77);
    assert_int_equal(comm_order(comm, 1, stream), -ENOTSUP);
    assert_int_equal(comm_order(comm, 1, NULL), -EINVAL);
    assert_int_equal(comm_dev_alloc(comm, 8, &taken), -ENOTSUP);
    assert_int_equal(comm_dev_alloc(comm, 0, &taken), -EINVAL);
    assert_int_equal(comm_dev_free(comm, memory), -ENOTSUP);
    assert_int_equal(comm_dev_free(comm, NULL), 0);
    assert_ptr_equal(taken, memory);
    comm_close(&comm);
}

static void worlds_that_nothing_joins_do_not_open(void **state)
{
    (void)state;
    struct comm *comm = NULL;
    struct comm_failure failure;
    struct comm_config config = alone;
    config.launch = (struct hst_launch){.ranks = 2, .launcher = "torchrun"};
    assert_int_equal(comm_open(&config, &comm, &failure), -ENODEV);
    assert_non_null(strstr(failure.text, "torchrun started 2 ranks"));
    config.launch.rank = 2;
    assert_int_equal(comm_open(&config, &comm, &failure), -EINVAL);
    config = alone;
    config.size--;
    assert_int_equal(comm_open(&config, &comm, &failure), -EINVAL);
    assert_int_equal(comm_open(&config, &comm, NULL), -EINVAL);
    config = alone;
    config.piece_bytes = COMM_PIECE_MOST + 1;
    assert_int_equal(comm_open(&config, &comm, &failure), -EINVAL);
    assert_non_null(strstr(failure.text, "pieces of 536870913 bytes"));
    for (uint32_t inputs = 1; inputs <= 2 * HST_SUM_INPUTS; inputs++) {
        config = alone;
        config.sum_inputs = inputs;
        const bool good = inputs <= HST_SUM_INPUTS && !(inputs & (inputs - 1));
        assert_int_equal(comm_open(&config, &comm, &failure), good ? 0 : -EINVAL);
        assert_true(good || strstr(failure.text, "a power of two, 64 at most"));
        assert_int_equal(comm_close(&comm), 0);
    }
    assert_null(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_has_what_all_have),
        cmocka_unit_test(one_rank_computes_with_what_its_integers_give_back),
        cmocka_unit_test(memory_is_zero_and_begins_at_a_page),
        cmocka_unit_test(memory_that_is_exposed_is_whole_pages),
        cmocka_unit_test(mistakes_are_refused),
        cmocka_unit_test(one_rank_joins_no_device),
        cmocka_unit_test(worlds_that_nothing_joins_do_not_open),
    };
    return cmocka_run_group_tests_name("comm/self", tests, NULL, NULL);
}
