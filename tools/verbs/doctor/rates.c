/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file tells how fast memory, optimizer, drive and GEMMs are, from short probes: enough to
 * see that something is slow, not to compare machines by. The benches measure longer.
 */
#include "base/text.h"
#include "verbs/doctor/doctor.h"

#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void doctor_keep_rate(struct doctor *d, const char *of, enum hst_rate rate,
                      const struct hst_figure *figure)
{
    if (d->rate_count == DOCTOR_MAX_RATES)
        return;
    struct doctor_rate *kept = &d->rates[d->rate_count++];
    *kept = (struct doctor_rate){.rate = rate, .figure = *figure};
    snprintf(kept->of, sizeof kept->of, "%s", of);
}

static const char *how_of(const struct hst_rates *rates, enum hst_rate rate)
{
    return rates->figures[rate].how;
}

static double giga(const struct hst_rates *rates, enum hst_rate rate)
{
    return 1e-9 * rates->figures[rate].value;
}

/* A row, unless one of the figures from `first` to `last` was not to be had: then why. */
static bool all_there(struct doctor *d, const char *name, const struct hst_rates *rates,
                      enum hst_rate first, enum hst_rate last)
{
    for (enum hst_rate r = first; r <= last; r++) {
        if (rates->figures[r].value > 0)
            continue;
        doctor_report(d, name, STATUS_WARN, NULL, "not measured: %s", how_of(rates, r));
        return false;
    }
    return true;
}

/* " fp32 (1.03) bf16 (1.09)": the rows that are faster so, and how many times. */
static void list_rows(const struct hst_rates *r, uint32_t ahead, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int a = 0; a < HST_AHEAD_COUNT && used < bytes; a++) {
        const struct hst_ahead *measured = &r->ahead[a];
        const double times = measured->asking / measured->silent;
        if (hst_ahead_elements(measured) == ahead)
            used += (size_t)snprintf(text + used, bytes - used, " %s (%.2f)",
                                     hst_ahead_name((enum hst_ahead_row)a),
                                     times < 1 ? 1 / times : times);
    }
}

static void report_prefetch(struct doctor *d, const struct hst_rates *r)
{
    char asking[4 * TEXT_BYTES], silent[4 * TEXT_BYTES];
    list_rows(r, HST_AHEAD_USUAL, asking, sizeof asking);
    list_rows(r, HST_AHEAD_NONE, silent, sizeof silent);
    if (asking[0] || silent[0])
        doctor_report(d, "prefetch", STATUS_OK, NULL, "updates are%s%s%s%s%s",
                      asking[0] ? " faster with it in" : "", asking,
                      asking[0] && silent[0] ? "," : "", silent[0] ? " faster without it in" : "",
                      silent);
}

static void report_host(struct doctor *d, const struct hst_rates *r)
{
    if (all_there(d, "dram", r, HST_RATE_DRAM, HST_RATE_DRAM_COPY))
        doctor_report(
            d, "dram", STATUS_OK, NULL, "%.1f GB/s as an update uses it, %.1f GB/s copying (%s)",
            giga(r, HST_RATE_DRAM), giga(r, HST_RATE_DRAM_COPY), how_of(r, HST_RATE_DRAM));
    if (all_there(d, "update", r, HST_RATE_UPDATE_FP32, HST_RATE_NORM_BF16))
        doctor_report(d, "update", STATUS_OK, NULL,
                      "AdamW %.2f G parameters/s in fp32, %.2f in bf16; norm %.2f and %.2f",
                      giga(r, HST_RATE_UPDATE_FP32), giga(r, HST_RATE_UPDATE_BF16),
                      giga(r, HST_RATE_NORM_FP32), giga(r, HST_RATE_NORM_BF16));
    report_prefetch(d, r);
    if (all_there(d, "products", r, HST_RATE_COMPUTE, HST_RATE_COMPUTE))
        doctor_report(d, "products", STATUS_OK, NULL, "%.0f GFLOP/s (%s)",
                      giga(r, HST_RATE_COMPUTE), r->gemms[0].how);
}

static void report_drive(struct doctor *d, const struct hst_rates *r)
{
    char written[TEXT_BYTES];
    if (all_there(d, "drive", r, HST_RATE_READ, HST_RATE_MIXED_BUSY))
        doctor_report(d, "drive", STATUS_OK, NULL,
                      "%.2f GB/s read, %.2f written, %.2f both at once%s, %.2f beside computation "
                      "(%s; %s written)",
                      giga(r, HST_RATE_READ), giga(r, HST_RATE_WRITE), giga(r, HST_RATE_MIXED),
                      r->drives[0].half_duplex ? ": in turns" : "", giga(r, HST_RATE_MIXED_BUSY),
                      how_of(r, HST_RATE_READ), text_size(r->drives[0].written_bytes, written));
}

static void report_trust(struct doctor *d, const struct hst_rates *r)
{
    if (r->disturbed[0])
        doctor_report(d, "rates", STATUS_WARN, "end what else runs here, and call doctor again",
                      "measured just now, in %.1f s; they may be too low: %s", r->seconds,
                      r->disturbed);
    else
        doctor_report(d, "rates", STATUS_OK, NULL,
                      "measured just now, in %.1f s, beside nothing that disturbs them",
                      r->seconds);
}

void doctor_check_rates(struct doctor *d)
{
    static const struct hst_gemm product = {
        .m = 2048, .n = 2048, .k = 2048, .dtype = HST_F32, .b_transposed = true};
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", d->store);
    const struct hst_probe_drive drive = {.directory =
                                              access(d->store, F_OK) ? dirname(parent) : d->store};
    const bool store = d->store_rung[0];
    const struct hst_probe probe = {
        .size = sizeof probe,
        .parts = (unsigned)HST_PROBE_MEMORY | HST_PROBE_UPDATE | HST_PROBE_COMPUTE |
                 (store ? (unsigned)HST_PROBE_DRIVES | HST_PROBE_BUSY : 0),
        .drives = &drive,
        .drive_count = store,
        .gemms = &product,
        .gemm_count = 1,
    };
    struct hst_rates rates;
    if (hst_probe(&probe, &rates))
        return;
    report_host(d, &rates);
    report_trust(d, &rates);
    if (store)
        report_drive(d, &rates);
    for (enum hst_rate r = 0; r < HST_RATE_COUNT; r++)
        if (rates.figures[r].how[0])
            doctor_keep_rate(d, r >= HST_RATE_READ ? d->store : "host", r, &rates.figures[r]);
}
