/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_LOG_RUNLOG_H
#define HOISTWAY_TOOLS_CLI_LOG_RUNLOG_H
/*
 * The run log (--log): one JSON object per line, each in the file before the next step begins. What
 * nothing measures or predicts is null. All functions do nothing for a log without a path and
 * without a reader.
 */
#include "base/fail.h"
#include "cli/log/json.h"
#include "cli/message/report.h"

#include <hoistway/predict.h>
#include <stdio.h>

/** Gets each line of a log with its end, once it is in the file, and where there is no file. */
struct run_log_reader {
    void (*take)(void *context, const char *line, size_t bytes); /* null: none */
    void *context;
};

struct run_log {
    const char *path; /* borrowed; null: no log */
    FILE *file;
    struct run_log_reader reader; /* to be set before the log is opened or resumed */
    FILE *line; /* each line is made in memory: the file and the reader get the same bytes */
    char *text;
    size_t text_bytes;
    off_t size_bytes; /* of the whole lines in it */
    bool sync;        /* each line is on the drive before the next step: a store keeps the run */
    char *found; /* its last lines of kind eval and sample, of one step, up to their times */
    size_t found_bytes;
    uint64_t found_step;
    uint64_t gap_from, gap_to; /* steps that the run has made and the log has no line of; 0: none */
};

/* It counts what a library of the device has built for a run's shapes; 0: nothing, not told. */
struct run_plans {
    uint64_t count;
    double seconds;
};

struct run_start {
    const char *model, *data, *store, *device, *precision;
    const char *math; /* of hst_dev_math: what the bits depend on */
    uint64_t began; /* seconds of Unix time */
    uint64_t seed, steps, seq_len, batch_tokens, micro_batch_tokens;
    uint64_t rows; /* that documents were packed into; 0: there are none, and nothing is told */
    uint64_t documents;
    double fill; /* of the rows, from 0 to 1 */
    const struct hst_part *part; /* ranks, and how they are joined */
    uint32_t zero_stage;         /* of several: 0 to 3 */
    const struct hst_memory *memory;
    const struct hst_decision *decision; /* its step_s is told as the prediction */
    uint64_t hbm_free;                   /* of a GPU's memory, bytes; 0: no GPU, and not told */
    struct run_plans plans;
    double start_up_s;           /* from the plan until weights are there */
    double predicted_start_up_s; /* 0: not predicted */
    /* writes the members of "options"; null: none */
    void (*put_options)(struct json_writer *json, const void *context);
    const void *options; /* its context */
};

struct run_summary {
    uint64_t steps;
    double measured_step_s;
    double predicted_step_s; /* 0: not predicted */
    const char *bound_by;    /* null: not predicted */
    struct run_plans plans;
};

/**
 * Refuses a path that cannot be written, and what is there unless it is empty or the log of a run
 * (so that data and models are safe); writes nothing: to be called before a run begins. E107.
 */
int run_log_check(const char *path, struct hst_error *error);
/**
 * Replaces an earlier log, with the same refusals. Each of these returns 0 or negative errno with
 * *error (E107); after a failure the log is closed.
 */
int run_log_open(struct run_log *log, const char *path, struct hst_error *error);
/**
 * Goes on with the log of a run that ended, or begins one: what it says of steps after `step`, and
 * a line that was cut short, are dropped. Where steps up to `step` have no line, as the run went on
 * without the log, run_log_start marks them: {"kind":"gap","from":6,"to":9} behind its own line.
 */
int run_log_resume(struct run_log *log, const char *path, uint64_t step, struct hst_error *error);
int run_log_start(struct run_log *log, const struct run_start *start, struct hst_error *error);
int run_log_step(struct run_log *log, const struct step_report *step, struct hst_error *error);
/** Nothing, where a run that goes on finds a line there that says the same but for its time: with
 * other data than before there are two lines of that step, and the later one is of this run. */
int run_log_evaluation(struct run_log *log, const struct evaluation_report *report,
                       struct hst_error *error);
/** As run_log_evaluation; with other prompts, or more tokens, there are two of a number. */
int run_log_sample(struct run_log *log, const struct sample_report *report,
                   struct hst_error *error);
/** The last step that a log calls committed; 0: none, or no log. */
uint64_t run_log_committed(const char *path);
/** A version of the store that has been made: of that step. */
int run_log_commit(struct run_log *log, uint64_t step, struct hst_error *error);
int run_log_drain(struct run_log *log, uint64_t bytes, struct hst_error *error);
int run_log_summary(struct run_log *log, const struct run_summary *summary,
                    struct hst_error *error);
void run_log_close(struct run_log *log);

#endif
