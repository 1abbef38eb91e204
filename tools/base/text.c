/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how sizes, counts and durations are written for people: three digits, the unit that fits;
 * and which way a size is rounded that they are to type.
 */
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

char *text_size(uint64_t bytes, char dst[TEXT_BYTES])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(dst, TEXT_BYTES, "%" PRIu64 " B", bytes);
        return dst;
    }
    double x = (double)bytes / 1024;
    size_t u = 0;
    for (; x >= 1023.95 && u < 5; u++) /* 1023.95 would be printed as 1024.0 */
        x /= 1024;
    snprintf(dst, TEXT_BYTES, "%.1f %s", x, units[u]);
    return dst;
}

/* ---- sizes to be typed ---- */

static const char TYPED_UNITS[] = "KMGT";
#define TYPED_UNITS_COUNT (sizeof TYPED_UNITS - 1)
#define EXACT_MOST        9999u
#define TYPED_MOST        (UINT64_C(1) << 60) /* options take less */

/* A size in hundredths of a unit, 1024^(power + 1) bytes. */
struct typed {
    uint64_t hundredths;
    unsigned power;
};

static double unit_bytes(unsigned power)
{
    return (double)(UINT64_C(1024) << 10 * power);
}

/* It returns what an option reads, in the same roundings. */
static uint64_t typed_bytes(struct typed t)
{
    return (uint64_t)floor((double)t.hundredths / 100 * unit_bytes(t.power));
}

static char *typed_text(struct typed t, char dst[TEXT_BYTES])
{
    const unsigned fraction = (unsigned)(t.hundredths % 100);
    int n = snprintf(dst, TEXT_BYTES, "%" PRIu64, t.hundredths / 100);
    if (fraction % 10)
        n += snprintf(dst + n, TEXT_BYTES - (size_t)n, ".%02u", fraction);
    else if (fraction)
        n += snprintf(dst + n, TEXT_BYTES - (size_t)n, ".%u", fraction / 10);
    snprintf(dst + n, TEXT_BYTES - (size_t)n, "%c", TYPED_UNITS[t.power]);
    return dst;
}

/* Three digits of the largest unit of which there is one, the most that are no more. */
static struct typed three_digits(uint64_t bytes, uint64_t *step)
{
    struct typed t = {0, 0};
    while (t.power + 1 < TYPED_UNITS_COUNT && bytes >> 10 * (t.power + 2))
        t.power++;
    const uint64_t whole = bytes >> 10 * (t.power + 1);
    *step = whole >= 100 ? 100 : whole >= 10 ? 10 : 1;
    t.hundredths = whole * 100; /* and what is left, without an overflow */
    while (typed_bytes((struct typed){t.hundredths + *step, t.power}) <= bytes)
        t.hundredths += *step;
    return t;
}

static char *write_typed(uint64_t bytes, bool up, char dst[TEXT_BYTES])
{
    if (bytes < 1024) {
        snprintf(dst, TEXT_BYTES, "%" PRIu64, bytes);
        return dst;
    }
    bytes = bytes < TYPED_MOST ? bytes : TYPED_MOST;
    uint64_t step;
    struct typed t = three_digits(bytes, &step);
    if (typed_bytes(t) == bytes)
        return typed_text(t, dst);
    for (unsigned power = t.power; power-- > 0;) {
        const uint64_t unit = UINT64_C(1024) << 10 * power;
        if (bytes % unit == 0 && bytes / unit <= EXACT_MOST)
            return typed_text((struct typed){bytes / unit * 100, power}, dst);
    }
    t.hundredths += up ? step : 0;
    if (t.hundredths == 102400 && t.power + 1 < TYPED_UNITS_COUNT)
        t = (struct typed){100, t.power + 1};
    return typed_text(t, dst);
}

char *text_typed_up(uint64_t bytes, char dst[TEXT_BYTES])
{
    return write_typed(bytes, true, dst);
}

char *text_typed_down(uint64_t bytes, char dst[TEXT_BYTES])
{
    return write_typed(bytes, false, dst);
}

/* ---- counts and durations ---- */

char *text_count(double count, char dst[TEXT_BYTES])
{
    static const char units[] = "kMBT";
    if (count < 999.5) {
        snprintf(dst, TEXT_BYTES, "%.0f", count);
        return dst;
    }
    double x = count / 1000;
    size_t u = 0;
    for (; x >= 999.95 && u < 3; u++)
        x /= 1000;
    snprintf(dst, TEXT_BYTES, "%.1f%c", x, units[u]);
    return dst;
}

char *text_duration(double seconds, char dst[TEXT_BYTES])
{
    if (!(seconds >= 0 && seconds < 1e11)) {
        snprintf(dst, TEXT_BYTES, "?");
        return dst;
    }
    uint64_t s = (uint64_t)(seconds + 0.5);
    if (s < 60)
        snprintf(dst, TEXT_BYTES, "%" PRIu64 "s", s);
    else if (s < 3600)
        snprintf(dst, TEXT_BYTES, "%" PRIu64 "m", s / 60);
    else if (s < 86400)
        snprintf(dst, TEXT_BYTES, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s % 3600 / 60);
    else
        snprintf(dst, TEXT_BYTES, "%" PRIu64 "d%02" PRIu64 "h", s / 86400, s % 86400 / 3600);
    return dst;
}

const char *text_s(uint64_t count)
{
    return count == 1 ? "" : "s";
}
