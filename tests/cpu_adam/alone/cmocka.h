/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_CPU_ADAM_ALONE_CMOCKA_H
#define HST_TESTS_CPU_ADAM_ALONE_CMOCKA_H
/*
 * As much of cmocka as the tests of cpu_adam use, for compilers that have none to link with (a
 * cross compiler). The first failure ends the program.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
};
#define cmocka_unit_test(f) {#f, f}

#define fail_msg(...)                                                                              \
    do {                                                                                           \
        printf("%s:%d: ", __FILE__, __LINE__);                                                     \
        printf(__VA_ARGS__);                                                                       \
        printf("\n");                                                                              \
        exit(1);                                                                                   \
    } while (0)

#define ALONE_EXPECT(condition)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("%s does not hold", #condition);                                              \
    } while (0)

#define assert_true(x)                   ALONE_EXPECT(x)
#define assert_false(x)                  ALONE_EXPECT(!(x))
#define assert_null(p)                   ALONE_EXPECT((p) == NULL)
#define assert_non_null(p)               ALONE_EXPECT((p) != NULL)
#define assert_int_equal(a, b)           ALONE_EXPECT((intmax_t)(a) == (intmax_t)(b))
#define assert_ptr_equal(a, b)           ALONE_EXPECT((const void *)(a) == (const void *)(b))
#define assert_string_equal(a, b)        ALONE_EXPECT(strcmp(a, b) == 0)
#define assert_memory_equal(a, b, bytes) ALONE_EXPECT(memcmp(a, b, bytes) == 0)

static inline int alone_run(const char *group, const struct CMUnitTest *tests, size_t count)
{
    for (size_t i = 0; i < count; i++)
        tests[i].run(NULL);
    printf("%s: %zu cases passed\n", group, count);
    return 0;
}
#define cmocka_run_group_tests_name(group, tests, setup, teardown)                                 \
    alone_run(group, tests, sizeof(tests) / sizeof(tests)[0])

#endif
