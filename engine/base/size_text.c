/* SPDX-License-Identifier: Apache-2.0 */
/* Decides the unit, and which way a size is rounded. */
#include "base/size_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* It returns the most tenths of a unit that, typed and read as whole bytes, are no more. */
static double tenths_down(uint64_t bytes, double unit)
{
    return ceil(((double)bytes + 1) / unit * 10) - 1;
}

static double tenths_up(uint64_t bytes, double unit)
{
    return ceil((double)bytes / unit * 10);
}

static char *write_size(uint64_t bytes, double (*tenths_of)(uint64_t, double),
                        char dst[SIZE_TEXT_BYTES])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double unit = 1024, tenths = tenths_of(bytes, unit);
    size_t u = 0;
    if (bytes < 1024) {
        snprintf(dst, SIZE_TEXT_BYTES, "%" PRIu64 " B", bytes);
        return dst;
    }
    for (; tenths >= 10240 && u < 5; u++) {
        unit *= 1024;
        tenths = tenths_of(bytes, unit);
    }
    snprintf(dst, SIZE_TEXT_BYTES, "%.1f %s", tenths / 10, units[u]);
    return dst;
}

char *size_text(uint64_t bytes, char dst[SIZE_TEXT_BYTES])
{
    return write_size(bytes, tenths_down, dst);
}

char *size_text_up(uint64_t bytes, char dst[SIZE_TEXT_BYTES])
{
    return write_size(bytes, tenths_up, dst);
}
