/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_AIO_INTERNAL_H
#define HST_AIO_INTERNAL_H
/*
 * The files of aio/ share this: the context, and the table that a backend fills.
 *
 * An operation that was taken is a job; a job goes to the drive in pieces; a piece is one request
 * at a time. Jobs and their cutting into pieces live in transfer.c; what follows from the result of
 * a request (continued, tried again, halved, finished, failed) in piece.c; both once for all
 * backends. A backend only carries a request to the drive and its result back.
 */
#include "hoistway/aio.h"

#pragma GCC visibility push(hidden)

enum {
    HST_AIO_QUEUE_DEPTH_MAX = 4096,
    HST_AIO_THREADS_MAX = 64,
    HST_AIO_PIECE_BYTES_MAX = 1 << 30, /* below the 2 GiB - 4 KiB that one read(2) moves at most */
    /* so that a few large operations fill a drive; also the smallest ring that is tried */
    HST_AIO_PIECES_MIN = 16,
    HST_AIO_RETRIES_MAX = 8, /* per piece, without progress in between */
    HST_AIO_SMALL_BYTES = 512 << 10, /* requests of a piece whose larger ones got EAGAIN only */
    HST_AIO_PAUSE_NS = 100000,       /* after the first EAGAIN */
    HST_AIO_READ_RETRIES_MAX = 2,    /* of a media error */
    HST_AIO_WRITE_RETRIES_MAX = 1,
    HST_AIO_BAD_BYTES_MAX = 64 << 10, /* of a bad range looked at block by block */
    HST_AIO_SYNC_PATIENCE = 10, /* times as long for a sync, which may have a page cache to write */
    HST_AIO_LOOKS = 8, /* at a drive that does not answer, before it is given up */
};

struct sim_file;

struct hst_aio_file {
    struct hst_aio *aio; /* null once that is closed */
    uint64_t size_bytes;
    size_t in_flight; /* operations taken and not yet reaped */
    int fd;           /* -1 on null and sim */
    bool readonly;
    bool locked;
    bool lost; /* operations on it were given up: the system may still carry them out */
    int owner; /* process that opened it */
    uint32_t slot;        /* 1 + its number among the files registered with a ring; 0: none */
    struct sim_file *sim; /* on sim */
    struct hst_aio_file *previous, *next; /* open files of the context */
};

struct job {
    struct hst_aio_op op;
    struct job *next;
    uint64_t cut_bytes;    /* already given to pieces */
    uint64_t moved_bytes;  /* reported moved by pieces */
    uint64_t hashed_bytes; /* of a write with hashes */
    uint64_t mismatch;     /* of a read: first byte of the first block with another hash */
    uint64_t start_ns, end_ns;
    uint64_t bad_offset, bad_bytes;
    uint32_t pieces_out;
    int error;   /* the first one */
    bool active; /* taken, not yet reaped */
};

struct job_list { /* first in, first out */
    struct job *head, *tail;
};

struct piece {
    struct job *job;
    /* the request: what is given to the drive */
    struct hst_aio_file *file;
    char *buffer;
    uint64_t offset;
    uint32_t bytes;
    enum hst_aio_kind kind;
    int result; /* set by the backend: bytes moved, or negative errno */
    /* the piece */
    uint32_t rest_bytes;    /* to be moved after this request */
    uint32_t request_bytes; /* largest request */
    uint32_t retries;       /* of this request */
    uint32_t media_retries;
    uint32_t bad_bytes;     /* found unreadable from bad_offset on */
    uint64_t bad_offset;
    uint64_t first;         /* byte of the operation at which the piece begins */
    uint32_t whole_bytes;
    int error;
    uint64_t due_ns; /* while it is paused */
    struct piece *next;
};

