/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of an operation, whatever the backend: taken by submit, cut into pieces, each piece
 * carried to its end (short transfers continued, transient errors retried), completed when its last
 * piece is, and reaped.
 *
 * Pieces are cut as late as there is room for them, first operation first: a 10 GiB operation costs
 * no more memory than a small one, and early operations finish early. All memory is allocated when
 * the context is.
 */
#include "internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

static void list_append(struct job_list *list, struct job *job)
{
    job->next = NULL;
    if (list->head)
        list->tail->next = job;
    else
        list->head = job;
    list->tail = job;
}

static struct job *list_pop(struct job_list *list)
{
    struct job *job = list->head;
    list->head = job->next;
    return job;
}

int hst_aio_context_create(const struct hst_aio_config *config, struct hst_aio **out)
{
    struct hst_aio *aio = calloc(1, sizeof *aio);
    if (!aio)
        return -ENOMEM;
    aio->queue_depth = config->queue_depth;
    aio->thread_count = config->thread_count;
    aio->piece_bytes = config->piece_bytes;
    aio->piece_capacity =
        aio->queue_depth < HST_AIO_PIECES_MIN ? HST_AIO_PIECES_MIN : aio->queue_depth;

    aio->jobs = calloc(aio->queue_depth, sizeof *aio->jobs);
    aio->pieces = calloc(aio->piece_capacity, sizeof *aio->pieces);
    aio->free_pieces = calloc(aio->piece_capacity, sizeof(struct piece *));
    aio->finished = calloc(aio->piece_capacity, sizeof(struct piece *));
    if (!aio->jobs || !aio->pieces || !aio->free_pieces || !aio->finished) {
        hst_aio_context_destroy(aio);
        return -ENOMEM;
    }
    hst_aio_context_reset(aio);
    *out = aio;
    return 0;
}

void hst_aio_context_reset(struct hst_aio *aio)
{
    aio->free = aio->pending = aio->done = (struct job_list){0};
    for (uint32_t i = 0; i < aio->queue_depth; i++)
        list_append(&aio->free, &aio->jobs[i]);
    for (uint32_t i = 0; i < aio->piece_capacity; i++)
        aio->free_pieces[i] = &aio->pieces[i];
    aio->pieces_out = 0;
    aio->pushed = false;
    aio->broken = 0;
}

void hst_aio_context_destroy(struct hst_aio *aio)
{
    free(aio->jobs);
    free(aio->pieces);
    free(aio->free_pieces);
    free(aio->finished);
    free(aio);
}

uint64_t hst_aio_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Nothing that is in flight will ever be reported: give it up, so that files can be closed. */
static void break_down(struct hst_aio *aio, int error)
{
    aio->broken = error;
    for (uint32_t i = 0; i < aio->queue_depth; i++) {
        if (aio->jobs[i].active)
            aio->jobs[i].op.file->in_flight--;
        aio->jobs[i].active = false;
    }
    aio->in_flight = 0;
}

static void push_piece(struct hst_aio *aio, struct piece *piece)
{
    aio->ops->push(aio, piece);
    aio->pushed = true;
}

static void flush(struct hst_aio *aio)
{
    if (!aio->pushed)
        return;
    aio->pushed = false;
    int rc = aio->ops->flush(aio);
    if (rc < 0)
        break_down(aio, rc);
}

/* Cuts pieces off the pending jobs while there is room. */
static void issue(struct hst_aio *aio)
{
    while (aio->pending.head && aio->pieces_out < aio->piece_limit) {
        struct job *job = aio->pending.head;
        const bool sync = job->op.kind == HST_AIO_SYNC;
        const uint64_t left_bytes = sync ? 0 : job->op.bytes - job->cut_bytes;
        struct piece *piece = aio->free_pieces[aio->piece_capacity - ++aio->pieces_out];
        *piece = (struct piece){
            .job = job,
            .buffer = sync ? NULL : (char *)job->op.buffer + job->cut_bytes,
            .offset = sync ? 0 : job->op.offset + job->cut_bytes,
            .bytes = left_bytes < aio->piece_bytes ? (uint32_t)left_bytes : aio->piece_bytes,
            .fd = job->op.file->fd,
            .kind = job->op.kind,
        };
        job->cut_bytes += piece->bytes;
        job->pieces_out++;
        if (left_bytes == piece->bytes)
            list_pop(&aio->pending);
        push_piece(aio, piece);
    }
}

/*
 * Judges the result of a piece: how many bytes count as moved, and 0 (it is finished, or has to be
 * issued again) or the error that ends it. A transfer that stopped inside an aligned block is
 * continued from that block's start, as O_DIRECT needs; one that did not complete a single block
 * may be a passing condition and is retried.
 */
static int judge(const struct piece *piece, uint32_t *moved_bytes)
{
    const bool patient = piece->retries < HST_AIO_RETRIES_MAX;
    *moved_bytes = 0;
    if (piece->result < 0) {
        const bool transient = piece->result == -EAGAIN || piece->result == -EINTR;
        return transient && patient ? 0 : piece->result;
    }
    uint32_t result_bytes = (uint32_t)piece->result;
    assert(result_bytes <= piece->bytes);
    if (result_bytes == piece->bytes) {
        *moved_bytes = result_bytes;
        return 0;
    }
    *moved_bytes = result_bytes - result_bytes % HST_AIO_ALIGN_BYTES;
    if (*moved_bytes > 0 || (result_bytes > 0 && patient))
        return 0;
    return piece->kind == HST_AIO_READ ? -ENODATA : -ENOSPC;
}

