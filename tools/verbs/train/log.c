/* SPDX-License-Identifier: Apache-2.0 */
/* This file begins the log of a run, and the views that are made of it. */
#include "cli/message/message.h"
#include "verbs/train/options_file.h"
#include "verbs/train/run.h"

#include <string.h>
#include <sys/stat.h>
#include <time.h>

static bool is_regular(const char *path)
{
    struct stat st;
    return path && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* The log and what is made of it. What an earlier run has told is a part of both. */
static int open_log(struct train *t)
{
    const struct train_options *o = t->options;
    int native = views_open(&t->views, &o->views, t->error);
    if (native)
        return native;
    if (o->views.csv || o->views.tfevents || o->views.html)
        t->log.reader = (struct run_log_reader){views_take, &t->views};
    native = t->began > 0 ? run_log_resume(&t->log, o->log, t->began, t->error)
                          : run_log_open(&t->log, o->log, t->error);
    if (!native && t->began > 0 && t->log.reader.take && is_regular(o->log))
        native = views_read(&t->views, o->log, t->error);
    t->views.live = true;
    return native;
}

/* The decisions of data, device and ranks stand there as if it had been given. */
static void put_options(struct json_writer *json, const void *context)
{
    const struct train *t = context;
    struct train_options o = *t->options;
    o.epochs = 0; /* which o.steps are */
    o.engine.device = t->device.name;
    o.engine.precision = train_precision(t);
    o.engine.micro_batch_tokens = t->run.micro_batch_tokens;
    o.engine.ways = t->part.ways;
    train_options_put(json, &o, &t->peer);
}

int train_log_begin(struct train *t)
{
    const struct train_options *o = t->options;
    struct hst_decision decision = {0};
    (void)hst_engine_decision(t->engine, &decision); /* sealed */
    train_left_begin(t);
    int native = open_log(t);
    char math[HST_DEV_MATH_BYTES];
    hst_dev_math(hst_engine_device(t->engine), math, sizeof math);
    const struct data_packing *packing = data_packing(t->data);
    const struct run_start start = {
        .began = (uint64_t)time(NULL),
        .model = o->model,
        .data = o->data,
        .store = o->engine.store,
        .device = t->device.name,
        .math = math,
        .precision = train_precision_name(t),
        .seed = o->seed,
        .steps = o->steps,
        .seq_len = o->seq_len,
        .batch_tokens = t->run.batch_tokens,
        .micro_batch_tokens = t->run.micro_batch_tokens,
        .part = &t->part,
        .zero_stage = HST_ZERO_0 - o->engine.zero_stage,
        .rows = packing ? packing->row_count : 0,
        .documents = packing ? packing->document_count : 0,
        .fill = packing ? train_fill(packing, o->seq_len) : 0,
        .memory = &t->result.memory,
        .decision = &decision,
        .hbm_free = t->left.start,
        .plans = train_plans(t),
        .start_up_s = t->started_s,
        .predicted_start_up_s = t->start_up.why[0] ? 0 : t->start_up.seconds,
        .put_options = put_options,
        .options = t,
    };
    t->log.sync = !o->engine.durability || strcmp(o->engine.durability, "none") != 0;
    native = native ? native : run_log_start(&t->log, &start, t->error);
    if (!native)
        views_show(&t->views);
    if (!native && t->views.native)
        native = views_close(&t->views, t->error);
    const uint32_t pid = t->part.ranks > 1 ? o->engine.launch->rank : 1; /* as in its file's name */
    return native ? native : trace_open(&t->trace, o->trace, pid, t->error);
}

void train_views_tell(struct train *t)
{
    if (!t->views.native || t->views_told)
        return;
    t->views_told = true;
    cli_warn(CLI_WRITE, "%s The run goes on without it.", t->views.error.message);
}
