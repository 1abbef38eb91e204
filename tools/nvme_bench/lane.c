/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which block a lane asks for next, and keeps its queue full. Blocks go up through the file
 * and start again: that is how tiles of optimizer states come by. Mixed jobs read one half of the
 * file and write the other, as an update reads the last version and writes the next one.
 */
#include "nvme_bench/lane.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KEPT_LATENCIES (1u << 17)
#define VERIFY_BLOCK   (1u << 20)

int nb_lane_open(struct nb_lane *lane, size_t buffer_bytes)
{
    void *buffer = NULL;
    size_t sectors = lane->file_bytes / NB_SECTOR_BYTES;
    int rc = hst_aio_buffer_alloc(2 * buffer_bytes, &buffer);
    if (rc)
        return rc;
    lane->buffer = buffer;
    lane->source = lane->buffer + buffer_bytes;
    lane->buffer_bytes = buffer_bytes;
    lane->written = calloc(sectors, sizeof *lane->written);
    lane->slots = calloc(NB_MAX_DEPTH, sizeof *lane->slots);
    lane->free_slots = calloc(NB_MAX_DEPTH, sizeof *lane->free_slots);
    lane->latencies.ns = calloc(KEPT_LATENCIES, sizeof *lane->latencies.ns);
    lane->latencies.capacity = KEPT_LATENCIES;
    if (!lane->written || !lane->slots || !lane->free_slots || !lane->latencies.ns)
        return -ENOMEM;
    nb_stamp_fill(buffer, 2 * buffer_bytes,
                  lane->run ^ ((uint64_t)lane->drive << 32 | lane->index));
    /* Refused where RLIMIT_MEMLOCK is small, or without io_uring: then it is slower, no more. */
    lane->register_error = hst_aio_buffer_register(lane->aio, buffer, 2 * buffer_bytes);
    return 0;
}

void nb_lane_close(struct nb_lane *lane)
{
    if (lane->buffer && lane->error != -ETIMEDOUT) { /* else late requests may yet write to it */
        hst_aio_buffer_unregister(lane->aio, lane->buffer);
        hst_aio_buffer_free(lane->buffer, 2 * lane->buffer_bytes);
    }
    hst_aio_file_close(&lane->file);
    hst_aio_close(&lane->aio);
    free(lane->written);
    free(lane->slots);
    free(lane->free_slots);
    free(lane->latencies.ns);
    *lane = (struct nb_lane){0};
}

void nb_lane_begin(struct nb_lane *lane, const struct nb_job *job)
{
    assert(job->depth <= NB_MAX_DEPTH);
    assert((uint64_t)job->depth * job->block_bytes <= lane->buffer_bytes);
    lane->job = job;
    lane->pass++;
    lane->free_count = job->depth;
    for (uint32_t i = 0; i < job->depth; i++)
        lane->free_slots[i] = job->depth - 1 - i;
    lane->cursor[0] = lane->cursor[1] = 0;
    lane->submitted_bytes = lane->moved_bytes = lane->written_bytes = lane->operations = 0;
    lane->latencies.count = 0;
    lane->latencies.seen = lane->latencies.stride = lane->latencies.most = 0;
    lane->over = false;
    lane->window_base = 0;
    lane->start_ns = lane->end_ns = lane->window_start_ns = hst_aio_clock_ns(lane->aio);
}

/* The first error counts, with the request that had it. */
static void fail_lane(struct nb_lane *lane, int error, const struct nb_slot *slot)
{
    if (!lane->error) {
        lane->error = error;
        lane->failed = *slot;
    }
    lane->over = true;
}

/* The next block's offset: up through the whole file, or through the half of its direction. */
static uint64_t next_offset(struct nb_lane *lane, bool write)
{
    const struct nb_job *job = lane->job;
    bool halves = job->kind == NB_MIXED;
    uint64_t region = halves ? lane->file_bytes / 2 : lane->file_bytes;
    uint64_t base = halves && write ? region : 0;
    base -= base % NB_SECTOR_BYTES;
    uint64_t blocks = region / job->block_bytes;
    return base + lane->cursor[write]++ % blocks * job->block_bytes;
}

