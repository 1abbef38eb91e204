/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The io_uring backend.
 *
 * One ring per context. The best flags make it single-issuer with deferred task work: completions
 * are processed when the owner asks and never interrupt it while it computes. The kernel binds such
 * a ring to the thread that made it, and without those flags too I/O belongs to the thread that
 * started it. A context may wander between threads while nothing is in flight, so `claim` makes a
 * new ring (about 0.05 ms) when it finds itself on another thread. IORING_SETUP_R_DISABLED would
 * allow one such move, from open to first use, and break at the second.
 *
 * Not used: SQPOLL (burns a core), IOPOLL (needs poll queues), the timeout operation (the wait
 * carries its timeout in its argument: kernel 5.11). The completion queue has twice the entries of
 * what can be in flight: it cannot overflow. Nor the registration of the ring's own descriptor: it
 * belongs to the thread, which a context may leave.
 *
 * Large requests go to the kernel two at a time. It plugs the block layer for a submission of three
 * or more, where requests that are adjacent merge, without limit on some drives: sixteen of 1 MiB
 * become one of 16 MiB, and the drive has a queue of one.
 *
 * Buffers and files are registered into sparse tables (Linux 5.19). That is a matter of speed only:
 * what cannot be registered is used as it is. A ring that is made anew registers everything again.
 */
#include "internal.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
    BUFFER_SLOTS = 64,
    FILE_SLOTS = 64,
    LARGE_BYTES = 128 << 10,
    UNPLUGGED = 2, /* see the head */
};
static const uint64_t buffer_part_bytes = 512u << 20; /* the kernel takes at most 1 GiB at once */

struct part {     /* of a registered buffer */
    char *memory; /* null: a free slot */
    char *whole;  /* the buffer it is part of */
    uint64_t size_bytes;
};

struct uring {
    struct io_uring ring;
    /* thread that made the ring; pthread_t values are used again too soon to tell threads apart */
    pid_t owner;
    bool live;
    int event_fd; /* signalled by the ring; -1: nobody has asked for it */
    bool fixed_buffers, fixed_files;
    struct part parts[BUFFER_SLOTS];
    uint32_t part_end; /* all slots from here on are free */
    bool files[FILE_SLOTS];
};

static int setup(struct io_uring *ring, uint32_t entries)
{
    static const unsigned flag_sets[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, /* Linux 6.1 */
        IORING_SETUP_COOP_TASKRUN,                               /* Linux 5.19 */
        0,
    };
    int rc = -EINVAL;
    for (size_t i = 0; i < sizeof flag_sets / sizeof *flag_sets && rc == -EINVAL; i++) {
        rc = -ENOMEM; /* rings may count against RLIMIT_MEMLOCK: smaller ones may fit */
        for (uint32_t n = entries; rc == -ENOMEM && n >= HST_AIO_PIECES_MIN; n /= 2) {
            struct io_uring_params params = {
                .flags = flag_sets[i] | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
                .cq_entries = 2 * n,
            };
            rc = io_uring_queue_init_params(n, ring, &params);
        }
    }
    return rc;
}

static int set_part(struct uring *uring, uint32_t slot)
{
    const struct part *part = &uring->parts[slot];
    const struct iovec iov = {part->memory, part->memory ? part->size_bytes : 0};
    const __u64 tag = 0;
    const int rc = io_uring_register_buffers_update_tag(&uring->ring, slot, &iov, &tag, 1);
    return rc < 0 ? rc : 0;
}

static void set_file(struct uring *uring, struct hst_aio_file *file)
{
    uint32_t slot = 0;
    while (slot < FILE_SLOTS && uring->files[slot])
        slot++;
    file->slot = 0;
    if (!uring->fixed_files || slot == FILE_SLOTS ||
        io_uring_register_files_update(&uring->ring, slot, &file->fd, 1) != 1)
        return;
    uring->files[slot] = true;
    file->slot = slot + 1;
}

