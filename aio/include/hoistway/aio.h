/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_AIO_H
#define HOISTWAY_AIO_H
/*
 * Asynchronous, checked bulk I/O.
 *
 * The contract in one paragraph. hst_aio_submit returning n ≥ 0 means that exactly the first n operations
 * were taken and each of them will be reaped exactly once; a negative return means that none was taken.
 * Every completion says how many bytes moved and with which error; short transfers are continued inside, so
 * bytes == requested or error != 0. Nothing was written that was not reported written, and nothing is durable
 * before an HST_AIO_SYNC that was submitted after the writes were reaped has completed without error.
 * Progress happens only when the caller reaps.
 *
 * Thread-safety: a context and its files belong to one thread at a time. Different contexts are independent.
 * The leaf logs nothing, prints nothing, installs no signal handler, never exits; it returns negative errno.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Offsets, sizes and buffers of operations on a direct file are multiples of this many bytes. */
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
    uint32_t piece_bytes;         /* large operations go to the kernel in pieces of this size; 0: 1 MiB */
};

/** What hst_aio_open found out and chose: for the one log line that says which rung of the ladder runs. */
struct hst_aio_info {
    enum hst_aio_backend backend; /* the one that runs, never AUTO */
    bool direct;                  /* O_DIRECT works in the probed directory */
    bool in_memory;               /* the directory's file system is RAM (tmpfs, ramfs): nothing there is durable */
    int uring_error;              /* 0, or the negative errno for which io_uring was not taken */
    const char *uring_step;       /* where: "io_uring_setup", "write", …; static text, null without error */
    int direct_error;             /* 0, or the negative errno of the O_DIRECT open or transfer */
};

/**
 * Opens a context, after a real probe in `directory`: a file of 4 KiB, 1 MiB and 4 MiB transfers is written, synced, read
 * back and compared by each backend that is a candidate; the file is unlinked before it is used.
 *
 * config     null: all defaults
 * directory  where the files will live; must exist and be writable
 * aio, info  written on success only (info may be null); info is also written when the probe of a forced
 *            backend fails, so that the caller can say why
 *
 * Errors: -EINVAL; -ENOENT, -EACCES, -EROFS, -ENOSPC from the directory; -EPERM, -ENOSYS, -ENOMEM, … from a
 * forced HST_AIO_URING (never degraded silently); -EIO the probe read back other bytes than it wrote.
 * Ownership: the caller destroys *aio with hst_aio_close. Thread-safety: safe. Cost: about 20 MiB of I/O, once.
 */
int hst_aio_open(const struct hst_aio_config *config, const char *directory, struct hst_aio **aio,
                 struct hst_aio_info *info);

/** Waits for what is in flight (its completions are dropped), frees the context, sets *aio to null. Files must be closed first. */
void hst_aio_close(struct hst_aio **aio);

enum hst_aio_file_flag {
    HST_AIO_SCRATCH = 1u << 0, /* `path` is a directory: an unnamed file in it (O_TMPFILE, or created 0600 and unlinked) */
    HST_AIO_CREATE = 1u << 1,  /* create `path` (0600), which must not exist */
    HST_AIO_READONLY = 1u << 2,
};

/**
 * Opens one file, O_DIRECT where the probe found it possible, and preallocates it: after success no write
 * inside size_bytes can fail for want of space on a file system that does not copy on write.
 *
 * size_bytes  of the file, a multiple of HST_AIO_ALIGN_BYTES; 0 with HST_AIO_READONLY: as it is
 *
 * Errors: -ENOSPC, -EDQUOT, -EFBIG (RLIMIT_FSIZE) with nothing left behind; -EEXIST; -ELOOP a symbolic link; open(2)'s.
 * Thread-safety: the context's thread.
 */
int hst_aio_file_open(struct hst_aio *aio, const char *path, unsigned flags, uint64_t size_bytes,
                      struct hst_aio_file **file);
void hst_aio_file_close(struct hst_aio_file **file); /* nothing on it may be in flight (asserted) */
uint64_t hst_aio_file_size(const struct hst_aio_file *file); /* bytes */

enum hst_aio_kind { HST_AIO_READ = 1, HST_AIO_WRITE = 2, HST_AIO_SYNC = 3 /* fdatasync; offset, buffer, bytes unused */ };

struct hst_aio_op {
    enum hst_aio_kind kind;
    struct hst_aio_file *file;
    uint64_t offset;     /* bytes from the start of the file */
    void *buffer;        /* borrowed until the completion is reaped; not written by WRITE */
    uint64_t bytes;      /* any multiple of HST_AIO_ALIGN_BYTES, > 0; larger than piece_bytes is cut inside */
    uint64_t user;       /* comes back with the completion */
};

struct hst_aio_completion {
    uint64_t user;
    uint64_t bytes; /* moved; == the operation's where error is 0 */
    int error;      /* 0, or negative errno: -EIO, -ENOSPC, -ENODATA (end of file before the last byte), … */
};

/**
 * Queues operations in order; they complete in any order.
 *
 * Returns how many were taken (the first n; n < count is back-pressure: reap, then submit the rest), or
 * Errors: -EAGAIN no room for even one; -EINVAL misaligned, out of the file, bad kind: nothing was taken.
 */
int hst_aio_submit(struct hst_aio *aio, const struct hst_aio_op *ops, size_t count);

/**
 * Collects completions, at most `capacity`; waits until there are at least `least` of them (0: do not wait)
 * or `timeout_ns` has passed (UINT64_MAX: no limit). Never waits for more than is in flight.
 *
 * Returns how many were written, 0 after a timeout or with nothing in flight; negative errno only when the
 * context is broken (then every operation in flight is lost; close it).
 */
int hst_aio_reap(struct hst_aio *aio, struct hst_aio_completion *completions, size_t capacity, size_t least,
                 uint64_t timeout_ns);

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
