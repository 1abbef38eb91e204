/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_CONFIG_H
#define HOISTWAY_CONFIG_H
/*
 * An engine is configured by this: struct hst_config and the values of its fields. It is part of
 * <hoistway/hoistway.h>.
 */
#include <hoistway/cpu_adam.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hst_error;

enum hst_log_level { HST_LOG_WARNING = 1, HST_LOG_INFO = 2, HST_LOG_DEBUG = 3 };
typedef void hst_log_fn(void *context, enum hst_log_level level, const char *line);

/**
 * One node of the step graph that was run: a read, a write, a computation, an update. In one lane
 * events follow one another: start_s is when the lane could begin with it, so a lane that is busy
 * all the time has no gaps. Seconds of CLOCK_MONOTONIC; text is valid as long as the engine.
 */
struct hst_trace_event {
    const char *lane; /* "read", "write", "h2d", "d2h", "net", "compute", "update" */
    const char *what; /* "read tile", "forward", … */
    const char *unit; /* its name, "head", "head rows 8192"; null where it belongs to none */
    uint64_t step;    /* in whose window it was run */
    uint32_t tile, tile_count; /* tile_count 0: the whole unit */
    double start_s, end_s;
    double work; /* bytes moved; FLOPs of compute; elements of update */
};
typedef void hst_trace_fn(void *context, const struct hst_trace_event *event);

/* This says whether the loss scale of fp16 doubles and halves, or stays what it was at first. A
   step whose gradients overflow is left out in both. */
enum hst_loss_scaling { HST_LOSS_SCALING_DYNAMIC = 0, HST_LOSS_SCALING_STATIC };

enum hst_precision {
    HST_PRECISION_DEFAULT = 0 /* of the device: fp32 on the host, bf16 on a GPU */,
    HST_PRECISION_FP32 = 1,
    HST_PRECISION_BF16 = 2,
    HST_PRECISION_FP16 = 3 /* with an fp32 master among the states, and a dynamic loss scale */
};
/** The optimizer's moments; bf16 changes the numbers (cpu_adam.h) and goes with weights in bf16. */
enum hst_state {
    HST_STATE_DEFAULT = 0, /* fp32 */
    HST_STATE_FP32 = 1,
    HST_STATE_BF16 = 2,
    HST_STATE_8BIT = 3 /* of AdamW: codes of 8 bits, two scales per 256 elements */
};
/** "fp32", "bf16", "8bit": what --state calls it; of the default "fp32"; null: no such state.
 * Thread-safety: safe. */
const char *hst_state_name(enum hst_state state);
/**
 * When weights are updated that depend on the norm of all gradients (clip, fp16); no bit does.
 *
 * DEFERRED    beside the next forward
 * OPTIMISTIC  beside the backward, as if the norm did not clip; where it does, once more beside the
 *             next forward. It needs a second slot of what it replaces, in memory and on NVMe; NVMe
 *             with versions has these, and then needs durability "step"
 * AUTO        the faster one, where the slots are there or the budgets have room for them; other
 *             homes are taken for it where they win more in a step that does not clip than they
 *             lose in one that does (a twentieth at most); else, or where one step in ten clips,
 *             deferred
 */
enum hst_update_time { HST_UPDATE_AUTO = 0, HST_UPDATE_DEFERRED = 1, HST_UPDATE_OPTIMISTIC = 2 };
/**
 * This is what a backward needs beside checkpoints; no bit depends on it.
 *
 * AUTO       units keep their activations (struct hst_unit_desc.saved_bytes), as many as there is
 *            room for, or is fastest by the machine's rates
 * RECOMPUTE  none does, which takes the least memory
 */
