/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_TRAIN_EXPORT_H
#define HOISTWAY_TOOLS_VERBS_TRAIN_EXPORT_H
/* From the engine to a model directory. */
#include "cli/message/progress.h"
#include "hf/hf.h"
#include "model/llama.h"
#include "verbs/ckpt/export_dtype.h"

#include <signal.h>

struct train_export {
    const char *directory;
    const struct hf_model *source;
    const struct llama *model;
    enum hst_dtype working;               /* of the engine's weights */
    enum hst_dtype dtype;                 /* of the files' */
    const volatile sig_atomic_t *stopped; /* other than 0: give it up; null: none does */
    const struct progress *progress;      /* what is told of write */
    struct hf_export *files;              /* between begin and end */
    uint64_t infinite_count;              /* weights that are infinite in that type */
    char infinite_tensor[128];            /* the first that has some */
    uint64_t written, elements;           /* of write, and of all tensors */
};

/** Refuses what would fail after the training: the target (E430) and the space (E301). */
int train_export_check(const struct train_export *export, struct hst_error *error);
/**
 * Makes the files beside their place, with all the room that they need, where the file system can
 * promise it: before a run trains what it has to have room for. E301, E430.
 */
int train_export_begin(struct train_export *export, struct hst_error *error);
/** Streams weights, or their f32 masters, to the writer, in the order of the engine's tensors. */
typedef int train_save(void *from, bool masters, const struct hst_writer *writer,
                       struct hst_error *error);
/** From a struct hst_engine. Where *error says nothing, the engine's error does. */
int train_export_save_engine(void *from, bool masters, const struct hst_writer *writer,
                             struct hst_error *error);
/**
 * Fills the files of train_export_begin, and moves them to their place; ends the export whether
 * that went well or not. A disk that is full all the same is waited for until export->stopped: W301
 * every 30 s. Where only the sync finds it full, all weights are saved once more. Where *error says
 * nothing, it is in `from`.
 */
int train_export_write(struct train_export *export, train_save *save, void *from,
                       struct hst_error *error);
/** A rank other than 0 makes the engine's part of train_export_write with the others, and writes
 * nothing. The engine's errors. */
int train_export_follow(const struct train_export *export, train_save *save, void *from);
/** Warns where weights are infinite in what was written (W430). */
void train_export_warn(const struct train_export *export);
/** It tells, where what was written is rounded, in one line of stdout how to get the master. */
void train_export_tell_rounded(const struct train_export *export);
/** Removes what was begun and not written; nothing where there is no such thing. */
void train_export_end(struct train_export *export);

#endif
