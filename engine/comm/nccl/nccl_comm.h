/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_COMM_NCCL_COMM_H
#define HOISTWAY_ENGINE_COMM_NCCL_COMM_H
/*
 * The transport over NCCL, from inside. The owner's calls make every call of NCCL, and the card
 * moves bytes by itself once an operation is in the comm's stream. Host memory is the control
 * comm's, which is MPI's where MPI launched. Elsewhere a thread makes calls of NCCL while the owner
 * makes none: signs.c has it.
 */
#include "comm/comm.h"

#include "comm/nccl/api.h"

#include <hoistway/plugin.h>

#include <pthread.h>

enum { NCCL_VERSION_BYTES = 24, NCCL_WINDOWS = 64, NCCL_COMMUNICATORS = 4 };
#define NCCL_STAGE_BYTES ((size_t)1 << 16) /* of one rank's values, without a control comm */

/* An operation under way. */
struct entry {
    struct comm_op op;
    uint64_t child;           /* the control comm's ticket; 0: it is in the stream */
    struct hst_event *ready;  /* passed: what it waits for is done, and all before it */
    struct hst_event *passed; /* passed: it has ended */
};

/* Memory that the comm gave out. */
struct nccl_block {
    void *memory;
    void *window; /* null: it is none */
};

/* What shows others that this rank is there while it does something else (signs.c). */
struct nccl_signs {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct hst_event *passed; /* of a round */
    bool begun;  /* there is a thread */
    bool apart;  /* ranks are; the owner writes it, with the lock */
    bool ending; /* atomic: a round that is under way ends */
};

struct nccl {
    struct comm base;
    struct comm_config config;
    struct comm *control; /* null: MPI did not launch */
    struct comm_info info;
    struct nccl_library library;
    char name[128];
    struct hst_dev *dev;
    const struct hst_dev_ops *ops; /* its table: the plugin is not linked with kernels.h's calls */
    struct hst_stream *stream;
    void *native;           /* the stream, as NCCL takes it */
    struct hst_event *mark; /* nobody waits for it */

    struct nccl_comm *world;
    struct nccl_comm *inner; /* ranks of a group, where exchanges have two hops; else null */
    struct nccl_comm *outer; /* ranks of the same place in their groups */
    struct nccl_comm *node;  /* ranks of a node of several, where these are no group; else null */
    bool uniform;            /* all nodes have as many ranks */
    uint32_t group;          /* ranks that add up before a node is left: a power of two */

    struct entry entry[COMM_IN_FLIGHT];
    uint64_t begun, ended;
    uint64_t head_since_ns; /* since when the first that has not ended could run; 0: not yet */
    double wait_s; /* for ranks, in the operation that is being begun */
    struct comm_failure failure;
    struct nccl_signs signs;

    struct nccl_block block[NCCL_WINDOWS];
    char *ring;           /* [config.piece_bytes]: what an operation brings in passing */
    char *stage, *pinned; /* [NCCL_STAGE_BYTES · ranks] each; null: the control comm's matter */
    const void **input;   /* [ranks] */
    size_t *size;         /* [2 · ranks], bytes of an element */
    int timer_fd, poll_fd;
    bool timer_runs;
};

/* ---- library.c ------------------------------------------------------------------------------- */

void nccl_version_text(int version, char text[NCCL_VERSION_BYTES]);
int nccl_library_open(struct nccl *n);
void nccl_library_close(struct nccl_library *library);

/* ---- settle.c -------------------------------------------------------------------------------- */

