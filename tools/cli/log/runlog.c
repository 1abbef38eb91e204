/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what a line of the run log holds. After a line that cannot be written there are no
 * others: a log with holes misleads.
 */
#include "cli/log/runlog.h"

#include "cli/log/decision.h"
#include "cli/log/json.h"
#include "cli/log/output.h"

#include <math.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct output_kind LOG = {
    .noun = "log", .option = "--log", .begin = "{\"kind\":\"run\""};

int run_log_check(const char *path, struct hst_error *error)
{
    return output_check(&LOG, path, error);
}

static int begin(struct run_log *log, const char *path, struct hst_error *error)
{
    *log = (struct run_log){.path = path, .reader = log->reader};
    if (!path && !log->reader.take)
        return 0;
    log->line = open_memstream(&log->text, &log->text_bytes);
    return log->line ? 0 : output_unwritable(&LOG, path ? path : "", error);
}

int run_log_open(struct run_log *log, const char *path, struct hst_error *error)
{
    const int native = begin(log, path, error);
    return native || !path ? native : output_open(&LOG, path, &log->file, error);
}

/* The last step that a line is about; 0: none. */
static uint64_t step_of(const char *line)
{
    unsigned long long step;
    return sscanf(line, "{\"kind\":\"step\",\"step\":%llu", &step) == 1 ||
                   sscanf(line, "{\"kind\":\"commit\",\"step\":%llu", &step) == 1 ||
                   sscanf(line, "{\"kind\":\"eval\",\"step\":%llu", &step) == 1 ||
                   sscanf(line, "{\"kind\":\"sample\",\"step\":%llu", &step) == 1 ||
                   sscanf(line, "{\"kind\":\"gap\",\"from\":%*u,\"to\":%llu", &step) == 1
               ? step
               : 0;
}

static bool is_of(const char *line, const char *begin)
{
    return strncmp(line, begin, strlen(begin)) == 0;
}

static bool is_commit(const char *line)
{
    return is_of(line, "{\"kind\":\"commit\"");
}

static bool is_evaluation(const char *line)
{
    return is_of(line, "{\"kind\":\"eval\"");
}

static bool is_sample(const char *line)
{
    return is_of(line, "{\"kind\":\"sample\"");
}

/* What was found, up to the time that it took: that is the bytes of a run which finds it again. */
static size_t finding(const char *line)
{
    const char *end = strstr(line, ",\"seconds\":");
    return end ? (size_t)(end - line) : strlen(line);
}

static int note_found(struct run_log *log, const char *line)
{
    if (!is_evaluation(line) && !is_sample(line))
        return 0;
    const size_t kept = log->found_step == step_of(line) ? log->found_bytes : 0;
    const size_t bytes = finding(line);
    char *found = realloc(log->found, kept + bytes + 1);
    if (!found)
        return -1;
    memcpy(found + kept, line, bytes);
    found[kept + bytes] = '\n';
    log->found = found;
    log->found_bytes = kept + bytes + 1;
    log->found_step = step_of(line);
    return 0;
}

/* The line that is being made is there as far as it is made. */
static bool was_found(const struct run_log *log)
{
    const size_t bytes = fflush(log->line) ? 0 : (size_t)ftello(log->line);
    for (size_t at = 0, length; bytes && at < log->found_bytes; at += length + 1) {
        length = (size_t)((const char *)memchr(log->found + at, '\n', log->found_bytes - at) -
                          (log->found + at));
        if (length == bytes && memcmp(log->found + at, log->text, bytes) == 0)
            return true;
    }
    return false;
}

/* Up to the first line that is cut short, or of a later step; *told: the last step up to there that
   has a line of its own, or is part of a gap that was marked. -1: no memory. */
static off_t end_of_steps(struct run_log *log, uint64_t step, uint64_t *told)
{
    FILE *file = log->file;
    char *line = NULL;
    size_t room = 0;
    off_t end = 0;
    ssize_t bytes;
    *told = 0;
    while ((bytes = getline(&line, &room, file)) > 0 && line[bytes - 1] == '\n' &&
           step_of(line) <= step) {
        const bool beside = is_commit(line) || is_evaluation(line) || is_sample(line);
        const uint64_t is = beside ? 0 : step_of(line);
        *told = is > *told ? is : *told;
        end += bytes;
        if (note_found(log, line)) {
            end = -1;
            break;
        }
    }
    free(line);
    return end;
}

uint64_t run_log_committed(const char *path)
{
    FILE *file = path ? fopen(path, "re") : NULL;
    char *line = NULL;
    size_t room = 0;
    unsigned long long step, last = 0;
    while (file && getline(&line, &room, file) > 0)
        if (sscanf(line, "{\"kind\":\"commit\",\"step\":%llu", &step) == 1)
            last = step;
    free(line);
    if (file)
        fclose(file);
    return last;
}

