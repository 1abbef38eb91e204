/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rates as text and back: one line per figure, a checksum at the end. Values are whole numbers, so
 * that no locale's decimal point comes into it. The reader takes nothing that the writer would not
 * have written. Pure.
 */
#include "probe/probe.h"

#include <hoistway/cpu_adam.h>

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER      "hoistway rates 4\n"
#define HEADER_3    "hoistway rates 3\n" /* is read: it says nothing of prefetch, */
#define HEADER_2    "hoistway rates 2\n" /* and this one nothing of a network */
#define AHEAD       "prefetch"
#define DISTURBED   "disturbed" /* a line of what else ran; without one: nothing */
#define DIGITS_MOST 18u         /* of a number: fits 64 bits */
#define DRIVE_RATES 3u
#define FNV_START   UINT64_C(0xcbf29ce484222325)
#define FNV_PRIME   UINT64_C(0x100000001b3)
#define VALUE_MOST  1e17 /* per second: nothing is faster */

static const struct {
    const char *name, *unit;
} rates_table[HST_RATE_COUNT] = {
    [HST_RATE_DRAM] = {"dram", "B/s"},
    [HST_RATE_DRAM_COPY] = {"dram-copy", "B/s"},
    [HST_RATE_UPDATE_FP32] = {"update-fp32", "elements/s"},
    [HST_RATE_UPDATE_BF16] = {"update-bf16", "elements/s"},
    [HST_RATE_NORM_FP32] = {"norm-fp32", "elements/s"},
    [HST_RATE_NORM_BF16] = {"norm-bf16", "elements/s"},
    [HST_RATE_COMPUTE] = {"compute", "FLOP/s"},
    [HST_RATE_H2D] = {"h2d", "B/s"},
    [HST_RATE_D2H] = {"d2h", "B/s"},
    [HST_RATE_COPY_BOTH] = {"copy-both", "B/s"},
    [HST_RATE_DEVICE_FP32] = {"device-update-fp32", "elements/s"},
    [HST_RATE_DEVICE_BF16] = {"device-update-bf16", "elements/s"},
    [HST_RATE_HALF_FP32] = {"update-half-fp32", "elements/s"},
    [HST_RATE_HALF_BF16] = {"update-half-bf16", "elements/s"},
    [HST_RATE_SHARED] = {"memory-shared", "B/s"},
    [HST_RATE_LOCK] = {"page-lock", "B/s"},
    [HST_RATE_READ] = {"read", "B/s"},
    [HST_RATE_WRITE] = {"write", "B/s"},
    [HST_RATE_MIXED] = {"mixed", "B/s"},
    [HST_RATE_MIXED_BUSY] = {"mixed-busy", "B/s"},
    [HST_RATE_NET_GATHER] = {"net-gather", "B/s"},
    [HST_RATE_NET_EXCHANGE] = {"net-exchange", "B/s"},
    [HST_RATE_NET_BETWEEN] = {"net-between", "B/s"},
    [HST_RATE_NET_OPERATIONS] = {"net-operations", "operations/s"},
    [HST_RATE_NET_OPERATIONS_BETWEEN] = {"net-operations-between", "operations/s"},
    [HST_RATE_NET_MESSAGES] = {"net-messages", "messages/s"},
    [HST_RATE_NET_MESSAGES_BETWEEN] = {"net-messages-between", "messages/s"},
};

const char *hst_rate_name(enum hst_rate rate)
{
    return (unsigned)rate < HST_RATE_COUNT ? rates_table[rate].name : NULL;
}

const char *hst_rate_unit(enum hst_rate rate)
{
    return (unsigned)rate < HST_RATE_COUNT ? rates_table[rate].unit : NULL;
}

static const char *const ahead_names[HST_AHEAD_COUNT] = {
    [HST_AHEAD_FP32] = "fp32",
    [HST_AHEAD_BF16] = "bf16",
    [HST_AHEAD_BF16_MOMENTS] = "bf16-state-bf16",
    [HST_AHEAD_CODES] = "bf16-state-8bit",
};

