/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_TRAIN_TRAIN_H
#define HOISTWAY_TOOLS_VERBS_TRAIN_TRAIN_H
/* Training as a function, so that other verbs can train too. */
#include "base/fail.h"
#include "cli/options/options.h"
#include "cli/schedule.h"
#include "data/data.h"
#include "hf/hf.h"
#include "verbs/ckpt/export_dtype.h"
#include "views/views.h"

#include <hoistway/predict.h>
#include <hoistway/ranks.h>
#include <signal.h>

enum train_init { TRAIN_INIT_MODEL = 0, TRAIN_INIT_RANDOM = 1 };
/* The default is whole, or what the store has that a run goes on from. */
enum train_layers { TRAIN_LAYERS_DEFAULT, TRAIN_LAYERS_WHOLE, TRAIN_LAYERS_HALVES };

struct train_options {
    struct hst_config engine; /* micro_batch_tokens 0: the default; device null: a GPU if there is
                                 one */
    const char *model, *data;
    const char *config; /* a DeepSpeed configuration; null: none */
    bool explain_config, print_options;
    const char *options_path; /* --options; null: none */
    struct train_options_file *from_options; /* what it holds; null: none. train_config_close */
    struct train_config *from_file; /* what it was made into; null: none. train_config_close */
    enum data_format data_format;
    enum token_dtype token_dtype;
    enum data_order order;
    enum data_pack pack;   /* 0: on */
    enum pack_long longer; /* 0: by what the data is */
    enum train_init init;
    enum train_layers layers;
    enum schedule_shape schedule;
    uint64_t steps; /* 0: epochs says it */
    double epochs;  /* 0: steps says it */
    uint64_t seq_len, seed;
    /* they were not given, and data that has less makes them less */
    bool default_seq_len, default_batch;
    bool store_ways; /* engine.ways are those of the store that is gone on from */
    double lr, lr_end;
    struct hst_share warmup, decay;
    const char *eval;  /* files; null: eval_split of the data, or no evaluation */
    double eval_split; /* 0: none */
    struct hst_share eval_every;
    bool keep_best;
    uint64_t patience; /* 0: the run makes all its steps */
    uint64_t samples;  /* prompts that are answered; 0: none */
    uint64_t sample_tokens; /* new ones of each, at most; 0: TRAIN_SAMPLE_TOKENS */
    const char *export_directory, *log, *trace;
    struct views_paths views;
    enum export_choice export_dtype;
    bool quiet, resume, allow_config_change, allow_other_tokenizer;
    struct hst_launch_flags launch; /* --world, --rank, --rendezvous */
    /* the command line behind the verb, which all ranks have alike; null where it is one process */
    char *const *arguments;
    int argument_count;
    bool passing; /* what it writes is removed after it: where that is is not told */
    const volatile sig_atomic_t *stopped; /* other than 0: end after the step at hand; or null */
};

#define TRAIN_MOST_STEPS 1e12
#define TRAIN_MOST_SAMPLES  1000000.0
#define TRAIN_SAMPLE_TOKENS 64u

/** The defaults that stand in the help, but for those that train_options_complete fills. */
void train_options_init(struct train_options *options);
/** Fills --batch-tokens and --seq-len where they were not given (0), and keeps that in mind. May be
 * called once more, when engine.launch is known. */
void train_options_complete(struct train_options *options);
/** Ways of a batch: those that were given, else as many as ranks. */
uint32_t train_options_ways(const struct train_options *options);
/** Ranks that train together. */
uint32_t train_options_ranks(const struct train_options *options);
/** True of a rank other than the first, which neither tells nor logs. */
bool train_options_other(const struct train_options *options);
/**
 * Reads the command line of train into options that hold the defaults; prints the help if asked
 * for.
 */
int train_options_parse(struct train_options *options, int argc, char *const *argv, bool *help,
                        struct hst_error *error);
/** Its option tables with their targets in *options. Returns how many. */
size_t train_options_sets(struct train_options *options, struct cli_set sets[CLI_MAX_SETS]);
/** It stands in plan's help, too: both print that table. */
#define SEE_TABLE "docs/plan.md, \"How to read the table\", explains the words of the answer."
/** It returns those of its options that plan takes as well; their target is a struct
 * train_options. */
const struct hst_option *train_options_common(size_t *count);
/** The others of its own, which plan does not take. They have no target. */
extern const struct cli_verb train_options_own;
/**
 * Refuses values that contradict each other (E402), as far as can be told without the data; budgets
 * are the engine's to refuse.
 */
int train_options_check(const struct train_options *options, struct hst_error *error);
/** Checks what it writes: no two are one file, and none is in another's directory. */
int train_options_check_outputs(const struct train_options *options, struct hst_error *error);
#define TRAIN_NEAR_BYTES 64u
/** "80 or 120": the multiples of `unit` next to a batch that is none. Returns text. */
const char *train_batch_near(uint64_t batch, uint64_t unit, char text[TRAIN_NEAR_BYTES]);
/** " in each of 4 ways"; "" of one. Returns text. */
const char *train_ways_words(uint32_t ways, char text[TRAIN_NEAR_BYTES]);
/** Refuses ways that ranks cannot share, and what several ranks cannot do. E402, E501. */
int train_options_check_ranks(const struct train_options *options, struct hst_error *error);
/** Refuses a batch that is no whole sequences in each way (E402). */
int train_options_check_batch(const struct train_options *options, struct hst_error *error);
/** The schedule of options->steps, which is not 0. E402 where its parts have no room in them. */
int train_options_schedule(const struct train_options *options, struct schedule *schedule,
                           struct hst_error *error);

/**
 * It tells whether the weights have the tensors that the model needs, by its config: names, shapes,
 * types (E415). Needs no device. hf_model_unused then says what is left over.
 */
int train_weights_check(struct hf_model *source, struct hst_error *error);

struct train_result {
    struct hst_memory memory;
    struct hst_group groups[HST_GROUPS_MOST];
    uint32_t group_count;
    struct hst_frozen frozen;
    double first_loss, last_loss;
    double seconds;
    double step_s;                    /* mean, the first step left out where there are others */
    struct hst_prediction prediction; /* made after the second step; step_s 0: none */
    bool resumable;                   /* it was stopped, and the same line and --resume goes on */
};

/**
 * A whole run: checks all inputs, plans, loads, trains, drains, exports, and prints notes and step
 * lines to stderr, the tier table and the summary to stdout (quiet: errors and warnings alone).
 * Nothing is written before everything that can be refused was checked. Returns 0 or negative errno
 * with *error; -ECANCELED, told on stderr, where options->stopped ended it (result->resumable).
 * result may be null.
 */
int train_run(const struct train_options *options, struct train_result *result,
              struct hst_error *error);

#endif
