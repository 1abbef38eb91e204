/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_STATE_H
#define HOISTWAY_ENGINE_STATE_H
/* This header says what an engine holds. A comment names the file that a part is chiefly of. What
   the executor holds is its own (exec/executor.h). */
#include "base/loss_scale.h"
#include "base/precision.h"
#include "base/report.h"
#include "ckpt/keep.h"
#include "comm/comm.h"
#include "comm/exact.h"
#include "exec/executor.h"
#include "machine/workers.h"
#include "plan/layout/ways.h"
#include "plan/placement/placement.h"
#include "plan/search/planner.h"
#include "plan/search/update_choice.h"
#include "session/store/share_map.h"
#include "tier/extent.h"

#include <assert.h>
#include <hoistway/aio.h>
#include <hoistway/cpu_adam.h>
#include <hoistway/hoistway.h>
#include <sys/types.h>

/* A directory of --store and what runs in it (store/store_dir.c). */
struct drive {
    char *path;   /* null: of a plan that has no directory to look at */
    char *parent; /* where a plan would have it made; null: it is there */
    bool created; /* the directory is ours to remove when it is empty */
    dev_t file_system;
    struct hst_aio *aio;       /* of scratch; null until it is needed */
    struct hst_aio *store_aio; /* of the store, likewise */
    struct hst_aio_info info;
};

/* The client's cursor, at most. */
#define VERSIONS_CURSOR_BYTES (32u * 1024u)

/* Versions of the store (store/versions.c). */
struct versions {
    struct store *store; /* owned by the engine's extents; null: nothing is kept */
    uint64_t every;      /* steps from one to the next; 0: not chosen yet */
    uint64_t step;       /* of the last one */
    uint64_t making;     /* of the one that is being made */
    uint64_t first_step; /* where this run began */
    struct keep *keep;   /* copies of versions; null: none are kept */
    uint64_t kept_from;  /* the step of the last one, or where this run began */
    const char *keep_paths[STRIPE_DRIVES_MAX];
    struct keep_ranks keep_ranks; /* of several ranks */
    char math[HST_DEV_MATH_BYTES]; /* of the version that was resumed; "": it says nothing */
    double save_s; /* what it took to move the bytes that are at home in memory */
    /* It says where training stands after the last step; where it stood when each of the step
       windows that may be open began, whose version that step window makes; of the step at hand its
       cursor alone. */
    struct version_note {
        uint64_t step, updates;
        struct loss_scale scale;
        unsigned char *cursor;
        uint32_t cursor_bytes;
    } last, of_step_window[SCHEDULER_WINDOWS], next;
    unsigned char *cursors; /* what those point into */
};

/* Files of a store that this process finds (store/shares.c). */
struct shares {
    char *store;                    /* hst_config.store, with its words; null: not looked for */
    struct share_found *own;        /* [count] */
    struct hst_store_place *places; /* [count]: the numbers that the words have for each */
    uint32_t count, room;
    uint32_t replicas;      /* files that say they are of one rank are of so many; 0: of one */
    uint32_t lone;          /* a replica that lies under this rank's name where there are none */
    struct share_map map;   /* of all ranks' */
    /* As many ranks have it, of which the plan's units are others (slices, or whole): decide.c */
    bool recut;
    uint32_t twice;         /* a rank whose file two nodes find; UINT32_MAX: none */
    struct hst_error error; /* of one that cannot be read; code 0: all can */
    struct hst_error stray; /* of one in another rank's place; code 0: of none */
    uint32_t stray_rank;    /* whose it is */
};

/* It says where the engine stands (engine.c, step.c). */
enum phase { PHASE_DESCRIBE = 0, PHASE_PLANNED, PHASE_SEALED, PHASE_LOADED, PHASE_STEP };

struct step_state {
    struct hst_stream *stream; /* of this step's units; null before the first */
    double last_s;             /* seconds of the last step; 0: there is none */
    double last_end_s;         /* monotonic seconds of the last step's end or the first begin */
    uint32_t ready_units;      /* units whose gradients are complete */
    struct hst_step_bytes counted; /* at the last step's end */
    bool is_interrupted; /* since then an evaluation or a copy took time that is no step's */
};

