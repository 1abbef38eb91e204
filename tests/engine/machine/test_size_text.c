/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes in messages: what is told is what may be typed. */
#include "base/size_text.h"

#include <hoistway/hoistway.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void a_size_has_the_unit_that_fits(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *down, *up;
    } rows[] = {
        {0, "0 B", "0 B"},
        {1023, "1023 B", "1023 B"},
        {1024, "1.0 KiB", "1.0 KiB"},
        {1587, "1.5 KiB", "1.6 KiB"},
        {1048575, "1023.9 KiB", "1.0 MiB"},
        {UINT64_C(22120000000), "20.6 GiB", "20.7 GiB"},
        {UINT64_MAX, "15.9 EiB", "16.0 EiB"},
    };
    char text[SIZE_TEXT_BYTES];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].bytes != UINT64_MAX) /* which is 16 EiB, as a double */
            assert_string_equal(size_text(rows[i].bytes, text), rows[i].down);
        assert_string_equal(size_text_up(rows[i].bytes, text), rows[i].up);
    }
}

static uint64_t typed(const char *text)
{
    static const struct hst_option size = {
        .name = "size", .type = HST_OPTION_SIZE, .least = 0, .greatest = 0x1p63};
    char copy[SIZE_TEXT_BYTES] = "", why[400];
    uint64_t bytes = 0;
    for (size_t n = 0; *text; text++)
        if (*text != ' ')
            copy[n++] = *text;
    assert_int_equal(hst_option_parse(&size, copy, &bytes, why, sizeof why), 0);
    return bytes;
}

/* What is needed suffices, what there is can be had, and both are near. */
static void what_is_told_may_be_typed(void **state)
{
    (void)state;
    char text[SIZE_TEXT_BYTES];
    uint64_t bytes = 1024;
    for (int i = 0; i < 2000; i++, bytes += bytes / 64 + (uint64_t)(i * i)) {
        uint64_t up = typed(size_text_up(bytes, text)), down = typed(size_text(bytes, text));
        assert_true(down <= bytes && bytes <= up);
        assert_true(up - down <= bytes / 10 + 1);
        assert_int_equal(typed(size_text(down, text)), down); /* what was typed is told as that */
        assert_int_equal(typed(size_text_up(up, text)), up);
        if (bytes > UINT64_C(1) << 49) /* options know units up to TiB */
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_size_has_the_unit_that_fits),
        cmocka_unit_test(what_is_told_may_be_typed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