enum hst_activations { HST_ACTIVATIONS_AUTO = 0, HST_ACTIVATIONS_RECOMPUTE = 1 };
/**
 * Whether seal decides and no more. A plan makes and writes nothing; directories of the store need
 * not exist, and without a `store` nvme_bytes says how much drives have. After seal there are the
 * memory table (where nothing fits, of the smallest placement) and a prediction; all else is
 * refused.
 *
 * TO_TRAIN   no plan: the engine is to train
 * HERE       a plan whose budgets are checked against this machine, as for training
 * ELSEWHERE  a plan whose budgets are taken as given
 *
 * With `launch` a plan is of rank 0 of so many, `locals` of them on each node: it joins nobody, and
 * rates are a node's, whose cores and drives its ranks share.
 */
enum hst_plan { HST_PLAN_TO_TRAIN = 0, HST_PLAN_HERE = 1, HST_PLAN_ELSEWHERE = 2 };
/**
 * What of a unit a rank has between its uses, by the stages of ZeRO (arXiv:1910.02054, section 5);
 * no bit depends on it.
 *
 * ZERO_3  its shard of weights, gradients and states
 * ZERO_2  all weights, in DRAM, and its shard of the others: they are gathered once a step
 * ZERO_1  and all gradients, in DRAM, and its shard of states: units are exchanged several at once
 * ZERO_0  all of all: gradients are gathered, each rank updates all, and its store is a replica
 */
enum hst_zero { HST_ZERO_3 = 0, HST_ZERO_2 = 1, HST_ZERO_1 = 2, HST_ZERO_0 = 3 };
/**
 * The type that a way's gradient is rounded to before it is added to the others' (ways.h). INT8 and
 * INT4: what integers of so many bits give back, with a scale to each block of 512 (quantise.h);
 * ranks send those. Of a step of several ways.
 */
enum hst_reduce {
    HST_REDUCE_GRADS = 0, /* the gradients' own */
    HST_REDUCE_F32 = 1,
    HST_REDUCE_INT8 = 2,
    HST_REDUCE_INT4 = 3
};
/** How GPUs of ranks hand each other what they gather and exchange. No bit depends on it. */
enum hst_comm {
    HST_COMM_AUTO = 0, /* NCCL where every rank has a GPU of its own and NCCL, else MPI */
    HST_COMM_NCCL = 1, /* in GPU memory; small sums and what is whole in DRAM go by MPI */
    HST_COMM_MPI = 2,  /* in DRAM, before copies to a GPU and behind those from it */
};
/**
 * What weights travel as when they are gathered (docs/step/ranks.md). INT8: integers of 8 bits with
 * a scale to each block of 512 (quantise.h). All ranks, and one rank by itself, compute with what
 * such integers give back; what is updated stays as exact as without.
 */
enum hst_gather { HST_GATHER_PLAIN = 0, HST_GATHER_INT8 = 1 };
/**
 * What the ranks of a node keep of gathered weights from a forward to its backward, which then
 * needs none from other nodes. NODE: each of L ranks 1/L of every row. No bit depends on it.
 */
enum hst_secondary { HST_SECONDARY_NONE = 0, HST_SECONDARY_NODE = 1 };
enum hst_io { HST_IO_AUTO = 0, HST_IO_URING = 1, HST_IO_THREADS = 2 };

/** A configuration has so many at most, beside the group of all other tensors; a text is so long.
 */
#define HST_GROUPS_MOST 8u
#define HST_GROUP_BYTES 128u

/** An explicit zero where 0 means "the default". */
#define HST_NONE (-1.0)

struct hst_rates;
struct hst_launch;
struct hst_dev_planned; /* <hoistway/kernels.h> */

