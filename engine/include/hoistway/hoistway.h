/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_HOISTWAY_H
#define HOISTWAY_HOISTWAY_H
/*
 * The engine: trains a model whose weights, gradients, optimizer states and activation checkpoints
 * do not fit where they are used. The caller brings a model as units (a transformer layer, the
 * embedding, the head), says in which order they run, and asks for each unit just before it
 * computes with it; the engine keeps the bytes in DRAM or in files, brings them in time, and
 * updates the weights.
 *
 * One step, seen from the caller (engine/README.md tells the other side):
 *
 *   hst_step_begin(e, &in, &step)
 *   for unit in 0..L-1:   hst_unit_acquire(e, unit, HST_FORWARD, stream, &view)
 *                         for micro in 0..step.micro_count-1:
 *                             hst_act_acquire(...), compute, hst_act_release(...)
 *                         hst_unit_release(e, unit)
 *   for unit in L-1..0:   hst_unit_acquire(e, unit, HST_BACKWARD, stream, &view)
 *                         for micro: recompute, backward, add to view.param[i].grad
 *                         hst_unit_grad_ready(e, unit), hst_unit_release(e, unit)
 *   hst_step_end(e, &stats)
 *
 * Where units say that their forward may be recomputed (HST_UNIT_RECOMPUTE) or that they may be
 * cut (slices), hst_engine_visits lists the visits of a step, in which some units may be visited a
 * second time before their backward, or slice by slice.
 *
 * Exactness: for a given precision, micro-batch and input the trained weights are the same bytes
 * for every placement, budget, thread count and I/O backend. (A budget of a GPU's memory may decide
 * whether cuDNN makes the backward of long sequences; hst_dev_math says so.)
 *
 * Errors: 0 or negative errno; outputs are written on success only. The first fatal error of an
 * engine is sticky: every later call returns it, and hst_engine_error tells what happened.
 * Thread-safety: an engine belongs to one thread at a time; different engines are independent. The
 * library prints nothing and never exits; hst_config.log receives its lines.
 */
#include <hoistway/config.h>
#include <hoistway/error.h>
#include <hoistway/kernels.h>
#include <hoistway/options.h>
#include <hoistway/units.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HST_VERSION_MAJOR 0
#define HST_VERSION_MINOR 1
#define HST_VERSION_PATCH 0
/** The version of the library that runs, as "0.1.0". */
const char *hst_version(void);

struct hst_engine;

/**
 * It tells what hst_engine_create would refuse of the directories of a store that keeps versions,
 * between commas. It makes and changes nothing, and waits for nobody. begins: a committed version
 * there is refused too (E616), as hst_engine_load does, and so are kept copies. error: why; may be
 * null. Errors: E105, E402, E610, E612, E613, E616, E617.
 */
int hst_store_check(const char *store, bool begins, struct hst_error *error);

/** This is who of several ranks a store's directories are for; one process has 0 for each. */
struct hst_store_place {
    uint32_t rank;  /* in the world */
    uint32_t local; /* in its node */
    uint32_t node;
};
/**
 * Fills in the directories of a store: {rank}, {local} and {node} become the numbers of `place`.
 * hst_engine_create does so; hst_store_check and what opens a store without an engine do not.
 * dst: is written; null: the text is checked alone. error: why; may be null. Returns how many such
 * words there are. Errors (E402): -EINVAL another word in braces, -ENAMETOOLONG dst is too small.
 * Pure.
 */
int hst_store_words(const char *store, const struct hst_store_place *place, char *dst,
                    size_t dst_bytes, struct hst_error *error);
/**
 * Returns the ways that the last version of a store was trained with (hst_config.ways), as the
 * files of any rank say that are found by `store`; 0: there are none, or none can be read. Words of
 * `store` mean whatever numbers are found; `place` has those of words that are not in the first
 * directory. Changes nothing, waits for nobody.
 */
uint32_t hst_store_ways(const char *store, const struct hst_store_place *place);

/**
 * Creates an engine: opens the device and the workers, makes the store directory; reads no model
 * yet. The I/O backend is opened by seal, where anything lives on NVMe.
 * Errors: -EINVAL (also for a field that this version does not know), -ENOMEM, and those of the
 * store directory; config->error says which.
 * Ownership: the configuration and its strings are copied (error and the contexts are borrowed).
 */
int hst_engine_create(const struct hst_config *config, struct hst_engine **engine);
/**
 * Waits for all work, removes every scratch file, frees everything, sets *engine to null. Null is
 * accepted. Also the way out of a step whose computation failed on the client's side.
 * A process that did not create the engine, a forked child, only forgets it: nothing is waited for,
 * written or freed, and the parent's goes on.
 */
