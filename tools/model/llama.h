/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_LLAMA_H
#define HOISTWAY_TOOLS_LLAMA_H
/*
 * LlamaForCausalLM and its kin as a client of the engine: describes its units, and runs one
 * training step over them. Uses the public headers alone.
 */
#include "hf/config/llama_config.h"

#include <hoistway/hoistway.h>
#include <hoistway/machine.h>

struct llama;
struct hst_shape; /* <hoistway/plan.h> */

struct llama_run {
    uint64_t seq_len;            /* T, tokens */
    uint64_t batch_tokens;       /* tokens of a step, of all ranks; a multiple of T·ways */
    uint64_t micro_batch_tokens; /* tokens of a micro-batch: see llama_micro_batch_tokens */
    uint32_t ways, ranks;        /* of the engine (config.h, hst_engine_part); 0: 1 */
    bool halves;                 /* a layer is two units, attention and MLP, in place of one */
    bool documents;              /* a sequence is several, each by itself: see llama_batch */
    /* what they cost is that of documents of one length, so many tokens (llama_document_tokens);
       0: of whole sequences. It decides what is predicted, and nothing that is computed */
    uint64_t document_tokens;
    bool evaluates_other;        /* of llama_evaluate it is the other of the two */
};

/** Tokens of documents of one length that fill `tokens` of rows, and in which as many pairs of
 * tokens see each other, rounded; at least 1. Pure. */
uint64_t llama_document_tokens(double pairs, double tokens);

/* Tokens of a micro-batch where the user wishes none: enough for full speed. */
#define LLAMA_MICRO_BATCH_HOST 2048u
#define LLAMA_MICRO_BATCH_GPU  8192u
/** Tokens of a micro-batch: T·max(1, ⌊wish/T⌋), at most those of a way. */
uint64_t llama_micro_batch_tokens(uint64_t wish, uint64_t seq_len, uint64_t way_tokens);

struct llama_tensor {
    const char *name;
    uint32_t dim_count;
    uint64_t dims[2];
    uint64_t count; /* elements */
};
/**
 * The i-th stored tensor (tied ones once), in the engine's order; null beyond the last. Owned by
 * the model.
 */
const struct llama_tensor *llama_tensor(const struct llama *model, size_t i);

/** It makes the config of a model that is known by name: its sizes, and no limit of positions. */
struct llama_config llama_config_of(const struct hst_shape *shape);

/**
 * Describes the model; touches no engine. E413 where sizes overflow, E402 where the run does not
 * suit the model.
 */
int llama_create(const struct llama_config *config, const struct llama_run *run,
                 struct llama **model, struct hst_error *error);
void llama_destroy(struct llama **model);
/** Adds all units and the hidden state to an engine that is not sealed. */
int llama_add_units(struct llama *model, struct hst_engine *engine);
/** FLOPs of one step's forward and backward without recomputation: 6·N·B + attention. */
double llama_step_flops(const struct llama *model);
/** What it was created with. Owned by the model. */
const struct llama_config *llama_model_config(const struct llama *model);
uint64_t llama_parameter_count(const struct llama *model);
/** The GEMMs of a step's micro-batch with weights of this dtype, to be measured. Returns how
 * many. */
uint32_t llama_gemms(const struct llama *model, enum hst_dtype dtype,
                        struct hst_gemm gemms[HST_GEMMS_MAX]);
/** A step's micro-batch computes this beside them, in the same proportion. */
struct llama_operations {
    struct hst_operation list[HST_OPERATIONS_MAX];
    uint32_t count;
    /* theirs */
    const struct llama *model;
    enum hst_dtype dtype;
    struct llama_attention_kind {
        const struct llama_operations *of;
        size_t window;
    } kinds[2];
    char text[HST_OPERATIONS_MAX][HST_OPERATION_TEXT_MAX + 1];
};
/** Stays where it is while they are in use, as does the model. */
void llama_operations(const struct llama *model, enum hst_dtype dtype,
                      struct llama_operations *operations);

struct llama_init {
    uint64_t seed;
    const char *name; /* of the tensor */
    uint64_t offset;  /* of the first element */
};
/**
 * Elements of a tensor under --init random: normal(0, initializer_range), norms 1, biases and the
 * embedding's row for padding 0; a counter-based generator keyed by seed, name, element.
 */