/**
 * One backend. All calls come from the thread that has the context; at most aio->piece_limit pieces
 * are between push and wait at any time, so neither push nor a completion can lack room. Functions
 * marked "optional" may be null.
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
     * The calling thread takes the context over; nothing is in flight. Optional: any thread may
     * call at any time.
     */
    int (*claim)(struct hst_aio *aio);
    /* it starts at the next flush or wait at the latest */
    void (*push)(struct hst_aio *aio, struct piece *piece);
    /* a shortage is no error: 1, something has yet to start, wait tries again. Negative: broken */
    int (*flush)(struct hst_aio *aio);
    /**
     * Flushes, waits for `least` pieces or timeout_ns (UINT64_MAX: no limit), and stores those that
     * are finished, at most piece_limit, in aio->finished. Returns how many; may return early with
     * fewer; negative: broken.
     */
    int (*wait)(struct hst_aio *aio, uint32_t least, uint64_t timeout_ns);
    /* the context is broken: what was pushed and has not begun never does; optional */
    void (*drop)(struct hst_aio *aio);
    /* a descriptor that polls readable while wait would find something; optional */
    int (*descriptor)(struct hst_aio *aio);
    /* optional, of a backend in virtual time: its clock, the time at which wait would find
       something (UINT64_MAX: never), and moving the clock on to a time */
    uint64_t (*now)(const struct hst_aio *aio);
    uint64_t (*due)(struct hst_aio *aio);
    void (*travel)(struct hst_aio *aio, uint64_t to_ns);
    /* optional, of a backend with files of its own; file_close may be null */
    int (*file_open)(struct hst_aio *aio, struct hst_aio_file *file, const char *path,
                     unsigned flags, uint64_t size_bytes);
    void (*file_close)(struct hst_aio_file *file);
    /* optional: the file is now among, no longer among, the open ones of the context */
    void (*file_added)(struct hst_aio *aio, struct hst_aio_file *file);
    void (*file_removed)(struct hst_aio *aio, struct hst_aio_file *file);
    /* optional */
    int (*buffer_register)(struct hst_aio *aio, char *buffer, size_t size_bytes);
    void (*buffer_unregister)(struct hst_aio *aio, char *buffer);
};

extern const struct hst_aio_ops hst_aio_uring_ops, hst_aio_threads_ops, hst_aio_null_ops,
    hst_aio_sim_ops;

struct fault;

struct hst_aio {
    const struct hst_aio_ops *ops;
    void *state;         /* the backend's */
    struct fault *fault; /* between transfer.c and the backend; null: no plan */
    struct hst_aio_config config; /* every field resolved; texts are borrowed while opening only */
    struct hst_aio_info info;
    const char *directory; /* while opening only */
    uint32_t piece_capacity; /* length of the arrays of pieces */
    uint32_t piece_limit;    /* what the backend can have in flight, <= piece_capacity */
    bool direct;
    int broken; /* 0, or the error that ended this context */
    int gone;   /* 0, or -ENODEV: the drive is no longer there */
    unsigned char *native; /* a page that reads 0 in a forked child */
    struct hst_aio_file *files;

    struct job *jobs;
    /* pending: not cut to the end; only its head may be cut in part */
    struct job_list free, pending, done;
    size_t in_flight;

    struct piece *pieces;
    struct piece **free_pieces;
    struct piece **finished;
    uint32_t pieces_out;   /* paused ones included */
    uint32_t syncs_out;    /* of them */
    struct piece *paused;  /* to be pushed when they are due */
    uint32_t paused_count;
    bool pushed; /* since the last flush or wait, or the last one left something */

    struct hst_aio_counters counters;
    uint64_t busy_since_ns, now_ns; /* now_ns: at the last results */
    /* when the drive was last known not to be stuck, and when that was last looked at */
    uint64_t answered_ns, looked_ns;

    int epoll_fd, timer_fd; /* -1, or behind hst_aio_fd */
    int epoll_member;       /* the backend's descriptor in it */
    uint64_t timer_ns;      /* what the timer is set to; UINT64_MAX: to nothing */
};

/* transfer.c */
/* every field set, in range */
int hst_aio_context_create(const struct hst_aio_config *config, struct hst_aio **aio);
void hst_aio_context_reset(struct hst_aio *aio); /* nothing taken, not broken */
void hst_aio_context_destroy(struct hst_aio *aio);
uint64_t hst_aio_now_ns(void); /* monotonic */
/* One wait of the backend, and everything that follows from what it brings. */
void hst_aio_advance(struct hst_aio *aio, size_t least, uint64_t timeout_ns);
void hst_aio_flush(struct hst_aio *aio);
/* When something has to be done that no result of the backend starts; UINT64_MAX: never. */
uint64_t hst_aio_due_ns(const struct hst_aio *aio);

