/* SPDX-License-Identifier: Apache-2.0 */
/* Tells rates with their ages, so that nobody takes one of last week for one of now. */
#include "cli/rates_text.h"

#include "cli/machine_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MINUTE_MS        UINT64_C(60000)
#define HOUR_MS          (60 * MINUTE_MS)
#define DAY_MS           (24 * HOUR_MS)
#define MEASURED_FROM_MS UINT64_C(946684800000) /* the year 2000: none is older */

uint64_t rates_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

double rates_age_s(uint64_t figure_ms, uint64_t now_ms)
{
    return now_ms > figure_ms ? 1e-3 * (double)(now_ms - figure_ms) : 0;
}

const char *rates_age_text(uint64_t figure_ms, uint64_t now_ms, char dst[TEXT_BYTES])
{
    const uint64_t age_ms = (uint64_t)(1e3 * rates_age_s(figure_ms, now_ms));
    if (figure_ms < MEASURED_FROM_MS) /* a file that somebody wrote */
        snprintf(dst, TEXT_BYTES, "as given");
    else if (age_ms < MINUTE_MS)
        snprintf(dst, TEXT_BYTES, "just now");
    else if (age_ms < 2 * HOUR_MS)
        snprintf(dst, TEXT_BYTES, "%" PRIu64 " min ago", age_ms / MINUTE_MS);
    else if (age_ms < 2 * DAY_MS)
        snprintf(dst, TEXT_BYTES, "%" PRIu64 " h ago", age_ms / HOUR_MS);
    else
        snprintf(dst, TEXT_BYTES, "%" PRIu64 " days ago", age_ms / DAY_MS);
    return dst;
}

const char *rates_figure_text(const struct hst_rates *rates, enum hst_rate rate, uint64_t now_ms,
                              char dst[TEXT_BYTES])
{
    if (!machine_assumes(&rates->figures[rate]))
        return rates_age_text(rates->figure_ms[rate], now_ms, dst);
    snprintf(dst, TEXT_BYTES, "assumed");
    return dst;
}

/* "203 GFLOP/s", "0.52 Gelements/s" as "0.52 G elements/s". */
static void put_value(double value, const char *unit, char dst[TEXT_BYTES])
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    const bool word = strchr(unit, 'e') != NULL; /* elements, operations: no symbols */
    size_t p = 0;
    for (; value >= 999.5 && p + 1 < sizeof prefixes / sizeof *prefixes; p++)
        value /= 1000;
    snprintf(dst, TEXT_BYTES, "%.3g %s%s%s", value, prefixes[p], word && p > 0 ? " " : "", unit);
}

const char *rates_text(const struct hst_rates *rates, uint64_t now_ms, char dst[RATES_TEXT_BYTES])
{
    char age[TEXT_BYTES] = "", own[TEXT_BYTES], value[TEXT_BYTES];
    size_t used = 0;
    dst[0] = '\0';
    for (int r = 0; r < HST_RATE_COUNT && used < RATES_TEXT_BYTES; r++) {
        if (rates->figures[r].value <= 0)
            continue;
        rates_figure_text(rates, (enum hst_rate)r, now_ms, own);
        const bool other = used > 0 && strcmp(age, own) != 0;
        put_value(rates->figures[r].value, hst_rate_unit((enum hst_rate)r), value);
        used += (size_t)snprintf(dst + used, RATES_TEXT_BYTES - used, "%s%s%s%s %s",
                                 other ? ", " : "", other ? age : "",
                                 used == 0 ? ""
                                 : other   ? "; "
                                           : ", ",
                                 hst_rate_name((enum hst_rate)r), value);
        memcpy(age, own, sizeof age);
    }
    if (used > 0 && used < RATES_TEXT_BYTES)
        snprintf(dst + used, RATES_TEXT_BYTES - used, ", %s", age);
    return dst;
}
