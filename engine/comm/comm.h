/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_COMM_H
#define HOISTWAY_ENGINE_COMM_H
/*
 * Communication between ranks, the processes that train one model: five operations behind one
 * table, so that the engine is written once for one rank and for many. A transport fills the table:
 * `self` (one rank, always there), plugins (libhoistway-mpi.so, libhoistway-nccl.so), and wrappers
 * around either (wrap.h).
 *
 * How it fits together:
 *   - A comm is opened from what a launcher said (ranks.h). It knows the ranks of this node (that
 *     share memory) and the nodes.
 *   - Operations are begun and return a ticket at once. All ranks begin the same operations in the
 *     same order; they run in that order, one after the other. comm_test tells that one has ended;
 *     until then its memory is the comm's.
 *   - Memory from comm_alloc, or given to comm_expose, can be read by the other ranks of the node
 *     in place: operations on it then need no messages. Elsewhere they take messages; the bytes
 *     are the same.
 *
 *   - A comm that was opened with a device has gathers and exchanges of device memory too. They
 *     are work of that device: they begin behind an event, and streams wait for them (comm_order)
 *     without the host.
 *
 * Sums: gradients are added by the tree of ways.h alone, integers by comm_sum64, which is exact.
 * Nothing is ever added by the library below. So results do not depend on ranks, nodes, transport
 * or time.
 *
 * Errors of every function that returns int: -EINVAL (the caller's mistake; nothing is begun),
 * -EAGAIN (comm_test: not yet; begin: COMM_IN_FLIGHT operations are under way, test some first),
 * or the comm's first failure, which stays: -EPIPE a rank has gone or does not answer, -EIO the
 * library below failed, -ENOMEM. comm_failure tells it in a line that names the rank. After a
 * failure comm_abort is what is left: other ranks may be waiting.
 * Thread-safety: a comm belongs to one thread. A transport may have a thread of its own.
 */
#include <hoistway/kernels.h>
#include <hoistway/ranks.h>

enum { COMM_IN_FLIGHT = 64, COMM_NOBODY = -1 };
#define COMM_PIECE_BYTES ((size_t)64 << 20)
#define COMM_PIECE_MOST  ((size_t)512 << 20)
#define COMM_LIMIT_S     60.0
#define COMM_HOST_BYTES  64u /* of a node's name, with its end */

struct comm_ops;

/** This is what every transport's own struct begins with. */
struct comm {
    const struct comm_ops *ops;
};

struct comm_dev_ops;

struct comm_config {
    size_t size;              /* sizeof(struct comm_config) */
    struct hst_launch launch; /* who this rank is */
    /* bytes of a buffer that an exchange receives into, of two; at most 512 MiB; 0: 64 MiB */
    size_t piece_bytes;
    /* seconds for which an operation, or closing, may wait for a rank before it fails; 0: 60 */
    double limit_s;
    bool messages; /* use messages even where memory could be shared (for tests and figures) */
    /* inputs that the device adds in one operation, a power of two, HST_SUM_INPUTS at most; more
       are added by blocks of so many; 0: HST_SUM_INPUTS (fewer are for tests) */
    uint32_t sum_inputs;
    /* set by comm_open: what adds, and makes integers of values and back, so that a plugin has no
       kernel of its own */
    int (*sum)(const struct hst_sum_ways *args);
    int (*quantise)(const struct hst_quantise *args);
    int (*dequantise)(const struct hst_dequantise *args);
    struct hst_dev *dev; /* a GPU, this rank's alone: its memory is joined too; null: none */
    /* set by comm_open, where there is a device: the comm of host memory, MPI's, or null; and what
       adds on the device */
    struct comm *control;
    int (*device_sum)(struct hst_stream *stream, const struct hst_sum_ways *args);
    void *(*library)(const char *soname, struct hst_dev_failure *failure); /* hst_plugin_library */
    /* set by comm_open, where there is a device: what makes integers and values on it */
    int (*device_quantise)(struct hst_stream *stream, const struct hst_quantise *args);
    int (*device_dequantise)(struct hst_stream *stream, const struct hst_dequantise *args);
};

