/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_TRAIN_RUN_H
#define HOISTWAY_TOOLS_VERBS_TRAIN_RUN_H
/* A run of `hoistway train` from its first check to its last line. */
#include "cli/options/device.h"
#include "cli/options/store.h"
#include "cli/forecast.h"
#include "cli/rates_text.h"
#include "cli/loss_watch.h"
#include "cli/schedule_peer.h"
#include "cli/message/progress.h"
#include "cli/log/runlog.h"
#include "cli/log/trace.h"
#include "hf/hf.h"
#include "model/llama.h"
#include "verbs/train/train.h"
#include "verbs/train/eval.h"
#include "verbs/train/export.h"
#include "verbs/train/samples.h"

/* It holds what a run is as one of several ranks. */
struct train_ranks {
    struct hst_launch launch;
    char trace[4096]; /* this rank's own file */
    char store[STORE_TEXT_BYTES]; /* of one process, where its words were filled in */
};

/** Computation is measured in the second step: only then is there something to say. */
#define TRAIN_PREDICTED_AFTER 2
/** The run compares so many steps after that with what was predicted. */
#define TRAIN_AGAIN_STEPS 2

/** Options with which a plan fits that does not fit without them. */
struct train_way_out {
    const char *options; /* "--layers halves" */
    bool halves, by_mpi;
};

struct train {
    const struct train_options *options; /* behind train_settle those of `settled` */
    struct train_options settled;
    struct schedule schedule;
    struct schedule_peer peer; /* in its place, where a configuration has one (kind) */
    struct device_choice device;
    struct hst_error *error;
    struct llama_run run;
    struct hf_model *source;
    struct llama *model;
    struct train_export export;
    struct data *data;
    struct train_evaluation eval;
    struct train_samples samples;
    struct hst_engine *engine;
    struct hst_part part; /* of a step's batch, once the engine is sealed */
    struct {
        bool together; /* steps are under way: ranks stop after the same one */
        bool agreed;   /* they do */
    } stop;
    struct run_log log;
    struct trace trace;
    struct views views;
    bool loaded, told; /* told: what it takes */
    bool store_made;   /* none of the store's directories was there */
    uint64_t loaded_elements;
    uint64_t resumed_bytes; /* as the engine told them last */
    int log_native; /* why the log ended before the run */
    bool views_told; /* that one of them ended before the run */
    struct progress progress;
    struct loss_watch loss_watch;
    uint64_t began, done;  /* steps: those of earlier runs, all that are made */
    uint64_t skipped;      /* of this run's */
    uint64_t skipped_ever; /* of all, those before a resume too */
    struct train_updates {
        uint64_t optimistic; /* steps of this run */
        uint64_t changes;
        uint64_t changed; /* the first step after the last change */
        enum hst_update_time last;
    } updates;
    struct {
        uint64_t start, least; /* bytes; 0: not a GPU's */
    } left;
    uint64_t version_step;    /* of the store's last version; HST_NO_VERSION */
    uint64_t nonfinite_count; /* of the weights that were read */
    char nonfinite_tensor[128];
    struct data_batch batch; /* of one step: one block, whose first part is inputs */
    bool aside; /* a plan beside another one: its engine tells nothing */
    const struct train_way_out *way_out; /* of a plan that does not fit: with this it does; null:
                                            none was found, or tried */
    struct hst_rates rates;     /* what is known of the machine */
    char rates_line[RATES_TEXT_BYTES]; /* those that were planned with; "": none */
    struct train_again {
        double steps_s[TRAIN_AGAIN_STEPS]; /* the first steps after the prediction */
        unsigned count;
        double seconds; /* that measuring again took */
    } again;
    struct hst_start_up start_up; /* as it was predicted */
    double started_s;             /* what it took: of planning and loading so far */
    struct train_result result;
};

/**
 * Opens model and data, and parses all of them that will ever be parsed. Needs no device. Returns 0
 * or negative errno with *t->error.
 */
int train_inputs_open(struct train *t);
/** Opens the data of t->options for a model, of which t->source may be null, and settles what it
 * decides. Returns as train_inputs_open. */
int train_data_open(struct train *t, const struct llama_config *model);
/**
 * Describes the model for t->run, and checks the outputs: all else that can be refused before there
 * is an engine. Writes nothing. Returns as train_inputs_open.
 */
int train_inputs_check(struct train *t);

/** This rank's directories of the store; null: none, or those of several ranks before there is an
 * engine, which knows who is where. */
const char *train_store(const struct train *t);
/** Checks them, once they are known, beside the outputs. Returns as train_inputs_open. */
int train_inputs_check_store(struct train *t);