/* piece.c */
enum verdict { PIECE_AGAIN, PIECE_LATER, PIECE_FINISHED, PIECE_FAILED };
/*
 * It decides what follows from the result of the request, and changes the piece to its next one.
 * *moved_bytes is what counts as moved. LATER: after *pause_ns. FAILED: piece->error, bad_offset
 * and bad_bytes say what. Pure.
 */
enum verdict hst_aio_piece_judge(struct piece *piece, uint32_t *moved_bytes, uint64_t *pause_ns);

/* hash.c */
/* It hashes those of the blocks that begin before end_bytes and have none yet. */
void hst_aio_hash_fill(struct job *job, uint64_t end_bytes);
/* Compares whole blocks; the first that differs moves job->mismatch down. */
void hst_aio_hash_compare(struct job *job, uint64_t first, uint64_t bytes);

/* probe.c */
/*
 * A scratch file of HST_AIO_PROBE_BYTES, or empty (may_be_full), O_DIRECT where that works; sets
 * aio->direct and what info says of the directory.
 */
int hst_aio_probe_open(struct hst_aio *aio, const char *directory, struct hst_aio_info *info,
                       struct hst_aio_file **file);
/* Writes, syncs, reads back and compares with the backend that is open. */
int hst_aio_probe_backend(struct hst_aio *aio, struct hst_aio_file *file, const char **step);

/* fault.c, fault_plan.c */
int hst_aio_fault_open(struct hst_aio *aio, const char *plan);
void hst_aio_fault_close(struct hst_aio *aio);
void hst_aio_fault_push(struct hst_aio *aio, struct piece *piece);
int hst_aio_fault_wait(struct hst_aio *aio, uint32_t least, uint64_t timeout_ns);
uint64_t hst_aio_fault_due_ns(const struct hst_aio *aio);

/* wait.c */
/* It sets the timer of a descriptor, where there is one, and follows the backend's. */
void hst_aio_fd_update(struct hst_aio *aio);
void hst_aio_fd_close(struct hst_aio *aio);

/* The next of the series that `state` begins: splitmix64. */
static inline uint64_t hst_aio_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* text.c: numbers of models and plans. A value ends at a separator or at the end. */
/* 4096, 64K, 3Gi; digits may have a fraction: 1.5G. Errors: -EINVAL, -ERANGE */
int hst_aio_text_bytes(const char *text, size_t length, uint64_t *bytes);
int hst_aio_text_time(const char *text, size_t length, uint64_t *time_ns); /* 80us, 1.5ms, 2s */
int hst_aio_text_count(const char *text, size_t length, uint64_t *count);
bool hst_aio_text_is(const char *text, size_t length, const char *word);
/*
 * The next "key=value" or "key" from *cursor on, up to a byte of `stops`, which it does not pass.
 * Returns false where there is none.
 */
struct hst_aio_word {
    const char *key, *value; /* value null: none */
    size_t key_length, value_length;
};
bool hst_aio_text_next(const char **cursor, const char *stops, struct hst_aio_word *word);
/* Writes "word: reason" into why[HST_AIO_REFUSAL_BYTES] (word may be null). Returns -EINVAL. */
int hst_aio_text_refuse(char *why, const struct hst_aio_word *word, const char *reason);
/* Refuses the second word with this number, which is below 32. */
int hst_aio_text_once(uint32_t *seen, uint32_t number, const struct hst_aio_word *word, char *why);
/* Takes the value of a word; refuses what makes no sense for its kind. */
struct hst_aio_field {
    uint64_t *value;
    enum {
        HST_AIO_FIELD_RATE,
        HST_AIO_FIELD_BYTES,
        HST_AIO_FIELD_OFFSET, /* bytes, 0 too */
        HST_AIO_FIELD_TIME,
        HST_AIO_FIELD_COUNT,
        HST_AIO_FIELD_NUMBER, /* 0 too */
    } kind;
};
int hst_aio_text_field(const struct hst_aio_word *word, const struct hst_aio_field *field,
                       char *why);

#pragma GCC visibility pop
#endif