int run_log_resume(struct run_log *log, const char *path, uint64_t step, struct hst_error *error)
{
    int native = begin(log, path, error);
    native = native || !path ? native : output_reopen(&LOG, path, &log->file, error);
    if (native || !log->file)
        return native;
    struct stat st;
    if (fstat(fileno(log->file), &st) == 0 && !S_ISREG(st.st_mode))
        return 0; /* a device has nothing to be read */
    uint64_t told;
    log->size_bytes = end_of_steps(log, step, &told);
    if (told < step) {
        log->gap_from = told + 1;
        log->gap_to = step;
    }
    clearerr(log->file);
    if (log->size_bytes >= 0 && fseeko(log->file, log->size_bytes, SEEK_SET) == 0 &&
        ftruncate(fileno(log->file), log->size_bytes) == 0)
        return 0;
    native = output_unwritable(&LOG, path, error);
    run_log_close(log);
    return native;
}

static bool has_lines(const struct run_log *log)
{
    return log->line && (log->file || log->reader.take);
}

static struct json_writer begin_line(struct run_log *log, const char *kind)
{
    rewind(log->line);
    struct json_writer json = {.out = log->line};
    json_put_object(&json, NULL);
    json_put_text(&json, "kind", kind);
    return json;
}

static int write_line(struct run_log *log, size_t bytes, struct hst_error *error)
{
    fwrite(log->text, 1, bytes, log->file);
    if (fflush(log->file) == 0 && !ferror(log->file)) {
        if (log->sync)
            (void)fdatasync(fileno(log->file)); /* a device, a pipe cannot be */
        log->size_bytes = ftello(log->file);
        return 0;
    }
    int native = output_unwritable(&LOG, log->path, error);
    /* Half a line would make the whole file unreadable as JSON lines. */
    __fpurge(log->file);
    int rc = ftruncate(fileno(log->file), log->size_bytes);
    (void)rc; /* a device has no end to cut */
    fclose(log->file);
    log->file = NULL;
    return native;
}

static int end_line(struct run_log *log, struct json_writer *json, struct hst_error *error)
{
    json_put_end(json);
    putc('\n', log->line);
    const size_t bytes = (size_t)ftello(log->line);
    if (fflush(log->line) || ferror(log->line)) { /* without memory there is no line */
        const int native = output_unwritable(&LOG, log->path ? log->path : "", error);
        run_log_close(log);
        return native;
    }
    const int native = log->file ? write_line(log, bytes, error) : 0;
    if (log->reader.take)
        log->reader.take(log->reader.context, log->text, bytes);
    return native;
}

static int put_gap(struct run_log *log, struct hst_error *error)
{
    struct json_writer json = begin_line(log, "gap");
    json_put_whole(&json, "from", log->gap_from);
    json_put_whole(&json, "to", log->gap_to);
    return end_line(log, &json, error);
}

static void put_plans(struct json_writer *json, const struct run_plans *plans)
{
    if (plans->count == 0)
        return;
    json_put_object(json, "plans");
    json_put_whole(json, "count", plans->count);
    json_put_real(json, "seconds", plans->seconds);
    json_put_end(json);
}

static void put_options(struct json_writer *json, const struct run_start *start)
{
    if (!start->put_options)
        return;
    json_put_object(json, "options");
    start->put_options(json, start->options);
    json_put_end(json);
}

int run_log_start(struct run_log *log, const struct run_start *start, struct hst_error *error)
{
    if (!has_lines(log))
        return 0;
    struct json_writer json = begin_line(log, "run");
    json_put_text(&json, "version", hst_version());
    json_put_whole(&json, "began", start->began);
    json_put_text(&json, "model", start->model);
    json_put_text(&json, "data", start->data);
    json_put_text(&json, "store", start->store);
    json_put_text(&json, "device", start->device);
    json_put_text(&json, "math", start->math);
    json_put_text(&json, "precision", start->precision);
    json_put_text(&json, "io", start->memory->io);
    json_put_whole(&json, "threads", start->memory->threads);
    json_put_whole(&json, "parameters", start->memory->parameters);
    json_put_whole(&json, "seed", start->seed);
    json_put_whole(&json, "steps", start->steps);
    json_put_whole(&json, "seq_len", start->seq_len);
    json_put_whole(&json, "batch_tokens", start->batch_tokens);
    json_put_whole(&json, "grain_tokens", start->micro_batch_tokens);
    json_put_whole(&json, "ranks", start->part->ranks);
    json_put_whole(&json, "nodes", start->part->nodes);
    json_put_whole(&json, "ways", start->part->ways);
    if (start->part->ranks > 1)
        json_put_whole(&json, "zero_stage", start->zero_stage);
    json_put_text(&json, "transport", start->part->transport);
    if (start->rows) {
        json_put_whole(&json, "rows", start->rows);
        json_put_whole(&json, "documents", start->documents);
        json_put_real(&json, "fill", start->fill);
    }
    decision_put(&json, start->decision);
    json_put_known(&json, "predicted_step_s", start->decision->step_s);
    if (start->hbm_free)
        json_put_whole(&json, "hbm_free", start->hbm_free);
    put_plans(&json, &start->plans);
    json_put_known(&json, "predicted_start_up_s", start->predicted_start_up_s);
    json_put_known(&json, "start_up_s", start->start_up_s);
    put_options(&json, start);
    int native = end_line(log, &json, error);
    return native || !log->gap_to ? native : put_gap(log, error);
}

