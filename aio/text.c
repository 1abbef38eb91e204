/* SPDX-License-Identifier: Apache-2.0 */
/* The texts of models and plans: words of the form key=value, numbers with units. */
#include "internal.h"

#include <errno.h>
#include <string.h>

struct unit {
    const char *name;
    uint64_t factor;
};

/* Digits with an optional fraction, then a unit; exact, refused where the result is no integer. */
static int parse(const char *text, size_t length, const struct unit *units, size_t unit_count,
                 uint64_t *value)
{
    uint64_t digits = 0, scale = 1;
    size_t i = 0;
    bool fraction = false;
    for (; i < length; i++) {
        if (text[i] == '.' && !fraction && i > 0) {
            fraction = true;
            continue;
        }
        if (text[i] < '0' || text[i] > '9')
            break;
        if (__builtin_mul_overflow(digits, 10u, &digits) ||
            __builtin_add_overflow(digits, (uint64_t)(text[i] - '0'), &digits))
            return -ERANGE;
        if (fraction && __builtin_mul_overflow(scale, 10u, &scale))
            return -ERANGE;
    }
    if (i == 0)
        return -EINVAL;
    for (size_t u = 0; u < unit_count; u++) {
        if (!hst_aio_text_is(text + i, length - i, units[u].name))
            continue;
        if (__builtin_mul_overflow(digits, units[u].factor, &digits))
            return -ERANGE;
        if (digits % scale)
            return -EINVAL;
        *value = digits / scale;
        return 0;
    }
    return -EINVAL;
}

int hst_aio_text_bytes(const char *text, size_t length, uint64_t *bytes)
{
    static const struct unit units[] = {
        {"", 1},           {"K", 1000},          {"M", 1000000},
        {"G", 1000000000}, {"T", 1000000000000}, {"Ki", 1u << 10},
        {"Mi", 1u << 20},  {"Gi", 1u << 30},     {"Ti", 1ull << 40},
    };
    return parse(text, length, units, sizeof units / sizeof *units, bytes);
}

int hst_aio_text_time(const char *text, size_t length, uint64_t *time_ns)
{
    static const struct unit units[] = {
        {"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
    return parse(text, length, units, sizeof units / sizeof *units, time_ns);
}

int hst_aio_text_count(const char *text, size_t length, uint64_t *count)
{
    static const struct unit units[] = {{"", 1}};
    return parse(text, length, units, 1, count);
}

bool hst_aio_text_is(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

bool hst_aio_text_next(const char **cursor, const char *stops, struct hst_aio_word *word)
{
    const char *at = *cursor + strspn(*cursor, " \t\n,");
    const size_t length = strcspn(at, " \t\n,;");
    *cursor = at;
    if (*at == '\0' || strchr(stops, *at))
        return false;
    *word = (struct hst_aio_word){.key = at, .key_length = length};
    const char *equals = memchr(at, '=', length);
    if (equals) {
        word->key_length = (size_t)(equals - at);
        word->value = equals + 1;
        word->value_length = length - word->key_length - 1;
    }
    *cursor = at + length;
    return true;
}
