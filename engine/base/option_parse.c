/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file turns what a user wrote for an option into a value. Numbers are read strictly: what is
 * not wholly understood is refused, because a run that lasts days must not start on a value that
 * wrapped around or was cut short.
 */
#include "base/whole.h"

#include <hoistway/hoistway.h>

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB            1024.0
#define LONGEST_NUMBER 64

static const char suffixes[] = "KMGT";

/* ---- saying what was expected ---- */

/* 1048576 as "1M" for sizes, else plain: the form in which the user would write it. */
static void format_bound(double x, bool size, char *dst, size_t dst_bytes)
{
    size_t power = 0;
    while (size && x >= KIB && fmod(x, KIB) == 0 && power < sizeof suffixes - 1) {
        x /= KIB;
        power++;
    }
    snprintf(dst, dst_bytes, x == floor(x) && x <= WHOLE_MAX ? "%.0f%.1s" : "%g%.1s", x,
             power ? &suffixes[power - 1] : "");
}

static void format_range(const struct hst_option *o, char *dst, size_t dst_bytes)
{
    char least[32], greatest[32];
    bool size = o->type == HST_OPTION_SIZE;
    format_bound(o->least, size, least, sizeof least);
    format_bound(o->greatest, size, greatest, sizeof greatest);
    snprintf(dst, dst_bytes, "from %s to %s%s", least, o->greatest_excluded ? "below " : "",
             greatest);
}

static void format_choices(const struct hst_option *o, char *dst, size_t dst_bytes)
{
    size_t n = (size_t)snprintf(dst, dst_bytes, "one of");
    for (size_t i = 0; o->choices[i] && n < dst_bytes; i++)
        n += (size_t)snprintf(dst + n, dst_bytes - n, "%s %s", i ? "," : "", o->choices[i]);
}

static void format_expected(const struct hst_option *o, char *dst, size_t dst_bytes)
{
    char range[96];
    format_range(o, range, sizeof range);
    switch (o->type) {
    case HST_OPTION_SIZE:
        snprintf(dst, dst_bytes, "a size like 4K, 1M, 2GiB or 5e8, %s", range);
        break;
    case HST_OPTION_COUNT:
    case HST_OPTION_UINT32:
        snprintf(dst, dst_bytes, "a whole number %s", range);
        break;
    case HST_OPTION_REAL:
        snprintf(dst, dst_bytes, "a number %s", range);
        break;
    case HST_OPTION_PAIR:
        snprintf(dst, dst_bytes, "two numbers A,B, each %s", range);
        break;
    case HST_OPTION_CHOICE:
        format_choices(o, dst, dst_bytes);
        break;
    case HST_OPTION_TEXT:
        snprintf(dst, dst_bytes, "a value that is not empty");
        break;
    case HST_OPTION_TEXTS:
        snprintf(dst, dst_bytes, "a value that is not empty, %u times and %u characters at most",
                 HST_OPTION_TEXTS_MOST, HST_OPTION_TEXTS_BYTES);
        break;
    case HST_OPTION_FLAG:
        snprintf(dst, dst_bytes, "no value");
        break;
    case HST_OPTION_SHARE:
        snprintf(dst, dst_bytes, "a whole number %s, or a percentage of at most 100%%", range);
        break;
    }
}

static int refuse(const struct hst_option *o, int error, const char *text, char *why,
                  size_t why_bytes)
{
    char expected[256];
    const char *fault = error == -ERANGE ? "out of range" : *text ? "not understood" : "empty";
    if (o->type == HST_OPTION_FLAG)
        fault = "takes no value";
    format_expected(o, expected, sizeof expected);
    snprintf(why, why_bytes, "%s (got '%.60s%s', want %s)", fault, text,
             strlen(text) > 60 ? "..." : "", expected);
    return error;
}

/* ---- numbers ---- */

/*
 * Length of digits[.digits][e[+-]digits] at the start of text, 0: no number there. No sign, blank
 * or 0x.
 */
static size_t number_length(const char *text)
{
    size_t n = 0, digits = 0;
    for (; isdigit((unsigned char)text[n]); n++)
        digits++;
    if (text[n] == '.')
        for (n++; isdigit((unsigned char)text[n]); n++)
            digits++;
    if (digits == 0)
        return 0;
    if (text[n] == 'e' || text[n] == 'E') {
        size_t e = n + 1;
        if (text[e] == '+' || text[e] == '-')
            e++;
        if (isdigit((unsigned char)text[e]))
            for (n = e; isdigit((unsigned char)text[n]); n++)
                ;
    }
    return n;
}

/* The first n characters as a double, whatever the locale of the program around us. */
static int read_real(const char *text, size_t n, double *x)
{
    char digits[LONGEST_NUMBER + 1];
    if (n == 0 || n > LONGEST_NUMBER)
        return -EINVAL;
    memcpy(digits, text, n);
    digits[n] = '\0';
    locale_t c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (!c)
        return -ENOMEM;
    double value = strtod_l(digits, NULL, c);
    freelocale(c);
    size_t mantissa = strcspn(digits, "eE");
    bool lost = value == 0 && strcspn(digits, "123456789") < mantissa;
    if (!isfinite(value) || lost)
        return -ERANGE;
    *x = value;
    return 0;
}

