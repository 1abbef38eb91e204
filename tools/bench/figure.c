/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times work on a device from outside: by the clock of the host, around so many calls that waiting
 * for the stream does not count. So host and GPU are measured the same way.
 */
#include "bench/figure.h"
#include "base/now.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 7, CALLS_MOST = 2000 };
#define ROUND_S 0.01

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int time_calls(struct hst_stream *stream, unsigned calls, int (*enqueue)(void *arg),
                      void *arg, double *call_s)
{
    double start = now_s();
    for (unsigned i = 0; i < calls; i++) {
        int rc = enqueue(arg);
        if (rc)
            return rc;
    }
    int rc = hst_stream_sync(stream);
    *call_s = (now_s() - start) / calls;
    return rc;
}

int bench_time(struct hst_stream *stream, bool smoke, int (*enqueue)(void *arg), void *arg,
               struct bench_timing *timing)
{
    double seconds[ROUNDS];
    int rounds = smoke ? 1 : ROUNDS;
    unsigned calls = 1;
    int rc = hst_stream_sync(stream);
    if (!smoke) {
        /* the first call loads code and makes plans, the second tells how long one takes */
        rc = rc ? rc : time_calls(stream, 1, enqueue, arg, &seconds[0]);
        rc = rc ? rc : time_calls(stream, 1, enqueue, arg, &seconds[0]);
        double wish = rc ? 1 : ROUND_S / seconds[0];
        calls = wish < 1 ? 1 : wish > CALLS_MOST ? CALLS_MOST : (unsigned)wish + 1;
    }
    for (int i = 0; i < rounds && !rc; i++)
        rc = time_calls(stream, calls, enqueue, arg, &seconds[i]);
    if (rc)
        return rc;
    qsort(seconds, (size_t)rounds, sizeof *seconds, by_value);
    *timing = (struct bench_timing){seconds[rounds / 2], seconds[0], seconds[rounds - 1]};
    return 0;
}

void bench_tell_rate(const struct bench_teller *teller, struct bench_figure *figure, double amount,
                     const struct bench_timing *timing)
{
    figure->value = amount / timing->median_s;
    figure->least = amount / timing->most_s;
    figure->most = amount / timing->least_s;
    teller->tell(teller->context, figure);
}

int bench_device_failed(struct hst_dev *dev, int native, const char *what, struct hst_error *error)
{
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    hst_dev_failure(dev, &failure);
    return fail(error, FAIL_DEVICE, native, "%s on device \"%s\": %s", what, hst_dev_name(dev),
                failure.why == HST_DEV_OK ? strerror(-native) : failure.text);
}

int bench_spread(struct hst_stream *stream, void *dst, size_t bytes, const void *staging)
{
    size_t done = bytes < BENCH_STAGING_BYTES ? bytes : BENCH_STAGING_BYTES;
    int rc = hst_stream_copy(stream, dst, staging, done);
    while (done < bytes && !rc) {
        size_t more = bytes - done < done ? bytes - done : done;
        rc = hst_stream_copy(stream, (char *)dst + done, dst, more);
        done += more;
    }
    return rc ? rc : hst_stream_sync(stream);
}

int bench_fill(struct hst_stream *stream, void *dst, size_t bytes, void *staging)
{
    uint16_t *pattern = staging;
    uint32_t random = 1;
    for (size_t i = 0; i < BENCH_STAGING_BYTES / 2; i++) {
        random = random * 1664525u + 1013904223u;
        uint32_t sign = random >> 31 << 15, exponent = 120 + (random >> 24) % 7;
        pattern[i] = (uint16_t)(sign | exponent << 7 | (random >> 16 & 0x7f));
    }
    return bench_spread(stream, dst, bytes, pattern);
}