/**
 * Zero in a field is its default; append only. hst_engine_options describes each option (range,
 * unit, help). Strings are copied.
 * Values of fields that are words:
 *
 * group       "GLOB:lr=0.1x,decay=0": tensors whose names fit GLOB, as fnmatch(3) reads it, have
 *             numbers of their own. lr is a factor of the step's; beta1, beta2, momentum, eps and
 *             decay are in place of those below, and decay is then of all the group's tensors. A
 *             tied tensor has its names' group. A text may have several, with ';' between them
 * freeze      "GLOB": tensors whose names fit it are frozen: they have no gradient, no states and
 *             no second slot, and keep the bytes that were loaded. The backward ends at the first
 *             unit that trains. A tied tensor is frozen by any of its names. All tensors of a unit
 *             are frozen or none of them. A text may have several, with ';' between them
 * train_only  "GLOB": all tensors are frozen but those whose names fit any such glob, and no freeze
 * store       "a,b": one directory on each of at most 8 drives. Tiles go round them by their
 *             measured rates. A directory is created with mode 0700 if it is missing. {rank},
 *             {local} and {node} in it become numbers (hst_store_words)
 * place       homes by class: "states=nvme,weights=dram"
 * durability  how often what was trained becomes a version of the store, from which a run that
 *             ended in whatever way is resumed (hst_engine_resume). hst_engine_drain makes one, too
 *     "step"  after every step
 *     "100"   after so many steps
 *     "none"  never: all of `store` is scratch
 *     "auto"  after every step where weights and states live on NVMe, else so that versions take
 *             1 % of the time at most
 * io_model    for tests and studies: each directory of `store` stands for a drive "sim:…" of
 *             <hoistway/aio.h>, in memory beside the budgets and in virtual time; `io` must be AUTO
 * io_fault    likewise: a plan of faults that every drive runs through, from its opening on
 * ways        a step's batch is cut into so many parts, way w being the w-th of its tokens. Their
 *             gradients are added by one tree that only `ways`, `reduce` and `hop` decide
 *             (<hoistway/ways.h>): the numbers of a run depend on these three and not on how many
 *             ranks share the work. A multiple of the ranks, by a power of two with several ranks;
 *             batch_tokens is a multiple of it, and micro-batches are cut inside ways
 */