/* Tables for a new ring, with all that was registered with the one before. */
static void register_all(struct hst_aio *aio, struct uring *uring)
{
    aio->info.fixed_error = -ECANCELED;
    memset(uring->files, 0, sizeof uring->files);
    if (!(aio->config.avoid & HST_AIO_AVOID_FIXED)) {
        aio->info.fixed_error = io_uring_register_buffers_sparse(&uring->ring, BUFFER_SLOTS);
        uring->fixed_buffers = aio->info.fixed_error == 0;
        uring->fixed_files = io_uring_register_files_sparse(&uring->ring, FILE_SLOTS) == 0;
    }
    aio->info.fixed = uring->fixed_buffers;
    for (struct hst_aio_file *file = aio->files; file; file = file->next)
        set_file(uring, file);
    for (uint32_t i = 0; i < uring->part_end; i++)
        if (uring->parts[i].memory && (!uring->fixed_buffers || set_part(uring, i) < 0))
            uring->parts[i].memory = NULL;
}

static int ring_open(struct hst_aio *aio, const char **step)
{
    struct uring *uring = aio->state;
    *step = "io_uring_setup";
    int rc = setup(&uring->ring, aio->piece_capacity);
    if (rc < 0)
        return rc;
    if (!(uring->ring.features & IORING_FEAT_EXT_ARG)) {
        *step = "io_uring features (Linux 5.11)";
        rc = -ENOSYS;
        goto err_ring;
    }
    *step = "io_uring_ring_dontfork";
    rc = io_uring_ring_dontfork(&uring->ring);
    if (rc < 0)
        goto err_ring;
    const uint32_t entries = uring->ring.sq.ring_entries;
    aio->piece_limit = entries < aio->piece_capacity ? entries : aio->piece_capacity;
    uring->owner = gettid();
    if (uring->event_fd >= 0) { /* whoever polls it would wait for ever */
        *step = "io_uring_register_eventfd";
        rc = io_uring_register_eventfd(&uring->ring, uring->event_fd);
        if (rc < 0)
            goto err_ring;
    }
    uring->live = true;
    register_all(aio, uring);
    return 0;

err_ring:
    io_uring_queue_exit(&uring->ring);
    return rc;
}

static int uring_open(struct hst_aio *aio, const char **step)
{
    *step = "memory";
    aio->state = calloc(1, sizeof(struct uring));
    if (!aio->state)
        return -ENOMEM;
    ((struct uring *)aio->state)->event_fd = -1;
    int rc = ring_open(aio, step);
    if (rc < 0)
        free(aio->state);
    return rc;
}

/*
 * The files leave the ring before it ends. The kernel takes a ring apart in its own time, and as
 * long as that holds a file, the file system of the file cannot be unmounted. Only the thread of
 * the ring can do this, and where requests are still out the call would wait for them.
 */
static void ring_close(struct hst_aio *aio)
{
    struct uring *uring = aio->state;
    if (uring->live && uring->fixed_files && uring->owner == gettid() && !aio->broken)
        io_uring_unregister_files(&uring->ring);
    if (uring->live)
        io_uring_queue_exit(&uring->ring);
    uring->live = false;
}

static void uring_close(struct hst_aio *aio)
{
    struct uring *uring = aio->state;
    ring_close(aio);
    if (uring->event_fd >= 0)
        close(uring->event_fd);
    free(uring);
}

static int uring_claim(struct hst_aio *aio)
{
    struct uring *uring = aio->state;
    const char *step;
    if (uring->live && uring->owner == gettid())
        return 0;
    ring_close(aio);
    return ring_open(aio, &step);
}

/* The slot of the registered part that holds the whole request; BUFFER_SLOTS: none. */
static uint32_t find_part(const struct uring *uring, const struct piece *piece)
{
    for (uint32_t i = 0; i < uring->part_end; i++) {
        const struct part *part = &uring->parts[i];
        if (part->memory && piece->buffer >= part->memory &&
            piece->buffer + piece->bytes <= part->memory + part->size_bytes)
            return i;
    }
    return BUFFER_SLOTS;
}