void hst_engine_destroy(struct hst_engine **engine);
/** The sticky error; code 0 where there is none. Valid as long as the engine. */
const struct hst_error *hst_engine_error(const struct hst_engine *engine);
/**
 * For a client whose own operation on the engine's device failed with `native`: makes that the
 * engine's sticky error, in the device's own words (E202, E203), where there is none yet.
 * what: "the step". Returns the sticky error.
 */
int hst_engine_device_failed(struct hst_engine *engine, int native, const char *what);
/** The device, and the stream that the engine computes on; both owned by the engine. */
struct hst_dev *hst_engine_device(struct hst_engine *engine);
struct hst_stream *hst_engine_stream(struct hst_engine *engine);
/** The precision in use (never DEFAULT) and the dtype of weights and activations under it. */
enum hst_precision hst_engine_precision(const struct hst_engine *engine);
enum hst_dtype hst_engine_dtype(const struct hst_engine *engine);
/** The directories of the store as this rank has them, between commas; null: none. The engine's. */
const char *hst_engine_store(const struct hst_engine *engine);

/* ---- units ----------------------------------------------------------------------------------- */

/* <hoistway/units.h> says what a unit is. */

/**
 * Adds a unit; units run in the order in which they are added. *unit is its index.
 * Errors: -EINVAL (duplicate name, zero dimension, more than 2^40 elements, unknown or mismatched
 * alias; sticky, with a message: nothing can be planned from a part of a model), -EBUSY after seal.
 */
int hst_unit_add(struct hst_engine *engine, const struct hst_unit_desc *desc, uint32_t *unit);

/**
 * Bytes per token of the hidden state, the activation that passes from unit to unit (and again of
 * its gradient). Before seal.
 */
int hst_hidden_set(struct hst_engine *engine, uint64_t bytes_per_token);

/**
 * Memory of the client's own for as long as the engine lives: constants, inputs, results. Bytes on
 * the device, and bytes of page-locked host memory that copies run from and to at full speed. Part
 * of the memory table (BUFFERS). Before seal; a later call replaces an earlier one.
 */
int hst_client_memory_set(struct hst_engine *engine, uint64_t device_bytes, uint64_t host_bytes);
struct hst_client_memory {
    void *device; /* device memory, aligned to 4 KiB; null where none was asked for */
    void *host;
    uint64_t device_bytes, host_bytes;
};
/** After seal. Owned by the engine; contents undefined until written. */
int hst_client_memory(struct hst_engine *engine, struct hst_client_memory *memory);

enum hst_order { HST_ORDER_FORWARD = 1 /* forward in the order of adding, backward in reverse */ };

/**
 * Fixes layout and placement, allocates everything; nothing grows afterwards.
 * Errors: -ENOSPC no placement fits the budgets (the error's message names the smallest that would;
 * nothing was allocated), -ENOMEM, -EINVAL contradictory placement, I/O errors of the store
 * directory, and -ECANCELED where hst_config.stopped ended it.
 */
int hst_engine_seal(struct hst_engine *engine, enum hst_order order);

/* ---- what was planned: the memory table ------------------------------------------------------ */

enum hst_class {
    HST_CLASS_WEIGHTS = 0,
    HST_CLASS_GRADS,
    HST_CLASS_STATES,
    HST_CLASS_ACTS,
    HST_CLASS_HIDDEN,
    HST_CLASS_BUFFERS,
    HST_CLASS_COUNT
};
enum hst_tier { HST_TIER_HBM = 0, HST_TIER_DRAM, HST_TIER_NVME, HST_TIER_COUNT };
const char *hst_class_name(enum hst_class c);
const char *hst_tier_name(enum hst_tier t);

struct hst_memory {
    /* BUFFERS: reservations, buffer pools, gradient accumulators, workspace */
    uint64_t bytes[HST_CLASS_COUNT][HST_TIER_COUNT];
    uint64_t total[HST_TIER_COUNT];
    uint64_t budget[HST_TIER_COUNT];
    uint64_t parameters; /* elements, tied ones once */
    uint64_t tile_elements;
    uint32_t threads;
    /* "uring", "threads", "sim", or "none": what carries NVMe traffic; in a plan "auto", too;
       static text */
    const char *io;
    /* This is what a budget may be, because no more is free here; 0: not known, and in a plan for
       another machine */
    uint64_t most[HST_TIER_COUNT];
    /* "nccl" or "mpi": by what GPUs of several ranks hand each other what they gather and exchange;
       null: there is one rank, or the host computes; static text */
    const char *comm;
};
/** After seal, in a plan also of one that did not fit. */
int hst_engine_memory(const struct hst_engine *engine, struct hst_memory *memory);

