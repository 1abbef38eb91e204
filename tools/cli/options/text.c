/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how a value that an option has filled is written, so that it is read again to the bit.
 * It is the inverse of hst_option_parse.
 */
#include "cli/options/options.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define REAL_BYTES 32

/* The fewest digits that are the same double. */
static void format_real(double value, char *dst)
{
    int digits = 9;
    do
        snprintf(dst, REAL_BYTES, "%.*g", digits, value);
    while (strtod(dst, NULL) != value && digits++ < 17);
}

/* 0 is none given; an explicit 0 may stand as another number. */
static const char *real(double value, char *dst)
{
    if (value == 0)
        return NULL;
    format_real(value == HST_NONE ? 0 : value, dst);
    return dst;
}

static const char *whole(uint64_t value, char dst[CLI_TEXT_BYTES])
{
    snprintf(dst, CLI_TEXT_BYTES, "%" PRIu64, value);
    return value ? dst : NULL;
}

static const char *pair(const double value[2], char dst[CLI_TEXT_BYTES])
{
    char second[REAL_BYTES];
    if (!real(value[0], dst) || !real(value[1], second))
        return NULL;
    const size_t n = strlen(dst);
    snprintf(dst + n, CLI_TEXT_BYTES - n, ",%s", second);
    return dst;
}

static const char *share(const struct hst_share *value, char dst[CLI_TEXT_BYTES])
{
    if (value->count || value->percent == 0)
        return whole(value->count, dst);
    format_real(value->percent, dst);
    strcat(dst, "%");
    return dst;
}

/* As one value: ';' is between texts of such an option. */
static const char *texts(const char *const *list, char dst[CLI_TEXT_BYTES])
{
    size_t n = 0;
    for (uint32_t i = 0; i < HST_OPTION_TEXTS_MOST && list[i] && n < CLI_TEXT_BYTES; i++)
        n += (size_t)snprintf(dst + n, CLI_TEXT_BYTES - n, "%s%s", i ? ";" : "", list[i]);
    return n ? dst : NULL;
}

const char *cli_option_text(const struct hst_option *o, const void *target,
                            char dst[CLI_TEXT_BYTES])
{
    const void *field = (const char *)target + o->offset;
    switch (o->type) {
    case HST_OPTION_SIZE:
    case HST_OPTION_COUNT:
        return whole(*(const uint64_t *)field, dst);
    case HST_OPTION_UINT32:
        return whole(*(const uint32_t *)field, dst);
    case HST_OPTION_REAL:
        return real(*(const double *)field, dst);
    case HST_OPTION_PAIR:
        return pair(field, dst);
    case HST_OPTION_CHOICE:
        return *(const int *)field < o->first_choice
                   ? NULL
                   : o->choices[*(const int *)field - o->first_choice];
    case HST_OPTION_TEXT:
        return *(const char *const *)field;
    case HST_OPTION_FLAG:
        return *(const bool *)field ? "" : NULL;
    case HST_OPTION_TEXTS:
        return texts(field, dst);
    case HST_OPTION_SHARE:
        return share(field, dst);
    }
    return NULL;
}
