/* SPDX-License-Identifier: Apache-2.0 */
/* Comms around a comm: one as slow as a network, one in which things go wrong. */
#include "comm/wrap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const struct comm_config alone = {.size = sizeof alone, .launch = {.ranks = 1}};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/*
 * A comm of four ranks, as far as bytes go: it ends what it began when it is told to, and each test
 * of it counts.
 */
static struct four {
    struct comm base;
    uint64_t begun, ended;
    bool closed, full; /* full: it begins nothing */
    bool stays;        /* it does not close */
} four;

static int four_close(struct comm *comm)
{
    (void)comm;
    four.closed = !four.stays;
    return four.stays ? -EPIPE : 0;
}

static void four_info(struct comm *comm, struct comm_info *info)
{
    (void)comm;
    *info = (struct comm_info){.ranks = 4, .locals = 4, .nodes = 1, .transport = "four"};
}

static int four_begin(struct comm *comm, const struct comm_op *op, uint64_t *ticket)
{
    (void)comm;
    (void)op;
    if (four.full)
        return -EAGAIN;
    *ticket = ++four.begun + 1000; /* tickets of its own */
    return 0;
}

static int four_test(struct comm *comm, uint64_t ticket)
{
    (void)comm;
    return ticket <= four.ended + 1000 ? 0 : -EAGAIN;
}

static int four_fd(struct comm *comm)
{
    (void)comm;
    return -1;
}

static const struct comm_ops four_ops = {.size = sizeof four_ops,
                                         .close = four_close,
                                         .info = four_info,
                                         .begin = four_begin,
                                         .test = four_test,
                                         .fd = four_fd};

static struct comm *four_ranks(const struct comm_model *model)
{
    struct comm *comm = &four.base;
    four = (struct four){.base = {&four_ops}};
    assert_int_equal(comm_model_wrap(&comm, model), 0);
    return comm;
}

static struct comm *faulty(const struct comm_fault *faults, size_t count)
{
    struct comm *comm = NULL;
    assert_int_equal(comm_open(&alone, &comm, NULL), 0);
    assert_int_equal(comm_fault_wrap(&comm, faults, count), 0);
    return comm;
}

/* It has not ended, unless this test itself was held up until `due`. */
static void not_before(struct comm *comm, uint64_t ticket, double due)
{
    const int rc = comm_test(comm, ticket);
    if (seconds() < due)
        assert_int_equal(rc, -EAGAIN);
}

static void an_operation_takes_its_latency_and_its_bytes(void **state)
{
    (void)state;
    static char memory[4 * 1000];
    struct comm *comm = four_ranks(&(struct comm_model){.bytes_per_s = 30000, .latency_s = 0.05});
    uint64_t first, second;
    const double begun = seconds();
    /* 3 · 1,000 bytes: 0.1 s, and 0.05 s; the second comes after the first */
    assert_int_equal(comm_gather(comm, "a", memory, 1000, &first), 0);
    assert_int_equal(comm_gather(comm, "b", memory, 1000, &second), 0);
    four.ended = 2;
    not_before(comm, first, begun + 0.15);
    assert_int_equal(comm_wait(comm, first), 0);
    const double one = seconds() - begun;
    assert_true(one >= 0.15);
    not_before(comm, second, begun + 0.3);
    assert_int_equal(comm_wait(comm, second), 0);
    const double both = seconds() - begun;
    assert_true(both >= 0.3);
    assert_int_equal(comm_test(comm, 3), -EINVAL);
    comm_close(&comm);
    assert_true(four.closed);
}

static void another_link_is_for_what_begins_then(void **state)
{
    (void)state;
    static char memory[4 * 1000];
    struct comm *comm = four_ranks(&(struct comm_model){.bytes_per_s = INFINITY});
    const struct comm_model slow = {.bytes_per_s = 30000, .latency_s = 0.05};
    uint64_t first, second;
    assert_int_equal(comm_gather(comm, "a", memory, 1000, &first), 0);
    assert_int_equal(comm_model_set(comm, &slow), 0);
    const double begun = seconds();
    assert_int_equal(comm_gather(comm, "b", memory, 1000, &second), 0);
    four.ended = 2;
    assert_int_equal(comm_test(comm, first), 0);
    not_before(comm, second, begun + 0.15);
    assert_int_equal(comm_wait(comm, second), 0);
    assert_true(seconds() - begun >= 0.15);
    assert_int_equal(comm_model_set(comm, &(struct comm_model){.bytes_per_s = 0}), -EINVAL);
    assert_int_equal(comm_model_set(&four.base, &slow), -EINVAL); /* it is no model */
    assert_int_equal(comm_close(&comm), 0);
}

static void what_is_slower_below_ends_when_that_does(void **state)
{
    (void)state;
    static char memory[4];
    struct comm *comm = four_ranks(&(struct comm_model){.bytes_per_s = INFINITY});
    uint64_t ticket;
    assert_int_equal(comm_gather(comm, "a", memory, 1, &ticket), 0);
    assert_int_equal(comm_test(comm, ticket), -EAGAIN);
    four.ended = 1;
    assert_int_equal(comm_test(comm, ticket), 0);
    comm_close(&comm);
}

