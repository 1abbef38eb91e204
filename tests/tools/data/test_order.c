/* SPDX-License-Identifier: Apache-2.0 */
/* The shuffled order: a permutation of each pass, and always the same one. */
#include "data/order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void assert_permutation(uint64_t seed, uint64_t pass, uint64_t n)
{
    unsigned char *seen = calloc(1, n);
    assert_non_null(seen);
    for (uint64_t k = 0; k < n; k++) {
        uint64_t at = data_order_permute(seed, pass, n, k);
        assert_true(at < n);
        assert_false(seen[at]);
        seen[at] = 1;
    }
    free(seen);
}

static void every_size_up_to_600_is_permuted(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 600; n++) {
        assert_permutation(0, 0, n);
        assert_permutation(n, 7, n);
    }
}

static void sizes_around_powers_of_two_are_permuted(void **state)
{
    (void)state;
    for (unsigned bits = 10; bits <= 18; bits++)
        for (uint64_t n = (UINT64_C(1) << bits) - 1; n <= (UINT64_C(1) << bits) + 1; n++)
            assert_permutation(42, bits, n);
}

static size_t count_equal(uint64_t seed_a, uint64_t pass_a, uint64_t seed_b, uint64_t pass_b)
{
    size_t equal = 0;
    for (uint64_t k = 0; k < 1000; k++)
        equal += data_order_permute(seed_a, pass_a, 1000, k) ==
                 data_order_permute(seed_b, pass_b, 1000, k);
    return equal;
}

static void passes_and_seeds_give_different_orders(void **state)
{
    (void)state;
    assert_true(count_equal(1, 0, 1, 1) < 20); /* one is expected of two independent ones */
    assert_true(count_equal(1, 0, 2, 0) < 20);
    assert_true(count_equal(1, 2, 2, 1) < 20);
    assert_int_equal(count_equal(5, 6, 5, 6), 1000);
}

static void the_order_is_not_the_order_of_the_file(void **state)
{
    (void)state;
    size_t fixed = 0, neighbours = 0;
    for (uint64_t k = 0; k + 1 < 1000; k++) {
        uint64_t at = data_order_permute(9, 0, 1000, k);
        fixed += at == k;
        neighbours += data_order_permute(9, 0, 1000, k + 1) == at + 1;
    }
    assert_true(fixed < 20);
    assert_true(neighbours < 20);
}

static void the_numbers_of_the_order_never_change(void **state)
{
    (void)state;
    static const uint64_t first[10] = {5, 2, 4, 8, 7, 9, 0, 6, 3, 1};
    for (uint64_t k = 0; k < 10; k++)
        assert_int_equal(data_order_permute(0, 0, 10, k), first[k]);
    assert_int_equal(data_order_permute(1, 2, 1000003, 77), 151045);
    assert_int_equal(data_order_permute(UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX - 1),
                     UINT64_C(7506234158679715565));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_up_to_600_is_permuted),
        cmocka_unit_test(sizes_around_powers_of_two_are_permuted),
        cmocka_unit_test(passes_and_seeds_give_different_orders),
        cmocka_unit_test(the_order_is_not_the_order_of_the_file),
        cmocka_unit_test(the_numbers_of_the_order_never_change),
    };
    return cmocka_run_group_tests_name("data/order", tests, NULL, NULL);
}