static void uring_push(struct hst_aio *aio, struct piece *piece)
{
    struct uring *uring = aio->state;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    assert(sqe); /* entries >= piece_limit */
    const uint32_t slot = piece->file->slot;
    const int fd = slot > 0 ? (int)slot - 1 : piece->file->fd;
    if (piece->kind == HST_AIO_SYNC) {
        io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
    } else {
        const bool read = piece->kind == HST_AIO_READ;
        const uint32_t part = find_part(uring, piece);
        int code = read ? IORING_OP_READ : IORING_OP_WRITE;
        if (part < BUFFER_SLOTS)
            code = read ? IORING_OP_READ_FIXED : IORING_OP_WRITE_FIXED;
        io_uring_prep_rw(code, sqe, fd, piece->buffer, piece->bytes, piece->offset);
        sqe->buf_index = part < BUFFER_SLOTS ? (__u16)part : 0;
    }
    unsigned flags = slot > 0 ? IOSQE_FIXED_FILE : 0;
    /* A worker of the kernel may sleep where the inline attempt, which may not, said EAGAIN. */
    if (piece->retries > 0)
        flags |= IOSQE_ASYNC;
    io_uring_sqe_set_flags(sqe, flags);
    io_uring_sqe_set_data(sqe, piece);
    if (piece->bytes >= LARGE_BYTES && io_uring_sq_ready(&uring->ring) >= UNPLUGGED)
        io_uring_submit(&uring->ring); /* what it says, the next flush will hear too */
}

/*
 * io_uring_enter says this when it could not do everything now; what is left in the queue goes with
 * the next call.
 */
static bool is_passing(int rc)
{
    return rc >= 0 || rc == -ETIME || rc == -EINTR || rc == -EAGAIN || rc == -EBUSY ||
           rc == -ENOMEM;
}

static int uring_flush(struct hst_aio *aio)
{
    struct uring *uring = aio->state;
    int rc = io_uring_submit(&uring->ring);
    if (!is_passing(rc))
        return rc;
    return io_uring_sq_ready(&uring->ring) > 0;
}

/* Takes what the completion queue holds, without a system call. */
static uint32_t harvest(struct hst_aio *aio, uint32_t count)
{
    struct uring *uring = aio->state;
    struct io_uring_cqe *cqe;
    unsigned head, seen = 0;
    assert(!io_uring_cq_has_overflow(&uring->ring));
    io_uring_for_each_cqe(&uring->ring, head, cqe)
    {
        struct piece *piece = io_uring_cqe_get_data(cqe);
        piece->result = cqe->res;
        aio->finished[count + seen++] = piece;
    }
    io_uring_cq_advance(&uring->ring, seen);
    return count + seen;
}

static int uring_wait(struct hst_aio *aio, uint32_t least, uint64_t timeout_ns)
{
    struct uring *uring = aio->state;
    uint32_t count = harvest(aio, 0);
    if (count > 0 && count >= least && io_uring_sq_ready(&uring->ring) == 0)
        return (int)count;

    int rc;
    eventfd_t drained;
    if (uring->event_fd >= 0)
        eventfd_read(uring->event_fd, &drained); /* before the look, not to miss what comes after */
    if (count >= least) {
        rc = io_uring_submit_and_get_events(&uring->ring);
    } else {
        struct __kernel_timespec limit = {
            .tv_sec = (long long)(timeout_ns / 1000000000u),
            .tv_nsec = (long long)(timeout_ns % 1000000000u),
        };
        struct io_uring_cqe *cqe;
        rc = io_uring_submit_and_wait_timeout(&uring->ring, &cqe, least - count,
                                              timeout_ns == UINT64_MAX ? NULL : &limit, NULL);
    }
    if (!is_passing(rc))
        return rc;
    aio->pushed = io_uring_sq_ready(&uring->ring) > 0;
    const uint32_t before = count;
    count = harvest(aio, count);
    if (count == before && least > 0 && (rc == -EAGAIN || rc == -EBUSY || rc == -ENOMEM)) {
        const struct timespec pause = {.tv_nsec = 1000000}; /* the kernel is short of memory */
        nanosleep(&pause, NULL);
    }
    return (int)count;
}

