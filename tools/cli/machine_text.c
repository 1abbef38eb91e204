/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a machine: a line is a key and its value, or begins with '#'. What a key does not know, or
 * has twice, is refused with its place, since a figure that is jumped over would be one of another
 * machine. Behind all of them a whole file of --save-rates may stand, sealed as it was written.
 */
#include "cli/machine_text.h"

#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <hoistway/hoistway.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define RATES_BEGIN "hoistway rates "
#define ASSUMED     "assumed"
#define MEASURED    "measured"
#define SIZE_MOST   1e18
#define RATE_MOST   1e17
#define COUNT_MOST  65536
#define DAY_MS      UINT64_C(86400000)
#define FIELD(f)    offsetof(struct machine, f)

struct reader {
    const char *text, *at; /* at: the line that is read */
    struct machine *machine;
    struct machine_fault *fault;
    uint32_t line;
    unsigned seen; /* bits, by KEYS */
};

/* These take one value each. Texts are copied, numbers read as options are. */
static const struct key {
    struct hst_option option;
    bool needed;
} KEYS[] = {
    {{.name = "name", .type = HST_OPTION_TEXT, .offset = FIELD(name)}, true},
    {{.name = "about", .type = HST_OPTION_TEXT, .offset = FIELD(about)}, false},
    {{.name = "date", .type = HST_OPTION_TEXT, .offset = FIELD(date)}, true},
    {{.name = "gpus",
      .type = HST_OPTION_UINT32,
      .offset = FIELD(gpus),
      .least = 1,
      .greatest = COUNT_MOST},
     false},
    {{.name = "compute-capability",
      .type = HST_OPTION_UINT32,
      .offset = FIELD(compute_major),
      .least = 1,
      .greatest = 99},
     false},
    {{.name = "hbm",
      .type = HST_OPTION_SIZE,
      .offset = FIELD(hbm_bytes),
      .least = 1,
      .greatest = SIZE_MOST},
     false},
    {{.name = "dram",
      .type = HST_OPTION_SIZE,
      .offset = FIELD(dram_bytes),
      .least = 1,
      .greatest = SIZE_MOST},
     true},
    {{.name = "nvme",
      .type = HST_OPTION_SIZE,
      .offset = FIELD(nvme_bytes),
      .least = 1,
      .greatest = SIZE_MOST},
     false},
    {{.name = "drives",
      .type = HST_OPTION_UINT32,
      .offset = FIELD(drives),
      .least = 1,
      .greatest = COUNT_MOST},
     false},
    {{.name = "nics",
      .type = HST_OPTION_UINT32,
      .offset = FIELD(nics),
      .least = 1,
      .greatest = COUNT_MOST},
     false},
};
enum { KEY_COUNT = sizeof KEYS / sizeof *KEYS };

bool machine_begins(const char *text)
{
    return strncmp(text, MACHINE_BEGINS, strlen(MACHINE_BEGINS)) == 0;
}

bool machine_assumes(const struct hst_figure *figure)
{
    return figure->value > 0 && strncmp(figure->how, ASSUMED, strlen(ASSUMED)) == 0;
}

/* ---- faults ---- */