/** It tells how the data of t->options is opened to be trained on. */
struct data_config train_data_config(const struct train *t, const struct llama_config *model);
/**
 * It settles what of t->options the data decides (sequence length, batch, steps) and t->schedule:
 * t->options then is a copy of its own that has them. Of a plan whose length nobody says there are
 * no steps. Tells how documents became rows. Returns 0, or -EINVAL with *t->error (E402).
 */
int train_settle(struct train *t);

/** It tells what a user should know of config.json, and of a micro-batch that is not as it was
 * wished. */
void train_tell_model(const struct train *t);
void train_tell_micro_batch(const struct train *t);

/** Chooses the device, and the micro-batch, whose default is the device's. Returns 0, or -EINVAL
    *with t->error where the device's precision is none for --state. */
int train_device_choose(struct train *t);
/** Tokens of a micro-batch of such a batch: those that are wished, or the device's. */
uint64_t train_micro_batch(const struct train *t, uint64_t batch_tokens);
/** A model whose home tiers are worth what it takes to measure the machine. */
bool train_is_large(const struct train *t);
/** Somebody sees what is predicted. */
bool train_is_told(const struct train *t);
/** Fills t->rates with those of the store's drives and the link, which a prediction needs beside
 * what steps have measured. anew: not of the last minute. */
void train_rates_measure(struct train *t, bool anew);
/** Predicts a step by t->rates and what steps have measured, or says why not. */
void train_predict(struct train *t);
/** A step has taken so long: measures rates again, once, where the first ones refute them. */
void train_again_step(struct train *t, uint64_t number, double step_s);
/** Fills t->rates, of t->device and t->model. */
void train_rates_find(struct train *t, enum forecast_how how);
/**
 * Makes the engine of t->run, t->model and t->rates, and seals it; *t's memory is what was planned.
 * Of a plan (plan other than TO_TRAIN) that does not fit, too; all 0 where it was refused for
 * another reason. Returns as train_inputs_open.
 */
int train_engine_plan(struct train *t, enum hst_plan plan);
/** *options and *run become those of a way out. */
void train_take_way_out(const struct train_way_out *way, struct train_options *options,
                        struct llama_run *run);
/** Fills t->error with what the engine says of a failure, where that was not done. */
int train_engine_failed(struct train *t, int native, const char *what);
/** "fp32", as the engine has resolved it. */
const char *train_precision_name(const struct train *t);

/** After a line of the log that failed with *t->error: the run goes on without a log. */
void train_keep_going(struct train *t, int native);

/** It makes what is kept with a version, as text. Returns its bytes. */
#define TRAIN_CURSOR_BYTES 1024u
/** Its first line: of the model what its tensors' shapes do not say. Returns its bytes. */
size_t train_model_line(const struct llama_config *config, char text[TRAIN_CURSOR_BYTES]);
/** Its line of layers in halves; none of whole ones. Returns its bytes. */
size_t train_layers_line(bool halves, char *text, size_t bytes);
/** It tells whether a cursor has that line. */
bool train_layers_halved(const void *cursor, size_t bytes);
/** E615 where --layers is not what the store has that is gone on from. */
int train_layers_failed(const struct train_options *options, bool halved, struct hst_error *error);
#define TRAIN_WINDOW_WORD "window "
/** Its line of a window that sequences do not fit into; none else. Returns its bytes. */
size_t train_window_line(const struct llama_config *config, uint64_t seq_len, char *text,
                         size_t bytes);
struct train_line { /* a line of a cursor, without its end */
    const char *line;
    int length;
};
/** Of two lines of a window that differ: why one does not go on from the other; length 0: it has
 * none. E615. */
void train_window_failed(struct train_line was, struct train_line is, uint64_t seq_len,
                         struct hst_error *error);
/** It tells whether the two differ at most in the row of the embedding that is for padding. */
bool train_model_pad_alone(struct train_line was, struct train_line is);
/** Then: why one does not go on from the other. E615. */
void train_model_pad_failed(struct train_line was, struct train_line is,
                            struct hst_error *error);
/** Its line of the data. Returns its bytes. */
size_t train_data_line(const struct data *data, char *text, size_t bytes);
/** Its lines of how documents became rows, of which a pass has so many; none of other data. Returns
 * their bytes. */
size_t train_packing_lines(const struct data *data, char *text, size_t bytes);
/** Its line of the part that is evaluated on and not trained on; none where that is 0. Returns its
 * bytes. */
size_t train_split_line(double share, char *text, size_t bytes);
bool train_is_split_line(const char *line);
/** Then: why one does not go on from the other; is.length 0: this run splits nothing. E615. */
void train_split_failed(struct train_line was, struct train_line is, struct hst_error *error);
/** "split": a --long. */
const char *train_long_name(enum pack_long longer);
/** It tells how full rows are, from 0 to 1. */
double train_fill(const struct data_packing *packing, uint64_t seq_len);
/** It tells whether a line is one of data; whether two of them have the same files in another
 * order. */
