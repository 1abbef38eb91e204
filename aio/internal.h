/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_AIO_INTERNAL_H
#define HST_AIO_INTERNAL_H
/*
 * What the files of aio/ share: the context, and the table that a backend fills.
 *
 * An operation that was taken is a job; a job goes to the kernel in pieces. Jobs, pieces, the
 * cutting of one into the other, the continuation of short transfers and the retries live in
 * transfer.c, once. A backend only carries a piece to the kernel and its result back.
 */
#include "hoistway/aio.h"

#pragma GCC visibility push(hidden)

enum {
    HST_AIO_QUEUE_DEPTH_MAX = 4096,
    HST_AIO_THREADS_MAX = 64,
    HST_AIO_PIECE_BYTES_MAX = 1 << 30, /* below the 2 GiB - 4 KiB that one read(2) moves at most */
    /* so that a few large operations fill a drive; also the smallest ring that is tried */
    HST_AIO_PIECES_MIN = 16,
    HST_AIO_RETRIES_MAX = 8,  /* per piece, without progress in between */
    HST_AIO_PROBE_BYTES = 6 << 20,
};

struct hst_aio_file {
    const struct hst_aio *aio;
    uint64_t size_bytes;
    size_t in_flight; /* operations taken and not yet reaped */
    int fd;
    bool readonly;
};

struct job {
    struct hst_aio_op op;
    struct job *next;
    uint64_t cut_bytes;   /* already given to pieces */
    uint64_t moved_bytes; /* reported moved by pieces */
    uint32_t pieces_out;
    int error; /* the first one */
    bool active; /* taken, not yet reaped */
};

struct job_list { /* first in, first out */
    struct job *head, *tail;
};

struct piece {
    struct job *job;
    char *buffer;
    uint64_t offset;
    uint32_t bytes; /* still to be moved */
    uint32_t retries;
    int fd;
    enum hst_aio_kind kind;
    int result; /* set by the backend: bytes moved, or negative errno */
};

/**
 * One backend. All calls come from the thread that has the context; at most aio->piece_limit pieces
 * are between push and wait at any time, so neither push nor a completion can lack room.
 */
struct hst_aio_ops {
    enum hst_aio_backend id;
    /**
     * Sets aio->state, lowers aio->piece_limit where it must. On failure *step names what failed,
     * static text.
     */
    int (*open)(struct hst_aio *aio, const char **step);
    void (*close)(struct hst_aio *aio); /* nothing is in flight, or the context is broken */
    /**
     * The calling thread takes the context over; nothing is in flight. Null where any thread may
     * call at any time.
     */
    int (*claim)(struct hst_aio *aio);
    /* it starts at the next flush or wait at the latest */
    void (*push)(struct hst_aio *aio, struct piece *piece);
    /* a shortage is no error: wait tries again. Negative: broken */
    int (*flush)(struct hst_aio *aio);
    /**
     * Flushes, waits for `least` pieces or timeout_ns (UINT64_MAX: no limit), and stores those that
     * are finished, at most piece_limit, in aio->finished. Returns how many; may return early with
     * fewer; negative: broken.
     */
    int (*wait)(struct hst_aio *aio, uint32_t least, uint64_t timeout_ns);
};

extern const struct hst_aio_ops hst_aio_uring_ops, hst_aio_threads_ops;

struct hst_aio {
    const struct hst_aio_ops *ops;
    void *state; /* the backend's */
    uint32_t queue_depth;
    uint32_t thread_count;
    uint32_t piece_bytes;
    uint32_t piece_capacity; /* length of the arrays of pieces */
    uint32_t piece_limit;    /* what the backend can have in flight, <= piece_capacity */
    bool direct;
    int broken; /* 0, or the error that ended this context */

    struct job *jobs;
    /* pending: not cut to the end; only its head may be cut in part */
    struct job_list free, pending, done;
    size_t in_flight;

    struct piece *pieces;
    struct piece **free_pieces;
    struct piece **finished;
    uint32_t pieces_out;
    bool pushed; /* since the last flush or wait */
};

/* transfer.c */
/* every field set, in range */
int hst_aio_context_create(const struct hst_aio_config *config, struct hst_aio **aio);
void hst_aio_context_reset(struct hst_aio *aio); /* nothing taken, not broken */
void hst_aio_context_destroy(struct hst_aio *aio);
uint64_t hst_aio_now_ns(void);

/* probe.c */
/*
 * A scratch file of HST_AIO_PROBE_BYTES, O_DIRECT where that works; sets aio->direct and what info
 * says of the directory.
 */
int hst_aio_probe_open(struct hst_aio *aio, const char *directory, struct hst_aio_info *info,
                       struct hst_aio_file **file);
/* Writes, syncs, reads back and compares with the backend that is open. */
int hst_aio_probe_backend(struct hst_aio *aio, struct hst_aio_file *file, const char **step);

#pragma GCC visibility pop
#endif