static void the_descriptor_is_readable_when_an_operation_is_due(void **state)
{
    (void)state;
    static char memory[4 * 1000];
    struct comm *comm = four_ranks(&(struct comm_model){.bytes_per_s = 3e4});
    uint64_t ticket;
    const double begun = seconds();
    assert_int_equal(comm_gather(comm, "a", memory, 1000, &ticket), 0);
    four.ended = 1;
    struct pollfd wait = {.fd = comm_fd(comm), .events = POLLIN};
    const int early = poll(&wait, 1, 0);
    assert_true(early == 0 || seconds() >= begun + 0.1);
    assert_int_equal(poll(&wait, 1, 10000), 1);
    assert_int_equal(comm_test(comm, ticket), 0);
    assert_int_equal(poll(&wait, 1, 0), 0); /* comm_test has emptied it */
    comm_close(&comm);
}

static void as_many_are_under_way_as_any_comm_has(void **state)
{
    (void)state;
    static char memory[4];
    struct comm *comm = four_ranks(&(struct comm_model){.bytes_per_s = INFINITY, .latency_s = 9});
    uint64_t ticket;
    for (int i = 0; i < COMM_IN_FLIGHT; i++)
        assert_int_equal(comm_gather(comm, "a", memory, 1, &ticket), 0);
    assert_int_equal(comm_gather(comm, "a", memory, 1, &ticket), -EAGAIN);
    comm_close(&comm);
}