const char *hst_ahead_name(enum hst_ahead_row row)
{
    return (unsigned)row < HST_AHEAD_COUNT ? ahead_names[row] : NULL;
}

uint32_t hst_ahead_elements(const struct hst_ahead *measured)
{
    if (!(measured->asking > 0 && measured->silent > 0))
        return 0;
    return measured->silent > measured->asking ? HST_AHEAD_NONE : HST_AHEAD_USUAL;
}

/* FNV-1a: finds damage, not malice. */
static uint64_t checksum(const char *text, size_t bytes)
{
    uint64_t sum = FNV_START;
    for (size_t i = 0; i < bytes; i++)
        sum = (sum ^ (unsigned char)text[i]) * FNV_PRIME;
    return sum;
}

/* The figures of a drive in the order of HST_RATE_READ, WRITE, MIXED. */
static struct hst_figure *drive_figure(struct hst_drive_rates *drive, unsigned index)
{
    return index == 0 ? &drive->read : index == 1 ? &drive->write : &drive->mixed;
}

/* ---- writing ---- */

struct writer {
    char *text;
    size_t used, room;
    bool full;
};

static void put(struct writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct writer *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(w->text + w->used, w->room - w->used, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= w->room - w->used)
        w->full = true;
    else
        w->used += (size_t)n;
}

static uint64_t whole(double value)
{
    return value <= 0 ? 0 : value < 1 ? 1 : (uint64_t)(value + 0.5);
}

static void round_figures(struct hst_figure *figures, uint32_t count)
{
    for (struct hst_figure *f = figures; f < figures + count; f++) {
        f->value = (double)whole(f->value);
        f->least = (double)whole(f->least);
        f->most = (double)whole(f->most);
    }
}

void rates_round(struct hst_rates *rates)
{
    round_figures(rates->figures, HST_RATE_COUNT);
    round_figures(rates->gemms, rates->gemm_count);
    round_figures(rates->operations, rates->operation_count);
    for (uint32_t d = 0; d < rates->drive_count; d++)
        for (unsigned i = 0; i < DRIVE_RATES; i++)
            round_figures(drive_figure(&rates->drives[d], i), 1);
    for (struct hst_ahead *a = rates->ahead; a < rates->ahead + HST_AHEAD_COUNT; a++)
        *a = (struct hst_ahead){(double)whole(a->asking), (double)whole(a->silent)};
}

/* The end of a line, which nothing in it ends before. */
static void put_words(struct writer *w, const char *before, const char *words)
{
    const size_t from = w->used;
    put(w, "%s%s\n", before, words);
    for (char *c = w->text + from; !w->full && c + 1 < w->text + w->used; c++)
        *c = (unsigned char)*c < ' ' ? ' ' : *c;
}

/* "dram 1 2 3 5 how"; nothing where nobody asked for it. */
static void put_figure(struct writer *w, const char *name, const struct hst_figure *f)
{
    if (f->how[0] == '\0')
        return;
    put(w, "%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu32 " ", name, whole(f->value),
        whole(f->least), whole(f->most), f->rounds);
    put_words(w, "", f->how);
}

/* "prefetch fp32 1 2": with it and without. */
static void put_ahead(struct writer *w, const char *name, const struct hst_ahead *a)
{
    if (a->asking > 0 && a->silent > 0)
        put(w, AHEAD " %s %" PRIu64 " %" PRIu64 "\n", name, whole(a->asking), whole(a->silent));
}

