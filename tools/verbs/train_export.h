/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_TRAIN_EXPORT_H
#define HOISTWAY_TOOLS_VERBS_TRAIN_EXPORT_H
/* From the engine to a model directory. */
#include "hf/hf.h"
#include "model/llama.h"

#include <signal.h>

struct train_export {
    const char *directory;
    const struct hf_model *source;
    const struct llama *model;
    enum hst_dtype dtype; /* of the engine's weights */
    const volatile sig_atomic_t *stopped; /* other than 0: give it up; or null */
};

/** Refuses what would fail after the training: the target (E430) and the space (E301). */
int train_export_check(const struct train_export *export, struct hst_error *error);
/** Streams weights to the writer, in the order of the engine's tensors. */
typedef int train_save(void *from, const struct hst_writer *writer, struct hst_error *error);
/** Writes the whole directory, or nothing. Where *error says nothing, it is in `from`. */
int train_export_from(const struct train_export *export, train_save *save, void *from,
                      struct hst_error *error);
/** The same from an engine. Where *error says nothing, the engine's error does. */
int train_export_write(const struct train_export *export, struct hst_engine *engine,
                       struct hst_error *error);

#endif