/* ---- loading and saving ---------------------------------------------------------------------- */

struct hst_param_ref {
    uint32_t unit, param;
    const char *name;
    uint32_t dim_count;
    const uint64_t *dims;
};

/** Initial values come from here: it is called in order of unit, parameter and offset, once for
 * each element. */
struct hst_reader {
    /** Fills dst f32[count] with elements [offset, offset + count) of a parameter. Returns 0 or
     * negative errno, which ends the load. */
    int (*read)(void *context, const struct hst_param_ref *param, uint64_t offset, float *dst,
                size_t count);
    void *context;
    /* the version of step 0 has it, as later ones have that of their step; may be null */
    const void *cursor;
    size_t cursor_bytes;
};
/**
 * Streams all parameters in (aliases are not asked for), zeroes the optimizer states; at most one
 * tile is held. After seal. Where versions are kept the store is made here, and holds them as its
 * first. Errors: the reader's; -EINVAL a cursor longer than a step's; -EEXIST a store with a
 * version is there (E616: hst_engine_resume); -EPERM others can enter its directory (E610); I/O
 * errors; -ECANCELED (hst_config.stopped).
 */
int hst_engine_load(struct hst_engine *engine, const struct hst_reader *reader);

/**
 * It stands in the place of hst_engine_load: weights, states, step and loss scale are those of the
 * last version of the store, and training goes on as if it had not ended. What is at home in memory
 * is read; after anything but an orderly end all bytes are, and compared. Where the store is of
 * other ranks than these, its last version becomes one of theirs, in its place.
 *
 * step           the last one that is part of the weights
 * cursor         that step's, cut to `capacity` bytes; may be null
 * cursor_bytes   of the whole
 *
 * Errors: -ENOENT no version was ever committed (not sticky: load then); -EINVAL another model or
 * configuration than this one (the message names what), or hst_config.accept said no; those of a
 * store that cannot be used (E610 to E617), of which none has changed it; -EIO and the like;
 * -ECANCELED where hst_config.stopped ended it.
 */
int hst_engine_resume(struct hst_engine *engine, uint64_t *step, void *cursor, size_t capacity,
                      size_t *cursor_bytes);

struct hst_writer {
    /**
     * Takes elements [offset, offset + count) of a parameter; dtype: the working one, or HST_F32
     * where masters are saved. Returns 0 or negative errno.
     */
    int (*write)(void *context, const struct hst_param_ref *param, uint64_t offset, const void *src,
                 size_t count, enum hst_dtype dtype);
    void *context;
};
/**
 * Streams the current working weights out in order of unit, parameter and offset, aliases left out;
 * at most one tile is held. Between steps.
 */
int hst_engine_save(struct hst_engine *engine, const struct hst_writer *writer);
/**
 * The same of the exact f32 masters, which the working weights are rounded from: the writer takes
 * HST_F32 whatever the precision. In fp32 they are the working weights.
 */
int hst_engine_save_masters(struct hst_engine *engine, const struct hst_writer *writer);
/** It says whether hst_engine_save_kept has a copy of this step to save, as far as this rank can
 * tell: a copy of a store of another number of ranks is none. */
bool hst_engine_has_kept(const struct hst_engine *engine, uint64_t step);
/**
 * The same of a copy that was kept beside the store (--keep, hst_engine_keep), of the version of
 * `step`: its working weights or, with `masters`, those. Of several ranks all make the call, each
 * reads its own files, and rank 0's writer is called.
 * Errors: -ENOENT there is no such copy (E617); -EINVAL, -EBADMSG, -EIO it is none of this run's,
 * or damaged (E612, E614); the system's; the transport's (sticky).
 */
int hst_engine_save_kept(struct hst_engine *engine, uint64_t step, bool masters,
                         const struct hst_writer *writer);

/* ---- a step ---------------------------------------------------------------------------------- */

struct hst_step_in {
    size_t size; /* sizeof(struct hst_step_in) */
    double lr;
    /* opaque, where the client stands after this step: kept with its version, given back by
       hst_engine_resume; may be null */
    const void *cursor;
    size_t cursor_bytes; /* at most 32 KiB */
};

