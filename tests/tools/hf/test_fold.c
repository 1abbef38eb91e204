/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tensors whose names differ in numbers alone. */
#include "support.h"

#include "hf/export/fold.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t square[] = {8, 8}, flat[] = {8}, wide[] = {8, 16};

static struct hf_look_tensor tensor(const char *name, const char *dtype, const uint64_t *dims)
{
    return (struct hf_look_tensor){
        .name = name, .dtype = dtype, .dim_count = dims == flat ? 1 : 2, .dims = dims, .bytes = 10};
}

/* "COUNT NAME" of each row, one per line. */
static char *folded(const struct hf_look_tensor *tensors, size_t count)
{
    static char text[1024];
    struct hf_fold_row *rows;
    size_t n, used = 0;
    assert_int_equal(hf_fold(tensors, count, &rows, &n), 0);
    text[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%d %s\n", (int)rows[i].count,
                                 rows[i].name);
        assert_int_equal(rows[i].bytes, 10 * rows[i].count);
    }
    hf_fold_free(rows, n);
    return text;
}
#define FOLDED(...)                                                                                \
    folded((const struct hf_look_tensor[]){__VA_ARGS__},                                           \
           sizeof((const struct hf_look_tensor[]){__VA_ARGS__}) / sizeof(struct hf_look_tensor))

static void layers_are_one_row_where_the_first_one_is(void **state)
{
    (void)state;
    assert_string_equal(FOLDED(tensor("z", "F32", flat), tensor("l.0.a", "F32", square),
                               tensor("l.0.b", "F32", flat), tensor("l.1.a", "F32", square),
                               tensor("l.1.b", "F32", flat), tensor("l.10.a", "F32", square),
                               tensor("l.2.a", "F32", square), tensor("y", "F32", flat)),
                        "1 z\n4 l.0,..,10.a\n2 l.0..1.b\n1 y\n");
}

static void another_shape_or_type_is_another_row(void **state)
{
    (void)state;
    assert_string_equal(FOLDED(tensor("l.0.a", "F32", square), tensor("l.1.a", "F32", wide),
                               tensor("l.2.a", "BF16", square), tensor("l.3.a", "F32", flat),
                               tensor("l.4.a", "F32", square)),
                        "2 l.0,..,4.a\n1 l.1.a\n1 l.2.a\n1 l.3.a\n");
}

static void every_number_between_dots_has_a_range(void **state)
{
    (void)state;
    assert_string_equal(FOLDED(tensor("l.0.e.0.w1", "F32", flat), tensor("l.0.e.1.w1", "F32", flat),
                               tensor("l.0.e.2.w1", "F32", flat), tensor("l.1.e.0.w1", "F32", flat),
                               tensor("l.1.e.1.w1", "F32", flat),
                               tensor("l.1.e.2.w1", "F32", flat)),
                        "6 l.0..1.e.0..2.w1\n");
    assert_string_equal(FOLDED(tensor("3", "F32", flat), tensor("4", "F32", flat)), "2 3..4\n");
    assert_string_equal(FOLDED(tensor("x1", "F32", flat), tensor("x2", "F32", flat)),
                        "1 x1\n1 x2\n");
}

static void odd_names_are_taken_as_they_are(void **state)
{
    (void)state;
    assert_string_equal(FOLDED(tensor("", "F32", flat), tensor(".", "F32", flat),
                               tensor("a..b", "F32", flat), tensor("1234567890", "F32", flat),
                               tensor("1.2.3.4.5", "F32", flat), tensor("1.2.3.4.6", "F32", flat)),
                        "1 \n1 .\n1 a..b\n1 1234567890\n1 1.2.3.4.5\n1 1.2.3.4.6\n");
    assert_string_equal(FOLDED(tensor("\1", "F32", flat), tensor("7", "F32", flat)),
                        "2 \1\n"); /* of bytes that no name has, and nothing is out of bounds */
    struct hf_fold_row *rows;
    size_t n;
    assert_int_equal(hf_fold(NULL, 0, &rows, &n), 0);
    assert_int_equal(n, 0);
    hf_fold_free(rows, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_one_row_where_the_first_one_is),
        cmocka_unit_test(another_shape_or_type_is_another_row),
        cmocka_unit_test(every_number_between_dots_has_a_range),
        cmocka_unit_test(odd_names_are_taken_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
