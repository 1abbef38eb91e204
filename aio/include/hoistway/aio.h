/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_AIO_H
#define HOISTWAY_AIO_H
/*
 * Asynchronous, checked bulk I/O.
 *
 * The contract in one paragraph. hst_aio_submit returning n ≥ 0 means that exactly the first n
 * operations were taken and each of them will be reaped exactly once; a negative return means that
 * none was taken. Every completion says how many bytes moved and with which error; short transfers
 * are continued inside, so bytes == requested or error != 0. Nothing was written that was not
 * reported written, and nothing is durable before an HST_AIO_SYNC that was submitted after the
 * writes were reaped has completed without error. Progress happens only when the caller reaps: what
 * the kernel already has goes on, but no completion appears, no short transfer is continued and no
 * further piece of a large operation starts.
 *
 * In order: hst_aio_open; hst_aio_file_open, hst_aio_buffer_alloc; hst_aio_submit and hst_aio_reap
 * in turns, an HST_AIO_SYNC where bytes must last; on the way out, after an error too,
 * hst_aio_close, which waits for what is in flight, then hst_aio_file_close, hst_aio_buffer_free.
 *
 * Thread-safety: a context and its files belong to one thread at a time. They may be handed to
 * another thread while nothing is in flight (the first submit there costs about 0.05 ms on uring),
 * and a thread must not end while it has something in flight. Different contexts are independent.
 * A forked child inherits neither queues nor buffers: there submit and reap return -EINVAL and
 * close only forgets. The leaf logs nothing, prints nothing, installs no signal handler, never
 * exits; it returns negative errno.
 *
 * Many drives: one context per drive, all on one thread, and hst_aio_wait_any (or the descriptors
 * of hst_aio_fd in a poll of the caller's): a slow drive never keeps another one waiting.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Offsets, sizes and buffers of operations are multiples of this many bytes, whether the file is
 * direct or not.
 */
#define HST_AIO_ALIGN_BYTES 4096u
/** One hash of an operation covers this many bytes, the last one what is left. */
#define HST_AIO_HASH_BYTES (1u << 20)
/** hst_aio_open probes a directory in a file of this size; file systems must allow it. */
#define HST_AIO_PROBE_BYTES (6u << 20)

struct hst_aio;      /* queues of one backend; see hst_aio_open */
struct hst_aio_file; /* a preallocated file, opened once; see hst_aio_file_open */

struct hst_aio_world; /* what drives of the sim backend share; see hst_aio_world_create */

enum hst_aio_backend {
    HST_AIO_AUTO = 0, /* uring where the probe in the directory succeeds, else threads */
    HST_AIO_URING = 1,
    HST_AIO_THREADS = 2, /* a pool of threads in pread/pwrite: runs where io_uring is forbidden */
    /* moves nothing, completes at once: what the stack itself costs. Files have a size and no
       bytes; no path is looked at */
    HST_AIO_NULL = 3,
    /* a drive in memory with a model of its speed, in virtual time. Files hold their bytes, sparse;
       `directory` is the drive's name, paths name files of that drive, no path of the machine is
       looked at */
    HST_AIO_SIM = 4,
};

/* A context does without these although they may work: they are the lower rungs of the ladder. */
enum hst_aio_avoid {
    HST_AIO_AVOID_FIXED = 1u << 0,  /* buffers and files registered with the ring */
    HST_AIO_AVOID_DIRECT = 1u << 1, /* O_DIRECT */
};