static void put_stats(struct json_writer *json, const struct hst_step_stats *stats)
{
    json_put_object(json, "stall_s");
    json_put_real(json, "nvme", stats->stall_s.nvme);
    json_put_real(json, "copy", stats->stall_s.copy);
    json_put_real(json, "update", stats->stall_s.update);
    json_put_real(json, "net", stats->stall_s.net);
    json_put_end(json);
    json_put_object(json, "bytes");
    json_put_whole(json, "nvme_read", stats->bytes.nvme_read);
    json_put_whole(json, "nvme_write", stats->bytes.nvme_write);
    json_put_whole(json, "h2d", stats->bytes.h2d);
    json_put_whole(json, "d2h", stats->bytes.d2h);
    json_put_whole(json, "net", stats->bytes.net);
    json_put_whole(json, "net_between", stats->bytes.net_between);
    json_put_end(json);
    json_put_object(json, "peak");
    json_put_whole(json, "hbm", stats->peak.hbm);
    json_put_whole(json, "dram", stats->peak.dram);
    json_put_whole(json, "nvme", stats->peak.nvme);
    json_put_end(json);
}

int run_log_step(struct run_log *log, const struct step_report *step, struct hst_error *error)
{
    if (!has_lines(log))
        return 0;
    double seconds = step->stats->seconds;
    struct json_writer json = begin_line(log, "step");
    json_put_whole(&json, "step", step->step);
    json_put_real(&json, "loss", step->loss);
    json_put_real(&json, "grad_norm", step->stats->grad_norm);
    if (step->scaled)
        json_put_real(&json, "loss_scale", step->stats->loss_scale);
    if (step->skips)
        json_put_bool(&json, "skipped", step->stats->skipped);
    json_put_real(&json, "lr", step->lr);
    json_put_whole(&json, "tokens", step->tokens);
    json_put_real(&json, "seconds", seconds);
    json_put_real(&json, "tok_s", (double)step->tokens / seconds);
    put_stats(&json, step->stats);
    json_put_known(&json, "bound_s", step->bound_s);
    json_put_text(&json, "update",
                  step->stats->update_time == HST_UPDATE_OPTIMISTIC ? "optimistic" : "deferred");
    if (step->stats->hbm_free)
        json_put_whole(&json, "hbm_free", step->stats->hbm_free);
    return end_line(log, &json, error);
}

int run_log_commit(struct run_log *log, uint64_t step, struct hst_error *error)
{
    if (!has_lines(log))
        return 0;
    struct json_writer json = begin_line(log, "commit");
    json_put_whole(&json, "step", step);
    return end_line(log, &json, error);
}

int run_log_evaluation(struct run_log *log, const struct evaluation_report *report,
                       struct hst_error *error)
{
    if (!has_lines(log))
        return 0;
    struct json_writer json = begin_line(log, "eval");
    json_put_whole(&json, "step", report->step);
    json_put_real(&json, "loss", report->loss);
    json_put_real(&json, "perplexity", exp(report->loss));
    json_put_whole(&json, "targets", report->targets);
    if (was_found(log))
        return 0;
    json_put_real(&json, "seconds", report->seconds);
    if (report->best_step)
        json_put_whole(&json, "best_step", report->best_step);
    return end_line(log, &json, error);
}

int run_log_sample(struct run_log *log, const struct sample_report *report, struct hst_error *error)
{
    if (!has_lines(log))
        return 0;
    struct json_writer json = begin_line(log, "sample");
    json_put_whole(&json, "step", report->step);
    json_put_whole(&json, "number", report->number);
    json_put_whole(&json, "count", report->count);
    json_put_text(&json, "prompt", report->prompt);
    json_put_text(&json, "text", report->text);
    json_put_whole(&json, "tokens", report->tokens);
    json_put_bool(&json, "ended", report->ended);
    if (report->lost)
        json_put_bool(&json, "nonfinite", true);
    if (was_found(log))
        return 0;
    json_put_real(&json, "seconds", report->seconds);
    return end_line(log, &json, error);
}

int run_log_drain(struct run_log *log, uint64_t bytes, struct hst_error *error)
{
    if (!has_lines(log))
        return 0;
    struct json_writer json = begin_line(log, "drain");
    json_put_whole(&json, "bytes", bytes);
    return end_line(log, &json, error);
}

int run_log_summary(struct run_log *log, const struct run_summary *summary, struct hst_error *error)
{
    if (!has_lines(log))
        return 0;
    struct json_writer json = begin_line(log, "summary");
    json_put_whole(&json, "steps", summary->steps);
    json_put_known(&json, "predicted_step_s", summary->predicted_step_s);
    json_put_real(&json, "measured_step_s", summary->measured_step_s);
    json_put_text(&json, "bound_by", summary->bound_by);
    put_plans(&json, &summary->plans);
    return end_line(log, &json, error);
}

void run_log_close(struct run_log *log)
{
    if (log->file)
        fclose(log->file);
    if (log->line)
        fclose(log->line);
    free(log->text);
    free(log->found);
    log->file = log->line = NULL;
    log->text = log->found = NULL;
    log->found_bytes = 0;
}
