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
 * Thread-safety: a context and its files belong to one thread at a time. They may be handed to
 * another thread while nothing is in flight (the first submit there costs about 0.05 ms on uring),
 * and a thread must not end while it has something in flight. Different contexts are independent.
 * The leaf logs nothing, prints nothing, installs no signal handler, never exits; it returns
 * negative errno.
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

struct hst_aio;      /* queues of one backend; see hst_aio_open */
struct hst_aio_file; /* a preallocated file, opened once; see hst_aio_file_open */

enum hst_aio_backend {
    HST_AIO_AUTO = 0, /* uring where the probe in the directory succeeds, else threads */
    HST_AIO_URING = 1,
    HST_AIO_THREADS = 2, /* a pool of threads in pread/pwrite: runs where io_uring is forbidden */
};

struct hst_aio_config {
    size_t size;                  /* sizeof(struct hst_aio_config) */
    enum hst_aio_backend backend; /* 0: HST_AIO_AUTO */
    uint32_t queue_depth;         /* greatest number of operations in flight; 0: 64, at most 4096 */
    uint32_t thread_count;        /* of the threads backend; 0: 4, at most 64 */
    /* large operations go to the kernel in pieces of this size, a multiple of HST_AIO_ALIGN_BYTES,
       at most 1 GiB; 0: 1 MiB. max(16, queue_depth) pieces are in flight at most */
    uint32_t piece_bytes;
};

/**
 * What hst_aio_open found out and chose: for the one log line that says which rung of the ladder
 * runs.
 */
struct hst_aio_info {
    enum hst_aio_backend backend; /* the one that runs, never AUTO */
    bool direct;                  /* O_DIRECT works in the probed directory */
    /* the directory's file system is RAM (tmpfs, ramfs): nothing there is durable */
    bool in_memory;
    int uring_error;              /* 0, or the negative errno for which io_uring was not taken */
    /* where: "io_uring_setup", "write", …; static text, null without error */
    const char *uring_step;
    /* 0, or the negative errno of the O_DIRECT open or transfer: files are buffered */
    int direct_error;
};

/**
 * Opens a context, after a real probe in `directory`: transfers of 4 KiB, 1 MiB and 4 MiB are
 * written, synced, read back and compared through each backend that is a candidate, in a file
 * without a name.
 *
 * config     null: all defaults
 * directory  where the files will live; must exist and be writable
 * aio, info  written on success only (info may be null); info is also written when the probe of a
 *            backend fails, so that the caller can say why
 *
 * Errors: -EINVAL; -ENOENT, -EACCES, -EROFS, -ENOSPC, -EFBIG from the directory and its limits;
 * -EPERM, -ENOSYS, -ENOMEM, … from a forced HST_AIO_URING (never degraded silently); -EAGAIN no
 * threads left; -EIO the probe read back other bytes than it wrote.
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
 * path        on the file system of the probed directory
 * size_bytes  a multiple of HST_AIO_ALIGN_BYTES, > 0; with HST_AIO_READONLY 0 is allowed: the file
 *             as it is
 *
 * Errors: -EINVAL also for what is not a regular file, and for a file opened as it is whose size is
 * no multiple of HST_AIO_ALIGN_BYTES; -ENOSPC, -EDQUOT, -EFBIG (RLIMIT_FSIZE, without its signal)
 * with nothing left behind; -EEXIST; -ELOOP a symbolic link; -ENODATA a read-only file is shorter
 * than size_bytes; open(2)'s.
 * Thread-safety: the context's thread. (A limit that is lowered below an open file's size later
 * makes writes beyond it end with -EFBIG, and uring then delivers SIGXFSZ to the submitting thread
 * as write(2) would.)
 */
int hst_aio_file_open(struct hst_aio *aio, const char *path, unsigned flags, uint64_t size_bytes,
                      struct hst_aio_file **file);
/* nothing on it may be in flight (asserted); accepts null in *file */
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
};

struct hst_aio_completion {
    uint64_t user;
    /* moved; == the operation's where error is 0 (0 of a sync); else it is not known which ones */
    uint64_t bytes;
    /* 0, or negative errno: -EIO, -ENOSPC, -ENODATA (end of file before the last byte), -EAGAIN and
       -EINTR (the kernel said so 8 times in a row), … */
    int error;
};

/**
 * Queues operations in order; they complete in any order.
 *
 * Returns how many were taken (the first n; n < count is back-pressure: reap, then submit the
 * rest), or
 * Errors: -EAGAIN no room for even one; -EINVAL any of the `count` is misaligned, out of its file,
 * of a bad kind, a write to a read-only file, or on another context's file; on a thread that is new
 * to the context also what a new ring may return (-ENOMEM, …): nothing was taken. The error of
 * hst_aio_reap when the context is broken.
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
 * more; close it; the buffers of lost operations may still be written to).
 * Cost: on uring usually one system call; more where larger operations have to be fed. No
 * allocation.
 */
int hst_aio_reap(struct hst_aio *aio, struct hst_aio_completion *completions, size_t capacity,
                 size_t least, uint64_t timeout_ns);

/** Operations taken and not yet reaped. */
size_t hst_aio_in_flight(const struct hst_aio *aio);

/**
 * Anonymous memory for I/O and computation, zeroed, aligned to 2 MiB, advised to be huge pages, not
 * inherited by fork. Errors: -EINVAL, -ENOMEM. The caller frees it with the same size.
 */
int hst_aio_buffer_alloc(size_t size_bytes, void **buffer);
void hst_aio_buffer_free(void *buffer, size_t size_bytes);

#ifdef __cplusplus
}
#endif
#endif