bool train_is_data_line(const char *line);
bool train_data_order_alone(struct train_line was, struct train_line is);
/** Then, or where the data is other: why one does not go on from the other. E615. */
void train_data_failed(struct train_line was, struct train_line is, const char *files,
                       struct hst_error *error);
size_t train_cursor(const struct train *t, char text[TRAIN_CURSOR_BYTES]);
/** An hst_config.accept of a struct train: whether this run may go on from one that left this.
 * Where not, its error says why. */
bool train_accepts(void *context, uint64_t step, const void *cursor, size_t cursor_bytes);
/** Goes on from the store. Returns 0; -ENOENT, *t->error untouched, where nothing was committed. */
int train_resume(struct train *t);
/** It warns of a run that begins at step 0 though it was to go on: a path that is misspelt looks
 * like a first start. */
void train_tell_nothing_there(const struct train *t);

/** Prints device and table, once: of a run that goes on, when the store is seen to be its own. */
void train_tell_plan(struct train *t);

/** Opens log, views and trace, and writes what the run begins with. E107. */
int train_log_begin(struct train *t);
/** A run is worth more than its views: that one of them has failed is told, once. */
void train_views_tell(struct train *t);

/** It tells what the device's libraries have built so far. */
struct run_plans train_plans(const struct train *t);

/** They tell what of a GPU's memory is left: when all is loaded, at a step's end, and told at the
 * run's. */
void train_left_begin(struct train *t);
void train_left_step(struct train *t, uint64_t free_bytes);
void train_left_tell(const struct train *t);

/** Memory for what is read of a batch, t->batch. E302. */
int train_batch_reserve(struct train *t);
/** Reads this rank's part of a step's batch. */
int train_batch_read(struct train *t, uint64_t number, struct llama_batch *batch);
/** Of a whole batch in t->batch, whose rows may have a mask: this rank's part, without a number of
 * targets; and how many the first rows have. */
struct llama_batch train_batch_part(const struct train *t);
uint64_t train_batch_targets(const struct train *t, uint64_t rows);

/** It tells whether the user wishes to end it: 0 or -ECANCELED. Of several ranks in their steps:
 * whether they have agreed on that. */
int train_stopped(const struct train *t);
/** It adds this rank's wish to the second sum of the step or evaluation at hand; and takes what all
 * of them have wished. */
int train_stop_vote(const struct train *t);
/** It is that wish, for who has sums of its own to add it to. */
bool train_stop_wish(const struct train *t);
/** "User defined signal 1": what has asked for it. */
const char *train_signal_words(const struct train *t);
void train_stop_count(struct train *t, double wishes);

/**
 * Of a run that a launcher may have started as one of several: finds out, and makes *o the options
 * of this rank. Of one process it fills in the words of --store alone. *ranks lives as long as the
 * run. E107, E402, E501.
 */
int train_ranks_begin(struct train_ranks *ranks, struct train_options *o, struct hst_error *error);
/** Ends all ranks that do not have the same command line and inputs. The engine's errors. */
int train_ranks_compare(struct train *t);
/** Once several ranks are joined, it measures the network between them, where anything is to
 * be predicted, and of a large model the machine, all ranks at once. The engine's errors. */
int train_ranks_measure(struct train *t);
/** Tells how many there are, and how they are joined. */
void train_ranks_tell(const struct train *t);
/** Of several ranks it tells what has failed, and ends all of them; does not return then. Returns
 * native where there is one, or all end together. */
int train_ranks_end(struct train *t, int native);
/**
 * Tells that it was stopped and what the store holds, whatever the run had come to; fills
 * result.resumable. Returns -ECANCELED; or what made the last version fail, with *t->error.
 */
int train_tell_stopped(struct train *t);
/** It is for who sees neither steps nor summary, and where a run has trained nothing. */
void train_warn_skipped(const struct train *t);
/** An hst_config.stopped of a struct train. */
int train_asked_to_stop(void *context);
/** An hst_config.progress of a struct train. */
void train_resumed_bytes(void *context, uint64_t done_bytes, uint64_t total_bytes);

/** The precision of a run, before there is an engine to ask. */
enum hst_precision train_precision(const struct train *t);
/** They are the type of its weights, and the bytes of one. */
enum hst_dtype train_dtype(const struct train *t);
/** Warns where frozen tensors of the model are of a type that bf16 cannot hold. */
void train_warn_rounded(const struct train *t);
uint64_t train_weight_bytes(const struct train *t);

#endif
