/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_COMM_MPI_H
#define HOISTWAY_ENGINE_COMM_MPI_H
/*
 * The transport over MPI, from inside. Two threads: the owner's puts jobs into a queue, the comm's
 * own takes them out, one after the other, and makes every call of MPI. Without that thread nothing
 * moves while the owner computes: MPI moves bytes only within its calls.
 */
#include "comm/comm.h"

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

enum job_kind {
    JOB_OPERATION = 1, JOB_ALLOC, JOB_EXPOSE, JOB_FREE, JOB_LIBRARY, JOB_NUMBER, JOB_CLOSE
};

/*
 * This is what ranks of a node tell of what they have begun, to find out that it is one. kind: an
 * operation's, a broadcast's with its root from bit 8 on, or one of these.
 */
enum { TAG_EXPOSE = 0xfc, TAG_CLOSE, TAG_ALLOC, TAG_FREE };
struct tag {
    uint64_t kind, count;
    uint64_t where; /* number of the allocation; 0: elsewhere */
    uint64_t at;    /* offset in it, each rank's own */
};

/* A rank's page of the node's shared memory. */
struct slot {
    _Atomic uint64_t step;     /* how many meetings it has come to */
    _Atomic uint64_t alive_ns; /* when its thread last ran, by the node's clock */
    _Atomic uint64_t heard_ns; /* the first rank's: when it last heard of both nodes beside */
    _Atomic uint32_t bell;     /* the low half of `step`, on which others of the node sleep */
    _Atomic uint32_t sleepers; /* so many */
    struct tag tag[2];         /* of the meeting that it came to, by step mod 2 */
};

/* Memory that the comm gave out. */
struct block {
    struct block *next;
    uint64_t number; /* from 1, the same on all ranks */
    char *memory;
    size_t size_bytes;
    bool exposed;   /* the memory was the owner's before, and stays so */
    MPI_Win window; /* MPI_WIN_NULL: this rank's alone */
    char **peer;    /* [locals], where the node's ranks have theirs; null without a window */
};

struct job {
    enum job_kind kind;
    struct comm_op op;
    struct block *block; /* JOB_ALLOC, JOB_EXPOSE, JOB_FREE */
    uint32_t rank;       /* JOB_NUMBER */
};

/* Signs of life of the nodes beside: [0] of the one before, [1] of the one behind. */
struct pulse {
    MPI_Request heard[2], said[2];
    uint64_t heard_ns[2], at_ns; /* at_ns: when it was last looked */
};

struct mpi {
    struct comm base;
    struct comm_config config;
    struct comm_info info;
    char version[64];
    char (*host)[COMM_HOST_BYTES]; /* [ranks]; null: there is one node */

    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake;
    struct job queue[COMM_IN_FLIGHT];
    uint64_t begun, ended; /* jobs; a ticket is the value of `begun` */
    struct comm_failure failure;
    int abort_status; /* -1: nobody wants an end */
    bool opened;      /* the thread is through with opening, or has failed */
    bool closing;     /* the owner wants the thread to end once nothing is left to do */
    const char *call; /* the thread is in calls of MPI that wait for others, without a limit */
    uint64_t call_since_ns;
    int event_fd;

    /* the thread's own */
    struct job job; /* at hand */
    MPI_Comm world, node;
    MPI_Comm heads; /* the nodes' first ranks; MPI_COMM_NULL: this is none, or there is one node */
    MPI_Comm old_heads; /* before they got other numbers: signs of life may be on their way there */
    struct pulse pulse;
    bool uniform;   /* all nodes have as many ranks */
    uint32_t group; /* ranks of a node that add up before it is left: a power of two; 1: none do */
    MPI_Win control;
    struct slot **slot; /* [locals] */
    uint64_t step;
    struct block *blocks;
    uint64_t block_count;
    char *ring[2]; /* config.piece_bytes each, one mapping, from the first exchange that needs it */
    MPI_Request *request; /* [2][2 · ranks] */
    const void **input;   /* [ranks] */
    char **row;           /* [locals], where the node's ranks have the row of what is at hand */
    size_t *size;         /* [2][ranks], of what an exchange adds: mpi_sizes */
    uint64_t wait_since_ns;
};