/* Of the backward at hand (way_sums.c). */
struct way_state {
    uint32_t at; /* of the rank's ways: whose micro-batches are computed */
    uint32_t first_micro; /* of that way: the one that came first, while no other has come */
    struct ways_counter counter;
    unsigned char *in_place; /* where its sum is to be, which it is accumulated in; or null */
    /* Inputs of an addition: the device reads them when it comes to it, so none is written then. */
    const void *pairs[WAYS_SUMS_MOST][WAYS_SUMS_MOST][2];
    /* Likewise of a last one into a bucket: [unit_count · ranks], of each rank's shard. */
    const void *(*shards)[2];
    /* And of a parameter's gradient that joins a buffer: [param_count · buffers]. */
    const void *(*joined)[2];
};

/* This is what all ranks add up in each step beside its sums (step.c). */
enum step_word {
    WORD_STEP_NS = 0, /* nanoseconds that the step before took */
    WORD_SAVE_NS,     /* that a version takes of memory's bytes */
    WORD_NUMBER,      /* the step's, and its learning rate: as many times a rank's own */
    WORD_LR,
    WORD_COUNT
};
static_assert((int)WORD_COUNT == (int)NET_WORDS, "the executor takes all of them");

struct unit_state {
    bool grad_ready;
    struct hst_param_view *views; /* [param_count] */
};

/* A unit as the client described it (slices.c). */
struct described {
    uint32_t first, count; /* the units of the layout that it is */
    uint32_t turns[3];     /* how many of them were acquired in each sweep */
};

/* Globs of hst_config.freeze and train_only (frozen.c). */
enum frozen_list { FROZEN_FREEZE = 0, FROZEN_TRAIN_ONLY, FROZEN_LISTS };
struct frozen {
    char glob[FROZEN_LISTS][HST_GROUPS_MOST][96];
    uint32_t count[FROZEN_LISTS];
};

struct hst_engine {
    struct hst_config config;     /* resolved: no zero means a default */
    struct optimizer_groups groups; /* config has their texts */
    struct frozen frozen;           /* likewise */
    char *store, *place, *device, *host_math; /* own copies; config points to them */
    char *io_model, *io_fault, *durability;
    struct drive drives[STRIPE_DRIVES_MAX];
    uint32_t drive_count;        /* 0 where there is no store */
    struct hst_aio_world *world; /* of the drives of io_model; else null */
    struct report report;        /* the sticky error, and who is told */
    enum phase phase;
    pid_t owner; /* the process that created it; a forked child has neither threads nor queues */

    struct layout layout;
    struct layout whole; /* as it was described, where the layout is cut (decide.c) */
    struct described *described;
    uint32_t described_count;
    struct placement placement;
    struct placement_in plan_in;
    struct planned planned; /* simulated 0: homes are the usual ones */
    uint64_t hidden_bytes_per_token;

    struct workers *workers;
    struct hst_dev *dev;
    char math[HST_DEV_MATH_BYTES]; /* hst_dev_math of it, with the units that were described */
    bool told_left;                /* that little of its memory is left */
    struct hst_stream *stream;
    const struct hst_cpu_adam_ops *adam;
    const struct optimizer *optimizer;
    struct optimizer_kernel kernel; /* of the optimizer, in adam's table */
    /* The device computes in this: placement.hbm_bytes of its memory; on the host, host_arena. */
    unsigned char *arena;
    unsigned char *host_arena; /* placement.dram_bytes of host memory of the device */

    struct extents *extents; /* on NVMe; null where nothing is */
    /* Tiles of resident units, while they are loaded or saved; null where there are none. */
    struct extents *resident;

    struct comm *comm;      /* with the other ranks; null: there are none (ranks.c) */
    struct comm_info ranks; /* as they were joined */
    bool all_refuse;        /* every rank has found that they differ, and so has failed */
    struct ways ways;       /* of the rank; way_sums.c */
    struct way_state way;
    struct exact_sum sums[HST_SUMS]; /* of the client's (sums.c) */
    int64_t words[WORD_COUNT];       /* step.c */
    /* The least of all ranks' rates while the engine is sealed (ranks/rates.c); else null. */
    struct hst_rates *alike;

    struct unit_state *units;
    struct hst_unit_view view;
    uint32_t acquired;    /* unit that is acquired, or UINT32_MAX */
    enum hst_sweep sweep; /* of the acquired unit */