/*
 * The model of HST_AIO_SIM, a text "sim:key=value,…":
 *
 *   read=, write=   bytes per second alone; required. Suffixes K M G T (powers of 1000) and Ki Mi
 *                   Gi Ti (of 1024) here and in all sizes
 *   mixed=          bytes per second of both together while reads and writes are both moving;
 *                   at most read + write; default (read + write) / 2: time sliced in halves
 *   lat=            latency of a request; suffixes ns us ms s; default 0
 *   jitter=         each request's latency is longer by a time drawn evenly from 0 up to, not
 *                   including, this; default 0
 *   seed=           what jitter is drawn from, in the order of requests; default 1. The k-th drive
 *                   opened in a world adds k - 1 to it
 *   slc=            bytes of fast write cache; default: no such cache, writes never slow down
 *   slc_write=      bytes per second of writes while the cache is full; default write / 4
 *   drain=          bytes per second that leave the cache of an idle drive; default slc_write
 *   size=           capacity in bytes; default: none
 *
 * Each at most once; rates from 1K to 1000T, times up to 1000s.
 *
 * In formulas, R W M L C S D being the values above, J what jitter drew. A piece (an operation, cut
 * to piece_bytes) of b bytes that is given to the drive at time t
 *   - may start to move at t + L + J;
 *   - then queues behind those of its direction that might start no later;
 *   - moves at rate r: R or W where only its direction has a piece that moves, else its direction's
 *     share: M·R/(R+W) for reads, M·W/(R+W) for writes. A change of the other direction changes r
 *     from that moment on for what is left of b;
 *   - a write moves at no more than S while the cache is full. Every byte written fills it by one;
 *     it is full at C bytes. It drains at D while the drive has no request at all, latency
 *     included;
 *   - is complete, its bytes copied, when b bytes have moved, rounded up to a whole nanosecond.
 * A sync takes L + J and waits for all requests given before it. So, one direction only and J = 0,
 * q requests of b bytes kept in the drive: rate = min(R, q·b / (L + b/R)); n bytes written at once
 * into an empty cache: L + min(n, C)/W + max(0, n - C)/S.
 */

/*
 * A plan of faults, for hst_aio_config.fault: rules separated by ';', each a list of words
 * separated by blanks or commas. Requests (what goes to the drive: pieces, their continuations and
 * retries) are numbered from 1 from the moment hst_aio_open returns; the first rule that is due
 * strikes. The handling of short results and errors lies above, so that it is what is tested.
 *
 *   which    op=read|write|sync|any   (any)   nth=N  the first matching request to strike (1)
 *            every=N  from there on each N-th (1)      times=N|all  so many of them (1)
 *            odds=N  each of them only with a chance of 1/N, by the seed (1)
 *            at=BYTES len=BYTES   only requests that touch this range of their file; with err=,
 *                     short= and torn= like a bad place on a medium
 *   what     err=NAME    EIO, ENOSPC, …, or a number: nothing is moved, that is the result
 *            short=BYTES only so many bytes move, and are the result (half: half the request)
 *            torn[=BYTES] so many bytes of a write move (by the seed: some), the result is err=
 *                     (EIO). A tear is a multiple of 4 KiB, on sim of 512 bytes
 *            late=TIME   the result comes that much later, by the context's clock
 *            reordered[=N] the result comes after N later ones (3), or when nothing else is left
 *            vanish      this and all later requests of any kind: err= (ENODEV)
 *            flip[=BIT]  one bit (by the seed) of what was read is inverted, silently
 *   alone    seed=N      for torn, odds and flip (1); a rule of its own
 *
 * Each word once in a rule, one `what` (beside err= with torn and vanish), at most 64 rules.
 * Example: "op=write nth=17 err=EIO; op=read nth=3 times=2 short=4096; seed=7". Results replay
 * exactly where requests come in the same order: always on null and sim, on real drives as far as
 * the caller keeps one request in flight. An empty plan wraps the backend and never strikes.
 */

struct hst_aio_config {
    size_t size;                  /* sizeof(struct hst_aio_config) */
    enum hst_aio_backend backend; /* 0: HST_AIO_AUTO */
    uint32_t queue_depth;         /* greatest number of operations in flight; 0: 64, at most 4096 */
    uint32_t thread_count;        /* of the threads backend; 0: 16, at most 64 */
    /* large operations go to the kernel in pieces of this size, a multiple of HST_AIO_ALIGN_BYTES,
       at most 1 GiB; 0: 1 MiB. max(16, queue_depth) pieces are in flight at most */
    uint32_t piece_bytes;
    uint32_t avoid;               /* of enum hst_aio_avoid */
    /* how long opening a named file waits for another process that has it; 0: 30 s */
    uint32_t lock_timeout_ms;
    const char *model;            /* of HST_AIO_SIM, which needs it; borrowed by the open only */
    const char *fault;            /* null: none; wraps whichever backend runs; borrowed likewise */
    /* of HST_AIO_SIM: the clock and drives to share, which must outlive the context; null: its
       own */
    struct hst_aio_world *world;
    /* how long a caller waits for a drive that answers nothing at all before the context breaks
       with -ETIMEDOUT, ten times as long with a sync in flight; 0: 120 s. Of operations: opening
       files waits for a drive as the system does */
    uint32_t timeout_ms;
    /* other than 0: a directory without room for the probe's file is taken, for files that are
       there already. Backends are then probed with a sync, O_DIRECT with an empty read */
    uint32_t may_be_full;
};

