/* SPDX-License-Identifier: Apache-2.0 */
/* This file shows what measurements leave: the rates of a machine, results of nvme-bench. */
#include "base/text.h"
#include "cli/log/json.h"
#include "hf/json/input.h"
#include "verbs/inspect/inspect.h"

#include <errno.h>
#include <hoistway/machine.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MOST (UINT64_C(16) << 20) /* of a result */
#define KEYS_MOST 262144u

/* ---- rates ---- */

static int read_whole(const char *path, uint64_t most, char **text, uint64_t *bytes,
                      struct hst_error *error)
{
    struct input input;
    int rc = input_open_path(path, &input);
    if (!rc) {
        rc = input_read_all(&input, most, text);
        *bytes = input.size_bytes;
        input_close(&input);
    }
    return rc ? fail(error, FAIL_DATA_FILE, rc, "%.250s cannot be read: %s. Fix: check it.", path,
                     rc == -EFBIG ? "it is larger than any such file" : input_why(rc))
              : 0;
}

static void put_rates(const char *path, const struct hst_rates *rates)
{
    struct json_writer json = {.out = stdout};
    json_put_object(&json, NULL);
    json_put_text(&json, "kind", "rates");
    json_put_text(&json, "path", path);
    json_put_whole(&json, "taken_ms", rates->taken_ms);
    json_put_whole(&json, "drives", rates->drive_count);
    json_put_object(&json, "rates");
    for (int i = 0; i < HST_RATE_COUNT; i++)
        json_put_known(&json, hst_rate_name((enum hst_rate)i), rates->figures[i].value);
    json_put_end(&json);
    json_put_end(&json);
    putchar('\n');
}

static void say_rates(const char *path, const struct hst_rates *rates)
{
    struct screen screen = {0};
    struct hst_error line;
    char value[TEXT_BYTES];
    int missing = 0;
    screen_say(&screen, "rates %s: of %" PRIu32 " drive%s", screen_name(path, &line),
               rates->drive_count, text_s(rates->drive_count));
    for (int i = 0; i < HST_RATE_COUNT; i++) {
        const double is = rates->figures[i].value;
        missing += is == 0;
        if (is > 0)
            screen_say(&screen, "  %-12s  %8s %s", hst_rate_name((enum hst_rate)i),
                       text_count(is, value), hst_rate_unit((enum hst_rate)i));
    }
    if (missing)
        screen_say(&screen, "  %d other%s not measured", missing, missing == 1 ? " was" : "s were");
}

int inspect_rates(const char *path, const struct inspect_options *options, struct hst_error *error)
{
    char *text = NULL;
    uint64_t bytes = 0;
    static struct hst_rates rates; /* large: not on the stack */
    int native = read_whole(path, HST_RATES_TEXT_BYTES, &text, &bytes, error);
    if (native)
        return native;
    native = hst_rates_parse(text, &rates);
    free(text);
    if (native)
        return fail(error, FAIL_DATA_FORMAT, native,
                    "%.250s begins like rates of a machine, and is not whole or was changed. Fix: "
                    "hoistway plan --save-rates writes it anew.",
                    path);
    if (options->json)
        put_rates(path, &rates);
    else
        say_rates(path, &rates);
    return 0;
}

/* ---- a result of nvme-bench ---- */

enum { DRIVES_MOST = 16, RATES_OF_A_DRIVE = 3 };
static const char *const rate_names[RATES_OF_A_DRIVE] = {"read", "write", "mixed"};

struct bench_facts {
    char date[INSPECT_TEXT_BYTES], version[INSPECT_TEXT_BYTES], verdict[INSPECT_TEXT_BYTES];
    char paths[DRIVES_MOST][INSPECT_TEXT_BYTES], models[DRIVES_MOST][INSPECT_TEXT_BYTES];
    double rates[DRIVES_MOST][RATES_OF_A_DRIVE]; /* steady where there is one, else the best */
    bool steady[DRIVES_MOST][RATES_OF_A_DRIVE];
    size_t drives;
    uint64_t cases;
};

static void take_drive(struct bench_facts *f, const char *text, size_t bytes)
{
    static const char *const keys[] = {"path", "model"};
    struct jsn_value v[2];
    if (f->drives == DRIVES_MOST)
        return;
    jsn_members(text, bytes, keys, 2, v);
    jsn_get_text(text, v[0], f->paths[f->drives], INSPECT_TEXT_BYTES);
    jsn_get_text(text, v[1], f->models[f->drives], INSPECT_TEXT_BYTES);
    f->drives++;
}

