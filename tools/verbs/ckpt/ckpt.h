/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_CKPT_CKPT_H
#define HOISTWAY_TOOLS_VERBS_CKPT_CKPT_H
/* Between the files of `hoistway ckpt`, and `inspect`, which shows a store as `ckpt list` does. */
#include "cli/options/options.h"
#include "cli/message/progress.h"
#include "cli/stop.h"

#include <hoistway/ckpt.h>

#define CKPT_STORE_BYTES 8192u

/** Joins operands to what --store would be told, "a,b". E402 where they are too long. */
int ckpt_store(const struct cli_operands *operands, char store[CKPT_STORE_BYTES],
               struct hst_error *error);

/**
 * Prints what a store holds. A version that is damaged has a row that says so. Text has at most so
 * many rows, of the last version and the newest kept ones. Errors, with *error: those of
 * hst_ckpt_open, of the first that cannot be opened.
 */
int ckpt_list(const char *store, bool json, size_t rows_most, struct hst_error *error);

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