enum { HST_AIO_REFUSAL_BYTES = 128 };

/**
 * It holds what hst_aio_open found out and chose, for the one log line that says which rung of the
 * ladder runs.
 */
struct hst_aio_info {
    enum hst_aio_backend backend; /* the one that runs, never AUTO */
    bool direct;                  /* O_DIRECT works in the probed directory */
    /* the directory's file system is RAM (tmpfs, ramfs), or the backend null or sim: nothing there
       is durable */
    bool in_memory;
    int uring_error;              /* 0, or the negative errno for which io_uring was not taken */
    /* where: "io_uring_setup", "write", …; static text, null without error */
    const char *uring_step;
    /* 0, or the negative errno of the O_DIRECT open or transfer: files are buffered */
    int direct_error;
    bool fixed;       /* uring: buffers and files can be registered with the ring */
    int fixed_error;  /* uring: 0, or the negative errno for which they cannot */
    int uring_sysctl; /* kernel.io_uring_disabled: 0, 1, 2; -1 where there is no such setting */
    uint64_t memlock_bytes; /* RLIMIT_MEMLOCK, UINT64_MAX: none; what -ENOMEM of uring is about */
    /* what statx(2) says O_DIRECT needs there; 0: it does not say */
    uint32_t direct_memory_align_bytes, direct_offset_align_bytes;
    uint32_t request_limit; /* pieces in flight at most: fewer on a ring that had to be halved */
    /* empty; or of a model or plan that was refused: the word, and what is wrong with it */
    char refusal[HST_AIO_REFUSAL_BYTES];
    uint64_t capacity_bytes; /* sim: size= of the model; 0: none was given */
    /* null; or the system call that memory for I/O needs and a sandbox refuses: the error of the
       open is its; static text */
    const char *refused_call;
};

/**
 * Opens a context, after a real probe in `directory`: transfers of 4 KiB, 1 MiB and 4 MiB are
 * written, synced, read back and compared through each backend that is a candidate, in a file
 * without a name. null and sim are not probed.
 *
 * config     null: all defaults; one of a smaller `size`, from an older header, is taken
 * directory  where the files will live; must exist and be writable
 * aio, info  written on success only (info may be null); info is also written when the probe of a
 *            backend fails, a system call is refused, or a model or plan is, so that the caller can
 *            say why
 *
 * Errors: -EINVAL; -ENOENT, -EACCES, -EROFS, -ENOSPC, -EFBIG from the directory and its limits;
 * -EPERM, -ENOSYS, -ENOMEM, … from a forced HST_AIO_URING (never degraded silently); -EAGAIN no
 * threads left; -EIO the probe read back other bytes than it wrote; -EINVAL also for a model or
 * plan that is refused, -E2BIG for one of too many rules; -EBUSY a drive of the world is open in
 * another context.
 * Ownership: the caller destroys *aio with hst_aio_close. Thread-safety: safe. Cost: 10 MiB of I/O
 * per candidate.
 */
int hst_aio_open(const struct hst_aio_config *config, const char *directory, struct hst_aio **aio,
                 struct hst_aio_info *info);

/**
 * Waits for what is in flight (its completions are dropped), frees the context, sets *aio to null.
 * Accepts null in *aio. Files may be closed before or after it; after it they can only be closed.
 */
void hst_aio_close(struct hst_aio **aio);