    struct standing standing; /* of training: step.c; where a resumed run begins, versions.c */
    struct step_state step;
    struct versions versions;
    struct shares shares;
    /* The update that is taken, deferred or optimistic (update_time.c). */
    bool optimistic; /* once it is planned; later the executor says (verdict.optimistic) */
    bool chooses;    /* by what steps take */
    struct update_choice choice;
    struct executor exec;
    struct graph planned_graph; /* of a plan, which has no executor (decide.c) */
};

/* groups.c */
/** The groups of the resolved configuration, whose texts it then has. Errors: E402. */
int groups_read(struct hst_engine *engine);
/** Once all units are known, before they are cut: each tensor gets its group. Errors: E402. */
int groups_assign(struct hst_engine *engine);

/* frozen.c */
/** The globs of the configuration, whose texts it then has. Errors: E402. */
int frozen_read(struct hst_engine *engine);
/** Once all units are known and have their groups, before they are cut: which tensors are frozen.
 * Errors: E402; -ENOMEM. */
int frozen_assign(struct hst_engine *engine);

/* decide.c */
/** Tiles, homes and second slots, once all units are known. */
int decide(struct hst_engine *engine);
/** Once it is known whether the update may be optimistic: how much of one the next forward has; of
 * a plan, whether it is. Errors: -ENOMEM (sticky). */
int decide_update(struct hst_engine *engine);
/** It makes a plan's graph, where it fits (rc, of all before, is 0). Returns rc, or a failure. */
int decide_end(struct hst_engine *engine, int rc);
/** No memory for what describes the plan itself. */
int engine_fail_tables(struct hst_engine *engine, int native);

/* device.c */
int device_open(struct hst_engine *engine);
/** Once budgets are resolved: the device's share of them, its stream, and its defaults. */
int device_prepare(struct hst_engine *engine);
/** Bytes of its memory that nobody holds, 0 on the host and where this step does not ask; warns
 * once where a given budget leaves libraries too little. */
uint64_t device_left(struct hst_engine *engine);

/* store/store_words.c */
/** Once ranks are joined: the words of config.store become this rank's numbers. Errors: -EINVAL,
 * -ENOMEM (sticky). */
int store_words_fill(struct hst_engine *engine);

/* store/store_dir.c */
/** Makes them; a plan finds them, or where they would be made, and makes none. */
int store_dirs_make(struct hst_engine *engine);
/** Bytes that the store's file on a drive takes already. */
uint64_t store_dir_there(const struct hst_engine *engine, uint32_t drive);
/* It counts what the files of a store take whose making was killed: the next one replaces them.
 * Else 0. */
uint64_t store_dir_leftover(const struct hst_engine *engine, uint32_t drive);
/** And the room for scratch that it keeps there. */
uint64_t store_dir_room_there(const struct hst_engine *engine, uint32_t drive);
/** Before planning: where there are several, opens and measures each. */
int store_dirs_rates(struct hst_engine *engine, struct placement_in *in);
/** This is what the store's files take already, and what is fixed of new ones, whatever the plan
 * is. */
void store_dirs_there(const struct hst_engine *engine, struct placement_in *in);
/** After planning, where anything is on NVMe: scratch, and queues for the store. */
int store_dirs_open(struct hst_engine *engine);
void store_dirs_close(struct hst_engine *engine);
/** It tells what carries their traffic, once they are open: "uring", "threads", "sim". */
const char *store_dir_backend(const struct hst_engine *engine);

/* budget.c */
int budgets_resolve(struct hst_engine *engine, struct placement_in *in);

/** False on a device with memory of its own. */
static inline bool engine_computes_in_dram(const struct hst_engine *engine)
{
    return engine->plan_in.compute_tier == HST_TIER_DRAM;
}

/** The step graph: of a plan, or of what is run. Empty before it is sealed. */
static inline const struct graph *engine_graph(const struct hst_engine *engine)
{
    return engine->phase == PHASE_PLANNED ? &engine->planned_graph : &engine->exec.step.graph;
}

/** Once it is planned: updates are made before the norm is known. */
static inline bool engine_is_optimistic(const struct hst_engine *engine)
{
    return engine->phase >= PHASE_SEALED ? engine->exec.verdict.optimistic : engine->optimistic;
}

/** Once it is planned: the device updates some units. */
static inline bool engine_has_resident(const struct hst_engine *engine)
{
    return engine->placement.resident_units > 0;
}

static inline uint64_t engine_element_bytes(const struct hst_engine *engine)
{
    return optimizer_weight_bytes(engine->optimizer);
}

#endif