/** This is what went wrong first. */
struct comm_failure {
    int native;     /* negative errno; 0: nothing */
    int rank;       /* that the line names; COMM_NOBODY where it names none */
    char text[400]; /* what, the value seen, why; one line, without a fix */
    char fix[160];  /* "": what helps follows from `native` */
};

struct comm_info {
    uint32_t rank, ranks;       /* of the world, numbered node by node */
    uint32_t local, locals;     /* of this node */
    uint32_t node, nodes;
    bool shared;                /* the last memory of comm_alloc or comm_expose is shared within
                                   the node */
    const char *transport;      /* "self", "Open MPI v4.1.4"; the comm's */
    char why_not_shared[160];   /* "" where it is shared, nothing was, or a node has one rank */
    bool lacks_room;            /* that is why: /dev/shm has too little */
    uint64_t room_used_bytes;   /* of this node's /dev/shm, where it lacks_room */
    /*
     * Bytes of others' elements that ended gathers and exchanges have taken in, by message or by
     * reading their memory, in the type that they had there; the part from other nodes; and the
     * part that was read in place.
     */
    uint64_t net_bytes, between_bytes, in_place_bytes;
    char note[96]; /* what the transport lacks, and does in its place; "": nothing */
    /* [ranks], the name of each rank's node; null: there is one, or none is known; the comm's */
    const char (*host)[COMM_HOST_BYTES];
};

/* ---- life ------------------------------------------------------------------------------------ */

/**
 * Opens the transport for config->launch: `self` for one rank, else the plugin `mpi`, which is
 * looked for where devices are (hst_plugin_load). All ranks of the world must do so. A comm of MPI
 * can be opened once in a process. With config->dev the plugin `nccl` joins device memory, and MPI
 * host memory where it launched; under torchrun values of host memory go through the device, and
 * exchanges of host memory are -ENOTSUP. One rank has nobody to join its device with:
 * that is `self` too.
 * Errors: -EINVAL, -ENODEV (no plugin, one of another version, a world that no transport carries,
 * or whose size MPI knows otherwise; no NCCL, or one that is too old, on any rank), -EBUSY,
 * -ENOMEM, -EIO, -EPIPE (NCCL: a rank does not come within limit_s), -ENOTSUP (NCCL: more ranks in
 * a hop than comm_hops_fit has); *failure (may be null) is written on failure.
 * Ownership: the caller closes it. Cost: seconds where MPI starts; one thread.
 */
int comm_open(const struct comm_config *config, struct comm **comm, struct comm_failure *failure);
/**
 * Joins device memory to a comm of MPI that is open, with nothing under way: *comm moves the memory
 * of config->dev too from then on. All ranks must. What all of them have is agreed on first: where
 * a rank has no plugin, no NCCL or one that is too old, all have -ENODEV and *comm as it was; so
 * they have with -ENOTSUP (comm_hops_fit).
 * Errors: those of comm_open; after another one than these two other ranks may be waiting, and
 * comm_abort is what is left.
 */
int comm_join(const struct comm_config *config, struct comm **comm, struct comm_failure *failure);
/**
 * All ranks must, with nothing under way. Frees what was allocated and sets *comm to null. Accepts
 * null in *comm. Waits at most limit_s for a rank, as an operation does: MPI ends all ranks
 * together. Who has more left to do than that lets the others know by operations meanwhile.
 * Errors: -EINVAL (operations are under way), -EPIPE (a rank has gone, does not come, or begins
 * another operation): then the comm stays open, comm_failure names the rank, and comm_abort is what
 * is left. After a failure it waits for none, and closes.
 */