struct hst_step {
    uint64_t number;      /* 1 is the first */
    uint32_t micro_count; /* micro-batches; all of micro_batch_tokens but the last */
    float loss_scale;     /* multiply the loss's gradient by it (1 in fp32 and bf16) */
};
int hst_step_begin(struct hst_engine *engine, const struct hst_step_in *in, struct hst_step *step);

/** A rank's part of the tokens of every step: its ways, one after another. */
struct hst_part {
    uint32_t rank, ranks, node, nodes;
    uint32_t ways;                 /* of all ranks */
    uint64_t first_token, tokens;  /* of the step's batch_tokens */
    uint32_t micro_count;          /* micro-batches that it is cut into */
    const char *transport;         /* "self", "Open MPI v4.1.4"; the engine's */
    uint32_t locals;               /* ranks of this one's node, itself among them */
};
/** Errors: -EINVAL before seal. */
int hst_engine_part(const struct hst_engine *engine, struct hst_part *part);

/** Micro-batch `micro` of the part: all have micro_batch_tokens, but the last of each way. */
struct hst_micro {
    uint64_t first_token, tokens; /* counted from the part's first */
};
/** Errors: -EINVAL before seal, or there is no such micro-batch. */
int hst_engine_micro(const struct hst_engine *engine, uint32_t micro, struct hst_micro *found);

/**
 * Exact sums over all ranks, of whatever the client counts: losses, targets, a wish to stop. Values
 * are added without an error and rounded once at the end, so that no order and no number of ranks
 * can be seen in them. Those of a step are in its stats; others are agreed on between steps.
 *
 * sum  below HST_SUMS
 *
 * Errors: -EINVAL.
 */
enum { HST_SUMS = 2 };
int hst_sum_add(struct hst_engine *engine, uint32_t sum, double value);
/**
 * This is what was added since the last step or call of this, over all ranks, which all must make
 * it. Errors: -EINVAL in a step; the transport's (sticky).
 */
int hst_sum_agree(struct hst_engine *engine, double sums[HST_SUMS]);
/**
 * values[i] ← the sum of all ranks' values[i], modulo 2^64: of ids, of votes. All must make the
 * call, with as many. Between steps.
 *
 * count  at most 2^20
 *
 * Errors: -EINVAL in a step, or too many; the transport's (sticky).
 */
int hst_engine_sum(struct hst_engine *engine, int64_t *values, size_t count);
/**
 * Waits until the device has computed all that was enqueued for the units of the step, and reads
 * and writes go on meanwhile: what the client has computed may then be added to the step's sums.
 * Between the last unit's release and hst_step_end; nobody need call it.
 * Errors: -EINVAL where units are left, or one is acquired; sticky ones.
 */
int hst_step_computed(struct hst_engine *engine);

enum hst_sweep {
    HST_FORWARD = 1,
    HST_BACKWARD = 2,
    HST_EVAL = 3,
    /* In a step, before the unit's backward, where hst_engine_visits lists it: the forward once
       more, on the hidden state as it was then. */
    HST_RECOMPUTE = 4
};

struct hst_visit {
    uint32_t unit;
    enum hst_sweep sweep;
};
/**
 * The visits of a training step in the sealed order: the forward of all units but those with
 * HST_UNIT_NO_FORWARD, then backwards in reverse; of units with HST_UNIT_RECOMPUTE some may have a
 * recompute; a unit that is cut has a forward and a backward of each slice. What each visit does
 * with the unit's checkpoint its view says. The hidden state a recompute leaves is the next one's,
 * or the checkpoint of the backward that follows: nobody else uses it between the first recompute
 * of a row of them and that backward, and what the forward left there is gone after the first.
 *
 * Owned by the engine. Errors: -EINVAL before seal, or of a plan.   Thread-safety: as all.
 */
int hst_engine_visits(const struct hst_engine *engine, const struct hst_visit **visits,
                      size_t *count);

/* A unit's parameters, but aliases and what aliases stand for, lie in one buffer in their order,
 * and their gradients in another: how far apart two of them are is the same at every visit. */
