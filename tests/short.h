/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The short form of a test that takes long: `./run test` has that one, with HST_TEST_SHORT set, and
 * `NAME-whole` in suite `all` has each row. What is left out changes from day to day. With
 * HST_TEST_SHORT=2, as sanitizers have it, less is taken where `test_is_sparse` is asked.
 */
#ifndef HST_TESTS_SHORT_H
#define HST_TESTS_SHORT_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline bool test_is_short(void)
{
    return getenv("HST_TEST_SHORT") != NULL;
}

static inline bool test_is_sparse(void)
{
    const char *given = getenv("HST_TEST_SHORT");
    return given && *given == '2';
}

/* Which part of its rows the short form takes: the day, or what HST_TEST_TURN says. */
static inline unsigned test_turn(void)
{
    const char *given = getenv("HST_TEST_TURN");
    unsigned turn = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)(time(NULL) / 86400);
    printf("the same rows again: HST_TEST_SHORT=%s HST_TEST_TURN=%u\n",
           test_is_sparse() ? "2" : "1", turn);
    return turn;
}

#endif
