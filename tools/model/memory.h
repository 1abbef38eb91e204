/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_MODEL_MEMORY_H
#define HOISTWAY_TOOLS_MODEL_MEMORY_H
/*
 * The model keeps this on the device for the engine's life, beside its units: the rotary constants,
 * and a rank's part of one step's batch and losses, so that a step needs one copy of each. The same
 * layout on the host, page-locked, which they are copied from and to.
 */
#include "model/model.h"

/** Asks the engine for the memory; before seal. */
int llama_memory_ask(struct llama *model, struct hst_engine *engine);
/** Takes it and enqueues the upload of the constants; after seal, once. */
int llama_memory_take(struct llama *model, struct hst_engine *engine);
/** Enqueues the upload of a step's batch. The stream must have passed the step before. */
int llama_memory_batch(struct llama *model, struct hst_stream *stream,
                       const struct llama_batch *batch);
/** Losses that there is room for: llama_part_tokens, of few more. */
size_t llama_memory_loss_count(const struct llama *model);
/** Enqueues the download of a step's losses. */
int llama_memory_losses(struct llama *model, struct hst_stream *stream);
#endif
