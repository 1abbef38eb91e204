/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what a line of a run's log says. Lines may be anything: the log of a run that was killed
 * ends anywhere.
 */
#include "views/record.h"

#include <math.h>
#include <string.h>

#define LINE_BYTES 65536u
#define KEYS_MOST  4096u

#define EVALUATION_GROUP "eval" /* its members are the line's own */

const struct measure_name MEASURE_NAMES[MEASURES] = {
    [LOSS] = {NULL, "loss"},
    [GRAD_NORM] = {NULL, "grad_norm"},
    [LR] = {NULL, "lr"},
    [TOKENS] = {NULL, "tokens"},
    [SECONDS] = {NULL, "seconds"},
    [TOK_S] = {NULL, "tok_s"},
    [STALL_NVME] = {"stall_s", "nvme"},
    [STALL_COPY] = {"stall_s", "copy"},
    [STALL_UPDATE] = {"stall_s", "update"},
    [STALL_NET] = {"stall_s", "net"},
    [NVME_READ] = {"bytes", "nvme_read"},
    [NVME_WRITE] = {"bytes", "nvme_write"},
    [H2D] = {"bytes", "h2d"},
    [D2H] = {"bytes", "d2h"},
    [NET] = {"bytes", "net"},
    [NET_BETWEEN] = {"bytes", "net_between"},
    [PEAK_HBM] = {"peak", "hbm"},
    [PEAK_DRAM] = {"peak", "dram"},
    [PEAK_NVME] = {"peak", "nvme"},
    [BOUND_S] = {NULL, "bound_s"},
    [LOSS_SCALE] = {NULL, "loss_scale"},
    [HBM_FREE] = {NULL, "hbm_free"},
    [EVAL_LOSS] = {EVALUATION_GROUP, "loss"},
    [EVAL_PERPLEXITY] = {EVALUATION_GROUP, "perplexity"},
};

static const char *const member_keys[RECORD_MEMBERS] = {
    [KIND] = "kind",
    [MODEL] = "model",
    [DATA] = "data",
    [STORE] = "store",
    [DEVICE] = "device",
    [PRECISION] = "precision",
    [BEGAN] = "began",
    [STEPS] = "steps",
    [BATCH] = "batch_tokens",
    [STEP] = "step",
    [MEASURED_STEP] = "measured_step_s",
    [PREDICTED_STEP] = "predicted_step_s",
    [BOUND_BY] = "bound_by",
    [BEST_STEP] = "best_step",
};

static enum record_kind kind_of(const char *line, struct jsn_value kind)
{
    static const struct {
        const char *name;
        enum record_kind kind;
    } kinds[] = {{"run", RECORD_RUN},
                 {"step", RECORD_STEP},
                 {"eval", RECORD_EVALUATION},
                 {"commit", RECORD_COMMIT},
                 {"summary", RECORD_SUMMARY}};
    if (kind.type != JSN_STRING)
        return RECORD_ODD;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (jsn_equals(line, kind, kinds[i].name))
            return kinds[i].kind;
    return RECORD_OTHER;
}

/* The measures of one group, whose text is `text`, which stands at `begin` of the line. */
static void take_group(struct record *record, const char *group, struct jsn_value object)
{
    const char *keys[MEASURES];
    enum measure which[MEASURES];
    struct jsn_value found[MEASURES];
    size_t n = 0;
    for (enum measure m = 0; m < MEASURES; m++) {
        const char *of = MEASURE_NAMES[m].group;
        if (group == of || (group && of && strcmp(group, of) == 0)) {
            which[n] = m;
            keys[n++] = MEASURE_NAMES[m].key;
        }
    }
    jsn_members(record->line + object.begin, object.end - object.begin, keys, n, found);
    for (size_t i = 0; i < n; i++) {
        found[i].begin += object.begin;
        found[i].end += object.begin;
        record->spans[which[i]] = found[i];
        jsn_get_real(record->line, found[i], &record->values[which[i]]);
    }
}

static struct jsn_value whole_line(size_t bytes)
{
    return (struct jsn_value){.type = JSN_OBJECT, .end = bytes};
}

static void take_measures(struct record *record, size_t bytes)
{
    static const char *const groups[] = {"stall_s", "bytes", "peak"};
    enum { GROUPS = sizeof groups / sizeof *groups };
    struct jsn_value objects[GROUPS];
    take_group(record, NULL, whole_line(bytes));
    jsn_members(record->line, bytes, groups, GROUPS, objects);
    for (size_t i = 0; i < GROUPS; i++)
        if (objects[i].type == JSN_OBJECT)
            take_group(record, groups[i], objects[i]);
}

struct record record_of(const char *line, size_t bytes)
{
    struct record record = {.kind = RECORD_ODD};
    struct jsn_fault fault;
    for (enum measure m = 0; m < MEASURES; m++)
        record.values[m] = NAN;
    if (!line || jsn_check(line, bytes, KEYS_MOST, &fault))
        return record;
    jsn_members(line, bytes, member_keys, RECORD_MEMBERS, record.members);
    record.line = line;
    record.kind = kind_of(line, record.members[KIND]);
    jsn_get_whole(line, record.members[STEP], &record.step);
    if (record.kind == RECORD_STEP)
        take_measures(&record, bytes);
    if (record.kind == RECORD_EVALUATION)
        take_group(&record, EVALUATION_GROUP, whole_line(bytes));
    return record;
}

bool record_measures(const struct record *record)
{
    return record->kind == RECORD_STEP || record->kind == RECORD_EVALUATION;
}

void record_read(FILE *file, record_fn *take, void *context)
{
    static char line[LINE_BYTES];
    bool begun = false; /* a line that is too long */
    while (fgets(line, sizeof line, file)) {
        const size_t n = strlen(line);
        const bool ends = n > 0 && line[n - 1] == '\n';
        if (!begun)
            take(context, ends ? line : NULL, ends ? n : 0);
        begun = !ends;
    }
}