static void note_written(struct nb_lane *lane, const struct hst_aio_op *op)
{
    uint64_t first = op->offset / NB_SECTOR_BYTES;
    uint64_t origin = (uint64_t)((char *)op->buffer - lane->source) / NB_SECTOR_BYTES;
    for (uint64_t i = 0; i < op->bytes / NB_SECTOR_BYTES; i++)
        lane->written[first + i] = (struct nb_written){lane->pass, (uint32_t)(origin + i)};
}

/* Prepares one request in a free slot; its number is left in op->user. */
static void prepare(struct nb_lane *lane, struct hst_aio_op *op)
{
    const struct nb_job *job = lane->job;
    uint32_t slot = lane->free_slots[--lane->free_count];
    bool write = job->kind == NB_WRITE || (job->kind == NB_MIXED && lane->operations % 2 == 1);
    struct nb_slot *s = &lane->slots[slot];
    s->write = write;
    s->offset = next_offset(lane, write);
    *op = (struct hst_aio_op){
        .kind = write ? HST_AIO_WRITE : HST_AIO_READ,
        .file = lane->file,
        .offset = s->offset,
        .buffer = (write ? lane->source : lane->buffer) + (size_t)slot * job->block_bytes,
        .bytes = job->block_bytes,
        .user = slot,
    };
    if (write) {
        const struct nb_stamp stamp = {.run = lane->run,
                                       .offset = s->offset,
                                       .drive = lane->drive,
                                       .file = lane->index,
                                       .pass = lane->pass};
        nb_stamp_put(op->buffer, op->bytes, &stamp);
        note_written(lane, op);
        lane->written_bytes += op->bytes;
    }
    lane->operations++;
    lane->submitted_bytes += op->bytes;
}

static bool has_more(struct nb_lane *lane, uint64_t now_ns)
{
    const struct nb_job *job = lane->job;
    if (*lane->stopped || now_ns - lane->start_ns >= job->most_ns ||
        lane->submitted_bytes + job->block_bytes > job->most_bytes)
        lane->over = true;
    return !lane->over;
}

bool nb_lane_feed(struct nb_lane *lane)
{
    uint64_t now = hst_aio_clock_ns(lane->aio);
    while (lane->free_count && has_more(lane, now)) {
        struct hst_aio_op op;
        prepare(lane, &op);
        lane->slots[op.user].submitted_ns = now;
        int taken = hst_aio_submit(lane->aio, &op, 1);
        if (taken != 1)
            fail_lane(lane, taken < 0 ? taken : -EAGAIN, &lane->slots[op.user]);
        now = hst_aio_clock_ns(lane->aio);
    }
    return !lane->over || hst_aio_in_flight(lane->aio) > 0;
}

/* Closes the windows that moved_bytes has reached; the last one may be cut by the end. */
static void count_window(struct nb_lane *lane, uint64_t now_ns)
{
    struct nb_sustained *s = lane->sustained;
    uint64_t bytes = lane->moved_bytes - lane->window_base;
    if (bytes < lane->job->window_bytes || s->windows == NB_MAX_WINDOWS)
        return;
    uint64_t passed_ns = now_ns - lane->window_start_ns;
    s->rates[s->windows++] = (double)bytes * 1e9 / (double)(passed_ns ? passed_ns : 1);
    lane->window_base = lane->moved_bytes;
    lane->window_start_ns = now_ns;
    nb_sustained_judge(s);
    if (lane->job->stop_when_flat && s->drop_bytes && s->flat)
        lane->over = true;
}

void nb_lane_collect(struct nb_lane *lane, size_t least)
{
    struct hst_aio_completion done[64];
    int count = hst_aio_reap(lane->aio, done, sizeof done / sizeof done[0], least, UINT64_MAX);
    if (count < 0) {
        fail_lane(lane, count, &lane->slots[0]); /* the queue is broken: any of them */
        return;
    }
    uint64_t now = hst_aio_clock_ns(lane->aio);
    for (int i = 0; i < count; i++) {
        const struct hst_aio_completion *c = &done[i];
        if (c->error) {
            struct nb_slot failed = lane->slots[c->user];
            failed.offset = c->bad_bytes ? c->bad_offset : failed.offset;
            fail_lane(lane, c->error, &failed);
        }
        nb_latencies_add(&lane->latencies, now - lane->slots[c->user].submitted_ns);
        lane->free_slots[lane->free_count++] = (uint32_t)c->user;
        lane->moved_bytes += c->bytes;
        lane->end_ns = now;
    }
    if (count && lane->job->window_bytes)
        count_window(lane, now);
}

