/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_EXECUTOR_H
#define HOISTWAY_ENGINE_EXEC_EXECUTOR_H
/*
 * An executor: what it is given, and what it holds between calls. It runs the step graph of a model
 * that was laid out, placed and allocated by whoever owns it, and asks that owner, through a table,
 * for what only the owner can say.
 *
 * Each member of a struct here has one file that writes it; tests/style/writers.py holds the files
 * to that. A scheduler is changed through its functions (plan/graph/scheduler.h), by any of them.
 */
#include "base/loss_scale.h"
#include "base/report.h"
#include "comm/comm.h"
#include "comm/exact.h"
#include "exec/measure.h"
#include "machine/workers.h"
#include "optimizer/optimizer.h"
#include "plan/graph/scheduler.h"
#include "plan/layout/ways.h"
#include "tier/extent.h"

#include <hoistway/cpu_adam.h>
#include <hoistway/hoistway.h>

/* ---- what it is given ---- */

/** This is where training stands. The owner writes it, between the executor's calls. */
struct standing {
    uint64_t number;         /* steps ended so far */
    uint64_t updates;        /* of them, those that were not left out: Adam's t */
    struct loss_scale scale; /* of the step at hand, or of the next; 1 but in fp16 */
    double lr;               /* of the step at hand */
};

/** It asks its owner for these. Those that return int return the owner's sticky error, or 0. */
struct executor_owner {
    void *context;
    /** Phases of the step window that follows the step of that number, beside those of training. */
    unsigned (*phases)(const void *context, uint64_t number);
    /** A step's window begins: its COMMIT will be of where training stands now. */
    void (*window_begins)(void *context, uint64_t step_window);
    /** A COMMIT was started; *made: it is done at once. */
    int (*commit_begin)(void *context, uint64_t step_window, bool *made);
    /** *made: the one that was begun is done. */
    int (*commit_poll)(void *context, bool *made);
    /** All ranks have voted for the version whose COMMIT is done. */
    int (*committed)(void *context);
    /** A REVERT was started: what updates have written since the last COMMIT is forgotten. */
    int (*revert)(void *context);
    /** The client has left the order with nothing under way: what the COMMIT would have done. */
    int (*order_left)(void *context);
    /** Weights that follow from the states are made anew. Nothing is under way. */
    int (*derive)(void *context);
    /** Who asked for what moves now wishes it to end. */
    bool (*is_stopped)(const void *context);
    /** Records that a transfer failed, or the way to all of them. */
    int (*fail_transfer)(void *context, const struct transfer *transfer);
    int (*fail_extents)(void *context, int native);
};

/** All of it outlives the executor. But for *standing, *report and config->rates, which ends with
 * seal, none of it changes. */
struct executor_in {
    const struct hst_config *config;
    const struct optimizer_groups *groups;
    const struct layout *layout;
    const struct placement *placement;
    const struct placement_in *plan_in;
    const struct standing *standing;
    struct report *report; /* the sticky error, and who is told */
    struct workers *workers;
    struct hst_dev *dev;
    const struct hst_cpu_adam_ops *adam;
    struct optimizer_kernel kernel; /* of the optimizer, in adam's table */
    unsigned char *arena;           /* placement.hbm_bytes of the device's memory; or host_arena */
    unsigned char *host_arena;      /* placement.dram_bytes of host memory of the device */
    uint32_t drive_count;
    struct comm *comm; /* with the other ranks; null: there are none */
    uint32_t rank;     /* among them */
    const struct ways *ways;
    struct exact_sum *sums; /* [HST_SUMS]: what the client adds to a step, then what all have */
    int64_t *words;         /* [NET_WORDS]: likewise, of the owner */
    bool optimistic; /* the first steps are: see execute_update_as */
    struct executor_owner owner;
};

/* ---- what it holds ---- */

/** A graph, and how far it was run (program.c). */
struct program {
    struct graph graph;
    struct scheduler scheduler;
};

/** Streams and events of the device (streams.c). */
struct streams {
    struct hst_stream *unit;                /* of the unit at hand; null before the first */
    struct hst_event *unit_passed;          /* it has passed the last released unit */
    struct hst_stream *copying[LANE_COUNT]; /* of H2D and D2H, where there are copies */
    struct hst_event *updated;              /* the device's last update; null: it makes none */
    struct hst_stream *updating;            /* beside computations: streamed tiles, sums of ranks */
    struct hst_event *streamed;             /* the last update that was enqueued there */
    uint64_t copied_bytes[LANE_COUNT];      /* ever */
};

/** A node of the device's lanes that was enqueued: done when the stream has passed the event. */
struct passage {
    struct scheduled at;
    struct hst_event *passed;
    double start_s;
    double host_s; /* measure.host_s then */
};

enum { PASSAGES_MOST = 16 };

/** These are those of one lane, in their order (passages.c). */
struct passages {
    struct passage ring[PASSAGES_MOST]; /* oldest at `first` */
    uint32_t first, count;
};

/** A node of the drives' lanes that was started. */
struct job {
    struct scheduled at;
    uint32_t begun, count, flying; /* extents */
    double start_s;
    bool used;
};

/** An extent on its way. */
struct flight {
    struct transfer transfer;
    uint32_t job;
    bool used;
};

enum { DRIVE_JOBS = 256 };

/** This is what is on its way to and from drives (lanes/drives.c). */
struct drives {
    struct job jobs[DRIVE_JOBS];
    uint32_t issuing[LANE_COUNT]; /* job whose extents have not all been begun, or DRIVE_JOBS */
    struct flight *flights;       /* [flight_count] */
    uint32_t flight_count, flying;
    uint32_t committing; /* job of the version that is on its way, or DRIVE_JOBS */
};