int comm_close(struct comm **comm);
/**
 * Ends all other ranks, as far as the transport can, and with them this process, with `status`.
 * mpirun of Open MPI ends them once this one has gone, else MPI_Abort does. What that has not
 * ended after 5 s, _exit does. Returns where there is one rank: it has nobody to end.
 */
void comm_abort(struct comm *comm, int status);
void comm_info(struct comm *comm, struct comm_info *info);
/**
 * Takes another number: `rank` becomes this rank's. All ranks do so together, with nothing under
 * way and before any memory was given out or exposed. Numbers are each rank's own, and those of a
 * node follow one another: nodes and the ranks of a node are ordered by them.
 * Errors: -EINVAL (operations are under way, there is memory, no such rank), the comm's failure,
 * -EPIPE too (the numbers of a node do not follow one another).
 */
int comm_number(struct comm *comm, uint32_t rank);
/** The first failure; native 0 where there is none. */
void comm_failure(struct comm *comm, struct comm_failure *failure);
/**
 * Before ranks begin together what one of them may be unable to: all call it with what each has, rc
 * and, where that is not 0, *failure. Returns 0 where it is 0 on all of them. Else all return what
 * the first one has that fails, so that all do the same next; who has no failure of its own takes
 * that one's words, behind "rank 2: ", since a launcher may end the other before it has spoken.
 * Errors: besides, the comm's failure; -ENOMEM: the others then wait as for one that is late.
 * Cost: a sum of one number; a share where one fails.
 */
int comm_spread_failure(struct comm *comm, const char *name, int rc, struct comm_failure *failure);

/* ---- memory ---------------------------------------------------------------------------------- */

/**
 * Memory that begins at a page and is zero, shared within the node where that can be had. All ranks
 * of the world call it in the same order with the same size. Room is agreed on before any of it is
 * taken, of addresses and in /dev/shm, a tenth of which is left to others:
 * where a rank of the world has too little, none shares (why_not_shared).
 * A gather's row and an exchange's `in` lie in the same allocation on all ranks of the world, or in
 * none on all; else -EPIPE. Where they lie in it is each rank's own: buffers are taken in whatever
 * order they come free. Where that memory is shared, the operation uses it in place.
 * Waits at most limit_s for a rank, as comm_free does. Errors: -EINVAL (0 bytes, or operations are
 * under way), -ENOMEM, the comm's failure (-EPIPE: a rank asks for another size, or does not come).
 */
int comm_alloc(struct comm *comm, size_t size_bytes, void **memory);
/**
 * Makes memory that the caller has into an allocation that is shared, if that can be had: the pages
 * of [memory, memory + size_bytes) are then others, of /dev/shm, which are zero. Where it cannot be
 * had they stay as they were, and operations on them take messages (info.shared, why_not_shared).
 * Called by all ranks as comm_alloc is. With one rank it does nothing.
 * memory is mapped, private and anonymous, whole pages of 4 KiB; no I/O has a hold of it.
 * Ownership: the caller's, who unmaps it after comm_close.
 * Errors: as comm_alloc, and -EINVAL: it is not whole pages of 4 KiB.
 */
int comm_expose(struct comm *comm, void *memory, size_t size_bytes);
/**
 * All ranks, in the same order, with nothing under way; null: nothing. Errors: -EINVAL (operations
 * are under way, or it was not comm_alloc that gave it; it is not freed), the comm's failure.
 */
int comm_free(struct comm *comm, void *memory);

/**
 * Device memory, zeroed, that the library below moves best from and to; the device's budget does
 * not count it. Called by all ranks as comm_alloc is. Operations take other device memory too.
 * Errors: as comm_alloc, -ENOTSUP (a comm without a device).
 */
int comm_dev_alloc(struct comm *comm, size_t size_bytes, void **memory);
/** As comm_free, of comm_dev_alloc's. */
int comm_dev_free(struct comm *comm, void *memory);

/* ---- operations ------------------------------------------------------------------------------ */

