/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file shows what runs leave beside models: logs, traces, files of a store. They may be cut
 * short, by a kill or because they are being written; that is told.
 */
#include "base/text.h"
#include "cli/log/json.h"
#include "verbs/inspect/inspect.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static FILE *open_text(const char *path, struct hst_error *error)
{
    FILE *file = fopen(path, "re");
    if (!file)
        fail(error, FAIL_DATA_FILE, -errno, "%.250s cannot be opened: %s. Fix: check it.", path,
             strerror(errno));
    return file;
}

static int close_text(FILE *file, const char *path, struct hst_error *error)
{
    const bool failed = ferror(file);
    fclose(file);
    return failed ? fail(error, FAIL_READ, -EIO,
                         "%.250s cannot be read. Fix: see dmesg for its drive.", path)
                  : 0;
}

/* ---- a log ---- */

static void print_evaluations_json(struct json_writer *json, const struct facts *f)
{
    if (f->evaluations == 0)
        return;
    json_put_object(json, "eval");
    json_put_whole(json, "count", f->evaluations);
    json_put_whole(json, "step", f->last_evaluation.step);
    json_put_real(json, "loss", f->last_evaluation.loss);
    json_put_real(json, "perplexity", f->last_evaluation.perplexity);
    if (f->best_evaluation.step) {
        json_put_whole(json, "best_step", f->best_evaluation.step);
        json_put_real(json, "best_loss", f->best_evaluation.loss);
        json_put_real(json, "best_perplexity", f->best_evaluation.perplexity);
    }
    json_put_end(json);
}

static void print_log_json(const char *path, const struct facts *f)
{
    struct json_writer json = {.out = stdout};
    json_put_object(&json, NULL);
    json_put_text(&json, "kind", "log");
    json_put_text(&json, "path", path);
    json_put_text(&json, "model", f->model);
    json_put_text(&json, "data", f->data);
    json_put_text(&json, "store", f->store);
    json_put_text(&json, "device", f->device);
    json_put_text(&json, "precision", f->precision);
    json_put_whole(&json, "batch_tokens", f->batch_tokens);
    json_put_whole(&json, "runs", f->runs);
    json_put_whole(&json, "steps", f->wanted);
    json_put_whole(&json, "step", f->last_step);
    json_put_whole(&json, "committed", f->committed);
    if (f->steps) {
        json_put_real(&json, "first_loss", f->first_loss);
        json_put_real(&json, "last_loss", f->last_loss);
    }
    print_evaluations_json(&json, f);
    json_put_bool(&json, "complete", f->complete);
    json_put_known(&json, "measured_step_s", f->step_s);
    json_put_text(&json, "bound_by", f->bound_by[0] ? f->bound_by : NULL);
    json_put_whole(&json, "odd_lines", f->odd_lines);
    json_put_end(&json);
    putchar('\n');
}

static void say_evaluations(struct screen *screen, const struct facts *f)
{
    char text[FACTS_TEXT_BYTES];
    if (f->evaluations)
        screen_say(screen, "  evaluated %" PRIu64 " time%s, last after step %" PRIu64 ": %s",
                   f->evaluations, text_s(f->evaluations), f->last_evaluation.step,
                   facts_evaluation_text(&f->last_evaluation, text));
    if (f->best_evaluation.step)
        screen_say(screen, "  the best after step %" PRIu64 ": %s", f->best_evaluation.step,
                   facts_evaluation_text(&f->best_evaluation, text));
}

static void print_log_text(const char *path, const struct facts *f)
{
    struct screen screen = {0};
    struct hst_error line;
    screen_say(&screen, "log %s", screen_name(path, &line));
    screen_say(&screen, "  model %s", screen_name(f->model, &line));
    screen_say(&screen, "  data %s", screen_name(f->data, &line));
    screen_say(&screen, "  store %s", screen_name(f->store, &line));
    screen_say(&screen, "  trains in %.40s on %.60s, %" PRIu64 " token%s a step", f->precision,
               screen_name(f->device, &line), f->batch_tokens, text_s(f->batch_tokens));
    if (f->steps)
        screen_say(&screen, "  step %" PRIu64 " of %" PRIu64 ", loss %.4f -> %.4f", f->last_step,
                   f->wanted, f->first_loss, f->last_loss);
    else
        screen_say(&screen, "  no step of %" PRIu64 " yet", f->wanted);
    say_evaluations(&screen, f);
    if (f->committed)
        screen_say(&screen, "  the last version is that of step %" PRIu64, f->committed);
    if (f->runs > 1)
        screen_say(&screen, "  resumed %" PRIu64 " time%s", f->runs - 1, text_s(f->runs - 1));
    if (f->complete)
        screen_say(&screen, "  ended: %.3g s a step%s%s", f->step_s,
                   f->bound_by[0] ? ", bound by " : "", screen_name(f->bound_by, &line));
    else
        screen_say(&screen, "  not ended: the run goes on, was stopped or was killed");
    if (f->odd_lines)
        screen_say(&screen, "  %" PRIu64 " line%s no whole line of a log", f->odd_lines,
                   f->odd_lines == 1 ? " is" : "s are");
}