void llama_init_random(const struct llama_config *config, const struct llama_init *init, float *dst,
                       size_t count);

/**
 * This rank's part of a step's tokens (hst_engine_part), sequence after sequence: u32[tokens] each.
 * With one rank it is all of them.
 *
 * inputs    ids below the vocabulary
 * targets   the ids that are to be told, or HST_NO_TARGET where nothing is learned. At least one of
 *           a step is a target: who makes batches refuses a step that has none, and names the rows
 * first     place in its own sequence of the first token that a token sees: 0 … its own place, not
 *           falling in a sequence. Documents lie one after another; padding sees itself alone
 * position  of a token in its document, below seq_len
 *
 * first and position come with llama_run.documents, and are null without: then each sequence is one
 * document, of which a token sees all that is before it.
 */
struct llama_batch {
    const uint32_t *inputs, *targets;
    const uint32_t *first, *position;
    uint64_t target_count; /* of all ranks; 0: those that are here, of one rank */
};

/**
 * One training step after seal and load: begin, forward sweep, backward sweep (the head computes
 * loss and gradient at once), end. *loss: mean over the step's targets, in nats, of all ranks; the
 * gradient is its, so that each target of the step counts the same, whichever micro-batch it is in.
 * Allocates nothing after the first call. -EINVAL: a batch without a target, or one that has or
 * lacks first and position where the run does not; nothing has begun.
 */
int llama_step(struct llama *model, struct hst_engine *engine, const struct hst_step_in *in,
               const struct llama_batch *batch, double *loss, struct hst_step_stats *stats);
/**
 * Its two halves, for who adds to the step's second sum (hst_sum_add) what is known when all is
 * computed. The first sum is the model's: losses, those of a micro-batch as one value.
 */
int llama_step_compute(struct llama *model, struct hst_engine *engine, const struct hst_step_in *in,
                       const struct llama_batch *batch);
int llama_step_end(const struct llama *model, struct hst_engine *engine, double *loss,
                   struct hst_step_stats *stats);

struct llama_evaluation {
    uint64_t target_count; /* of all ranks */
    double loss_sum;       /* of these targets, in nats */
    double second_sum;     /* of what the caller has added to it (hst_sum_add) since the last one */
};

/**
 * The losses of the first `tokens` tokens of a batch, after load and between steps: one forward
 * sweep (HST_EVAL), which changes nothing that a step depends on. A target's loss has the bits that
 * a step would give it, whatever stands behind it. All ranks make the call.
 *
 * batch   ids that the model has, also behind `tokens`: those up to the end of a micro-batch are
 *         computed and not counted, so that every shape is a step's
 * tokens  of this rank's part: whole sequences; 0: none of them are here, nothing is read
 * found   the losses of a micro-batch are added in order, and those of all ranks without an error
 *
 * Errors: the engine's and the device's; -EINVAL: first and position, as of a step; *found is then
 * untouched. Allocates nothing after the first call or step.
 * Cost: a third of a step's GEMMs, less where a layer computes itself again.
 */
int llama_evaluate(struct llama *model, struct hst_engine *engine, const struct llama_batch *batch,
                   uint64_t tokens, struct llama_evaluation *found);

struct llama_choice {
    uint64_t token; /* its place in this rank's part of the batch */
    uint32_t id;    /* found: the likeliest one behind it; of several the least */
    float logit;    /* of that id; -INFINITY: no id has a number above that, and `id` is none */
};

/**
 * The ids that the model finds likeliest behind these tokens, after load and between steps: one
 * sweep as llama_evaluate makes it, over the batch up to the last of them.
 *
 * batch    this rank's part, as of a step of this run, of ids that the model has up to the end of a
 *          micro-batch; its targets do not matter
 * choices  count of them, each token in the part; unspecified after an error. Of several ranks all
 *          make the call, also those that ask for none
 *
 * Errors: as llama_evaluate.
 * Cost: that of llama_evaluate, but for chunks of logits in which no token is asked for.
 */
int llama_choose(struct llama *model, struct hst_engine *engine, const struct llama_batch *batch,
                 struct llama_choice *choices, size_t count);
#endif