/**
 * Contexts on sim share this: one virtual clock, and the drives with their files, which outlive the
 * contexts: a context opened later under the same `directory` finds the files and the cache as they
 * were, with the speeds of its own model. Destroy it after them. Errors: -ENOMEM. A world and its
 * contexts belong to one thread at a time.
 */
int hst_aio_world_create(struct hst_aio_world **world);
void hst_aio_world_destroy(struct hst_aio_world **world); /* accepts null in *world */

/**
 * The clock that all times of this context are on, in ns: monotonic; on sim virtual, from 0: it
 * moves only while something waits (hst_aio_reap, hst_aio_wait_any, hst_aio_idle).
 */
uint64_t hst_aio_clock_ns(const struct hst_aio *aio);
/** Lets time pass: sleeps; on sim moves the clock at once. What is in flight goes on meanwhile. */
void hst_aio_idle(struct hst_aio *aio, uint64_t duration_ns);

enum hst_aio_file_flag { /* none: an existing file, read and written. They exclude each other. */
    /* `path` is a directory: an unnamed file in it (O_TMPFILE, or created 0600 and unlinked) */
    HST_AIO_SCRATCH = 1u << 0,
    HST_AIO_CREATE = 1u << 1,   /* create `path` (0600), which must not exist */
    HST_AIO_READONLY = 1u << 2, /* never extended; writes are refused */
};

/**
 * Opens one file, O_DIRECT where the probe found it possible, and preallocates it: after success no
 * write inside size_bytes can fail for want of space on a file system that does not copy on write.
 * Where the file system has no fallocate, what lies beyond the old end is written with zeros
 * instead (holes before it stay holes). Existing contents are kept. A longer file stays longer;
 * operations reach its first size_bytes.
 *
 * A named file is locked (flock: shared where read-only, else exclusive) until it is closed, and
 * the requests of a killed process hold its lock until the drive has answered them: who gets the
 * lock sees no ghost writes. Scratch files need none.
 *
 * path        an ordinary path, relative to the working directory (not to the context's), on the
 *             file system that was probed; on sim a name on that drive
 * size_bytes  a multiple of HST_AIO_ALIGN_BYTES, > 0; with HST_AIO_READONLY 0 is allowed: the file
 *             as it is
 *
 * Errors: -EINVAL also for what is not a regular file, and for a file opened as it is whose size is
 * no multiple of HST_AIO_ALIGN_BYTES; -ENOSPC, -EDQUOT, -EFBIG (RLIMIT_FSIZE, without its signal)
 * with nothing left behind; -EEXIST; -ELOOP a symbolic link; -ENODATA a read-only file is shorter
 * than size_bytes; -EBUSY locked by another process for lock_timeout_ms (or by this one);
 * -ENOLCK no locks there; open(2)'s.
 * Thread-safety: the context's thread. (A limit that is lowered below an open file's size later
 * makes writes beyond it end with -EFBIG, and uring then delivers SIGXFSZ to the submitting thread
 * as write(2) would.)
 */
int hst_aio_file_open(struct hst_aio *aio, const char *path, unsigned flags, uint64_t size_bytes,
                      struct hst_aio_file **file);
/*
 * Nothing on it may be in flight (asserted); accepts null in *file. A file whose operations were
 * lost with their context stays open and locked until the process ends: they may yet be carried
 * out.
 */
void hst_aio_file_close(struct hst_aio_file **file);
uint64_t hst_aio_file_size(const struct hst_aio_file *file); /* bytes */

enum hst_aio_kind {
    HST_AIO_READ = 1,
    HST_AIO_WRITE = 2,
    HST_AIO_SYNC = 3 /* fdatasync; offset, buffer, bytes unused */
};

struct hst_aio_op {
    enum hst_aio_kind kind;
    struct hst_aio_file *file;
    uint64_t offset;     /* bytes from the start of the file */
    void *buffer;        /* borrowed until the completion is reaped; not written by WRITE */
    /* any multiple of HST_AIO_ALIGN_BYTES, > 0; larger than piece_bytes is cut inside */
    uint64_t bytes;
    uint64_t user;       /* comes back with the completion */
    /*
     * null: none. Else XXH3-64 (seed 0) of each HST_AIO_HASH_BYTES of the buffer, the last one of
     * what is left: ceil(bytes / HST_AIO_HASH_BYTES) values. A write fills them, from the caller's
     * buffer, before its bytes are submitted; a read compares them with what arrived. Borrowed like
     * the buffer.
     */
    uint64_t *hashes;
};

