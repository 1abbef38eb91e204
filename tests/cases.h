/* SPDX-License-Identifier: Apache-2.0 */
/*
 * It runs the cases of a test; its short form takes one of three, or of six under sanitizers,
 * others on the next days.
 */
#ifndef HST_TESTS_CASES_H
#define HST_TESTS_CASES_H

#include "short.h"

#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define run_cases(tests, set_up, tear_down) \
    run_cases_of(#tests, tests, sizeof tests / sizeof tests[0], set_up, tear_down)

static inline int run_cases_of(const char *name, const struct CMUnitTest *all, size_t count,
                               CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    const size_t every = test_is_sparse() ? 6 : test_is_short() ? 3 : 1;
    const size_t first = every > 1 ? test_turn() % every : 0;
    struct CMUnitTest *some = calloc(count, sizeof *some);
    size_t chosen = 0;
    assert(some);
    for (size_t i = first; i < count; i += every)
        some[chosen++] = all[i];
    const int failed = _cmocka_run_group_tests(name, some, chosen, set_up, tear_down);
    free(some);
    return failed;
}

#endif
