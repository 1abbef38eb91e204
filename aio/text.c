/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The texts of models and plans: words of the form key=value, numbers with units, and what is said
 * where one is refused.
 */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
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

int hst_aio_text_refuse(char *why, const struct hst_aio_word *word, const char *reason)
{
    enum { SHOWN_BYTES = 32 }; /* of a word that may be of any length */
    char shown[SHOWN_BYTES + 1];
    size_t length = 0;
    if (word) {
        length = word->key_length + (word->value ? 1 + word->value_length : 0);
        length = length < SHOWN_BYTES ? length : SHOWN_BYTES;
        memcpy(shown, word->key, length);
    }
    for (size_t i = 0; i < length; i++)
        if (shown[i] < ' ' || shown[i] > '~')
            shown[i] = '?';
    shown[length] = '\0';
    snprintf(why, HST_AIO_REFUSAL_BYTES, "%s%s%s", shown, length > 0 ? ": " : "", reason);
    return -EINVAL;
}

int hst_aio_text_field(const struct hst_aio_word *word, const struct hst_aio_field *field,
                       char *why)
{
    static const struct {
        int (*parse)(const char *text, size_t length, uint64_t *value);
        uint64_t least, most;
        const char *reason;
    } kinds[] = {
        [HST_AIO_FIELD_RATE] = {hst_aio_text_bytes, 1000, 1000000000000000,
                                "must be bytes per second from 1K to 1000T"},
        [HST_AIO_FIELD_BYTES] = {hst_aio_text_bytes, 1, 1000000000000000000,
                                 "must be bytes from 1 to 1000000T"},
        [HST_AIO_FIELD_OFFSET] = {hst_aio_text_bytes, 0, 1000000000000000000,
                                  "must be bytes from 0 to 1000000T"},
        [HST_AIO_FIELD_TIME] = {hst_aio_text_time, 0, 1000000000000,
                                "must be a time of at most 1000s, with ns, us, ms or s"},
        [HST_AIO_FIELD_COUNT] = {hst_aio_text_count, 1, UINT64_MAX, "must be a number above 0"},
        [HST_AIO_FIELD_NUMBER] = {hst_aio_text_count, 0, UINT64_MAX, "must be a number"},
    };
    uint64_t value;
    if (!word->value || kinds[field->kind].parse(word->value, word->value_length, &value) < 0 ||
        value < kinds[field->kind].least || value > kinds[field->kind].most)
        return hst_aio_text_refuse(why, word, kinds[field->kind].reason);
    *field->value = value;
    return 0;
}

int hst_aio_text_once(uint32_t *seen, uint32_t number, const struct hst_aio_word *word, char *why)
{
    if (*seen & 1u << number)
        return hst_aio_text_refuse(why, word, "is given twice");
    *seen |= 1u << number;
    return 0;
}