struct hst_aio_completion {
    uint64_t user;
    /* moved; == the operation's where error is 0 (0 of a sync); else it is not known which ones */
    uint64_t bytes;
    /* 0, or negative errno: -EIO, -ENOSPC, -ENODATA (end of file before the last byte), -EAGAIN and
       -EINTR (the kernel said so 8 times in a row, also of small requests), -ENODEV (the drive is
       gone), -EBADMSG (all bytes were read, and their hashes are not those given), … */
    int error;
    /*
     * It tells where it went wrong, in the file; bad_bytes 0: not known. Of -EBADMSG the first
     * block whose hash differs. Of a read's media error (-EIO, -EREMOTEIO, -EILSEQ; the kernel's
     * -ENODATA comes as -EIO) the first range found that cannot be read, exact to 4 KiB up to 64
     * KiB, a longer one to the end of its piece. Of other errors the request that failed.
     */
    uint64_t bad_offset, bad_bytes;
};

/**
 * Queues operations in order; they complete in any order.
 *
 * What is tried again inside: EINTR at once and EAGAIN after a pause (0.1 ms, doubled each time), 8
 * times each without progress, EAGAIN then again in requests of at most 512 KiB; a result inside
 * the first 4 KiB 8 times; a media error of a read twice, then halved down to 4 KiB to find its
 * range; of a write once; an error of a sync never. -ENODEV and -ENXIO mean that the drive is gone:
 * what has not gone to it ends with -ENODEV too.
 *
 * Returns how many were taken (the first n; n < count is back-pressure: reap, then submit the
 * rest; count 0 only asks whether the context works), or
 * Errors: -EAGAIN no room for even one; -EINVAL any of the `count` is misaligned, out of its file,
 * of a bad kind, a write to a read-only file, or on another context's file; on a thread that is new
 * to the context also what a new ring may return (-ENOMEM, …): nothing was taken. -ENODEV
 * the drive is gone. The error of hst_aio_reap when the context is broken.
 * Cost: one system call on uring, two where nothing is in flight (gettid, for the thread's sake);
 * no allocation.
 */
int hst_aio_submit(struct hst_aio *aio, const struct hst_aio_op *ops, size_t count);

/**
 * Collects completions, at most `capacity`; waits until there are at least `least` of them (0: do
 * not wait) or `timeout_ns` has passed (UINT64_MAX: no limit). Never waits for more than is in
 * flight. A signal does not end the wait.
 *
 * Returns how many were written, 0 after a timeout or with nothing in flight; negative errno only
 * when the context is broken (then every operation in flight is lost and nothing is in flight any
 * more; close it; the buffers of lost operations may still be written to): -ETIMEDOUT, the drive
 * has answered none of its requests for timeout_ms (ten times that with a sync in flight), in
 * which the caller waited or looked at least four times as often; on uring what io_uring_enter(2)
 * returns.
 * Cost: on uring usually one system call; more where larger operations have to be fed. No
 * allocation.
 */
int hst_aio_reap(struct hst_aio *aio, struct hst_aio_completion *completions, size_t capacity,
                 size_t least, uint64_t timeout_ns);

/** Operations taken and not yet reaped. */
size_t hst_aio_in_flight(const struct hst_aio *aio);

/**
 * Waits until hst_aio_reap of any of the contexts would return a completion (or its error), or
 * timeout_ns has passed. Feeds and continues what is in flight in all of them meanwhile.
 *
 * contexts  at most HST_AIO_WAIT_MAX; all on real time, or all of one world
 * ready     [count], written: which ones
 *
 * Returns how many are ready; 0 after a timeout or where nothing is in flight. Errors: -EINVAL, or
 * poll(2)'s. No allocation. Cost: a system call per uring context and one poll.
 */
