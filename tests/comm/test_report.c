/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of a comm's failures: a code by what went wrong, and ranks by their nodes' names. */
#include "comm/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>

/* ---- a machine's name, in place of the system's ---- */

static const char *machine;

int gethostname(char *name, size_t bytes);
int gethostname(char *name, size_t bytes)
{
    if (!machine)
        return -1;
    strncpy(name, machine, bytes); /* as the system does: a long one has no end */
    return 0;
}

/* ---- a comm of three ranks on two nodes that has failed ---- */

static struct comm_failure failed;
static const char hosts[3][COMM_HOST_BYTES] = {"node1", "node1", "node2"};

static void stub_info(struct comm *comm, struct comm_info *info)
{
    (void)comm;
    *info = (struct comm_info){.ranks = 3, .locals = 2, .nodes = 2, .host = hosts};
}

static void stub_failure(struct comm *comm, struct comm_failure *failure)
{
    (void)comm;
    *failure = failed;
}

/* Rank 2 alone has a failure, of which this one hears. */
static int stub_begin(struct comm *comm, const struct comm_op *op, uint64_t *ticket)
{
    (void)comm;
    *ticket = 1;
    if (op->kind == COMM_SUM64)
        *(int64_t *)op->out = 1;
    if (op->kind == COMM_SHARE)
        comm_fail((struct comm_failure *)op->out + 2, -ENODEV, COMM_NOBODY, "no plugin");
    return 0;
}

static int stub_test(struct comm *comm, uint64_t ticket)
{
    (void)comm;
    (void)ticket;
    return 0;
}

static const struct comm_ops stub_ops = {.size = sizeof stub_ops,
                                         .info = stub_info,
                                         .failure = stub_failure,
                                         .begin = stub_begin,
                                         .test = stub_test};
static struct comm stub = {&stub_ops};

/* ---- cases ---- */

static void assert_told(const struct report *report, int code, int native, const char *part)
{
    assert_int_equal(report->error.code, code);
    assert_int_equal(report->error.native, native);
    if (!strstr(report->error.message, part))
        fail_msg("'%s' has no '%s'", report->error.message, part);
    const char *fix = strstr(report->error.message, "Fix: ");
    assert_non_null(fix);
    assert_null(strstr(fix + 1, "Fix: "));
}

static void a_rank_that_is_gone_is_another_code_than_what_joins_it(void **state)
{
    static const struct {
        int native, code;
    } rows[] = {{-EPIPE, HST_E_RANK}, {-EIO, HST_E_COMM}, {-ENOMEM, HST_E_COMM}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct report report = {0};
        comm_fail(&failed, rows[i].native, 2, "words of it in the exchange of layers.3");
        assert_int_equal(comm_report(&stub, &report, 7, rows[i].native), rows[i].native);
        assert_told(&report, rows[i].code, rows[i].native,
                    "words of it in the exchange of layers.3, in step 7. Fix: ");
    }
}

static void what_is_no_failure_of_the_comm_is_told_as_the_systems(void **state)
{
    struct report report = {0};
    (void)state;
    failed = (struct comm_failure){0};
    assert_int_equal(comm_report(&stub, &report, 0, -ENOTSUP), -ENOTSUP);
    assert_told(&report, HST_E_COMM, -ENOTSUP, "ranks cannot go on together: ");
}

static void who_cannot_be_joined_is_told_by_what_joins(void **state)
{
    static const struct {
        int native;
        bool device;
        int code;
        const char *fix;
    } rows[] = {{-ENODEV, false, HST_E_JOIN_MPI, "Fix: hoistway bench comm"},
                {-EIO, false, HST_E_JOIN_MPI, "Fix: hoistway bench comm"},
                {-ENODEV, true, HST_E_JOIN_NCCL, "Fix: NCCL 2.19.3 or later"},
                {-ENOTSUP, true, HST_E_JOIN_NCCL, "Fix: --comm mpi"},
                {-EIO, true, HST_E_JOIN_NCCL, "Fix: hoistway bench comm"},
                {-EPIPE, true, HST_E_RANK, "Fix: what that rank has said"},
                {-EPIPE, false, HST_E_RANK, "Fix: what that rank has said"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct report report = {0};
        struct comm_failure failure;
        comm_fail(&failure, rows[i].native, COMM_NOBODY, "why");
        assert_int_equal(comm_report_open(&failure, rows[i].device, &report), rows[i].native);
        assert_told(&report, rows[i].code, rows[i].native, "ranks cannot be joined: why. ");
        assert_told(&report, rows[i].code, rows[i].native, rows[i].fix);
    }
}

static void a_failure_has_a_fix_of_its_own(void **state)
{
    struct report report = {0};
    struct comm_failure failure;
    (void)state;
    comm_fail(&failure, -EIO, COMM_NOBODY, "why");
    strcpy(failure.fix, "make it");
    comm_report_open(&failure, true, &report);
    assert_told(&report, HST_E_JOIN_NCCL, -EIO, "Fix: make it");
}

static void ranks_have_the_names_of_their_nodes(void **state)
{
    const struct comm_info two = {.ranks = 3, .nodes = 2, .host = hosts}, one = {.ranks = 3};
    char text[COMM_RANK_BYTES];
    (void)state;
    assert_string_equal(comm_rank_text(&two, 1, text), "rank 1 (node1)");
    assert_string_equal(comm_rank_text(&two, 2, text), "rank 2 (node2)");
    assert_string_equal(comm_rank_text(&two, 3, text), "rank 3"); /* there is none */
    assert_string_equal(comm_rank_text(&one, 2, text), "rank 2");
}

static void the_failure_of_another_rank_is_told_with_its_node(void **state)
{
    struct comm_failure heard = {0};
    (void)state;
    assert_int_equal(comm_spread_failure(&stub, "opening", 0, &heard), -ENODEV);
    assert_int_equal(heard.rank, 2);
    assert_string_equal(heard.text, "rank 2 (node2): no plugin");
}

static void a_machines_name_is_printable_and_has_an_end(void **state)
{
    char name[COMM_HOST_BYTES], longest[COMM_HOST_BYTES];
    char too_long[2 * COMM_HOST_BYTES];
    (void)state;
    machine = "node-7.cluster";
    comm_own_host(name);
    assert_string_equal(name, machine);
    machine = "no\nde\x1b[31m\xff";
    comm_own_host(name);
    assert_true(strcmp(name, "no?de?[31m?") == 0); /* another one is not to be printed */
    memset(too_long, 'n', sizeof too_long);
    too_long[sizeof too_long - 1] = '\0';
    memset(longest, 'n', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    machine = too_long;
    comm_own_host(name);
    assert_string_equal(name, longest);
    for (int i = 0; i < 2; i++) {
        machine = i ? "" : NULL;
        comm_own_host(name);
        assert_string_equal(name, "a node without a name");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_is_gone_is_another_code_than_what_joins_it),
        cmocka_unit_test(what_is_no_failure_of_the_comm_is_told_as_the_systems),
        cmocka_unit_test(who_cannot_be_joined_is_told_by_what_joins),
        cmocka_unit_test(a_failure_has_a_fix_of_its_own),
        cmocka_unit_test(ranks_have_the_names_of_their_nodes),
        cmocka_unit_test(the_failure_of_another_rank_is_told_with_its_node),
        cmocka_unit_test(a_machines_name_is_printable_and_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