static void settle(struct hst_aio *aio, struct piece *piece)
{
    struct job *job = piece->job;
    uint32_t moved_bytes;
    const int error = judge(piece, &moved_bytes);
    const bool finished = piece->result >= 0 && moved_bytes == piece->bytes;

    job->moved_bytes += moved_bytes;
    if (error && !job->error) {
        job->error = error;
        if (job == aio->pending.head)
            list_pop(&aio->pending); /* what is not cut stays undone */
    }
    if (!finished && !job->error) {
        piece->buffer += moved_bytes;
        piece->offset += moved_bytes;
        piece->bytes -= moved_bytes;
        piece->retries = moved_bytes > 0 ? 0 : piece->retries + 1;
        push_piece(aio, piece);
        return;
    }
    aio->free_pieces[aio->piece_capacity - aio->pieces_out--] = piece;
    job->pieces_out--;
    if (job->pieces_out == 0 && job != aio->pending.head)
        list_append(&aio->done, job);
}

static int check_op(const struct hst_aio *aio, const struct hst_aio_op *op)
{
    const struct hst_aio_file *file = op->file;
    if (!file || file->aio != aio)
        return -EINVAL;
    if (op->kind == HST_AIO_SYNC)
        return 0;
    if (op->kind != HST_AIO_READ && (op->kind != HST_AIO_WRITE || file->readonly))
        return -EINVAL;
    if (!op->buffer || op->bytes == 0)
        return -EINVAL;
    if ((op->offset | op->bytes | (uintptr_t)op->buffer) % HST_AIO_ALIGN_BYTES)
        return -EINVAL;
    if (op->offset > file->size_bytes || op->bytes > file->size_bytes - op->offset)
        return -EINVAL;
    return 0;
}

int hst_aio_submit(struct hst_aio *aio, const struct hst_aio_op *ops, size_t count)
{
    if (aio->broken)
        return aio->broken;
    for (size_t i = 0; i < count; i++) {
        int rc = check_op(aio, &ops[i]);
        if (rc < 0)
            return rc;
    }
    if (count == 0)
        return 0;
    if (aio->in_flight == 0 && aio->ops->claim) {
        int rc = aio->ops->claim(aio);
        if (rc < 0)
            return rc;
    }
    const size_t room = aio->queue_depth - aio->in_flight;
    if (room == 0)
        return -EAGAIN;
    if (count > room)
        count = room;
    for (size_t i = 0; i < count; i++) {
        struct job *job = list_pop(&aio->free);
        *job = (struct job){.op = ops[i], .active = true};
        job->op.file->in_flight++;
        list_append(&aio->pending, job);
    }
    aio->in_flight += count;
    issue(aio);
    flush(aio);
    return (int)count;
}

static size_t take_done(struct hst_aio *aio, struct hst_aio_completion *completions,
                        size_t capacity)
{
    size_t count = 0;
    while (count < capacity && aio->done.head) {
        struct job *job = list_pop(&aio->done);
        completions[count++] = (struct hst_aio_completion){
            .user = job->op.user, .bytes = job->moved_bytes, .error = job->error};
        job->active = false;
        job->op.file->in_flight--;
        list_append(&aio->free, job);
    }
    aio->in_flight -= count;
    return count;
}

/* One wait of the backend, and everything that follows from what it brings. */
static void advance(struct hst_aio *aio, size_t least, uint64_t timeout_ns)
{
    /*
     * k operations need at least k more pieces; more are not waited for, so that a large one stays
     * fed.
     */
    if (least > aio->pieces_out)
        least = aio->pieces_out;
    aio->pushed = false;
    int count = aio->ops->wait(aio, (uint32_t)least, timeout_ns);
    if (count < 0) {
        break_down(aio, count);
        return;
    }
    for (int i = 0; i < count; i++)
        settle(aio, aio->finished[i]);
    issue(aio);
}

int hst_aio_reap(struct hst_aio *aio, struct hst_aio_completion *completions, size_t capacity,
                 size_t least, uint64_t timeout_ns)
{
    if (aio->broken)
        return aio->broken;
    size_t count = take_done(aio, completions, capacity);
    if (least > count + aio->in_flight)
        least = count + aio->in_flight;
    if (least > capacity)
        least = capacity;
    const bool satisfied = count > 0 && count >= least && !aio->pending.head;
    if (satisfied || count == capacity)
        return (int)count;

    uint64_t deadline_ns = UINT64_MAX;
    if (count < least && timeout_ns != 0 && timeout_ns != UINT64_MAX &&
        __builtin_add_overflow(hst_aio_now_ns(), timeout_ns, &deadline_ns))
        deadline_ns = UINT64_MAX;
    uint64_t left_ns = timeout_ns;
    while (!aio->broken && aio->in_flight > 0 && count < capacity) {
        const size_t missing = left_ns > 0 && least > count ? least - count : 0;
        advance(aio, missing, left_ns);
        count += take_done(aio, completions + count, capacity - count);
        if (count >= least || left_ns == 0)
            break;
        if (deadline_ns != UINT64_MAX) {
            const uint64_t now_ns = hst_aio_now_ns();
            left_ns = now_ns < deadline_ns ? deadline_ns - now_ns : 0;
        }
    }
    flush(aio);
    return count > 0 || !aio->broken ? (int)count : aio->broken;
}

size_t hst_aio_in_flight(const struct hst_aio *aio)
{
    return aio->in_flight;
}
