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

enum job_kind { JOB_OPERATION = 1, JOB_ALLOC, JOB_FREE, JOB_LIBRARY, JOB_CLOSE };

/*
 * This is what ranks of a node tell of what they have begun, to find out that it is one. kind: an
 * operation's, a broadcast's with its root from bit 8 on, or one of these.
 */
enum { TAG_CLOSE = 0xfd, TAG_ALLOC, TAG_FREE };
struct tag {
    uint64_t kind, count, where; /* where: number of the allocation and offset; 0: elsewhere */
};

/* A rank's page of the node's shared memory. */
struct slot {
    _Atomic uint64_t step;     /* how many meetings it has come to */
    _Atomic uint64_t alive_ns; /* when its thread last ran, by the node's clock */
    struct tag tag[2];         /* of the meeting that it came to, by step mod 2 */
};

/* Memory that the comm gave out. */
struct block {
    struct block *next;
    uint64_t number; /* from 1, the same on all ranks */
    char *memory;
    size_t size_bytes;
    MPI_Win window; /* MPI_WIN_NULL: this rank's alone */
    char **peer;    /* [locals], where the node's ranks have theirs; null without a window */
};

struct job {
    enum job_kind kind;
    struct comm_op op;
    struct block *block; /* JOB_ALLOC, JOB_FREE */
};

struct mpi {
    struct comm base;
    struct comm_config config;
    struct comm_info info;
    char version[64];

    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake;
    struct job queue[COMM_IN_FLIGHT];
    uint64_t begun, ended; /* jobs; a ticket is the value of `begun` */
    struct comm_failure failure;
    int abort_status; /* -1: nobody wants an end */
    bool opened;      /* the thread is through with opening, or has failed */
    bool closing;     /* the owner wants the thread to end once nothing is left to do */
    int event_fd;

    /* the thread's own */
    struct job job; /* at hand */
    MPI_Comm world, node;
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
/* Begins to wait: the limit counts from here. */
void mpi_wait_begin(struct mpi *m);
/* Tells the node that this thread runs, and makes an end where the owner wants one. */
void mpi_beat(struct mpi *m);
/* A rank of this node has given no sign of life, and the limit is over, however patient one is. */
bool mpi_is_lost(const struct mpi *m, int rank);
/* Naps; true, without a nap, once the limit is over. */
bool mpi_nap(struct mpi *m);
/* -EPIPE: the limit is over, and `rank` (COMM_NOBODY: one of another node) has not done `what`. */
int mpi_late(struct mpi *m, int rank, const char *what);
/* Waits for a request that any rank may be late for. */
int mpi_finish(struct mpi *m, MPI_Request *request);

/* ---- node.c ---------------------------------------------------------------------------------- */

/* Numbers the ranks node by node, and makes the page that each shows to the node. */
int mpi_node_open(struct mpi *m);
void mpi_node_close(struct mpi *m);
/* Until all ranks of the world want to close. */
int mpi_meet_all(struct mpi *m);
/* Until all ranks of the node have come here, with the same tag. */
int mpi_meet(struct mpi *m, const struct tag *tag);
/* Meets the node's ranks first, as mpi_free does: MPI itself would wait for them for ever. */
int mpi_alloc(struct mpi *m, struct block *block);
int mpi_free(struct mpi *m, struct block *block);
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
/* Bytes of others' elements that were taken in, and those from other nodes. */
void mpi_count(struct mpi *m, uint64_t net_bytes, uint64_t between_bytes);

/* ---- hops.c ---------------------------------------------------------------------------------- */

/* block: where the row lies in shared memory; null: it does not, an exchange alone takes that. */
int mpi_exchange_hops(struct mpi *m, const struct comm_op *op, const struct block *block,
                      const struct tag *tag);
int mpi_gather_hops(struct mpi *m, const struct comm_op *op, const struct block *block,
                    const struct tag *tag);

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