static void take_case(struct bench_facts *f, const char *text, size_t bytes)
{
    static const char *const keys[] = {"phase", "kind", "drive", "value"};
    struct jsn_value v[4];
    uint64_t drive = DRIVES_MOST;
    double value = 0;
    jsn_members(text, bytes, keys, 4, v);
    f->cases++;
    jsn_get_whole(text, v[2], &drive); /* null: of all drives at once */
    jsn_get_real(text, v[3], &value);
    for (int k = 0; k < RATES_OF_A_DRIVE && drive < f->drives; k++) {
        if (v[1].type != JSN_STRING || !jsn_equals(text, v[1], rate_names[k]))
            continue;
        const bool steady = v[0].type == JSN_STRING && jsn_equals(text, v[0], "steady");
        if (steady || (!f->steady[drive][k] && value > f->rates[drive][k]))
            f->rates[drive][k] = value;
        f->steady[drive][k] |= steady;
    }
}

static void each_of(const char *text, struct jsn_value array, struct bench_facts *f,
                    void (*take)(struct bench_facts *, const char *, size_t))
{
    if (array.type != JSN_ARRAY)
        return;
    struct jsn_reader reader = jsn_reader(text + array.begin, array.end - array.begin);
    (void)jsn_next(&reader);
    for (struct jsn_value v = jsn_next_value(&reader); v.type == JSN_OBJECT;
         v = jsn_next_value(&reader))
        take(f, text + array.begin + v.begin, v.end - v.begin);
}

static void say_bench(const char *path, const struct bench_facts *f,
                      const struct inspect_options *options)
{
    struct screen screen = {0};
    struct hst_error line;
    char rates[RATES_OF_A_DRIVE][TEXT_BYTES];
    screen_say(&screen, "result of nvme-bench %s", screen_name(path, &line));
    screen_say(&screen, "  %.40s%s%zu drive%s, %" PRIu64 " case%s", screen_name(f->date, &line),
               f->date[0] ? ", " : "", f->drives, text_s(f->drives), f->cases, text_s(f->cases));
    for (size_t d = 0; d < f->drives && screen_left(&screen, options) > 4; d++) {
        for (int k = 0; k < RATES_OF_A_DRIVE; k++)
            text_size((uint64_t)f->rates[d][k], rates[k]);
        screen_say(&screen, "  %s", screen_name(f->paths[d], &line));
        screen_say(&screen, "    %.30s read %s/s, write %s/s, mixed %s/s",
                   screen_name(f->models[d], &line), rates[0], rates[1], rates[2]);
    }
    if (f->verdict[0])
        screen_say(&screen, "  %s", screen_name(f->verdict, &line));
}

static void put_bench(const char *path, const struct bench_facts *f)
{
    struct json_writer json = {.out = stdout};
    json_put_object(&json, NULL);
    json_put_text(&json, "kind", "nvme-bench");
    json_put_text(&json, "path", path);
    json_put_text(&json, "date", f->date[0] ? f->date : NULL); /* none: simulated */
    json_put_whole(&json, "cases", f->cases);
    json_put_array(&json, "drives");
    for (size_t d = 0; d < f->drives; d++) {
        json_put_object(&json, NULL);
        json_put_text(&json, "path", f->paths[d]);
        json_put_text(&json, "model", f->models[d][0] ? f->models[d] : NULL);
        for (int k = 0; k < RATES_OF_A_DRIVE; k++)
            json_put_known(&json, rate_names[k], f->rates[d][k]);
        json_put_end(&json);
    }
    json_put_end(&json);
    json_put_text(&json, "verdict", f->verdict[0] ? f->verdict : NULL);
    json_put_end(&json);
    putchar('\n');
}

int inspect_bench(const char *path, const struct inspect_options *options, struct hst_error *error)
{
    static const char *const keys[] = {"date", "version", "drives", "cases", "plan"};
    static const char *const plan_keys[] = {"verdict"};
    static struct bench_facts f; /* large: not on the stack */
    struct jsn_value v[5], verdict;
    struct jsn_fault fault;
    char *text = NULL;
    uint64_t bytes = 0;
    int native = read_whole(path, TEXT_MOST, &text, &bytes, error);
    if (native)
        return native;
    native = jsn_check(text, bytes, KEYS_MOST, &fault);
    if (native) {
        free(text);
        return fail(error, FAIL_DATA_FORMAT, native,
                    "%.250s begins like a result of nvme-bench, and is not whole: it has %s at "
                    "byte %zu. Fix: measure again.",
                    path, fault.why, fault.at);
    }
    jsn_members(text, bytes, keys, 5, v);
    jsn_get_text(text, v[0], f.date, INSPECT_TEXT_BYTES);
    jsn_get_text(text, v[1], f.version, INSPECT_TEXT_BYTES);
    each_of(text, v[2], &f, take_drive);
    each_of(text, v[3], &f, take_case);
    if (v[4].type == JSN_OBJECT) {
        const char *plan = text + v[4].begin;
        jsn_members(plan, v[4].end - v[4].begin, plan_keys, 1, &verdict);
        jsn_get_text(plan, verdict, f.verdict, INSPECT_TEXT_BYTES);
    }
    if (options->json)
        put_bench(path, &f);
    else
        say_bench(path, &f, options);
    free(text);
    return 0;
}