/** This is what can be begun; the members that each uses stand at its function. */
enum comm_kind { COMM_GATHER = 1, COMM_EXCHANGE, COMM_SUM64, COMM_BCAST, COMM_SHARE };
struct comm_op {
    enum comm_kind kind;
    const char *name; /* what it is for, in messages: "layers.3"; static or the caller's */
    const void *in;
    void *out;
    size_t count;
    struct hst_sum_tree tree; /* COMM_EXCHANGE */
    /* Of a gather: what elements of which type travel as; 0: as they are, bytes of any kind. */
    enum hst_quant quant;
    enum hst_dtype dtype;
    bool near; /* a gather among the ranks of the node alone */
    uint32_t root;        /* COMM_BCAST */
    /* Ranks may come as late as an hour: they load, or read what they have. Who is stopped or gone
       is told within the limit all the same: by MPI one of this node, or a node beside; by NCCL
       alone any, and a GPU that hangs, as ranks give signs of life from comm_open, or the end of
       one that is patient, until they begin the next. There a patient one that follows one that
       is not waits no longer than that: what is to take long comes behind another. */
    bool patient;
    double within_s; /* ranks are waited for so long in it, whatever the comm's limit is; 0: that */
    /*
     * Gather, exchange: memory is the comm's device's, parts are aligned to 16 bytes, and `after`
     * is an event that it begins behind, or null. The event can be recorded anew once it is begun.
     */
    bool on_device;
    struct hst_event *after;
    /*
     * A gather on a device, of ranks of which each node has as many: device memory, apart from out,
     * that takes what the rank has to bring to a `near` gather of the same row; null: none does.
     * [ranks · count / locals]
     */
    void *keep;
};
/** A part of a gather or an exchange by integers on a device is a multiple of so many elements:
 * scales of these are as long as its memory is aligned. */
enum { COMM_DEVICE_QUANT = 4 * HST_QUANT_BLOCK };

/**
 * Bytes of others' elements that an operation brings to a rank at most, in the type that they have
 * in it; of a sum and a broadcast as if each rank sent all of it. locals: ranks of the rank's node.
 * Pure.
 */
uint64_t comm_op_bytes(const struct comm_op *op, uint32_t ranks, uint32_t locals);

#define COMM_WHY_BYTES 120u
/**
 * Of ranks whose GPUs NCCL joins: how many of a node add up before an exchange leaves it, a power
 * of two. 1: exchanges have one hop. uniform: all nodes have as many ranks.
 */
uint32_t comm_hop_group(const struct comm_info *info, bool uniform);
/** Whether a GPU can add what meets in a hop: HST_SUM_INPUTS blocks of as many inputs at most. why
 * is written where not. */
bool comm_hops_fit(const struct comm_info *info, bool uniform, char why[COMM_WHY_BYTES]);

/** This machine's name, where what is not printable ASCII is '?'. It is that by which ranks tell
 * each other apart, and may be cut. */
void comm_own_host(char name[COMM_HOST_BYTES]);
#define COMM_RANK_BYTES 96u
/** text ← "rank 2 (node1)", or "rank 2" where no nodes are named. Returns text. Pure. */
const char *comm_rank_text(const struct comm_info *info, uint32_t rank, char text[COMM_RANK_BYTES]);
/** "gather", "exchange", …; "operation" for what is none; static. */
const char *comm_kind_name(enum comm_kind kind);

/**
 * All-gather, in place:  whole[r·shard_bytes …] ← rank r's own part, for every r.
 * whole [ranks · shard_bytes]; this rank's part is there already, unless it is op.in of a gather on
 * a device (comm_begin): [shard_bytes], apart from whole.
 * Cost: receives (ranks - 1)·shard_bytes. In shared memory: reads them, one copy, and only
 * (nodes - 1)·shard_bytes come from other nodes.
 * Source: ZeRO stage 3 (arXiv:1910.02054, section 5.3), bandwidth-centric partitioning of
 * ZeRO-Infinity (arXiv:2104.07857, section 6.1).
 */
