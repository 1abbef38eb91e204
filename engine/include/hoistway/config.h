/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_CONFIG_H
#define HOISTWAY_CONFIG_H
/*
 * An engine is configured by this: struct hst_config and the values of its fields. It is part of
 * <hoistway/hoistway.h>.
 */
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

enum hst_precision {
    HST_PRECISION_DEFAULT = 0 /* of the device: fp32 on the host, bf16 on a GPU */,
    HST_PRECISION_FP32 = 1,
    HST_PRECISION_BF16 = 2,
    HST_PRECISION_FP16 = 3 /* with an fp32 master among the states, and a dynamic loss scale */
};
/** The optimizer's moments; bf16 changes the numbers (cpu_adam.h) and goes with weights in bf16. */
enum hst_state { HST_STATE_DEFAULT = 0 /* fp32 */, HST_STATE_FP32 = 1, HST_STATE_BF16 = 2 };
/**
 * When weights are updated that depend on the norm of all gradients (clip, fp16); no bit does.
 * DEFERRED: beside the next forward. OPTIMISTIC: beside the backward, as if the norm did not clip,
 * and where it does once more, beside the next forward, which may have a share from the start; it
 * needs a second slot of what it replaces: weights and states twice, in memory and on NVMe, but for
 * NVMe with versions, where it needs durability "step". AUTO: the faster one, both are tried, where
 * those slots are: versions of every step have them, else with a GPU alone and if the budgets have
 * room beside the homes that are fastest without, or for other homes that by the machine's rates
 * win more in a step that does not clip than they lose in one that does, which is a twentieth at
 * most; else, or where one step in ten clips, deferred.
 */
enum hst_update_time { HST_UPDATE_AUTO = 0, HST_UPDATE_DEFERRED = 1, HST_UPDATE_OPTIMISTIC = 2 };
/**
 * It says what a backward needs beside checkpoints; no bit depends on it. AUTO: units keep their
 * activations from the forward (struct hst_unit_desc.saved_bytes), as many as there is room for or
 * is fastest by the machine's rates. RECOMPUTE: none does, which takes the least memory.
 */
enum hst_activations { HST_ACTIVATIONS_AUTO = 0, HST_ACTIVATIONS_RECOMPUTE = 1 };
/**
 * It says whether seal decides and no more. Then nothing is made or written, directories of the
 * store need not exist, and without a `store` nvme_bytes says how much drives have. After seal
 * there are the memory table, also of what does not fit (that of the smallest placement), and a
 * prediction; all else is refused. HERE: budgets are checked against this machine, as for training.
 * ELSEWHERE: they are taken as given.
 */
enum hst_plan { HST_PLAN_TO_TRAIN = 0, HST_PLAN_HERE = 1, HST_PLAN_ELSEWHERE = 2 };
enum hst_io { HST_IO_AUTO = 0, HST_IO_URING = 1, HST_IO_THREADS = 2 };

/** An explicit zero where 0 means "the default". */
#define HST_NONE (-1.0)

struct hst_rates;

/**
 * Zero in a field is its default; append only. hst_engine_options describes each (range, unit,
 * help).
 */
