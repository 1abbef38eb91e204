/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_CKPT_CKPT_H
#define HOISTWAY_TOOLS_VERBS_CKPT_CKPT_H
/* Between the files of `hoistway ckpt`, and `inspect`, which shows a store as `ckpt list` does. */
#include "cli/options/options.h"
#include "cli/message/progress.h"
#include "cli/stop.h"

#include <hoistway/ckpt.h>
#include <hoistway/ranks.h>

#define CKPT_STORE_BYTES 8192u

/** Joins operands to what --store would be told, "a,b". E402 where they are too long. */
int ckpt_store(const struct cli_operands *operands, char store[CKPT_STORE_BYTES],
               struct hst_error *error);

/** It refuses, for one process, words that are ranks' numbers. E402. */
int ckpt_store_alone(const char *store, struct hst_error *error);

/* The store that a verb reads (source.c). */
struct ckpt_source {
    char store[CKPT_STORE_BYTES];
    struct hst_launch launch;
    struct hst_ckpt_ranks *ranks; /* null: one process */
    const volatile sig_atomic_t *stopped;
};
/**
 * Finds out who reads it, and joins the others; what they print goes nowhere but on rank 0. work:
 * what is asked, which must be the same for all. Errors: E402, E501 to E504, E507, E613, E617. To
 * be closed after an error too.
 */
int ckpt_source_open(struct ckpt_source *source, const struct cli_operands *operands,
                     const char *work, struct hst_error *error);
/** step: of a copy; HST_NO_VERSION: the last version. As hst_ckpt_open. Where it is to be held,
 * W614 tells of a version that is not the newest. */
int ckpt_source_version(const struct ckpt_source *source, uint64_t step, bool hold,
                        struct hst_ckpt **ckpt, struct hst_error *error);
/** The same, held: a copy of that step, or the last version where it is of that step, too. */
int ckpt_source_step(const struct ckpt_source *source, uint64_t step, struct hst_ckpt **ckpt,
                     struct hst_error *error);
/** Another replica's version, which is held: one of those that ckpt_source_replicas has told last.
 * As hst_ckpt_open. */
int ckpt_source_replica(const struct ckpt_source *source, uint64_t step, uint32_t number,
                        struct hst_ckpt **ckpt, struct hst_error *error);
/** As hst_ckpt_replicas. Errors: the transport's. */
int ckpt_source_replicas(const struct ckpt_source *source, uint64_t step, uint32_t *numbers,
                         size_t capacity, size_t *count, struct hst_error *error);
/** As hst_ckpt_kept. Errors: the transport's. */
int ckpt_source_kept(const struct ckpt_source *source, uint64_t *steps, size_t capacity,
                     size_t *count, struct hst_error *error);
/** As hst_ckpt_ranks_copies: the same, and those that rank 0 lacks. Errors: the transport's,
 * -ENOMEM. */
int ckpt_source_copies(const struct ckpt_source *source, uint64_t *steps, size_t capacity,
                       size_t *count, struct hst_error *error);
/** With this error what comes next may be begun: it is one process's, or all of them have it. */
bool ckpt_source_goes_on(const struct ckpt_source *source, int native, struct hst_error *error);
/** Tells an error once, by whom it is of; returns its exit code. goes_on: what
 * ckpt_source_goes_on has said of it, which fills *error. */
int ckpt_source_fail(const struct ckpt_source *source, bool goes_on, const struct hst_error *error);
/** Leaves the others, or ends them with `code` where this one does not go on with them. Returns
 * the exit code. */
int ckpt_source_close(struct ckpt_source *source, bool goes_on, int code);

/**
 * Prints what a store holds. A version that is damaged has a row that says so. Text has at most so
 * many rows, of the last version and the newest kept ones. *goes_on: as of ckpt_source_goes_on,
 * whatever was opened after an error. Errors, with *error: those of hst_ckpt_open, of the first
 * that cannot be opened.
 */
int ckpt_list(const struct ckpt_source *source, bool json, size_t rows_most, bool *goes_on,
              struct hst_error *error);

/* Bytes on their way, told on stderr. */
struct ckpt_progress {
    struct progress progress;
    const volatile sig_atomic_t *stopped;
};
/** From then on a signal ends what is watched: what it was to make is removed (cli/stop.h). */
void ckpt_progress_begin(struct ckpt_progress *progress, const char *what, bool quiet);
/** A progress of struct hst_ckpt_watch. */
int ckpt_progress_show(void *context, uint64_t done_bytes, uint64_t total_bytes);
/** The same where something else tells how far it has come: ends what is watched, no more. */
int ckpt_progress_stopped(void *context, uint64_t done_bytes, uint64_t total_bytes);

/* A model directory, as a store's handle needs it. */
struct ckpt_model {
    struct hf_model *source;
    struct llama *llama;
    struct hst_engine *engine;
};
/**
 * Reads config.json and tells the store its tensors. To be closed after the store, also after an
 * error. E412 to E414, E615.
 */
int ckpt_model_open(const char *directory, struct hst_ckpt *ckpt, struct ckpt_model *model,
                    struct hst_error *error);
void ckpt_model_close(struct ckpt_model *model);

int ckpt_verb_verify(int argc, char **argv);
int ckpt_verb_export(int argc, char **argv);
int ckpt_verb_reshard(int argc, char **argv);

#endif