int inspect_log(const char *path, const struct inspect_options *options, struct hst_error *error)
{
    struct views views;
    struct hst_error ignored;
    int native = views_check(&options->views, error);
    native = native ? native : views_open(&views, &options->views, error);
    if (native)
        return native;
    native = views_read(&views, path, error);
    const int closed = views_close(&views, native ? &ignored : error);
    native = native ? native : closed;
    if (!native && options->json)
        print_log_json(path, &views.facts);
    else if (!native)
        print_log_text(path, &views.facts);
    return native;
}

/* ---- a trace ---- */

struct trace_facts {
    uint64_t events, first_step, last_step;
    bool complete;
};

static void take_step(struct trace_facts *facts, const char *at)
{
    const uint64_t step = strtoull(at, NULL, 10);
    facts->first_step = facts->last_step && facts->first_step < step ? facts->first_step : step;
    facts->last_step = step > facts->last_step ? step : facts->last_step;
}

/* It is one line and may be long: what a window of it holds is counted, one after another. */
static void read_trace(FILE *file, struct trace_facts *facts)
{
    enum { WINDOW = 65536, OVERLAP = 64 };
    static const char event[] = "\"ph\":\"X\"", step[] = "\"step\":";
    static char window[WINDOW + 1];
    size_t kept = 0, got;
    do {
        got = fread(window + kept, 1, WINDOW - kept, file);
        const size_t n = kept + got;
        /* what begins in the overlap is whole in the next window, if there is one */
        const size_t end = got == 0 ? n : n <= OVERLAP ? 0 : n - OVERLAP;
        window[n] = '\0';
        for (char *at = window; (at = memmem(at, n - (size_t)(at - window), event, 8)) != NULL &&
                                (size_t)(at - window) < end;
             at++)
            facts->events++;
        for (char *at = window; (at = memmem(at, n - (size_t)(at - window), step, 7)) != NULL &&
                                (size_t)(at - window) < end;
             at++)
            take_step(facts, at + 7);
        facts->complete = n >= 3 && memcmp(window + n - 3, "]}\n", 3) == 0;
        kept = n - end;
        memmove(window, window + end, kept);
    } while (got > 0);
}

int inspect_trace(const char *path, const struct inspect_options *options, struct hst_error *error)
{
    struct trace_facts f = {0};
    struct hst_error line;
    struct screen screen = {0};
    FILE *file = open_text(path, error);
    if (!file)
        return -ENOENT;
    read_trace(file, &f);
    const int native = close_text(file, path, error);
    if (native)
        return native;
    if (options->json) {
        struct json_writer json = {.out = stdout};
        json_put_object(&json, NULL);
        json_put_text(&json, "kind", "trace");
        json_put_text(&json, "path", path);
        json_put_whole(&json, "events", f.events);
        json_put_whole(&json, "first_step", f.first_step);
        json_put_whole(&json, "last_step", f.last_step);
        json_put_bool(&json, "complete", f.complete);
        json_put_end(&json);
        putchar('\n');
        return 0;
    }
    screen_say(&screen, "trace %s", screen_name(path, &line));
    const char *cut = f.complete ? "" : ", cut short: the run goes on, or was killed";
    if (f.first_step < f.last_step)
        screen_say(&screen, "  %" PRIu64 " events of steps %" PRIu64 " to %" PRIu64 "%s", f.events,
                   f.first_step, f.last_step, cut);
    else if (f.last_step)
        screen_say(&screen, "  %" PRIu64 " event%s of step %" PRIu64 "%s", f.events,
                   text_s(f.events), f.last_step, cut);
    else
        screen_say(&screen, "  no event of any step%s", cut);
    screen_say(&screen, "  to be looked at in ui.perfetto.dev");
    return 0;
}

/* ---- a file of a store ---- */

int inspect_store_file(const char *path, const struct inspect_options *options,
                       struct hst_error *error)
{
    unsigned rank = 0, drive = 0;
    int end = 0;
    struct stat st;
    struct hst_error line;
    struct screen screen = {0};
    char size[TEXT_BYTES], *copy = strdup(path), *other = strdup(path);
    int native = !copy || !other ? -ENOMEM : stat(path, &st) ? -errno : 0;
    if (native) {
        free(copy);
        free(other);
        return fail(error, FAIL_DATA_FILE, native, "%.250s cannot be looked at: %s. Fix: check it.",
                    path, strerror(-native));
    }
    const char *name = basename(copy), *directory = dirname(other);
    const bool named =
        sscanf(name, "r%5u.d%3u.blk%n", &rank, &drive, &end) == 2 && end > 0 && name[end] == '\0';
    if (options->json) {
        struct json_writer json = {.out = stdout};
        json_put_object(&json, NULL);
        json_put_text(&json, "kind", "store file");
        json_put_text(&json, "path", path);
        json_put_text(&json, "directory", directory);
        if (named) {
            json_put_whole(&json, "rank", rank);
            json_put_whole(&json, "drive", drive);
        }
        json_put_whole(&json, "bytes", (uint64_t)st.st_size);
        json_put_end(&json);
        putchar('\n');
    } else {
        screen_say(&screen, "one file of a store: %s", screen_name(path, &line));
        if (named)
            screen_say(&screen, "  rank %u, drive %u, %s", rank, drive,
                       text_size((uint64_t)st.st_size, size));
        screen_say(&screen,
                   "  hoistway inspect %s tells what the store holds, where that is all "
                   "of its directories",
                   screen_name(directory, &line));
    }
    free(copy);
    free(other);
    return 0;
}