struct hst_param_view {
    /* dtype[dims], of a slice its rows; read-only, on the device, aligned to 128 bytes, as grad */
    void *data;
    /* f32[dims] in HST_BACKWARD, which the caller adds to; else, and where it is frozen, null */
    float *grad;
    bool fresh; /* grad is not to be added to, but written (HST_UNIT_WRITES_GRADS) */
};
struct hst_unit_view {
    const struct hst_param_view *param; /* [param_count], aliases too */
    uint32_t param_count;
    /* the unit's work_bytes, 4 KiB aligned: the caller's alone until the release, contents
       undefined when it is acquired */
    struct hst_work work;
    /*
     * It says what this visit does with the unit's checkpoint: HST_WRITE, HST_READ or 0: nothing. A
     * forward writes it (HST_WRITE) where it is kept, a backward reads it. A recompute that reads
     * it begins with hidden state := checkpoint; one that writes it begins with checkpoint :=
     * hidden state. Evaluations: 0.
     */
    unsigned checkpoint;
    /* They are the rows of the unit's matrix that `param` has, all of them where a unit with blocks
       is not cut. Of units without blocks they are 0. */
    uint64_t first_row, rows;
    /* slices.token_bytes for all tokens of a step, 4 KiB aligned, are here where it is cut; else
     * null. */
    struct hst_work kept;
    /* It has, where the unit is given it, saved_bytes for each micro-batch of a step, one behind
       another, the first one 4 KiB aligned. A backward finds there what the forward of its step has
       left; null elsewhere and in evaluations. It is the same in both sweeps of a step. */
    struct hst_work saved;
    /* In HST_BACKWARD: all units before it are frozen and have none, so nobody reads the gradient
     * of its input. The caller may leave it out. */
    bool first_backward;
};

/**
 * Makes a unit's weights ready for work enqueued on `stream` after this call. Units are acquired in
 * the sealed order, one at a time (HST_FORWARD of a unit may be left out: a head that computes its
 * loss in the backward). HST_EVAL: outside a step, a forward without gradients. *view is valid
 * until the unit's release. Blocks while the bytes are on their way. A stream of the client's lives
 * until the step has ended, an evaluation's until the release.
 * Where checkpoints are recomputed a step has the visits of hst_engine_visits and no others,
 * but for forwards that are left out. A unit that is cut is acquired once for each slice, in an
 * evaluation too: the call is about the next one.
 * Errors: -EINVAL out of order, not released, outside a step; -EIO and the like from the store.
 */
int hst_unit_acquire(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep,
                     struct hst_stream *stream, const struct hst_unit_view **view);
/** All work on the unit has been enqueued. */
int hst_unit_release(struct hst_engine *engine, uint32_t unit);
/**
 * The unit's own gradients are complete on its stream: they are rounded and sent to their home.
 * Tied ones follow after their last user.
 */
int hst_unit_grad_ready(struct hst_engine *engine, uint32_t unit);

enum hst_act_kind {
    /* per unit and micro-batch: what the forward keeps for the backward; act_bytes_per_token of the
       unit. Where it is recomputed: only with the access that the view says, and in a backward
       it may be the hidden state itself */
    HST_CHECKPOINT = 1,
    /* per micro-batch, shared by all units: the activation that passes on, updated in place */
    HST_HIDDEN = 2,
    HST_HIDDEN_GRAD = 3, /* the same for its gradient */
};
enum hst_access { HST_READ = 1u << 0, HST_WRITE = 1u << 1 };

struct hst_act {
    void *data; /* on the device */
    uint64_t size_bytes;
    uint64_t tokens; /* of this micro-batch */
};
/**
 * A buffer ready for work on `stream`; release it when that work has been enqueued. `unit` must be
 * acquired. Where a rank has several ways, a backward takes micro-batches in their order: the first
 * one of a way ends the way before. In a backward each grad and fresh are those of `micro`.
 */
int hst_act_acquire(struct hst_engine *engine, uint32_t unit, uint32_t micro,
                    enum hst_act_kind kind, unsigned access, struct hst_stream *stream,
                    struct hst_act *act);
int hst_act_release(struct hst_engine *engine, uint32_t unit, uint32_t micro,
                    enum hst_act_kind kind);

struct hst_step_bytes {
    uint64_t nvme_read, nvme_write, h2d, d2h;
    uint64_t net;         /* of others' elements, that this rank has taken in or read in place */
    uint64_t net_between; /* the part of it from other nodes */
};