int comm_gather(struct comm *comm, const char *name, void *whole, size_t shard_bytes,
                uint64_t *ticket);
/**
 * The same, but parts travel as integers:  whole[r·count …] ← what those of rank r's `own` give
 * back (quantise.h), for every r, this rank among them. So all ranks have the same row.
 * own    [count] of dtype, the exact values; apart from `whole`
 * whole  [ranks · count] of dtype
 * count  elements of a shard, a multiple of HST_QUANT_BLOCK
 * Cost: receives (ranks - 1) integers and scales, and makes two passes over them. In shared memory
 * values that another rank of the node has given back are copied; integers come from other nodes.
 * On a device (comm_begin) `own` may be null: it is in its place in `whole` then, and what its
 * integers give back takes that place. count is there a multiple of COMM_DEVICE_QUANT.
 * Errors: -ENOTSUP on host memory without MPI, too.
 * Source: ZeRO++ (arXiv:2306.10209), section 3.1.
 */
int comm_gather_quantised(struct comm *comm, const char *name, const void *own, void *whole,
                          size_t count, enum hst_dtype dtype, uint64_t *ticket);
/**
 * All-gather among the ranks of the node:  whole[l·part_bytes …] ← local rank l's `own`.
 * own [part_bytes], apart from whole [locals · part_bytes]. Where `own` is shared it is read in
 * place. All ranks begin it; nodes wait for none of the others.
 * On a device (comm_begin) all of it is device memory.
 * Errors: -ENOTSUP on host memory without MPI, or on a device where nodes have different numbers of
 * ranks, too.
 * Source: ZeRO++ (arXiv:2306.10209), section 3.2.
 */
int comm_gather_near(struct comm *comm, const char *name, const void *own, void *whole,
                     size_t part_bytes, uint64_t *ticket);
/** Bytes of the integers and the scales of so many elements. Pure. */
uint64_t comm_quant_bytes(size_t count);
/** Bytes of a block of HST_QUANT_BLOCK elements of a node's sum, as a message has it. Pure. */
uint64_t comm_sum_block_bytes(const struct hst_sum_tree *tree, struct hst_sum_node node);
/**
 * Reduce-scatter, as an exchange and an own sum:
 *   out ← round(tree(rank 0's in[s], …, rank N-1's in[s]))     s: this rank's shard
 * tree  its ways are cut among the ranks: rank r's `in` is the sum of ways [r·W/N, (r+1)·W/N),
 *       W/N a power of two, or one rank
 * in    [ranks · elements] of the type that hst_sum_type tells for that node, which may be another
 *       one on the last rank; unchanged but for `out`
 * out   [elements] of the gradient's type; apart from `in`, or this rank's own shard of it where
 *       that has the same type
 * Cost: receives (ranks - 1)·elements, in pieces, through two buffers of piece_bytes; sums them on
 * the transport's thread. In shared memory it reads peers in place. Between nodes of 2^k ranks each
 * it takes two hops: (nodes - 1)·elements come from other nodes, in the type of a node's sum. With
 * tree.quant messages have integers and scales of what hst_sum_quantised tells; `elements` are
 * whole blocks, on a device (comm_begin) a multiple of COMM_DEVICE_QUANT.
 * Source: ZeRO stage 2 (arXiv:1910.02054, section 5.2); equal volume, other order: hoistway/ways.h.
 */
int comm_exchange(struct comm *comm, const char *name, const struct hst_sum_tree *tree,
                  const void *in, void *out, size_t elements, uint64_t *ticket);
/** values[i] ← Σ over ranks, modulo 2^64. values [count], count ≤ 2^20: exact.h, votes. */
int comm_sum64(struct comm *comm, const char *name, int64_t *values, size_t count,
               uint64_t *ticket);
/** memory ← rank root's. memory [size_bytes]. */
int comm_bcast(struct comm *comm, const char *name, void *memory, size_t size_bytes, uint32_t root,
               uint64_t *ticket);