int nb_lane_run(struct nb_lane *lane, const struct nb_job *job)
{
    nb_lane_begin(lane, job);
    while (nb_lane_feed(lane))
        nb_lane_collect(lane, 1);
    return lane->error;
}

/* ---- reading back ---- */

/* The sector with its wrong byte, or the sector that stands in its place. */
static void tell_mismatch(const struct nb_lane *lane, uint64_t offset, const char *got,
                          const struct nb_stamp *want, struct nb_mismatch *mismatch)
{
    char wanted[NB_SECTOR_BYTES];
    size_t i = 0;
    memcpy(wanted,
           lane->source + (size_t)lane->written[offset / NB_SECTOR_BYTES].origin * NB_SECTOR_BYTES,
           sizeof wanted);
    memcpy(wanted, want, sizeof *want);
    *mismatch = (struct nb_mismatch){.offset = offset};
    mismatch->is_other =
        nb_stamp_read(got, &mismatch->found) && memcmp(got, want, sizeof *want) != 0;
    while (i < NB_SECTOR_BYTES - 1 && got[i] == wanted[i])
        i++;
    mismatch->offset += mismatch->is_other ? 0 : i;
    mismatch->byte = (unsigned char)got[i];
    mismatch->wanted = (unsigned char)wanted[i];
}

/* It checks what lies in the buffer, read from `offset` on. */
static bool block_is_right(const struct nb_lane *lane, uint64_t offset, size_t bytes,
                           uint64_t *compared, struct nb_mismatch *mismatch)
{
    for (size_t at = 0; at < bytes; at += NB_SECTOR_BYTES) {
        const struct nb_written *w = &lane->written[(offset + at) / NB_SECTOR_BYTES];
        const struct nb_stamp want = nb_stamp_seal(&(struct nb_stamp){.run = lane->run,
                                                                      .offset = offset + at,
                                                                      .drive = lane->drive,
                                                                      .file = lane->index,
                                                                      .pass = w->pass});
        const char *got = lane->buffer + at, *data = got + sizeof want;
        const char *from = lane->source + (size_t)w->origin * NB_SECTOR_BYTES + sizeof want;
        if (w->pass == 0)
            continue;
        if (memcmp(got, &want, sizeof want) != 0 ||
            memcmp(data, from, NB_SECTOR_BYTES - sizeof want) != 0) {
            tell_mismatch(lane, offset + at, got, &want, mismatch);
            return false;
        }
        *compared += NB_SECTOR_BYTES;
    }
    return true;
}

int nb_lane_verify(struct nb_lane *lane, uint64_t *bytes, struct nb_mismatch *mismatch)
{
    *bytes = 0;
    for (uint64_t at = 0; at < lane->file_bytes && !*lane->stopped; at += VERIFY_BLOCK) {
        uint64_t left = lane->file_bytes - at;
        struct hst_aio_op op = {.kind = HST_AIO_READ,
                                .file = lane->file,
                                .offset = at,
                                .buffer = lane->buffer,
                                .bytes = left < VERIFY_BLOCK ? left : VERIFY_BLOCK};
        struct hst_aio_completion done = {0};
        int rc = hst_aio_submit(lane->aio, &op, 1);
        if (rc == 1)
            rc = hst_aio_reap(lane->aio, &done, 1, 1, UINT64_MAX);
        if (rc < 0 || done.error) {
            fail_lane(lane, rc < 0 ? rc : done.error,
                      &(struct nb_slot){.offset = done.bad_bytes ? done.bad_offset : at});
            return lane->error;
        }
        if (!block_is_right(lane, at, op.bytes, bytes, mismatch))
            return -EBADMSG;
    }
    return 0;
}