struct hst_step_stats {
    uint64_t step;
    double grad_norm; /* before clipping, the loss scale divided out */
    /* since the end of the step before; the first, and one behind an evaluation: since its begin */
    double seconds;
    /* seconds in which the caller waited for each */
    struct {
        double nvme, copy, update, net;
    } stall_s;
    struct hst_step_bytes bytes; /* in the window in which they moved */
    struct {
        uint64_t hbm, dram, nvme;
    } peak; /* bytes */
    /* fp16, and with skip_nonfinite: the gradient norm was not finite (grad_norm neither), or after
       clipping so large that v might overflow: weights and states stay as they were, and Adam does
       not count the step */
    bool skipped;
    double loss_scale;                /* of this step; 1 but in fp16 */
    uint64_t skipped_steps;           /* ever, those before a resume too */
    enum hst_update_time update_time; /* deferred or optimistic; deferred without a clip, too */
    bool redone; /* the update was optimistic and the norm clipped: it is made once more */
    /* bytes of the GPU's memory that no process holds, at the end of the first four steps and of
       every 32nd: libraries load code there when it is first called; else, and on the host, 0 */
    uint64_t hbm_free;
    double sums[HST_SUMS]; /* of hst_sum_add, over all ranks */
};
/**
 * Norm, clip, update of every tile. Afterwards the step is part of the weights. The loss scale is
 * divided out in the update. In fp16 and with skip_nonfinite a step whose gradient norm is not
 * finite, or after clipping beyond HST_GRAD_NORM_MOST of cpu_adam.h, is skipped, which is no error:
 * 0 with stats->skipped; in fp16 the next step has half the loss scale.
 * Errors: -EOVERFLOW the gradient norm is such a one (E701; in fp16 at a loss scale of 1), and
 * skip_nonfinite is not set: the error is sticky, the store's last version is as it was.
 */
int hst_step_end(struct hst_engine *engine, struct hst_step_stats *stats);
/**
 * Waits until everything that was begun is finished and written, and, where versions are kept, is
 * one. stats (may be null): seconds, stalls and bytes since the end of the last step, which no
 * step's numbers contain. Of several ranks all make the call, and meet in it.
 * Errors: -EINVAL in a step, or while an evaluation has a unit acquired.
 */
int hst_engine_drain(struct hst_engine *engine, struct hst_step_stats *stats);

/**
 * Refuses to go on where ranks do not say the same of something that must be alike: options, data.
 * All must make the call. Between hst_engine_create and destroy, outside of steps.
 *
 * what, text  "--lr", "1e-05": less than 200 bytes each, one line
 *
 * Errors: -EINVAL (sticky, E503: the first rank that differs, and both values); the transport's.
 */
int hst_engine_same(struct hst_engine *engine, const char *what, const char *text);

/**
 * Waits until all ranks want to end: for an hour, as one may still write what all have trained, and
 * hst_config.peer_timeout_s for one that gives no sign of life. All must make the call, and
 * hst_engine_destroy alone may follow. That does the same, and cannot tell of a rank that does
 * not come. Returns at once where there is one rank.
 *
 * Errors: -EPIPE (sticky, E504) a rank has not come; the transport's.
 */
int hst_engine_leave(struct hst_engine *engine);

/**
 * Ends all ranks, and with them this process, with that exit status: for an error that the others
 * cannot know of. Returns where there is one rank. After an error of a rank's engine others may
 * wait for it: this, or the end of the process, is the way out.
 */
void hst_engine_abort(struct hst_engine *engine, int status);

#define HST_NO_VERSION UINT64_MAX
/**
 * Drains, and keeps a copy of the version that is then the last one beside the store, as --keep
 * does, until the caller names another instead: waits until it is there. hst_ckpt_open finds it by
 * its step. A copy of that step which is there already is left. Of several ranks all make the call:
 * a copy is on all of them or on none.
 *
 * instead_of   the step of a copy that goes, when the new one is there, or before where there is no
 *              room for both; HST_NO_VERSION: of none
 *
 * Errors: -EINVAL in a step, no versions are made, hst_config.keep is not 0; and sticky, with the
 * last version as it was: those of hst_engine_drain, -ENOSPC (E301), the system's.
 */
int hst_engine_keep(struct hst_engine *engine, uint64_t instead_of);
/**
 * The step of the last version that the store is known to hold: no kill and no power cut loses it.
 * HST_NO_VERSION where there is none, none is kept, or nothing is loaded yet. After an error too;
 * what was being written then may be in the store as well.
 */
uint64_t hst_engine_version(const struct hst_engine *engine);

/**
 * Why io_uring is not used on this machine, and one fix: "io_uring is blocked (EPERM at
 * io_uring_setup) by a sandbox; …". One line, cut to text_bytes (256 hold each).
 *
 * error, step   what hst_aio_info says in uring_error and uring_step; step may be null
 *
 * Errors: none.   Ownership: borrows all, keeps none.   Thread-safety: safe.
 */
void hst_io_reason(int error, const char *step, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
