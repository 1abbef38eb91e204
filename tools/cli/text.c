/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how sizes, counts and durations are written for people: three digits, the unit that fits.
 */
#include "cli/text.h"

#include <inttypes.h>
#include <math.h>
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