/* Of NCCL's exchanges; ranks of a node add up by a power of two. */
static void hops_have_as_many_inputs_as_a_gpu_adds(void **state)
{
    (void)state;
    static const struct {
        uint32_t nodes, locals;
        bool uniform;
        uint32_t group;
        const char *most; /* of one hop, where that is too much */
    } rows[] = {{1, 65, true, 1, NULL},
                {128, 8, true, 8, NULL},
                {4096, 8, true, 8, NULL},
                {4097, 8, true, 8, "4097 ranks in one hop, and a GPU adds 4096 inputs at most"},
                {512, 8, false, 1, NULL},
                {513, 8, false, 1, "4104 ranks"},
                {2, 4096, true, 4096, NULL},
                {2, 8192, true, 8192, "8192 ranks"},
                {1366, 3, true, 1, "4098 ranks"},
                {16, 12, true, 4, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char why[COMM_WHY_BYTES] = "";
        const struct comm_info info = {.ranks = rows[i].nodes * rows[i].locals,
                                       .locals = rows[i].locals,
                                       .nodes = rows[i].nodes};
        assert_int_equal(comm_hop_group(&info, rows[i].uniform), rows[i].group);
        assert_int_equal(comm_hops_fit(&info, rows[i].uniform, why), !rows[i].most);
        if (rows[i].most && !strstr(why, rows[i].most))
            fail_msg("row %zu: %s", i, why);
    }
}

static void bytes_are_those_of_others_elements(void **state)
{
    (void)state;
    const struct comm_op gather = {.kind = COMM_GATHER, .count = 10};
    const struct comm_op exchange = {
        .kind = COMM_EXCHANGE, .count = 10, .tree = {4, 8, HST_BF16, HST_BF16, 0}};
    const struct comm_op wide = {
        .kind = COMM_EXCHANGE, .count = 10, .tree = {8, 8, HST_BF16, HST_BF16, 0}};
    const struct comm_op sum = {.kind = COMM_SUM64, .count = 10};
    const struct comm_op near = {.kind = COMM_GATHER, .count = 10, .near = true};
    assert_int_equal(comm_op_bytes(&gather, 4, 2), 30);
    assert_int_equal(comm_op_bytes(&near, 4, 2), 10);
    assert_int_equal(comm_op_bytes(&exchange, 4, 2), 60);
    assert_int_equal(comm_op_bytes(&wide, 4, 2), 120); /* sums of two ways are f32 */
    assert_int_equal(comm_op_bytes(&sum, 4, 2), 240);
    assert_int_equal(comm_op_bytes(&gather, 1, 1), 0);
}

static int share(struct comm *comm, uint64_t *ticket)
{
    static char own, all;
    return comm_share(comm, "ids", &own, &all, 1, ticket);
}

static void the_nth_operation_fails_and_so_do_all_after_it(void **state)
{
    (void)state;
    struct comm *comm = faulty(&(struct comm_fault){COMM_FAULT_FAIL, 2, 0}, 1);
    struct comm_failure failure;
    uint64_t ticket;
    assert_int_equal(share(comm, &ticket), 0);
    comm_failure(comm, &failure);
    assert_int_equal(failure.native, 0);
    uint64_t none = ticket;
    assert_int_equal(share(comm, &none), -EIO);
    assert_int_equal(share(comm, &none), -EIO);
    assert_int_equal(none, ticket);
    assert_int_equal(comm_wait(comm, ticket), 0); /* what had ended has */
    comm_failure(comm, &failure);
    assert_int_equal(failure.native, -EIO);
    assert_non_null(strstr(failure.text, "share of ids"));
    comm_close(&comm);
}

static void what_is_not_begun_is_not_counted(void **state)
{
    (void)state;
    struct comm *comm = &four.base;
    const struct comm_fault faults[] = {{COMM_FAULT_DELAY, 2, 0.2}, {COMM_FAULT_FAIL, 3, 0}};
    uint64_t ticket;
    four = (struct four){.base = {&four_ops}};
    assert_int_equal(comm_fault_wrap(&comm, faults, 2), 0);
    assert_int_equal(share(comm, &ticket), 0);
    const double begun = seconds();
    four.full = true;
    for (int i = 0; i < 50; i++)
        assert_int_equal(share(comm, &ticket), -EAGAIN);
    four.full = false;
    assert_int_equal(share(comm, &ticket), 0);
    assert_true(seconds() - begun < 50 * 0.2); /* it was late once */
    assert_int_equal(share(comm, &ticket), -EIO);
    comm_close(&comm);
}

static void the_nth_operation_is_late(void **state)
{
    (void)state;
    struct comm *comm = faulty(&(struct comm_fault){COMM_FAULT_DELAY, 2, 0.2}, 1);
    uint64_t ticket;
    assert_int_equal(share(comm, &ticket), 0);
    const double begun = seconds();
    assert_int_equal(share(comm, &ticket), 0);
    assert_true(seconds() - begun >= 0.2);
    assert_int_equal(comm_wait(comm, ticket), 0);
    comm_close(&comm);
}

static void the_nth_operation_never_ends(void **state)
{
    (void)state;
    struct comm *comm = faulty(&(struct comm_fault){COMM_FAULT_DROP, 2, 0}, 1);
    uint64_t first, second, third;
    assert_int_equal(share(comm, &first), 0);
    assert_int_equal(share(comm, &second), 0);
    assert_int_equal(share(comm, &third), 0);
    assert_int_equal(comm_test(comm, first), 0);
    assert_int_equal(comm_test(comm, second), -EAGAIN);
    assert_int_equal(comm_test(comm, third), -EAGAIN);
    assert_int_equal(comm_test(comm, third + 1), -EINVAL);
    comm_close(&comm);
}

static void the_nth_operation_kills(void **state)
{
    (void)state;
    int status;
    const pid_t child = fork();
    if (child == 0) {
        struct comm *comm = faulty(&(struct comm_fault){COMM_FAULT_DIE, 1, 0}, 1);
        uint64_t ticket;
        share(comm, &ticket);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    struct comm *comm = NULL;
    assert_int_equal(comm_open(&alone, &comm, NULL), 0);
    struct comm *const before = comm;
    const struct comm_model models[] = {{0, 0}, {-1, 0}, {NAN, 0}, {1, -1}, {1, NAN}};
    const struct comm_fault faults[] = {{0, 1, 0},
                                        {COMM_FAULT_DIE + 1, 1, 0},
                                        {COMM_FAULT_FAIL, 0, 0},
                                        {COMM_FAULT_DELAY, 1, -1},
                                        {COMM_FAULT_DELAY, 1, NAN}};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(comm_model_wrap(&comm, &models[i]), -EINVAL);
        assert_int_equal(comm_fault_wrap(&comm, &faults[i], 1), -EINVAL);
    }
    assert_int_equal(comm_fault_wrap(&comm, faults, COMM_FAULTS_MOST + 1), -EINVAL);
    assert_ptr_equal(comm, before);
    comm_close(&comm);
}

static void a_comm_that_does_not_close_stays_open_through_wrappers(void **state)
{
    (void)state;
    struct comm *comm = four_ranks(&(struct comm_model){.bytes_per_s = INFINITY});
    assert_int_equal(comm_fault_wrap(&comm, NULL, 0), 0);
    four.stays = true;
    assert_int_equal(comm_close(&comm), -EPIPE);
    assert_non_null(comm);
    four.stays = false;
    assert_int_equal(comm_close(&comm), 0);
    assert_null(comm);
    assert_true(four.closed);
    assert_int_equal(comm_close(&comm), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_operation_takes_its_latency_and_its_bytes),
        cmocka_unit_test(another_link_is_for_what_begins_then),
        cmocka_unit_test(what_is_slower_below_ends_when_that_does),
        cmocka_unit_test(the_descriptor_is_readable_when_an_operation_is_due),
        cmocka_unit_test(as_many_are_under_way_as_any_comm_has),
        cmocka_unit_test(hops_have_as_many_inputs_as_a_gpu_adds),
        cmocka_unit_test(bytes_are_those_of_others_elements),
        cmocka_unit_test(the_nth_operation_fails_and_so_do_all_after_it),
        cmocka_unit_test(what_is_not_begun_is_not_counted),
        cmocka_unit_test(the_nth_operation_is_late),
        cmocka_unit_test(the_nth_operation_never_ends),
        cmocka_unit_test(the_nth_operation_kills),
        cmocka_unit_test(a_comm_that_does_not_close_stays_open_through_wrappers),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests_name("comm/wrap", tests, NULL, NULL);
}