int hst_aio_wait_any(struct hst_aio *const *contexts, size_t count, bool *ready,
                     uint64_t timeout_ns);
#define HST_AIO_WAIT_MAX 64u

/**
 * A descriptor that polls readable while there may be something to do, for event loops: then call
 * hst_aio_reap with least 0 until it returns less than its capacity, and only then poll again. It
 * is the context's: never read, write or close it. Errors: -ENOTSUP on null and sim, or those of
 * epoll_create1(2), epoll_ctl(2), eventfd(2), timerfd_create(2), io_uring_register(2). The first
 * call makes it.
 */
int hst_aio_fd(struct hst_aio *aio);

enum { HST_AIO_LATENCY_BUCKETS = 40 };
struct hst_aio_counters {
    uint64_t reads, writes, syncs;      /* operations completed, those with errors included */
    uint64_t read_bytes, written_bytes; /* moved by them */
    uint64_t requests;                  /* given to the drive: pieces, continuations, retries */
    uint64_t retries;       /* requests given again after an error or a result without progress */
    uint64_t short_results; /* requests that moved less than asked, but something */
    uint64_t errors;        /* operations completed with an error */
    uint64_t busy_ns;       /* with at least one operation in flight */
    uint32_t most_in_flight; /* operations */
    /* operations by time from submit to the reap that found them done: bucket i counts
       2^i ≤ ns < 2^(i+1), bucket 0 also 0, the last one all above */
    uint64_t read_latency[HST_AIO_LATENCY_BUCKETS], write_latency[HST_AIO_LATENCY_BUCKETS],
        sync_latency[HST_AIO_LATENCY_BUCKETS];
};
/** Since the open. Always on: two reads of the clock per submit and reap. */
void hst_aio_counters(const struct hst_aio *aio, struct hst_aio_counters *counters);

/* ---- memory ---------------------------------------------------------------------------------- */

/**
 * Anonymous memory for I/O and computation, zeroed, aligned to 2 MiB, advised to be huge pages, not
 * inherited by fork, not in core dumps. Errors: -EINVAL, -ENOMEM. The caller frees it with the same
 * size.
 */
int hst_aio_buffer_alloc(size_t size_bytes, void **buffer);
void hst_aio_buffer_free(void *buffer, size_t size_bytes);

/**
 * Registers memory with the context's ring: its pages stay pinned, and operations inside it cost
 * the kernel less. Only a matter of speed: operations elsewhere work as well. Anonymous memory;
 * at most 64 parts of at most 512 MiB per context. No operation may be in flight on it when it is
 * unregistered. Both on the context's thread.
 *
 * Errors: -ENOTSUP this backend or kernel has nothing to register with; -ENOMEM more than
 * RLIMIT_MEMLOCK lets the user pin; -ENOSPC all parts taken; -EINVAL, -EFAULT, -EOPNOTSUPP not such
 * memory. All of them may be ignored.
 */
int hst_aio_buffer_register(struct hst_aio *aio, void *buffer, size_t size_bytes);
void hst_aio_buffer_unregister(struct hst_aio *aio, void *buffer); /* ignores what is not */

struct hst_aio_buffer_config {
    size_t size;        /* sizeof(struct hst_aio_buffer_config) */
    bool hugetlb;       /* take reserved huge pages (hugetlbfs) where there are enough */
    bool bind;          /* place on NUMA node `node` */
    uint32_t node;      /* number of the machine, as in /sys/devices/system/node */
    struct hst_aio *aio; /* register with it; null: with none. Must outlive the buffer */
    /* null, or pins the memory for a device (cudaHostRegister): 0 or negative errno */
    int (*pin)(void *arg, void *memory, size_t size_bytes);
    void (*unpin)(void *arg, void *memory, size_t size_bytes);
    void *pin_arg;
};

/* Memory and what became of each wish: 0, or the negative errno for which it was not granted. */
struct hst_aio_buffer {
    void *memory;
    size_t size_bytes; /* as asked for */
    int hugetlb_error, bind_error, register_error;
    size_t mapped_bytes;
    struct hst_aio_buffer_config config;
};