/** A node of LANE_NET that was begun. */
struct net_job {
    struct scheduled at;
    uint64_t ticket; /* of its last operation */
    double start_s;
};

enum {
    NET_JOBS = COMM_IN_FLIGHT / GATHER_MAX,
    NET_WORDS = 4, /* of the owner's, to be added up with a step's sums */
    NET_NUMBERS = (1 + HST_SUMS) * EXACT_NUMBERS + NET_WORDS
};

/** This is what ranks do together, in its order (lanes/net.c). */
struct net {
    struct net_job jobs[NET_JOBS]; /* oldest at `first` */
    uint32_t first, count;
    int64_t numbers[NET_NUMBERS]; /* of an AGREE that is under way */
    int64_t votes;
    struct exact_sum norm; /* of all ranks, squared; once an AGREE is done */
};

/** A slot of the tile ring while tiles are loaded or saved (tiles/tile_stream.c). */
enum { SLOT_KINDS = EXTENT_STATES + 1 }; /* weights and states */
struct slot {
    unsigned char *buffer;
    struct transfer transfers[SLOT_KINDS];
};

/** When updates are made, and what the last norm made of them (update/verdict.c). */
struct verdict {
    /* The update waits for the norm, and is left to the next step; or it should and does not. With
       neither it need not wait. */
    bool deferred, optimistic;
    unsigned left;    /* phases that the step at hand will have left to do, so far known */
    bool early_begun; /* tiles were updated in the backward of the step at hand */
    /* It is, where an optimistic update has two slots in memory, the one that holds the weights and
       states of the step at hand. */
    int slot;
    uint64_t stale;   /* step window in which kept weights are of an update that did not stand */
    bool is_known;    /* the norm of the step at hand */
    bool skipped;     /* the step at hand overflowed: it has no update */
    double grad_norm; /* of the last step that has one, without the loss scale */
    struct optimizer_coefs coefs; /* of the update that is pending or under way */
    struct optimizer_coefs early; /* of one that does not wait for the norm */
};

/** Seconds in which the device had nothing to do, by what it waited for (lanes/loop.c). */
struct stalls {
    double nvme_s, copy_s, update_s, net_s;
};

/** This is where the client is (visit/execute.c). */
struct turn {
    struct scheduled computing; /* the node of the unit that is acquired */
    double computing_start_s, computing_host_s;
    uint64_t step_window; /* of the step at hand, or of the next one */
    bool prepared;        /* the next step's step window is open already */
    bool in_step, evaluating;
    bool runs_out; /* what was begun is brought to its end, with all ranks */
    /* Node of the step's graph up to which what ranks do together may begin: the visit at hand, or
       GRAPH_NONE, which is all of them. */
    uint32_t reached;
    bool on_demand;   /* the client has left the order: the step's graph stands still */
    unsigned pending; /* phases that the last step has left to do */
};

/** The order of a step's visits as the client made them, for the next graph (visit/order.c). */
struct order {
    bool warned;                     /* that it was left */
    uint32_t *visited[2], visits[2]; /* forward, backward */
};

struct executor {
    struct executor_in in;      /* executor.c */
    struct extents *extents;    /* executor.c: on NVMe; null where nothing is */
    struct extents *resident;   /* executor.c: tiles of resident units; null where none are */
    struct program step, alone; /* of the step; of the one unit that is served on demand */
    struct program *now;        /* program.c: which of the two is run */
    double lane_end_s[LANE_COUNT]; /* program.c: when its last node was seen to be done */
    struct streams streams;
    struct passages passages[LANE_COUNT]; /* of H2D, D2H, COMPUTE, DEVICE_UPDATE */
    struct measure measure;
    struct slot *slots; /* tiles/tile_stream.c: [placement.slots.count] */
    struct verdict verdict;
    struct drives drives;
    struct net net;
    struct stalls stalls;
    struct turn turn;
    struct order order;
    struct hst_visit *sealed; /* visit/visits.c: those of a step in the sealed order */
    size_t sealed_count;
};

/** Takes what is handed in. visit/execute.h opens the rest, and closes it. */
void executor_init(struct executor *exec, const struct executor_in *in);
/** These move extents from now on; nothing is under way. */
void executor_attach(struct executor *exec, struct extents *extents, struct extents *resident);
/** Records an error of the device, with what it was about. Returns the sticky error. */
int executor_fail_device(struct executor *exec, int native, const char *what);
/** Records an error of a transfer. Returns the sticky error. */
int executor_fail_transfer(struct executor *exec, const struct transfer *transfer);
int executor_fail_extents(struct executor *exec, int native);
/** Records what went wrong between ranks. Returns the sticky error. */
int executor_fail_comm(struct executor *exec, int native);
/** -ECANCELED where the owner wishes it, else 0. */
int executor_stopped(const struct executor *exec);

/** False on a device with memory of its own. */
static inline bool executor_computes_in_dram(const struct executor *exec)
{
    return exec->in.plan_in->compute_tier == HST_TIER_DRAM;
}

/** The norm is one of gradients as a backward has left them on a device, not of sums of ranks. */
static inline bool executor_norms_behind_backward(const struct executor *exec)
{
    return !executor_computes_in_dram(exec) && !exec->in.comm;
}

/** The device updates some units. */
static inline bool executor_has_resident(const struct executor *exec)
{
    return exec->in.placement->resident_units > 0;
}

static inline uint64_t executor_element_bytes(const struct executor *exec)
{
    return optimizer_weight_bytes(exec->in.kernel.optimizer);
}

#endif