int hst_rates_format(const struct hst_rates *rates, char *text, size_t text_bytes)
{
    struct hst_rates r = *rates;
    struct writer w = {.text = text, .room = text_bytes};
    char name[48];
    put(&w,
        HEADER "taken_ms %" PRIu64 "\ntook_ms %" PRIu64 "\ndrives %" PRIu32 "\nproducts %" PRIu32
               "\noperations %" PRIu32 "\n",
        r.taken_ms, (uint64_t)(r.seconds * 1e3 + 0.5), r.drive_count, r.gemm_count,
        r.operation_count);
    if (r.disturbed[0])
        put_words(&w, DISTURBED " ", r.disturbed);
    for (unsigned i = 0; i < HST_RATE_COUNT; i++)
        put_figure(&w, rates_table[i].name, &r.figures[i]);
    for (unsigned i = 0; i < HST_AHEAD_COUNT; i++)
        put_ahead(&w, ahead_names[i], &r.ahead[i]);
    for (uint32_t d = 0; d < r.drive_count; d++) {
        for (unsigned i = 0; i < DRIVE_RATES; i++) {
            snprintf(name, sizeof name, "drive %" PRIu32 " %s", d,
                     rates_table[HST_RATE_READ + i].name);
            put_figure(&w, name, drive_figure(&r.drives[d], i));
        }
        put(&w, "drive %" PRIu32 " written %" PRIu64 "\n", d, r.drives[d].written_bytes);
    }
    for (uint32_t i = 0; i < r.gemm_count; i++) {
        snprintf(name, sizeof name, "product %" PRIu32, i);
        put_figure(&w, name, &r.gemms[i]);
    }
    for (uint32_t i = 0; i < r.operation_count; i++) {
        snprintf(name, sizeof name, "operation %" PRIu32, i);
        put_figure(&w, name, &r.operations[i]);
    }
    put(&w, "end %016" PRIx64 "\n", checksum(text, w.used));
    return w.full ? -ENOSPC : (int)w.used;
}

/* ---- reading ---- */

/* Takes `word` and the blank after it. */
static bool take_word(const char **at, const char *word)
{
    size_t length = strlen(word);
    if (strncmp(*at, word, length) != 0 || (*at)[length] != ' ')
        return false;
    *at += length + 1;
    return true;
}

/* Takes a whole number and the blank, or the end of the line, after it. */
static bool take_number(const char **at, uint64_t most, uint64_t *number)
{
    size_t digits = strspn(*at, "0123456789");
    char after = (*at)[digits];
    if (digits == 0 || digits > DIGITS_MOST || (after != ' ' && after != '\n'))
        return false;
    *number = strtoull(*at, NULL, 10);
    *at += digits + (after == ' ');
    return *number <= most;
}

static bool take_end(const char **at)
{
    if (**at != '\n')
        return false;
    ++*at;
    return true;
}

/* Takes what is left of the line, and its end. */
static bool take_words(const char **at, char *words, size_t words_bytes)
{
    const size_t length = strcspn(*at, "\n");
    if (length == 0 || length >= words_bytes)
        return false;
    memcpy(words, *at, length);
    words[length] = '\0';
    *at += length;
    return take_end(at);
}

static bool take_figure(const char **at, struct hst_figure *f)
{
    uint64_t value, least, most, rounds;
    if (f->how[0] || !take_number(at, (uint64_t)VALUE_MOST, &value) ||
        !take_number(at, value, &least) || !take_number(at, (uint64_t)VALUE_MOST, &most) ||
        !take_number(at, UINT32_MAX, &rounds) || most < value || (value > 0) != (rounds > 0) ||
        (value == 0 && most > 0))
        return false;
    *f = (struct hst_figure){(double)value, (double)least, (double)most, (uint32_t)rounds, ""};
    return take_words(at, f->how, sizeof f->how);
}

static bool take_drive(const char **at, struct hst_rates *r)
{
    uint64_t drive;
    if (!take_number(at, HST_DRIVES_MAX, &drive) || drive >= r->drive_count)
        return false;
    if (take_word(at, "written"))
        return take_number(at, UINT64_MAX, &r->drives[drive].written_bytes) && take_end(at);
    for (unsigned i = 0; i < DRIVE_RATES; i++)
        if (take_word(at, rates_table[HST_RATE_READ + i].name))
            return take_figure(at, drive_figure(&r->drives[drive], i));
    return false;
}

/* The number of one of `count`, and its figure. */
static bool take_one(const char **at, struct hst_figure *figures, uint32_t count)
{
    uint64_t i;
    return take_number(at, HST_GEMMS_MAX, &i) && i < count && take_figure(at, &figures[i]);
}

