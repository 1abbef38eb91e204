/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_PREDICT_H
#define HOISTWAY_PREDICT_H
/* This header tells what a step of an engine will take, what it waits for, and what would help. */
#include <hoistway/hoistway.h>
#include <hoistway/machine.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A part of the machine, "cores", "drives", "GPU", "link" (between host and GPU),
 * "network" (between ranks); static text. */
struct hst_help {
    const char *what;
    double step_s; /* of a step, were that twice as fast */
};
#define HST_HELPS_MOST 5u

struct hst_prediction {
    double step_s;  /* a step of those to come; 0: not predicted, why says why */
    double bound_s; /* the least it could take on the same rates, in whatever order */
    /* the lane that the step waits for, as in hst_trace_event: of the resource that helps, the one
       that is busy longer; static text; null where not predicted */
    const char *bound_by;
    struct hst_help helps[HST_HELPS_MOST]; /* what would help alone, most first */
    uint32_t help_count;
    char why[200]; /* one line; "" where predicted */
    /* a sweep of HST_EVAL over a step's tokens, before the load; 0: not predicted */
    double evaluation_s;
    /* Before the load: what forward, recomputation and backward take with the machine to
       themselves, and bytes that a step writes to drives; 0: not predicted, nothing is written */
    double compute_s, write_bytes;
};

/**
 * Runs the step graph in virtual time: on what computation, norm and update took so far, from the
 * second step on, each as if it were alone, and on measured rates of drives and link. Nothing is
 * taken from the steps' own seconds, so these can be judged by it. In a plan, and before the load,
 * `rates` say what computation, norm and update will take: the client's GEMMs and operations, and
 * fp32's or bf16's update (fp16: fp32's). What it cannot know is not guessed: *prediction then
 * has step_s 0 and says why.
 *
 * rates   READ, WRITE and MIXED of the store's directories, H2D and D2H of the device; before the
 *         load COMPUTE, UPDATE and on the host NORM (hst_rates_get); null, or figures that are 0:
 *         not known, which is no matter where nothing lives on NVMe, or nothing is copied. HALF,
 *         where not all threads update; 0: each does its share. With several ranks those of NET_*
 *         that are used: in the node, between nodes
 *
 * Errors: -EINVAL before seal, or a plan that does not fit; -ENOMEM; *prediction is then untouched.
 * None is sticky.
 * Ownership: borrows all, keeps none.   Thread-safety: the engine's.
 * Cost: some 25 µs per tile, and bytes as the engine's own tables; nothing is waited for.
 */
int hst_engine_predict(const struct hst_engine *engine, const struct hst_rates *rates,
                       struct hst_prediction *prediction);

/**
 * One step as hst_engine_predict simulates it, in the steady state: `event` is called for whatever
 * a lane does in it, with seconds from the step's begin on (0 to step_s), of nodes at both ends
 * those inside. A step begins with its first computation. Of a plan, and before the load.
 *
 * Errors: -EINVAL before seal, after the load, of a plan that does not fit, or where no step is
 * predicted; -ENOMEM.   Thread-safety: the engine's.   Cost: of two simulations.
 */
int hst_engine_timeline(const struct hst_engine *engine, const struct hst_rates *rates,
                        hst_trace_fn *event, void *context);

/**
 * Measures the network between the ranks that train together, and sets those of rates' NET_* that
 * there are: they are the same on all ranks then. All ranks call it, between create and load; with
 * one rank, nothing happens. What else they have in `rates` they bring into line when they are
 * sealed with these: of each rate the least.
 *
 * Errors: -EINVAL at another time, or of a plan; the transport's (sticky); -ENOMEM.
 * Thread-safety: the engine's.   Cost: some 50 ms where the network carries 1 GB/s; 16 MiB of
 * shared memory meanwhile.
 */
int hst_engine_net_rates(struct hst_engine *engine, struct hst_rates *rates);
/** The threads that it computes with: those of its configuration, or the cores that it may use,
 * divided among the ranks of the node that may use the same. */
uint32_t hst_engine_threads(const struct hst_engine *engine);

