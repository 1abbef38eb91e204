/* SPDX-License-Identifier: Apache-2.0 */
/* What a case's operands are held to, and what is told of those that miss it. */
#include "half.h"
#include "triage.h"
#include <errno.h>

#define WINDOW_BYTES  ((size_t)64 << 10)
#define SCANNED_WHOLE ((size_t)256 << 20)

static size_t bytes_of(const struct operand *of)
{
    return of->rows * of->columns * hst_dtype_bytes(of->dtype);
}

void triage_taken(int rc)
{
    if (rc == -ENOTSUP) {
        print_message("skipped: this device does not do it\n");
        skip();
    }
    assert_int_equal(rc, 0);
}

static void missed(struct operand *of, struct triage_miss miss)
{
    size_t row = miss.index / of->columns, column = miss.index % of->columns;
    if (!of->wrong++) {
        of->first = miss;
        of->wrong_rows.low = of->wrong_rows.high = row;
        of->wrong_columns.low = of->wrong_columns.high = column;
    }
    of->last = miss;
    of->wrong_rows.low = row < of->wrong_rows.low ? row : of->wrong_rows.low;
    of->wrong_rows.high = row > of->wrong_rows.high ? row : of->wrong_rows.high;
    of->wrong_columns.low = column < of->wrong_columns.low ? column : of->wrong_columns.low;
    of->wrong_columns.high = column > of->wrong_columns.high ? column : of->wrong_columns.high;
}

void triage_check(struct operand *of, size_t index, double got, double want, double noise)
{
    double allowed = rounding(of->dtype, fabs(want) + noise) + noise;
    of->checked++;
    if (!(fabs(got - want) <= allowed))
        missed(of, (struct triage_miss){index, got, want, allowed});
}

void triage_check_exact(struct operand *of, size_t index, double got, double want)
{
    of->checked++;
    if (!(got == want))
        missed(of, (struct triage_miss){index, got, want, 0});
}

static double element_value(const struct operand *of, const char *bytes)
{
    float value;
    uint16_t half;
    memcpy(&value, bytes, of->dtype == HST_F32 ? 4 : 0);
    memcpy(&half, bytes, 2);
    return of->dtype == HST_F32 ? (double)value : half_value(of->dtype, half);
}

void triage_check_bytes(struct operand *of, size_t index, size_t count, const void *got,
                        const void *want)
{
    size_t element = hst_dtype_bytes(of->dtype);
    for (size_t i = 0; i < count; i++) {
        const char *g = (const char *)got + i * element, *w = (const char *)want + i * element;
        of->checked++;
        if (memcmp(g, w, element) != 0)
            missed(of,
                   (struct triage_miss){index + i, element_value(of, g), element_value(of, w), 0});
    }
}

/* An element that still is all ones bits: no operation makes that NaN. */
static void scan(struct triage *t, struct operand *of, size_t first_byte, size_t size_bytes)
{
    size_t element = hst_dtype_bytes(of->dtype), count = size_bytes / element;
    triage_read_bytes(t, (char *)of->data + first_byte, size_bytes);
    for (size_t i = 0; i < count; i++)
        if (element == 4 ? ((uint32_t *)t->staging)[i] == UINT32_MAX
                         : ((uint16_t *)t->staging)[i] == UINT16_MAX)
            missed(of, (struct triage_miss){first_byte / element + i, NAN, NAN, 0});
    of->checked += count;
}

static void scan_all(struct triage *t, struct operand *of)
{
    size_t bytes = bytes_of(of), at[TRIAGE_SAMPLES];
    if (bytes > SCANNED_WHOLE) {
        size_t windows = triage_samples(bytes / WINDOW_BYTES, at);
        for (size_t i = 0; i < windows; i++)
            scan(t, of, at[i] * WINDOW_BYTES, WINDOW_BYTES);
        scan(t, of, bytes - WINDOW_BYTES, WINDOW_BYTES);
        return;
    }
    for (size_t from = 0; from < bytes; from += TRIAGE_STAGING_BYTES)
        scan(t, of, from,
             bytes - from < TRIAGE_STAGING_BYTES ? bytes - from : TRIAGE_STAGING_BYTES);
}

static void tell_miss(const struct operand *of, const char *which, const struct triage_miss *miss)
{
    size_t row = miss->index / of->columns, column = miss->index % of->columns;
    if (isnan(miss->want))
        print_message("; %s [%zu, %zu] was not written", which, row, column);
    else
        print_message("; %s [%zu, %zu] is %.9g, not %.9g, allowed %.3g", which, row, column,
                      miss->got, miss->want, miss->allowed);
}

static bool tell(const struct operand *of)
{
    static const char *const names[] = {[HST_F32] = "f32", [HST_BF16] = "bf16", [HST_F16] = "f16"};
    if (!of->wrong)
        return false;
    print_message("%s %s[%zu, %zu]: %zu of %zu checks fail, in rows %zu to %zu, columns %zu to %zu",
                  of->name, names[of->dtype], of->rows, of->columns, of->wrong, of->checked,
                  of->wrong_rows.low, of->wrong_rows.high, of->wrong_columns.low,
                  of->wrong_columns.high);
    tell_miss(of, "the first", &of->first);
    if (of->wrong > 1)
        tell_miss(of, "the last", &of->last);
    print_message("\n");
    return true;
}

void triage_end(struct triage *t)
{
    bool failed = false;
    for (size_t i = 0; i < t->operand_count; i++) {
        struct operand *of = &t->operands[i];
        if (!of->input)
            scan_all(t, of);
        triage_read_bytes(t, (char *)of->data + bytes_of(of), TRIAGE_GUARD_BYTES);
        for (size_t b = 0; b < TRIAGE_GUARD_BYTES; b++)
            if (t->staging[b] != (char)0xff) {
                print_message("%s[%zu, %zu] was written beyond its end\n", of->name, of->rows,
                              of->columns);
                failed = true;
                break;
            }
        failed = tell(of) || failed;
    }
    if (failed)
        fail_msg("results are wrong");
}