/**
 * As hst_aio_buffer_alloc, with wishes. Only memory that cannot be had or pinned is an error; what
 * else is not granted is in the fields. Every page is touched, so that none is missing later.
 * Errors: -EINVAL, -ENOMEM, those of `pin`. Thread-safety: the context's thread where there is one.
 */
int hst_aio_buffer_open(const struct hst_aio_buffer_config *config, size_t size_bytes,
                        struct hst_aio_buffer *buffer);
/**
 * Accepts a zeroed one, zeroes it. Memory whose context has broken stays mapped: lost operations
 * may still write to it.
 */
void hst_aio_buffer_close(struct hst_aio_buffer *buffer);

/**
 * Lays out arrays of sizes_bytes[count] one behind the other so that array i starts at
 * i · 1088 modulo 4096: what is worked on side by side then does not fall into the same sets of the
 * cache. Returns the bytes from the first to the end of the last; offsets[count] is written.
 */
size_t hst_aio_stagger(const size_t *sizes_bytes, size_t count, size_t *offsets);

/* ---- streaming ------------------------------------------------------------------------------- */

/*
 * Moves a range of a file tile by tile through a small ring of hot memory: each tile is read,
 * handed to a function that works on it where it lies, and written. The next tiles are read and the
 * last ones written meanwhile. A few MiB stay in the cache, which a buffer of the whole range does
 * not.
 */
struct hst_aio_stream;

struct hst_aio_stream_config {
    size_t size;         /* sizeof(struct hst_aio_stream_config) */
    uint32_t tile_bytes; /* a multiple of HST_AIO_ALIGN_BYTES; 0: 1 MiB */
    uint32_t depth;      /* tiles of the ring, 1 … 64; 0: 16, or what hst_aio_stream_tune finds */
    const struct hst_aio_buffer_config *buffer; /* its `aio` is set here; null: defaults */
};

struct hst_aio_stream_job {
    struct hst_aio_file *from; /* null: nothing is read, the function fills the tiles */
    struct hst_aio_file *to;   /* null: nothing is written. May be `from` */
    uint64_t from_offset, to_offset, bytes; /* multiples of HST_AIO_ALIGN_BYTES; the last tile may
                                               be shorter */
    /*
     * Called once per tile, in order of offsets, on the caller's thread; null: tiles pass as they
     * are. `offset` counts from the start of the range. Anything but 0 ends the run with that.
     */
    int (*tile)(void *arg, void *memory, uint64_t offset, uint64_t bytes);
    void *arg;
    /* null, or ceil(bytes / HST_AIO_HASH_BYTES) values: compared by the reads, filled by the
       writes; tile_bytes then is a multiple of HST_AIO_HASH_BYTES */
    uint64_t *read_hashes, *write_hashes;
};

/**
 * Makes the ring. The context must outlive it, have queue_depth ≥ depth, and nothing else in flight
 * during a run. Errors: -EINVAL, -ENOMEM.
 */
int hst_aio_stream_open(struct hst_aio *aio, const struct hst_aio_stream_config *config,
                        struct hst_aio_stream **stream);
void hst_aio_stream_close(struct hst_aio_stream **stream); /* accepts null in *stream */

/**
 * Runs a job to its end. Returns 0, the function's value, or the first error; then nothing is in
 * flight any more and *bad, where not null, is the completion that failed. No allocation.
 */
int hst_aio_stream_run(struct hst_aio_stream *stream, const struct hst_aio_stream_job *job,
                       struct hst_aio_completion *bad);

/**
 * Finds the depth by reading: 2, 4, 8, … tiles, up to config.depth (0: 16), each for a part of the
 * first 64 MiB of `file`; takes the smallest that is within 3 % of the fastest, and uses it from
 * now on. Returns it. Errors: as a run; -EINVAL less than 2 tiles. Runs of the same depth are the
 * same to the byte; only the search depends on time, by the context's clock.
 */
int hst_aio_stream_tune(struct hst_aio_stream *stream, struct hst_aio_file *file);

#ifdef __cplusplus
}
#endif
#endif