static bool take_ahead(const char **at, struct hst_rates *r)
{
    uint64_t asking, silent;
    for (unsigned i = 0; i < HST_AHEAD_COUNT; i++) {
        struct hst_ahead *a = &r->ahead[i];
        if (!take_word(at, ahead_names[i]))
            continue;
        if (a->asking > 0 || !take_number(at, (uint64_t)VALUE_MOST, &asking) ||
            !take_number(at, (uint64_t)VALUE_MOST, &silent) || asking == 0 || silent == 0)
            return false;
        *a = (struct hst_ahead){.asking = (double)asking, .silent = (double)silent};
        return take_end(at);
    }
    return false;
}

/* This tells what each version of the text may say. */
static unsigned version_of(const char *text)
{
    return strncmp(text, HEADER, strlen(HEADER)) == 0       ? 4
           : strncmp(text, HEADER_3, strlen(HEADER_3)) == 0 ? 3
           : strncmp(text, HEADER_2, strlen(HEADER_2)) == 0 ? 2
                                                            : 0;
}

static bool take_line(const char **at, unsigned version, struct hst_rates *r)
{
    const unsigned end = version < 3 ? HST_RATE_NET_GATHER : HST_RATE_COUNT;
    if (version >= 4 && take_word(at, AHEAD))
        return take_ahead(at, r);
    if (take_word(at, DISTURBED))
        return !r->disturbed[0] && take_words(at, r->disturbed, sizeof r->disturbed);
    if (take_word(at, "drive"))
        return take_drive(at, r);
    if (take_word(at, "product"))
        return take_one(at, r->gemms, r->gemm_count);
    if (take_word(at, "operation"))
        return take_one(at, r->operations, r->operation_count);
    for (unsigned i = 0; i < end; i++)
        if (take_word(at, rates_table[i].name))
            return take_figure(at, &r->figures[i]);
    return false;
}

static bool take_head(const char **at, struct hst_rates *r)
{
    uint64_t took_ms, drives, gemms, operations;
    if (version_of(*at) == 0)
        return false;
    *at += strlen(HEADER);
    if (!take_word(at, "taken_ms") || !take_number(at, UINT64_MAX, &r->taken_ms) || !take_end(at) ||
        !take_word(at, "took_ms") || !take_number(at, UINT32_MAX, &took_ms) || !take_end(at) ||
        !take_word(at, "drives") || !take_number(at, HST_DRIVES_MAX, &drives) || !take_end(at) ||
        !take_word(at, "products") || !take_number(at, HST_GEMMS_MAX, &gemms) || !take_end(at) ||
        !take_word(at, "operations") || !take_number(at, HST_OPERATIONS_MAX, &operations) ||
        !take_end(at))
        return false;
    r->seconds = (double)took_ms * 1e-3;
    r->drive_count = (uint32_t)drives;
    r->gemm_count = (uint32_t)gemms;
    r->operation_count = (uint32_t)operations;
    return true;
}

int hst_rates_parse(const char *text, struct hst_rates *rates)
{
    struct hst_rates r = {0};
    char end[32];
    const char *at = text;
    if (!take_head(&at, &r))
        return -EBADMSG;
    while (strncmp(at, "end ", 4) != 0)
        if (!take_line(&at, version_of(text), &r))
            return -EBADMSG;
    snprintf(end, sizeof end, "end %016" PRIx64 "\n", checksum(text, (size_t)(at - text)));
    if (strcmp(at, end) != 0)
        return -EBADMSG;
    for (int i = 0; i < HST_RATE_COUNT; i++)
        r.figure_ms[i] = r.figures[i].value > 0 ? r.taken_ms : 0;
    for (uint32_t d = 0; d < r.drive_count; d++) {
        struct hst_drive_rates *drive = &r.drives[d];
        drive->half_duplex =
            hst_half_duplex(drive->read.value, drive->write.value, drive->mixed.value);
    }
    *rates = r;
    return 0;
}

bool hst_half_duplex(double read, double write, double mixed)
{
    if (!(read > 0 && write > 0 && mixed > 0))
        return false;
    double in_turns = 2 / (1 / read + 1 / write), at_once = 2 * fmin(read, write);
    return mixed < sqrt(in_turns * at_once);
}