static int refuse(struct reader *r, size_t column, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int refuse(struct reader *r, size_t column, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(r->fault->why, sizeof r->fault->why, format, args);
    va_end(args);
    r->fault->line = r->line;
    r->fault->column = (uint32_t)column + 1;
    return -EBADMSG;
}

/* ---- words of a line ---- */

struct span {
    const char *text;
    size_t bytes, column;
};

static struct span word_at(const char *line, size_t bytes, size_t from)
{
    while (from < bytes && line[from] == ' ')
        from++;
    size_t end = from;
    while (end < bytes && line[end] != ' ')
        end++;
    return (struct span){line + from, end - from, from};
}

/* All that is behind, without the blanks around it. */
static struct span rest_at(const char *line, size_t bytes, size_t from)
{
    while (from < bytes && line[from] == ' ')
        from++;
    while (bytes > from && line[bytes - 1] == ' ')
        bytes--;
    return (struct span){line + from, bytes - from, from};
}

static bool is_word(struct span word, const char *text)
{
    return word.bytes == strlen(text) && memcmp(word.text, text, word.bytes) == 0;
}

static int copy(struct reader *r, struct span value, char *dst, size_t dst_bytes, const char *name)
{
    if (value.bytes == 0)
        return refuse(r, value.column, "no value of '%s'", name);
    if (value.bytes >= dst_bytes)
        return refuse(r, value.column, "a '%s' of more than %zu bytes", name, dst_bytes - 1);
    memcpy(dst, value.text, value.bytes);
    dst[value.bytes] = '\0';
    return 0;
}

/* ---- values ---- */

static bool is_name(const char *text)
{
    return text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-.")] == '\0';
}

/* Days since 1970 of a date of the Gregorian calendar (Howard Hinnant's days_from_civil). */
static int64_t days_of(int64_t year, unsigned month, unsigned day)
{
    year -= month <= 2;
    const int64_t era = year / 400;
    const unsigned of_era = (unsigned)(year - era * 400);
    const unsigned of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* False where it is no day from 1970 on, written as 2026-11-27. */
static bool take_date(const char *text, uint64_t *ms)
{
    unsigned part[3] = {0};
    static const char form[] = "dddd-dd-dd";
    if (strlen(text) != strlen(form))
        return false;
    for (size_t i = 0, p = 0; form[i]; i++) {
        if (form[i] == '-' ? text[i] != '-' : !isdigit((unsigned char)text[i]))
            return false;
        if (form[i] == '-')
            p++;
        else
            part[p] = 10 * part[p] + (unsigned)(text[i] - '0');
    }
    static const unsigned days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const bool leap = (part[0] % 4 == 0 && part[0] % 100 != 0) || part[0] % 400 == 0;
    if (part[0] < 1970 || part[1] < 1 || part[1] > 12 || part[2] < 1 ||
        part[2] > days[part[1] - 1] + (part[1] == 2 && leap))
        return false;
    *ms = (uint64_t)days_of(part[0], part[1], part[2]) * DAY_MS;
    return true;
}

static int take_key(struct reader *r, unsigned k, struct span value)
{
    const struct hst_option *o = &KEYS[k].option;
    char text[MACHINE_LINE], why[400];
    if (r->seen & 1u << k)
        return refuse(r, 0, "a second line of '%s'", o->name);
    r->seen |= 1u << k;
    if (o->type == HST_OPTION_TEXT) {
        char *dst = (char *)r->machine + o->offset;
        const size_t room =
            o->offset == FIELD(about) ? sizeof r->machine->about : sizeof r->machine->name;
        int native = copy(r, value, dst, room, o->name);
        if (!native && o->offset == FIELD(name) && !is_name(dst))
            native = refuse(r, value.column, "a name with more than a to z, 0 to 9, '-' and '.'");
        if (!native && o->offset == FIELD(date) && !take_date(dst, &r->machine->rates.taken_ms))
            native = refuse(r, value.column, "no date like 2026-11-27");
        return native;
    }
    int native = copy(r, value, text, sizeof text, o->name);
    if (!native && hst_option_parse(o, text, r->machine, why, sizeof why))
        native = refuse(r, value.column, "a '%s' that is %.140s", o->name, why);
    return native;
}

/* rate NAME VALUE measured|assumed WORDS */
static int take_rate(struct reader *r, const char *line, size_t bytes, size_t from)
{
    const struct span name = word_at(line, bytes, from);
    const struct span value = word_at(line, bytes, name.column + name.bytes);
    const struct span kind = word_at(line, bytes, value.column + value.bytes);
    const struct span how = rest_at(line, bytes, kind.column);
    const struct hst_option real = {
        .name = "rate", .type = HST_OPTION_REAL, .least = 1, .greatest = RATE_MOST};
    char text[MACHINE_WORD], why[400];
    double number = 0;
    int i = 0;
    while (i < HST_RATE_COUNT && !is_word(name, hst_rate_name((enum hst_rate)i)))
        i++;
    if (i == HST_RATE_COUNT)
        return refuse(r, name.column, "no rate that is known");
    struct hst_figure *figure = &r->machine->rates.figures[i];
    if (figure->value > 0)
        return refuse(r, name.column, "a second rate '%s'", hst_rate_name((enum hst_rate)i));
    int native = copy(r, value, text, sizeof text, "rate");
    if (!native && hst_option_parse(&real, text, &number, why, sizeof why))
        native = refuse(r, value.column, "a rate that is %.140s", why);
    if (!native && !is_word(kind, ASSUMED) && !is_word(kind, MEASURED))
        native = refuse(r, kind.column, "neither '" MEASURED "' nor '" ASSUMED "'");
    if (!native && how.bytes <= kind.bytes)
        native = refuse(r, kind.column + kind.bytes, "no words on where the rate is from");
    native = native ? native : copy(r, how, figure->how, sizeof figure->how, "rate");
    figure->value = figure->least = figure->most = number;
    figure->rounds = 1;
    if (is_word(kind, MEASURED))
        r->machine->rates.figure_ms[i] = 1; /* its time is the date, which may follow */
    return native;
}

/* ---- lines ---- */

static int take_line(struct reader *r, const char *line, size_t bytes)
{
    const struct span key = word_at(line, bytes, 0);
    const size_t from = key.column + key.bytes;
    if (key.bytes == 0 || line[0] == '#')
        return 0;
    if (key.column > 0)
        return refuse(r, 0, "a blank before the key");
    if (is_word(key, "rate"))
        return take_rate(r, line, bytes, from);
    if (is_word(key, "source")) {
        r->machine->sources++;
        return rest_at(line, bytes, from).bytes ? 0 : refuse(r, from, "no value of 'source'");
    }
    for (unsigned k = 0; k < KEY_COUNT; k++)
        if (is_word(key, KEYS[k].option.name))
            return take_key(r, k, rest_at(line, bytes, from));
    return refuse(r, 0,
                  "a key that is not known: name, about, date, source, gpus, "
                  "compute-capability, hbm, dram, nvme, drives, nics or rate");
}

/* Figures of a sealed file fill those that no line has. */
static int take_rates(struct reader *r)
{
    struct hst_rates sealed, *own = &r->machine->rates;
    if (hst_rates_parse(r->at, &sealed))
        return refuse(r, 0, "rates that are not as --save-rates wrote them");
    for (int i = 0; i < HST_RATE_COUNT; i++) {
        if (own->figures[i].value > 0 || sealed.figures[i].value <= 0)
            continue;
        own->figures[i] = sealed.figures[i];
        own->figure_ms[i] = sealed.figure_ms[i];
    }
    snprintf(own->disturbed, sizeof own->disturbed, "%s", sealed.disturbed);
    return 0;
}

static int check_whole(struct reader *r)
{
    const struct machine *m = r->machine;
    for (unsigned k = 0; k < KEY_COUNT; k++)
        if (KEYS[k].needed && !(r->seen & 1u << k))
            return refuse(r, 0, "no line of '%s' before here", KEYS[k].option.name);
    if (m->sources == 0)
        return refuse(r, 0, "no line of 'source' before here");
    if (!m->gpus != !m->hbm_bytes)
        return refuse(r, 0, "'%s' without '%s'", m->gpus ? "gpus" : "hbm",
                      m->gpus ? "hbm" : "gpus");
    if (!m->drives != !m->nvme_bytes)
        return refuse(r, 0, "'%s' without '%s'", m->drives ? "drives" : "nvme",
                      m->drives ? "nvme" : "drives");
    return 0;
}

/* No machine has what a terminal would obey, or what ends a text early. */
static int check_bytes(struct reader *r, size_t bytes)
{
    const char *line = r->text;
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)r->text[i];
        if (c == '\n') {
            line = r->text + i + 1;
            r->line++;
        } else if (c < ' ' || c > '~')
            return refuse(r, (size_t)(r->text + i - line),
                          "a byte that is no printable ASCII (0x%02x)", c);
    }
    return bytes > 0 && r->text[bytes - 1] == '\n'
               ? 0
               : refuse(r, (size_t)(r->text + bytes - line), "no end of the last line");
}

int machine_parse(const char *text, size_t bytes, struct machine *machine,
                  struct machine_fault *fault)
{
    struct reader r = {.text = text, .machine = machine, .fault = fault, .line = 1};
    *machine = (struct machine){0};
    *fault = (struct machine_fault){0};
    if (!machine_begins(text))
        return refuse(&r, 0, "no 'hoistway machine 1' as its first line");
    int native = check_bytes(&r, bytes);
    r.line = 1;
    r.at = text + strlen(MACHINE_BEGINS);
    bool sealed = false;
    while (!native && !sealed && r.at < text + bytes) {
        r.line++;
        sealed = strncmp(r.at, RATES_BEGIN, strlen(RATES_BEGIN)) == 0;
        const size_t length = strcspn(r.at, "\n");
        native = sealed ? take_rates(&r) : take_line(&r, r.at, length);
        r.at += length + 1;
    }
    native = native ? native : check_whole(&r);
    for (int i = 0; i < HST_RATE_COUNT; i++)
        if (machine->rates.figure_ms[i] == 1)
            machine->rates.figure_ms[i] = machine->rates.taken_ms;
    return native;
}