/* Records the comm's first failure; returns its code. */
int nccl_fail(struct nccl *n, int native, int rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* An error of the device's stream is the comm's. */
int nccl_device_failed(struct nccl *n, int native, const char *doing);
uint64_t nccl_now_ns(void);
void nccl_nap(void);
/*
 * After a call of NCCL on that communicator: waits until it has taken it, which nothing may be
 * recorded in the stream before. `result` is what the call returned; comm may be null where that is
 * an error.
 */
int nccl_settle(struct nccl *n, struct nccl_comm *comm, enum nccl_result result, const char *call);
/* The thread of signs is to leave off what it waits for. */
bool nccl_is_ending(const struct nccl *n);
/* The failure of who is to end before what it waits for is there; else 0. */
int nccl_check_end(struct nccl *n);
/* Waits until a communicator that is being made is there. */
int nccl_settle_made(struct nccl *n, struct nccl_comm *parent, struct nccl_comm *const *made,
                     enum nccl_result result, const char *call);
/* It returns what NCCL tells of its communicators; 0 or the failure. */
int nccl_look(struct nccl *n);
/* Seconds that ranks are waited for. */
double nccl_limit_s(const struct nccl *n, const struct comm_op *op);
/* It lets what is begun now wait for what is left of the limit since then, and for ten seconds or
 * the limit at least. */
void nccl_wait_rest(struct nccl *n, uint64_t since_ns);
/* The failure that ranks do not come; names who, as far as that can be known. */
int nccl_late(struct nccl *n, const char *where, uint64_t since_ns);
/* The same of an operation once its time is over; else 0. */
int nccl_check_time(struct nccl *n, const struct comm_op *op, uint64_t since_ns);

/* ---- communicators.c ------------------------------------------------------------------------- */

/* Makes the communicators; info is filled. */
int nccl_join(struct nccl *n);
/* Makes those of the two hops and of nodes, from info; replaces what was there. */
int nccl_split(struct nccl *n);
/* The ranks of this rank's node, of which nodes have equally many; null: it is alone there. */
struct nccl_comm *nccl_node(const struct nccl *n);
/* The same ranks by the numbers that info has now. */
int nccl_renumber(struct nccl *n);
/* All ranks must. */
int nccl_leave(struct nccl *n);
/* Nobody is waited for: kernels that wait for others end. */
void nccl_abandon(struct nccl *n);

/* ---- memory.c -------------------------------------------------------------------------------- */

int nccl_alloc(struct nccl *n, size_t size_bytes, void **memory);
int nccl_free(struct nccl *n, void *memory);
/* All of it; `together`: all ranks do so. */
void nccl_free_all(struct nccl *n, bool together);
/* All ranks must, as the memory is a window. */
int nccl_take_ring(struct nccl *n);
int nccl_free_ring(struct nccl *n);
int nccl_take_stage(struct nccl *n);

/* ---- exchange.c ------------------------------------------------------------------------------ */

/* Some ranks, a communicator of them, and this one's place among them. */
struct peers {
    struct nccl_comm *comm;
    uint32_t count, self;
};

int nccl_exchange(struct nccl *n, const struct comm_op *op);
/* In a group: to and from one of the peers. */
int nccl_send_part(struct nccl *n, const struct peers *p, uint32_t peer, const char *from,
                   size_t bytes);
int nccl_receive_part(struct nccl *n, const struct peers *p, uint32_t peer, char *to, size_t bytes);
/* The group's end begins all of it, whatever went wrong in between: rc, which it returns then. */
int nccl_end_group(struct nccl *n, const struct peers *p, int rc);
/* Blocks of inputs whose sums come first, where a device adds no more at once; 0: it adds all. */
uint32_t nccl_blocks(const struct nccl *n, uint32_t inputs);
/*
 * out ← the sum of count elements of each of n->input, behind all that is in the stream. What
 * n->input has is used up.
 * partial [nccl_blocks][count] of 4 bytes, apart from all else, for sums of blocks
 */
int nccl_add(struct nccl *n, const struct hst_sum_ways *sum, float *partial, void *out,
             size_t count);
void nccl_count(struct nccl *n, uint64_t net, uint64_t between);
int nccl_too_small(struct nccl *n);

/* ---- sums.c ---------------------------------------------------------------------------------- */

/* An exchange of a tree with `quant`. */
int nccl_exchange_quantised(struct nccl *n, const struct comm_op *op);

/* ---- gathers.c ------------------------------------------------------------------------------- */

/* It gathers device memory in the world or the node, as it is or by integers. */
int nccl_gather(struct nccl *n, const struct comm_op *op);

/* ---- small.c --------------------------------------------------------------------------------- */

/* Values in host memory without a control comm; it waits until they are there. */
int nccl_small(struct nccl *n, const struct comm_op *op);
/* *value ← the sum of all ranks'. Its time is that of op since then, whose name a failure has. */
int nccl_sum_one(struct nccl *n, const struct comm_op *op, uint64_t since_ns, int64_t *value);

/* ---- signs.c --------------------------------------------------------------------------------- */

/* Starts the thread, where there is no control comm, and ranks are apart. All ranks must. */
int nccl_signs_begin(struct nccl *n);
/* Nothing uses NCCL any more but the owner. */
void nccl_signs_end(struct nccl *n);
/* All ranks have ended what they have begun and may take long to come back: from here on they give
 * signs of life. All must, at the same place. Where there is no thread it does nothing. */
int nccl_part(struct nccl *n);
/* All ranks have come back, to that operation or memory; where they are not apart it does nothing.
 * It waits as the operation does. After it, and after an error, they are not apart. */
int nccl_come(struct nccl *n, const struct comm_op *op);
/* The comm's failure as the owner may know it, which the thread may be writing. */
void nccl_failure(struct nccl *n, struct comm_failure *told);

/* ---- operations.c ---------------------------------------------------------------------------- */

/* Puts the operation into the stream, with the entry's events. */
int nccl_enqueue(struct nccl *n, struct entry *entry);
/* Looks what has ended; 0 or the failure. */
int nccl_progress(struct nccl *n);

#endif