struct hst_config {
    size_t size;
    const char *store;       /* see above; null: no NVMe tier */
    const char *place;       /* see above; null: by what the budgets allow */
    uint64_t dram_bytes;     /* 0: 0.9 of the least of free memory, cgroup limit, RLIMIT_AS */
    uint64_t nvme_bytes;     /* 0: 0.9 of what is free in the store's directories */
    uint32_t threads;        /* 0: physical cores that this process may use */
    /* Granule of updates and states, a multiple of 4,096. 0: the store's, else 262,144 (4,194,304
       where a GPU updates and nothing is on drives) */
    uint32_t tile_elements;
    enum hst_io io;
    enum hst_precision precision;
    uint64_t batch_tokens;       /* tokens of a step, those of all ranks; > 0 */
    uint64_t micro_batch_tokens; /* whole sequences; a step's last may be shorter; > 0 */
    /* These, and momentum, are the optimizer's numbers. 0: its default, which docs/options.md
       has (AdamW: 0.9, 0.999, 1e-8 and 0.01); HST_NONE: 0. One that it has not must be 0 */
    double beta1, beta2, eps;
    double weight_decay;         /* of parameters with HST_PARAM_DECAY */
    /* Greatest global gradient norm; 0: 1.0. HST_NONE: no clipping, and the update is part of the
       backward (but for fp16 and skip_nonfinite, which look at all gradients first) */
    double clip;
    hst_log_fn *log;             /* may be null */
    void *log_context;
    struct hst_error *error;     /* says why hst_engine_create failed; may be null */
    const char *device;          /* "host", "cuda", "cuda:1": of hst_dev_open; null: host */
    uint64_t hbm_bytes;          /* 0: hst_dev_usual_bytes of the device; the host has none */
    enum hst_state state;
    hst_trace_fn *trace;         /* called by the engine's calls, in order of end_s; may be null */
    void *trace_context;
    const char *io_model, *io_fault; /* see above; null: none */
    /* fp16 alone, of the first step: 1 to 2^32; 0: 65,536. It doubles after 2,000 finite steps in a
       row; a step that is skipped halves it, to 1 at least */
    double loss_scale;
    const char *durability;      /* see above; null: "auto" */
    enum hst_update_time update_time;
    /* So many copies of versions are kept, the oldest making room (0: none), each of the first
       version at or after a multiple of keep_every steps (0: 1,000). No version follows while one
       is made. Not with an optimistic update */
    uint32_t keep;
    uint64_t keep_every;
    /* A step is skipped whose gradient norm is not finite, or so large that Adam's second moment
       may overflow (HST_GRAD_NORM_MOST), which else ends the run (E701) */
    bool skip_nonfinite;
    /* hst_engine_resume asks of each version that it may go on from, before the store changes,
       whether the client can, given its cursor; null: yes */
    bool (*accept)(void *context, uint64_t step, const void *cursor, size_t cursor_bytes);
    void *accept_context;
    enum hst_plan plan;
    /* This is what was measured of the machine (<hoistway/machine.h>, predict.h), borrowed until
       seal has returned: homes are then the fastest in simulation. Null, or a figure missing: homes
       leave memory in a fixed order. No bit depends on it */
    const struct hst_rates *rates;
    /* Share of the tiles with all their classes in DRAM that a GPU updates, 0 to 1; 0: by `rates`,
       else none; HST_NONE: none */
    double gpu_update;
    enum hst_activations activations;
    /* hst_engine_resume calls it in its thread after every tile: once for what it compares, then
       from 0 again for what it reads into memory; null: nobody asks */
    void (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_context;
    /* Seal asks while it measures drives, load and resume between tiles. Other than 0 ends the call
       with -ECANCELED; the engine can then only be destroyed. Null: no */
    int (*stopped)(void *context);
    void *stopped_context;
    const char *host_math;       /* in the words of struct hst_dev_config; null: by the machine */
    uint64_t load_bytes;         /* that hst_engine_load will read from drives, for predictions */
    bool resumes;                /* hst_engine_resume is to be called; for predictions */
    /* Who this process is among those that train together (hst_launch_read): all of them make the
       same engine and the same calls. Null: it is alone */
    const struct hst_launch *launch;
    uint32_t ways;               /* see above; 1 to 65,536; 0: as many as ranks */
    enum hst_reduce reduce;
    uint32_t hop;                /* sums of so many ways are rounded too, a power of two; 0: 8 */
    double peer_timeout_s;       /* a rank is waited for so long at most; 0: 60 */
    enum hst_zero zero_stage;    /* of several ranks; one rank has all of everything */
    enum hst_optimizer optimizer; /* any but the last of them (cpu_adam.h has their formulas) */
    double momentum;             /* of SGD: one of the optimizer's numbers, see beta1 */
    /* Of a plan: what is simulated has at most so many tiles, larger ones. The fewer they are the
       rougher and faster it is, and its prediction has neither a bound nor what would help. 0:
       2,048 where homes are compared, 16,384 of a prediction */
    uint32_t plan_tiles;
    const char *group[HST_GROUPS_MOST]; /* see above; null from the first on that is not there */
    /* A plan elsewhere is for this GPU, in place of `device`, which is then a name
       alone; of several ranks each has one. Null: `device` is opened. Read by hst_engine_create */
    const struct hst_dev_planned *planned;
    enum hst_loss_scaling loss_scaling; /* of fp16: whether the scale changes, see loss_scale */
    /* Globs of tensors that are not trained, and of those that alone are; see above. Null from the
       first on that is not there */
    const char *freeze[HST_GROUPS_MOST], *train_only[HST_GROUPS_MOST];
    enum hst_comm comm; /* of several ranks with GPUs; a plan's ranks have NCCL */
    enum hst_gather gather; /* a part of the numbers of a run, as `ways` is; with ZERO_3 alone */
    enum hst_secondary secondary; /* with ZERO_3 alone */
};
#define hst_config(...) (&(const struct hst_config){.size = sizeof(struct hst_config), __VA_ARGS__})

#ifdef __cplusplus
}
#endif

#endif