/** A run takes this before its first step, as far as its bytes and these rates tell. */
struct hst_start_up {
    double seconds; /* of the parts below; 0: nothing moves, or none of it is known */
    /* Host memory that is page-locked for a device with memory of its own, else 0; bytes that are
       read from drives; weights and states that are written there. */
    uint64_t lock_bytes, read_bytes, write_bytes;
    double lock_s, read_s, write_s; /* of each; 0: nothing, or not known */
    char why[240]; /* one line, what is not counted; "" where all is */
};
/**
 * Page-locking, reading and writing, one after another; not what a client computes of what it
 * reads, nor copies to a device. What is read counts as on drives as fast as the store's; of a run
 * that goes on from a store (hst_config.resumes) it is what lives in memory, after an orderly end.
 *
 * rates   LOCK, READ and WRITE; null, or figures that are 0: not known
 *
 * Errors: -EINVAL before seal, or a plan that does not fit; *start_up is then untouched. None is
 * sticky.   Ownership: borrows all, keeps none.   Thread-safety: the engine's.
 */
int hst_engine_start_up(const struct hst_engine *engine, const struct hst_rates *rates,
                        struct hst_start_up *start_up);
#define HST_START_UP_TEXT_BYTES 400u
/** "starting takes ... s: page-locking ... GiB ... s, reading ... s". Returns text. Pure. */
const char *hst_start_up_text(const struct hst_start_up *start_up,
                              char text[HST_START_UP_TEXT_BYTES]);

/** It holds what seal has decided. Text is valid as long as the engine. */
struct hst_decision {
    /* of the next step: "deferred", "optimistic" (see enum hst_update_time), or "early" where the
       update has not to wait (no clip) */
    const char *update;
    /* "usual" where nothing is known of the machine, else how homes were chosen: "none is faster"
       than the usual ones, or "what leaves memory: grads, then acts" */
    const char *homes;
    double usual_step_s, step_s; /* a step with the usual homes and with these, simulated on fewer,
                                    larger tiles; 0: nothing was compared */
    /* Each so-many-th unit with HST_UNIT_RECOMPUTE keeps its checkpoint; 1: all do. */
    uint32_t checkpoint_every;
    /* On a GPU so many of the units are resident: weights, gradients and states are at home in its
       memory, and it updates them. 0 on the host. Slices count as units. */
    uint32_t resident_units, units;
    /* A GPU updates so many of the offloaded tiles that have their states in DRAM, of how many
       there are: see gpu_update in struct hst_config. */
    uint32_t streamed_tiles, tiles_in_dram;
    /* Units that were cut (struct hst_unit_desc), and the slices that they are now; 0, 0: all are
       whole. */
    uint32_t cut_units, slices;
    /* An update that is early, or optimistic where that may be, leaves this share of the tiles that
       can wait to the next forward, so that both sweeps hide it: 0 to 0.75, 0 where too little is
       known of the machine. Tiles can wait whose gradients last until then; of a unit that is
       resident on a GPU an early update leaves none, an optimistic one all. */
    double late_share;
    /* Threads of the host that update: all, or beside a GPU fewer, where host memory does not carry
       what they would move together with drives and copies that a step waits for. */
    uint32_t update_threads;
    /* Units that keep their activations from the forward for the backward, and how many can; of the
       others the backward computes them again. */
    uint32_t saved_units, savable_units;
};
/** Errors: -EINVAL before seal, or a plan that does not fit. */
int hst_engine_decision(const struct hst_engine *engine, struct hst_decision *decision);

/** Tensors with numbers of their own (hst_config.group). */
struct hst_group {
    char text[HST_GROUP_BYTES]; /* "*.bias:lr=0.1x,decay=0" */
    uint32_t params;            /* tensors of it */
    uint64_t elements;          /* of all of them */
};
/**
 * After seal: the nth group, in the order of their texts, counted from 0. That of all tensors that
 * no other has is not told. Errors: -ENOENT there are no more.
 */
int hst_engine_group(const struct hst_engine *engine, uint32_t nth, struct hst_group *group);

/** Tensors that are not trained (hst_config.freeze, HST_PARAM_FROZEN). */
struct hst_frozen {
    uint32_t params;        /* tensors, tied ones once */
    uint64_t elements;      /* of all of them */
    uint32_t units;         /* that have nothing else, as they were described */
    uint32_t resting_units; /* the first ones of all, which have no backward: nothing before them,
                               and nothing of theirs, is trained */
};
/** After seal. Errors: -EINVAL before. */
int hst_engine_frozen(const struct hst_engine *engine, struct hst_frozen *frozen);
/** After seal: true where a tensor is not trained, by any of its names. Cost: O(tensors). */
bool hst_engine_is_frozen(const struct hst_engine *engine, const char *name);

#ifdef __cplusplus
}
#endif
#endif
