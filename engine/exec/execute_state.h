/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_EXECUTE_STATE_H
#define HOISTWAY_ENGINE_EXEC_EXECUTE_STATE_H
/* The executor holds this between calls. Most files of exec/ change it, and session/decide.c what
   it decides. */
#include "exec/measure.h"
#include "plan/graph/scheduler.h"
#include "plan/search/update_choice.h"
#include "tier/extent.h"

#include <hoistway/cpu_adam.h>

/** One step's coefficients, for parameters with and without weight decay. */
struct optimizer_coefs {
    struct hst_adam_coef decayed, plain;
};

/* A node of the drives' lanes that was started. */
struct job {
    struct scheduled at;
    uint32_t begun, count, flying; /* extents */
    double start_s;
    bool used;
};

/* An extent on its way. */
struct flight {
    struct transfer transfer;
    uint32_t job;
    bool used;
};

/* A node of the device's lanes that was enqueued: done when the stream has passed the event. */
struct passage {
    struct scheduled at;
    struct hst_event *passed;
    double start_s;
    double host_s; /* measure.host_s then */
};

enum { EXECUTE_JOBS = 256, EXECUTE_PASSAGES = 16 };

/* The step window of nodes of run.demand, which no scheduler has opened. */
#define EXECUTE_DEMAND UINT64_MAX

/* It holds those of one lane, in their order. */
struct passages {
    struct passage ring[EXECUTE_PASSAGES]; /* oldest at `first` */
    uint32_t first, count;
};

struct execute {
    struct graph graph;
    struct scheduler scheduler;
    /* The update waits for the norm, and is left to the next step; or it should and does not. With
       neither it need not wait. */
    bool deferred, optimistic;
    bool chooses; /* which of both, by what steps take */
    struct update_choice choice;

    struct job jobs[EXECUTE_JOBS];
    uint32_t issuing[LANE_COUNT]; /* job whose extents have not all been begun, or EXECUTE_JOBS */
    struct flight *flights;       /* [flight_count] */
    uint32_t flight_count, flying;
    struct passages passages[LANE_COUNT];   /* of H2D, D2H, COMPUTE */
    struct hst_stream *copying[LANE_COUNT]; /* of H2D and D2H, where there are copies */
    struct hst_event *updated;              /* the device's last update; null: it makes none */
    struct hst_stream *updating;            /* of streamed tiles, where there are any */
    struct hst_event *streamed;             /* the last of those that was enqueued */
    uint64_t copied_bytes[LANE_COUNT];      /* ever */
    double lane_end_s[LANE_COUNT];          /* when its last node was seen to be done */
    struct measure measure;                 /* exec/measure.c */

    struct scheduled computing;         /* the node of the unit that is acquired */
    struct graph demand;                /* exec/demand.c: of the unit at hand */
    uint32_t demand_buffer[POOL_COUNT]; /* and the buffers of its nodes */
    double computing_start_s, computing_host_s;

    uint32_t committing;  /* job of the version that is on its way, or EXECUTE_JOBS */
    uint64_t step_window; /* of the step at hand, or of the next one */
    bool prepared;        /* the next step's step window is open already */
    bool in_step, evaluating;
    bool on_demand;           /* the client has left the order: the graph stands still */
    bool warned;              /* of that */
    struct hst_visit *sealed; /* those of a step in the sealed order: exec/visits.c */
    size_t sealed_count;
    /* The units in the order of this step's visits, and how many there were: what is learned */
    uint32_t *visited[2], visits[2]; /* forward, backward */
    unsigned pending;                /* phases that the last step has left to do */
    unsigned left;                   /* those that the step at hand will have left, so far known */
    bool early_begun;                /* tiles were updated in the backward of the step at hand */
    /* It is, where an optimistic update has two slots in memory, the one that holds the weights and
       states of the step at hand. */
    int slot;
    uint64_t stale;   /* step window in which kept weights are of an update that did not stand */
    bool clip_done;   /* of the step at hand */
    bool skipped;     /* the step at hand overflowed: it has no update */
    double grad_norm; /* of the last step that has one, without the loss scale */
    struct optimizer_coefs coefs; /* of the update that is pending or under way */
    struct optimizer_coefs early; /* of one that does not wait for the norm */
};

#endif