/** all[r] ← rank r's own. own [each_bytes], all [ranks · each_bytes]; each_bytes ≤ 1 MiB. */
int comm_share(struct comm *comm, const char *name, const void *own, void *all, size_t each_bytes,
               uint64_t *ticket);
/**
 * Begins any of them. On a device it may wait until the library below has taken it, within the
 * limit: the first operations of a kind connect ranks. Without MPI one of the host's values has
 * ended when it returns, and behind comm_open and one that is patient it waits until all ranks have
 * begun it. Errors beside those above: -ENOTSUP (it is
 * on a device that the comm has not).
 */
int comm_begin(struct comm *comm, const struct comm_op *op, uint64_t *ticket);
/**
 * Work enqueued to `stream` from now on waits until that operation, on the comm's device, has
 * ended. A failure of the comm does not reach the stream: who waits for it looks at comm_test.
 * Errors: -EINVAL (no such ticket, or not of a device), -ENOTSUP, the stream's or the comm's.
 */
int comm_order(struct comm *comm, uint64_t ticket, struct hst_stream *stream);

/** 0: that operation has ended, and all begun before it. */
int comm_test(struct comm *comm, uint64_t ticket);
/** The same, but waits for it. Sleeps on comm_fd. */
int comm_wait(struct comm *comm, uint64_t ticket);
/**
 * A descriptor that poll finds readable after an operation has ended or the comm has failed; -1
 * where nothing ever has to be waited for. comm_test empties it. The comm's.
 */
int comm_fd(struct comm *comm);

/* ---- what a transport is --------------------------------------------------------------------- */

/** One entry per call above, arguments already checked. Every entry is set. */
struct comm_ops {
    size_t size; /* sizeof(struct comm_ops): append only */
    int (*close)(struct comm *comm); /* frees the comm, unless it fails */
    void (*abort)(struct comm *comm, int status);
    void (*info)(struct comm *comm, struct comm_info *info);
    void (*failure)(struct comm *comm, struct comm_failure *failure);
    int (*alloc)(struct comm *comm, size_t size_bytes, void **memory);
    int (*free)(struct comm *comm, void *memory);
    int (*begin)(struct comm *comm, const struct comm_op *op, uint64_t *ticket);
    int (*test)(struct comm *comm, uint64_t ticket);
    int (*fd)(struct comm *comm);
    /*
     * The library's own collectives on f32, for figures beside ours; blocking. COMM_GATHER: as
     * comm_gather. COMM_EXCHANGE: in, out as comm_exchange, added in the library's order. -ENOTSUP
     * where there is none.
     */
    int (*library)(struct comm *comm, const struct comm_op *op);
    int (*expose)(struct comm *comm, void *memory, size_t size_bytes);
    int (*number)(struct comm *comm, uint32_t rank);
    const struct comm_dev_ops *dev; /* null: it moves host memory alone */
};

/** These are of a transport that moves device memory. */
struct comm_dev_ops {
    int (*order)(struct comm *comm, uint64_t ticket, struct hst_stream *stream);
    int (*alloc)(struct comm *comm, size_t size_bytes, void **memory);
    int (*free)(struct comm *comm, void *memory);
};

/** This is what a plugin exports, under the name comm_plugin. */
struct comm_plugin {
    size_t size;         /* sizeof(struct comm_plugin) */
    const char *version; /* of the project, "0.1.0": must be that of the library */
    size_t ops_size;     /* sizeof(struct comm_ops): must be the same */
    int (*open)(const struct comm_config *config, struct comm **comm, struct comm_failure *failure);
};

/** The transport of one rank. Starts no thread; every operation has ended when it is begun. */
int comm_self_open(struct comm **comm);
/** Writes *failure (may be null), cut to fit, and returns native. */
int comm_fail(struct comm_failure *failure, int native, int rank, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