/* ---- thread.c -------------------------------------------------------------------------------- */

void *mpi_thread(void *arg);

/* ---- wait.c ---------------------------------------------------------------------------------- */

/* Makes the owner's descriptor readable. */
void mpi_ring(struct mpi *m);
/* Records the first failure and wakes the owner. Returns its native code. */
int mpi_fail(struct mpi *m, int native, int rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* 0, or the failure that an MPI call's code means. */
int mpi_check(struct mpi *m, int code, const char *call);
/* Signs of life are told and looked for from here on. */
void mpi_wait_open(struct mpi *m);
/* What the thread does from here on by calls of MPI that wait for others, and have no limit of
   their own: the owner has one for them. Null: nothing. Returns what it was before. */
const char *mpi_call(struct mpi *m, const char *what);
/* The owner, with the lock: sleeps until the thread wakes it, or a little. It fails where the
   thread's call takes too long. */
void mpi_watch(struct mpi *m);
/* Begins to wait: the limit counts from here. */
void mpi_wait_begin(struct mpi *m);
/* Tells the node that this thread runs, and makes an end where the owner wants one. */
void mpi_beat(struct mpi *m);
/* Naps; true, without a nap, once the limit is over. One that is patient has a longer limit, but
   where a rank of this node or a node beside gives no sign of life. */
bool mpi_nap(struct mpi *m);
/* Says that this rank has come to m->step, and wakes who sleeps until it has. */
void mpi_come(struct mpi *m);
/* Sleeps until that rank of the node has come to m->step, or for some milliseconds; true, without
   a sleep, once the limit is over, as mpi_nap. A nap would take from the core that it waits on,
   where a rank computes too: some 15 % of it. */
bool mpi_sleep(struct mpi *m, uint32_t local);
/* -EPIPE: the limit is over, and `rank` (COMM_NOBODY: MPI alone knows which) has not done `what`.
   One of this node that gives no sign of life is named in its place. */
int mpi_late(struct mpi *m, int rank, const char *what);
/* Waits for a request that any rank may be late for. */
int mpi_finish(struct mpi *m, MPI_Request *request);

/* ---- pulse.c --------------------------------------------------------------------------------- */

/* at_ns: now. Between open and close the thread calls mpi_pulse all the time. */
void mpi_pulse_open(struct mpi *m, uint64_t at_ns);
void mpi_pulse(struct mpi *m, uint64_t at_ns);
void mpi_pulse_close(struct mpi *m);
/* Frees what the first numbers' signs of life went by. */
void mpi_pulse_forget(struct mpi *m);
/* No sign of life has come from a node beside for so long. */
bool mpi_pulse_is_lost(const struct mpi *m, uint64_t at_ns, uint64_t limit_ns);

/* ---- node.c ---------------------------------------------------------------------------------- */

/* Numbers the ranks node by node, in the order of `key`, and makes the page that each shows to the
   node. */
int mpi_node_open(struct mpi *m, int key);
/* All ranks, with no block: this one's number is `rank` from here on. */
int mpi_number(struct mpi *m, uint32_t rank);
void mpi_node_close(struct mpi *m);
/* Until all ranks of the world want to close. */
int mpi_meet_all(struct mpi *m);
/* Until all ranks of the node have come here, with the same tag but for `at`. */
int mpi_meet(struct mpi *m, const struct tag *tag);
/* m->row ← where they have their rows, as the tags say with which they came to that meeting. */
void mpi_find_rows(struct mpi *m, const struct block *block);

/* ---- memory.c -------------------------------------------------------------------------------- */

/* slot[i] ← the page of local rank i, which is shared where messages are asked for, too. */
int mpi_take_pages(struct mpi *m, struct slot **slot);
/* Meets the node's ranks first, as mpi_free does: MPI itself would wait for them for ever. */
int mpi_alloc(struct mpi *m, struct block *block);
int mpi_free(struct mpi *m, struct block *block);
void mpi_drop_blocks(struct mpi *m);
/* Shares the block's memory; where that cannot be had it is left as it was, without a window. */
int mpi_expose(struct mpi *m, struct block *block);
/* The block with window that [memory, memory + bytes) lies in; null: none. */
const struct block *mpi_block_of(const struct mpi *m, const void *memory, size_t bytes);

/* ---- turn.c ---------------------------------------------------------------------------------- */

/* A part to each other of some ranks, and one from each. */
struct turn {
    MPI_Request *request;  /* [2 · peers]: received from peer i at i, sent to it at peers + i */
    uint32_t peers, self;  /* how many take part; which of them this one is */
    uint32_t first, stride; /* peer i is rank first + i · stride */
    const char *send;      /* what peer i gets lies at send + i · send_stride */
    size_t send_stride;
    MPI_Datatype type;     /* of what is sent; MPI_DATATYPE_NULL: bytes in one piece */
    char *receive;
    size_t receive_stride;
    size_t count;          /* elements of a part */
    size_t size;           /* bytes of an element that is sent */
    const size_t *sizes;   /* [peers], bytes of an element that each sends; null: all as this one */
};

int mpi_turn_begin(struct mpi *m, const struct turn *turn);
/* Moves what can be moved; *done: all of it was. */
int mpi_turn_push(struct mpi *m, const struct turn *turn, int *done);
int mpi_turn_finish(struct mpi *m, const struct turn *turn);
/* Turns in which each sends one part of `count` bytes to all others, in pieces. */
int mpi_turn_gather(struct mpi *m, struct turn turn);
int mpi_take_rings(struct mpi *m);
/* Bytes of others' elements that were taken in, those from other nodes, those read in place. */
struct taken {
    uint64_t net, between, in_place;
};
void mpi_count(struct mpi *m, struct taken bytes);

/* ---- quantised.c ----------------------------------------------------------------------------- */

/* This rank's shard of the row ← what the integers of its exact one give back. */
int mpi_give_back_own(struct mpi *m, const struct comm_op *op);
/* The same of all peers of a turn, whose `first` and `stride` tell which they are. */
int mpi_turn_quantised(struct mpi *m, const struct comm_op *op, struct turn turn);

/* ---- sums.c ---------------------------------------------------------------------------------- */

struct first_hop {
    bool group;    /* among the ranks of a group of a node; else among all, and there is no other */
    bool in_place; /* it reads m->row; else it takes messages */
};
/* An exchange of a tree with `quant` that takes messages. */
int mpi_exchange_quantised(struct mpi *m, const struct comm_op *op, struct first_hop hop,
                           const struct tag *tag);

/* ---- hops.c ---------------------------------------------------------------------------------- */

/* in_place: the node's rows are found; a gather's always are. */
int mpi_exchange_hops(struct mpi *m, const struct comm_op *op, bool in_place,
                      const struct tag *tag);
int mpi_gather_hops(struct mpi *m, const struct comm_op *op, const struct tag *tag);

/* ---- operations.c ---------------------------------------------------------------------------- */

/*
 * Bytes of an element of each input of a sum; returns the most. They differ where the tree's last
 * group of `hop` ways is short: its sum has the reduce type, others of as many ways are f32.
 */
size_t mpi_sizes(const struct hst_sum_ways *sum, size_t *size);
/* out ← the sum of count elements of each of m->input. */
int mpi_sum(struct mpi *m, const struct hst_sum_ways *sum, void *out, size_t count);
int mpi_run(struct mpi *m, const struct comm_op *op);
int mpi_library(struct mpi *m, const struct comm_op *op);

#endif