static bool in_range(const struct hst_option *o, double x)
{
    return x >= o->least && (o->greatest_excluded ? x < o->greatest : x <= o->greatest);
}

/* K, M, G, T, each also as KiB and so on. GB is not taken: it means two different things. */
static int read_suffix(const char *text, double *factor)
{
    *factor = 1;
    if (*text == '\0')
        return 0;
    const char *found = strchr(suffixes, toupper((unsigned char)*text));
    if (!found || (text[1] != '\0' && strcmp(text + 1, "iB") != 0))
        return -EINVAL;
    for (const char *s = suffixes; s <= found; s++)
        *factor *= KIB;
    return 0;
}

/* Sizes are rounded down to whole bytes; a count that is not whole is refused. */
static int read_whole(const struct hst_option *o, const char *text, uint64_t *value)
{
    double x = 0, factor = 1;
    size_t n = number_length(text);
    int error = read_real(text, n, &x);
    if (!error)
        error = read_suffix(text + n, &factor);
    if (error)
        return error;
    x *= factor;
    if (o->type == HST_OPTION_SIZE)
        x = floor(x);
    else if (x != floor(x))
        return -EINVAL;
    if (!in_range(o, x) || x > WHOLE_MAX)
        return -ERANGE;
    *value = (uint64_t)x;
    return 0;
}

static int read_real_in_range(const struct hst_option *o, const char *text, size_t length,
                              double *value)
{
    double x = 0;
    size_t n = number_length(text);
    if (n != length)
        return -EINVAL;
    int error = read_real(text, n, &x);
    if (error)
        return error;
    if (!in_range(o, x))
        return -ERANGE;
    *value = x == 0 && o->zero_is_none ? HST_NONE : x;
    return 0;
}

static int read_pair(const struct hst_option *o, const char *text, double pair[2])
{
    const char *comma = strchr(text, ',');
    if (!comma)
        return -EINVAL;
    double both[2];
    int error = read_real_in_range(o, text, (size_t)(comma - text), &both[0]);
    if (!error)
        error = read_real_in_range(o, comma + 1, strlen(comma + 1), &both[1]);
    if (!error)
        memcpy(pair, both, sizeof both);
    return error;
}

/* A percentage ends in %, and nothing else does. */
static int read_share(const struct hst_option *o, const char *text, struct hst_share *share)
{
    static const struct hst_option percentage = {.least = 0, .greatest = 100};
    struct hst_share read = {0};
    const size_t length = strlen(text);
    if (length == 0 || text[length - 1] != '%') {
        int error = read_whole(o, text, &read.count);
        if (!error)
            *share = read;
        return error;
    }
    int error = read_real_in_range(&percentage, text, length - 1, &read.percent);
    if (!error && read.percent == 0 && o->least > 0)
        error = -ERANGE;
    if (!error)
        *share = read;
    return error;
}

static int read_choice(const struct hst_option *o, const char *text, int *value)
{
    for (int i = 0; o->choices[i]; i++) {
        if (strcmp(text, o->choices[i]) == 0) {
            *value = o->first_choice + i;
            return 0;
        }
    }
    return -EINVAL;
}

/* ---- storing ---- */

static int parse_whole(const struct hst_option *o, const char *text, void *field)
{
    uint64_t value = 0;
    int error = read_whole(o, text, &value);
    if (error)
        return error;
    if (o->type == HST_OPTION_UINT32) {
        if (value > UINT32_MAX)
            return -ERANGE;
        uint32_t narrow = (uint32_t)value;
        memcpy(field, &narrow, sizeof narrow);
    } else {
        memcpy(field, &value, sizeof value);
    }
    return 0;
}

/* Behind those that are there. */
static int parse_texts(const char *text, const char **texts)
{
    size_t bytes = strlen(text) + 1;
    uint32_t i = 0;
    for (; i < HST_OPTION_TEXTS_MOST && texts[i]; i++)
        bytes += strlen(texts[i]) + 1;
    if (*text == '\0')
        return -EINVAL;
    if (i == HST_OPTION_TEXTS_MOST || bytes > HST_OPTION_TEXTS_BYTES)
        return -ERANGE;
    texts[i] = text;
    return 0;
}

static int parse(const struct hst_option *o, const char *text, void *field)
{
    switch (o->type) {
    case HST_OPTION_SIZE:
    case HST_OPTION_COUNT:
    case HST_OPTION_UINT32:
        return parse_whole(o, text, field);
    case HST_OPTION_REAL:
        return read_real_in_range(o, text, strlen(text), field);
    case HST_OPTION_PAIR:
        return read_pair(o, text, field);
    case HST_OPTION_CHOICE:
        return read_choice(o, text, field);
    case HST_OPTION_TEXT:
        if (*text == '\0')
            return -EINVAL;
        memcpy(field, &text, sizeof text);
        return 0;
    case HST_OPTION_TEXTS:
        return parse_texts(text, field);
    case HST_OPTION_FLAG:
        if (*text != '\0')
            return -EINVAL;
        *(bool *)field = true;
        return 0;
    case HST_OPTION_SHARE:
        return read_share(o, text, field);
    }
    return -EINVAL;
}

int hst_option_parse(const struct hst_option *option, const char *text, void *target, char *why,
                     size_t why_bytes)
{
    int error = parse(option, text, (char *)target + option->offset);
    return error ? refuse(option, error, text, why, why_bytes) : 0;
}