struct hst_config {
    size_t size;
    /* directories for what lives on NVMe, one on each drive, between commas, at most 8: tiles go
       round them, by their measured rates; created 0700 if missing, made so if empty; null: no
       NVMe tier */
    const char *store;
    /* homes, "states=nvme,weights=dram"; null: by what the budgets allow */
    const char *place;
    /* budget; 0: 0.9 of the least of free memory, cgroup limit, RLIMIT_AS */
    uint64_t dram_bytes;
    uint64_t nvme_bytes; /* budget; 0: 0.9 of what is free in the store directory */
    uint32_t threads;    /* 0: physical cores this process may use */
    /* granule of update and state I/O, a multiple of 4,096; 0: as in the store that is there, else
       262,144 (4,194,304 where a GPU updates and none are on drives) */
    uint32_t tile_elements;
    enum hst_io io;
    enum hst_precision precision;
    uint64_t batch_tokens; /* tokens of a step; > 0 */
    /* tokens of a micro-batch, whole sequences; the last of a step may be shorter; > 0 */
    uint64_t micro_batch_tokens;
    double beta1, beta2; /* 0: 0.9, 0.999; HST_NONE: 0 */
    double eps;          /* 0: 1e-8 */
    /* 0: 0.01; HST_NONE: none. Applies to parameters flagged HST_PARAM_DECAY */
    double weight_decay;
    /* greatest global gradient norm; 0: 1.0; HST_NONE: no clipping, and the update is part of the
       backward (not in fp16 and with skip_nonfinite: all gradients are looked at first) */
    double clip;
    hst_log_fn *log; /* may be null */
    void *log_context;
    struct hst_error *error; /* where hst_engine_create says why it failed; may be null */
    const char *device;      /* "host", "cuda", "cuda:1": a name of hst_dev_open; null: host */
    uint64_t hbm_bytes;      /* budget; 0: hst_dev_usual_bytes of the device; the host has none */
    enum hst_state state;
    hst_trace_fn *trace; /* called by the engine's calls, in order of end_s; may be null */
    void *trace_context;
    /*
     * For tests and studies; the command line has neither. In the words of <hoistway/aio.h>:
     * io_model    a model "sim:…": each directory of `store` stands for a drive of this kind in
     *             memory, beside the budgets, in virtual time; `io` must be HST_IO_AUTO
     * io_fault    a plan of faults, which every drive runs through by itself, from its opening on
     * Null: none. Both are copied.
     */
    const char *io_model, *io_fault;
    /*
     * fp16: the loss scale of the first step, 1 to 2^32; 0: 65,536. It is doubled after 2,000
     * steps in a row whose gradients were finite, and halved, not below 1, by one that is skipped.
     * Other precisions have none, and refuse it.
     */
    double loss_scale;
    /*
     * With a `store`: how often what was trained becomes a version of it, which a run that ended,
     * however that was, is resumed from (hst_engine_resume). "step": after every step; "100": every
     * so many; "none": nothing is kept, all of `store` is scratch; null or "auto": after every step
     * where weights and states live on NVMe, else so that it takes 1 % of the time at most. Between
     * steps hst_engine_drain makes one, too. Copied.
     */
    const char *durability;
    enum hst_update_time update_time;
    /*
     * Copies of versions that are kept in the store's directories, the oldest removed for the next
     * (0: none), and from how many steps to how many: of the first version at or after each
     * multiple (0: 1,000). While one is made, by the file system where it can share bytes, no
     * version follows. Not with an update that is optimistic.
     */
    uint32_t keep;
    uint64_t keep_every;
    /*
     * A step whose gradient norm is not finite, or after clipping so large that Adam's v may
     * overflow (HST_GRAD_NORM_MOST in cpu_adam.h), is skipped in every precision, as in fp16, where
     * else it ends the run (E701). No update is then made in the backward that cannot be taken
     * back, whatever `clip` says. A run may be resumed with or without it.
     */
    bool skip_nonfinite;
    /*
     * Asked by hst_engine_resume, before anything of the store is changed, of each version after
     * step 0 that it may go on from: whether the client can, given that step's cursor. Null: yes.
     */
    bool (*accept)(void *context, uint64_t step, const void *cursor, size_t cursor_bytes);
    void *accept_context;
    enum hst_plan plan;
    /*
     * It is what was measured of the machine (<hoistway/machine.h>), in the figures that a
     * prediction needs (<hoistway/predict.h>); it is borrowed until seal has returned. Homes are
     * then those whose step is fastest in simulation, within the same budgets and `place`; no bit
     * depends on it. A plan shares tiles by its drives' rates, where there are several. Null, or a
     * figure missing: homes leave memory in a fixed order.
     */
    const struct hst_rates *rates;
    /* Share of the tiles with weights, gradients and states in DRAM that a GPU updates beside its
       computations, to it and back, 0 to 1; 0: by `rates`, else none; HST_NONE: none */
    double gpu_update;
    enum hst_activations activations;
    /*
     * Called by hst_engine_resume, in its thread, after every tile: while it reads and compares
     * every byte of a version, which takes as long as reading it; then, counted from 0 again, while
     * it reads what is at home in memory. Either may be left out. Null: nobody asks. `stopped` ends
     * the call. (What hst_engine_load and hst_engine_save have come to, their reader and writer
     * see.)
     */
    void (*progress)(void *context, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_context;
    /* Asked by seal while it measures drives, by load and resume between tiles, those that resume
       compares too. Other than 0 ends the call with -ECANCELED, not sticky; the engine can then
       only be destroyed. Null: no. */
    int (*stopped)(void *context);
    void *stopped_context;
    const char *host_math; /* core of OpenBLAS, see struct hst_dev_config; null: its own choice */
    /* The reader of hst_engine_load is to read this from drives, for hst_engine_start_up and a note
       where starting takes long; 0: nothing, as of random weights */
    uint64_t load_bytes;
    bool resumes; /* hst_engine_resume is to be called; told for the same two alone */
};
#define hst_config(...) (&(const struct hst_config){.size = sizeof(struct hst_config), __VA_ARGS__})

#ifdef __cplusplus
}
#endif

#endif