/*
 * An eventfd: the ring's own descriptor polls readable too, but with deferred task work not
 * reliably so for the thread that owns it.
 */
static int uring_descriptor(struct hst_aio *aio)
{
    struct uring *uring = aio->state;
    if (uring->event_fd >= 0)
        return uring->event_fd;
    const int fd = eventfd(aio->in_flight > 0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return -errno;
    if (uring->live && uring->owner == gettid()) {
        int rc = io_uring_register_eventfd(&uring->ring, fd);
        if (rc < 0) {
            close(fd);
            return rc;
        }
    }
    uring->event_fd = fd;
    return fd;
}

/*
 * A ring can be told only by its own thread. Elsewhere it is given up, nothing being in flight; the
 * next submit makes a new one.
 */
static bool is_owner(struct hst_aio *aio)
{
    const struct uring *uring = aio->state;
    if (uring->live && uring->owner == gettid())
        return true;
    ring_close(aio);
    return false;
}

static void uring_file_added(struct hst_aio *aio, struct hst_aio_file *file)
{
    struct uring *uring = aio->state;
    if (uring->live && uring->owner == gettid())
        set_file(uring, file);
}

static void uring_file_removed(struct hst_aio *aio, struct hst_aio_file *file)
{
    struct uring *uring = aio->state;
    const int none = -1;
    if (file->slot == 0)
        return;
    if (is_owner(aio)) {
        io_uring_register_files_update(&uring->ring, file->slot - 1, &none, 1);
        uring->files[file->slot - 1] = false;
    }
    file->slot = 0;
}

static void uring_buffer_unregister(struct hst_aio *aio, char *buffer)
{
    struct uring *uring = aio->state;
    for (uint32_t i = 0; i < uring->part_end; i++) {
        if (!uring->parts[i].memory || uring->parts[i].whole != buffer)
            continue;
        uring->parts[i].memory = NULL;
        if (is_owner(aio))
            set_part(uring, i);
    }
    while (uring->part_end > 0 && !uring->parts[uring->part_end - 1].memory)
        uring->part_end--;
}

static int uring_buffer_register(struct hst_aio *aio, char *buffer, size_t size_bytes)
{
    struct uring *uring = aio->state;
    int rc = aio->in_flight > 0 ? 0 : uring_claim(aio);
    if (rc < 0)
        return rc;
    if (!uring->fixed_buffers)
        return -ENOTSUP;
    uint32_t slot = 0;
    for (size_t done = 0; done < size_bytes && rc == 0; done += buffer_part_bytes) {
        while (slot < BUFFER_SLOTS && uring->parts[slot].memory)
            slot++;
        if (slot == BUFFER_SLOTS) {
            rc = -ENOSPC;
            break;
        }
        const size_t left_bytes = size_bytes - done;
        struct part *part = &uring->parts[slot];
        *part = (struct part){
            .memory = buffer + done,
            .whole = buffer,
            .size_bytes = left_bytes < buffer_part_bytes ? left_bytes : buffer_part_bytes,
        };
        rc = set_part(uring, slot);
        if (rc < 0)
            part->memory = NULL;
        else if (slot >= uring->part_end)
            uring->part_end = slot + 1;
    }
    if (rc < 0)
        uring_buffer_unregister(aio, buffer);
    return rc;
}

const struct hst_aio_ops hst_aio_uring_ops = {
    .id = HST_AIO_URING,
    .open = uring_open,
    .close = uring_close,
    .claim = uring_claim,
    .push = uring_push,
    .flush = uring_flush,
    .wait = uring_wait,
    .descriptor = uring_descriptor,
    .file_added = uring_file_added,
    .file_removed = uring_file_removed,
    .buffer_register = uring_buffer_register,
    .buffer_unregister = uring_buffer_unregister,
};
