/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of an operation, whatever the backend: taken by submit, cut into pieces, each piece
 * carried to its end (piece.c says what that takes), completed when its last piece is, and reaped.
 *
 * Pieces are cut as late as there is room for them, first operation first: a 10 GiB operation costs
 * no more memory than a small one, and early operations finish early. All memory is allocated when
 * the context is.
 */
#include "internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { NATIVE_BYTES = 4096 };

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

/* A page that a forked child finds zeroed: nothing of a context works there. */
static unsigned char *native_page(void)
{
    void *page =
        mmap(NULL, NATIVE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    *(unsigned char *)page = 1;
    madvise(page, NATIVE_BYTES, MADV_WIPEONFORK); /* Linux 4.14 */
    return page;
}

int hst_aio_context_create(const struct hst_aio_config *config, struct hst_aio **out)
{
    struct hst_aio *aio = calloc(1, sizeof *aio);
    if (!aio)
        return -ENOMEM;
    aio->config = *config;
    aio->epoll_fd = aio->timer_fd = aio->epoll_member = -1;
    aio->piece_capacity =
        config->queue_depth < HST_AIO_PIECES_MIN ? HST_AIO_PIECES_MIN : config->queue_depth;

    aio->jobs = calloc(config->queue_depth, sizeof *aio->jobs);
    aio->pieces = calloc(aio->piece_capacity, sizeof *aio->pieces);
    aio->free_pieces = calloc(aio->piece_capacity, sizeof(struct piece *));
    aio->finished = calloc(aio->piece_capacity, sizeof(struct piece *));
    aio->native = native_page();
    if (!aio->jobs || !aio->pieces || !aio->free_pieces || !aio->finished || !aio->native) {
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
    for (uint32_t i = 0; i < aio->config.queue_depth; i++)
        list_append(&aio->free, &aio->jobs[i]);
    for (uint32_t i = 0; i < aio->piece_capacity; i++)
        aio->free_pieces[i] = &aio->pieces[i];
    aio->in_flight = 0;
    aio->pieces_out = aio->paused_count = aio->syncs_out = 0;
    aio->paused = NULL;
    aio->pushed = false;
    aio->broken = aio->gone = 0;
}

void hst_aio_context_destroy(struct hst_aio *aio)
{
    hst_aio_fd_close(aio);
    if (aio->native)
        munmap(aio->native, NATIVE_BYTES);
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

uint64_t hst_aio_clock_ns(const struct hst_aio *aio)
{
    return aio->ops->now ? aio->ops->now(aio) : hst_aio_now_ns();
}

void hst_aio_idle(struct hst_aio *aio, uint64_t duration_ns)
{
    if (aio->ops->travel) {
        uint64_t to_ns;
        if (__builtin_add_overflow(aio->ops->now(aio), duration_ns, &to_ns))
            to_ns = UINT64_MAX - 1;
        aio->ops->travel(aio, to_ns);
        return;
    }
    struct timespec left = {.tv_sec = (time_t)(duration_ns / 1000000000u),
                            .tv_nsec = (long)(duration_ns % 1000000000u)};
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

/* Nothing that is in flight will ever be reported: give it up, so that files can be closed. */
static void break_down(struct hst_aio *aio, int error)
{
    aio->broken = error;
    aio->pending = aio->done = (struct job_list){0};
    aio->pushed = false;
    if (aio->ops->drop)
        aio->ops->drop(aio);
    for (uint32_t i = 0; i < aio->config.queue_depth; i++) {
        if (!aio->jobs[i].active)
            continue;
        aio->jobs[i].op.file->in_flight--;
        aio->jobs[i].op.file->lost = true;
        aio->jobs[i].active = false;
    }
    aio->in_flight = 0;
}

static void push_piece(struct hst_aio *aio, struct piece *piece)
{
    aio->counters.requests++;
    if (aio->fault)
        hst_aio_fault_push(aio, piece);
    else
        aio->ops->push(aio, piece);
    aio->pushed = true;
}

void hst_aio_flush(struct hst_aio *aio)
{
    if (!aio->pushed)
        return;
    int rc = aio->ops->flush(aio);
    aio->pushed = rc == 1;
    if (rc < 0)
        break_down(aio, rc);
}

static void cut(struct hst_aio *aio, struct job *job)
{
    const bool sync = job->op.kind == HST_AIO_SYNC;
    const uint64_t left_bytes = sync ? 0 : job->op.bytes - job->cut_bytes;
    const uint32_t bytes =
        left_bytes < aio->config.piece_bytes ? (uint32_t)left_bytes : aio->config.piece_bytes;
    struct piece *piece = aio->free_pieces[aio->piece_capacity - ++aio->pieces_out];
    *piece = (struct piece){
        .job = job,
        .file = job->op.file,
        .buffer = sync ? NULL : (char *)job->op.buffer + job->cut_bytes,
        .offset = sync ? 0 : job->op.offset + job->cut_bytes,
        .bytes = bytes,
        .request_bytes = bytes,
        .kind = job->op.kind,
        .first = job->cut_bytes,
        .whole_bytes = bytes,
    };
    job->cut_bytes += bytes;
    job->pieces_out++;
    aio->syncs_out += sync;
    if (left_bytes == bytes)
        list_pop(&aio->pending);
    const bool hashed = job->op.kind == HST_AIO_WRITE && job->op.hashes;
    if (hashed)
        hst_aio_hash_fill(job, job->cut_bytes);
    push_piece(aio, piece);
    if (hashed)
        hst_aio_flush(aio); /* the drive works while the next piece is hashed */
}

/* Cuts pieces off the pending jobs while there is room. */
static void issue(struct hst_aio *aio)
{
    while (aio->pending.head && aio->pieces_out < aio->piece_limit && !aio->broken)
        cut(aio, aio->pending.head);
}

static uint32_t bucket_of(uint64_t latency_ns)
{
    const uint32_t bucket = latency_ns < 2 ? 0 : 63 - (uint32_t)__builtin_clzll(latency_ns);
    return bucket < HST_AIO_LATENCY_BUCKETS ? bucket : HST_AIO_LATENCY_BUCKETS - 1;
}

static void count_job(struct hst_aio *aio, const struct job *job)
{
    struct hst_aio_counters *counters = &aio->counters;
    const uint32_t bucket = bucket_of(aio->now_ns - job->start_ns);
    counters->errors += job->error != 0;
    switch (job->op.kind) {
    case HST_AIO_READ:
        counters->reads++;
        counters->read_bytes += job->moved_bytes;
        counters->read_latency[bucket]++;
        break;
    case HST_AIO_WRITE:
        counters->writes++;
        counters->written_bytes += job->moved_bytes;
        counters->write_latency[bucket]++;
        break;
    case HST_AIO_SYNC:
        counters->syncs++;
        counters->sync_latency[bucket]++;
        break;
    }
}

/* The last piece of a job is over: what its hashes say, then it waits to be reaped. */
static void finish_job(struct hst_aio *aio, struct job *job)
{
    if (job->op.kind == HST_AIO_READ && job->op.hashes && !job->error) {
        if (aio->config.piece_bytes % HST_AIO_HASH_BYTES)
            hst_aio_hash_compare(job, 0, job->op.bytes);
        if (job->mismatch != UINT64_MAX) {
            const uint64_t left_bytes = job->op.bytes - job->mismatch;
            job->error = -EBADMSG;
            job->bad_offset = job->op.offset + job->mismatch;
            job->bad_bytes = left_bytes < HST_AIO_HASH_BYTES ? left_bytes : HST_AIO_HASH_BYTES;
        }
    }
    count_job(aio, job);
    list_append(&aio->done, job);
}

static void fail_job(struct hst_aio *aio, struct job *job, int error, const struct piece *piece)
{
    if (job->error)
        return;
    job->error = error;
    if (piece) {
        job->bad_offset = piece->bad_offset;
        job->bad_bytes = piece->bad_bytes;
    }
    if (job == aio->pending.head)
        list_pop(&aio->pending); /* what is not cut stays undone */
}

static void release_piece(struct hst_aio *aio, struct piece *piece)
{
    struct job *job = piece->job;
    aio->free_pieces[aio->piece_capacity - aio->pieces_out--] = piece;
    aio->syncs_out -= piece->kind == HST_AIO_SYNC;
    job->pieces_out--;
    if (job->pieces_out == 0 && job != aio->pending.head)
        finish_job(aio, job);
}

/* The drive is no longer there: what has not gone to it does not go. */
static void lose_drive(struct hst_aio *aio)
{
    aio->gone = -ENODEV;
    struct piece *paused = aio->paused;
    aio->paused = NULL;
    aio->paused_count = 0;
    for (struct piece *next; paused; paused = next) {
        next = paused->next;
        paused->bad_bytes = 0;
        fail_job(aio, paused->job, -ENODEV, paused);
        release_piece(aio, paused);
    }
    while (aio->pending.head) {
        struct job *job = aio->pending.head;
        fail_job(aio, job, -ENODEV, NULL);
        if (job->pieces_out == 0)
            finish_job(aio, job);
    }
}

static void pause_piece(struct hst_aio *aio, struct piece *piece, uint64_t pause_ns)
{
    piece->due_ns = aio->now_ns + pause_ns;
    piece->next = aio->paused;
    aio->paused = piece;
    aio->paused_count++;
}

/* Pushes the pieces whose pause is over. */
static void resume(struct hst_aio *aio)
{
    if (!aio->paused)
        return;
    const uint64_t now_ns = hst_aio_clock_ns(aio);
    for (struct piece **link = &aio->paused; *link;) {
        struct piece *piece = *link;
        if (piece->due_ns > now_ns) {
            link = &piece->next;
            continue;
        }
        *link = piece->next;
        aio->paused_count--;
        push_piece(aio, piece);
    }
}

static void settle(struct hst_aio *aio, struct piece *piece)
{
    struct job *job = piece->job;
    const uint32_t asked_bytes = piece->bytes;
    uint32_t moved_bytes;
    uint64_t pause_ns = 0;
    const enum verdict verdict = hst_aio_piece_judge(piece, &moved_bytes, &pause_ns);
    const bool lost = piece->result == -ENODEV || piece->result == -ENXIO;

    job->moved_bytes += moved_bytes;
    if (piece->result > 0 && (uint32_t)piece->result < asked_bytes)
        aio->counters.short_results++;
    if (verdict == PIECE_FAILED)
        fail_job(aio, job, lost ? -ENODEV : piece->error, piece);
    const bool goes_on = verdict == PIECE_AGAIN || verdict == PIECE_LATER;
    if (goes_on && !job->error && !aio->gone) {
        aio->counters.retries += moved_bytes == 0;
        if (verdict == PIECE_LATER)
            pause_piece(aio, piece, pause_ns);
        else
            push_piece(aio, piece);
        return;
    }
    if (goes_on)
        fail_job(aio, job, -ENODEV, NULL);
    if (verdict == PIECE_FINISHED && job->op.kind == HST_AIO_READ && job->op.hashes &&
        !job->error && aio->config.piece_bytes % HST_AIO_HASH_BYTES == 0)
        hst_aio_hash_compare(job, piece->first, piece->whole_bytes);
    release_piece(aio, piece);
    if (lost && !aio->gone)
        lose_drive(aio);
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

static int check_context(const struct hst_aio *aio)
{
    if (!*aio->native)
        return -EINVAL; /* in a forked child */
    return aio->broken ? aio->broken : aio->gone;
}

static void take(struct hst_aio *aio, const struct hst_aio_op *ops, size_t count)
{
    const uint64_t now_ns = hst_aio_clock_ns(aio);
    if (aio->in_flight == 0)
        aio->busy_since_ns = aio->answered_ns = aio->looked_ns = now_ns;
    for (size_t i = 0; i < count; i++) {
        struct job *job = list_pop(&aio->free);
        *job =
            (struct job){.op = ops[i], .active = true, .start_ns = now_ns, .mismatch = UINT64_MAX};
        job->op.file->in_flight++;
        list_append(&aio->pending, job);
    }
    aio->in_flight += count;
    if (aio->in_flight > aio->counters.most_in_flight)
        aio->counters.most_in_flight = (uint32_t)aio->in_flight;
}

int hst_aio_submit(struct hst_aio *aio, const struct hst_aio_op *ops, size_t count)
{
    int rc = check_context(aio);
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = check_op(aio, &ops[i]);
    if (rc < 0 || count == 0)
        return rc;
    if (aio->in_flight == 0 && aio->ops->claim) {
        rc = aio->ops->claim(aio);
        if (rc < 0)
            return rc;
    }
    const size_t room = aio->config.queue_depth - aio->in_flight;
    if (room == 0)
        return -EAGAIN;
    if (count > room)
        count = room;
    take(aio, ops, count);
    issue(aio);
    hst_aio_flush(aio);
    if (aio->epoll_fd >= 0)
        hst_aio_fd_update(aio);
    return (int)count;
}

static size_t take_done(struct hst_aio *aio, struct hst_aio_completion *completions,
                        size_t capacity)
{
    size_t count = 0;
    while (count < capacity && aio->done.head) {
        struct job *job = list_pop(&aio->done);
        completions[count++] = (struct hst_aio_completion){
            .user = job->op.user,
            .bytes = job->moved_bytes,
            .error = job->error,
            .bad_offset = job->bad_offset,
            .bad_bytes = job->bad_bytes,
        };
        job->active = false;
        job->op.file->in_flight--;
        list_append(&aio->free, job);
    }
    if (count > 0 && aio->in_flight == count)
        aio->counters.busy_ns += aio->now_ns - aio->busy_since_ns;
    aio->in_flight -= count;
    return count;
}

/* Between two looks at a drive that does not answer. */
static uint64_t look_every_ns(const struct hst_aio *aio)
{
    return (uint64_t)aio->config.timeout_ms * 1000000u / HST_AIO_LOOKS;
}

/*
 * After a look: a drive with requests that has answered none of them for timeout_ms is given up.
 * Only time in which somebody looked counts: what a caller finds who was away, or stopped, may have
 * been there for long.
 */
static void look(struct hst_aio *aio, bool answered)
{
    const uint64_t now_ns = hst_aio_clock_ns(aio);
    const bool away = now_ns - aio->looked_ns > 2 * look_every_ns(aio);
    if (answered || away || aio->pieces_out == aio->paused_count)
        aio->answered_ns = now_ns;
    if (answered)
        aio->now_ns = now_ns;
    aio->looked_ns = now_ns;
    const uint64_t patience = aio->syncs_out > 0 ? HST_AIO_SYNC_PATIENCE : 1;
    if (now_ns - aio->answered_ns >= patience * aio->config.timeout_ms * 1000000u)
        break_down(aio, -ETIMEDOUT);
}

uint64_t hst_aio_due_ns(const struct hst_aio *aio)
{
    uint64_t due_ns = aio->fault ? hst_aio_fault_due_ns(aio) : UINT64_MAX;
    if (aio->in_flight > 0 && aio->looked_ns + look_every_ns(aio) < due_ns)
        due_ns = aio->looked_ns + look_every_ns(aio);
    for (const struct piece *piece = aio->paused; piece; piece = piece->next)
        if (piece->due_ns < due_ns)
            due_ns = piece->due_ns;
    return due_ns;
}

void hst_aio_advance(struct hst_aio *aio, size_t least, uint64_t timeout_ns)
{
    /*
     * k operations need at least k more pieces; more are not waited for, so that a large one stays
     * fed.
     */
    const uint32_t out = aio->pieces_out - aio->paused_count;
    if (timeout_ns > look_every_ns(aio))
        timeout_ns = look_every_ns(aio);
    if (aio->paused && least > 0) {
        const uint64_t due_ns = hst_aio_due_ns(aio), now_ns = hst_aio_clock_ns(aio);
        const uint64_t pause_ns = due_ns > now_ns ? due_ns - now_ns : 0;
        least = 1;
        if (pause_ns < timeout_ns)
            timeout_ns = pause_ns;
        if (out == 0)
            hst_aio_idle(aio, timeout_ns);
    }
    if (least > out)
        least = out;
    aio->pushed = false;
    int count = aio->fault ? hst_aio_fault_wait(aio, (uint32_t)least, timeout_ns)
                           : aio->ops->wait(aio, (uint32_t)least, timeout_ns);
    if (count < 0) {
        break_down(aio, count);
        return;
    }
    look(aio, count > 0);
    if (aio->broken)
        return;
    for (int i = 0; i < count; i++)
        settle(aio, aio->finished[i]);
    resume(aio);
    issue(aio);
}

static int reap(struct hst_aio *aio, struct hst_aio_completion *completions, size_t capacity,
                size_t least, uint64_t timeout_ns)
{
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
        __builtin_add_overflow(hst_aio_clock_ns(aio), timeout_ns, &deadline_ns))
        deadline_ns = UINT64_MAX;
    uint64_t left_ns = timeout_ns;
    while (!aio->broken && aio->in_flight > 0 && count < capacity) {
        const size_t missing = left_ns > 0 && least > count ? least - count : 0;
        hst_aio_advance(aio, missing, left_ns);
        count += take_done(aio, completions + count, capacity - count);
        if (count >= least || left_ns == 0)
            break;
        if (deadline_ns != UINT64_MAX) {
            const uint64_t now_ns = hst_aio_clock_ns(aio);
            left_ns = now_ns < deadline_ns ? deadline_ns - now_ns : 0;
        }
    }
    hst_aio_flush(aio);
    return count > 0 || !aio->broken ? (int)count : aio->broken;
}

int hst_aio_reap(struct hst_aio *aio, struct hst_aio_completion *completions, size_t capacity,
                 size_t least, uint64_t timeout_ns)
{
    if (!*aio->native)
        return -EINVAL; /* in a forked child */
    if (aio->broken)
        return aio->broken;
    const int count = reap(aio, completions, capacity, least, timeout_ns);
    if (aio->epoll_fd >= 0)
        hst_aio_fd_update(aio);
    return count;
}

size_t hst_aio_in_flight(const struct hst_aio *aio)
{
    return aio->in_flight;
}

void hst_aio_counters(const struct hst_aio *aio, struct hst_aio_counters *counters)
{
    *counters = aio->counters;
    if (aio->in_flight > 0)
        counters->busy_ns += hst_aio_clock_ns(aio) - aio->busy_since_ns;
}
