/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A range of a file, tile by tile, through a small ring.
 *
 * Tile i lives in slot i modulo depth. Reads run ahead as far as slots are free; the function sees
 * tiles in order; a slot is free again when its tile is written. Everything that can be given to
 * the drive is given before the next wait, so that it always has work on both sides.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

enum { DEPTH_MAX = 64, DEPTH_DEFAULT = 16, TUNE_BYTES = 64 << 20, TUNE_ROUNDS = 2 };

enum slot { SLOT_FREE, SLOT_READING, SLOT_FULL, SLOT_WRITING };

struct hst_aio_stream {
    struct hst_aio *aio;
    uint32_t tile_bytes;
    uint32_t depth, capacity; /* tiles used, tiles there */
    struct hst_aio_buffer buffer;
    enum slot slots[DEPTH_MAX];
};

struct run { /* one job under way */
    struct hst_aio_stream *stream;
    const struct hst_aio_stream_job *job;
    uint64_t tile_count;
    uint64_t begun, worked, ended; /* tiles read or being read, worked on, done with */
    int error;
    struct hst_aio_completion *bad;
};

int hst_aio_stream_open(struct hst_aio *aio, const struct hst_aio_stream_config *config,
                        struct hst_aio_stream **out)
{
    struct hst_aio_stream_config wanted = {.size = sizeof wanted};
    struct hst_aio_buffer_config memory = {.size = sizeof memory};
    if (!aio || !out || (config && config->size != sizeof *config))
        return -EINVAL;
    if (config)
        wanted = *config;
    if (wanted.buffer)
        memory = *wanted.buffer;
    if (wanted.tile_bytes == 0)
        wanted.tile_bytes = 1 << 20;
    if (wanted.depth == 0)
        wanted.depth =
            aio->config.queue_depth < DEPTH_DEFAULT ? aio->config.queue_depth : DEPTH_DEFAULT;
    if (wanted.tile_bytes % HST_AIO_ALIGN_BYTES || wanted.depth > DEPTH_MAX ||
        wanted.depth > aio->config.queue_depth)
        return -EINVAL;
    struct hst_aio_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return -ENOMEM;
    memory.aio = aio;
    int rc =
        hst_aio_buffer_open(&memory, (size_t)wanted.tile_bytes * wanted.depth, &stream->buffer);
    if (rc < 0) {
        free(stream);
        return rc;
    }
    stream->aio = aio;
    stream->tile_bytes = wanted.tile_bytes;
    stream->depth = stream->capacity = wanted.depth;
    *out = stream;
    return 0;
}

void hst_aio_stream_close(struct hst_aio_stream **stream)
{
    if (!*stream)
        return;
    hst_aio_buffer_close(&(*stream)->buffer);
    free(*stream);
    *stream = NULL;
}

static uint64_t bytes_of(const struct run *run, uint64_t tile)
{
    const uint64_t left_bytes = run->job->bytes - tile * run->stream->tile_bytes;
    return left_bytes < run->stream->tile_bytes ? left_bytes : run->stream->tile_bytes;
}

static char *memory_of(const struct run *run, uint64_t tile)
{
    const struct hst_aio_stream *stream = run->stream;
    return (char *)stream->buffer.memory + tile % stream->depth * stream->tile_bytes;
}

static struct hst_aio_op make_op(const struct run *run, uint64_t tile, enum hst_aio_kind kind)
{
    const struct hst_aio_stream_job *job = run->job;
    const uint64_t at = tile * run->stream->tile_bytes;
    const bool read = kind == HST_AIO_READ;
    uint64_t *hashes = read ? job->read_hashes : job->write_hashes;
    return (struct hst_aio_op){
        .kind = kind,
        .file = read ? job->from : job->to,
        .offset = (read ? job->from_offset : job->to_offset) + at,
        .buffer = memory_of(run, tile),
        .bytes = bytes_of(run, tile),
        .user = tile,
        .hashes = hashes ? hashes + at / HST_AIO_HASH_BYTES : NULL,
    };
}

/* Never without room: at most `depth` operations are out. */
static void submit(struct run *run, const struct hst_aio_op *ops, size_t count)
{
    if (count == 0)
        return;
    const int rc = hst_aio_submit(run->stream->aio, ops, count);
    if (rc == (int)count)
        return;
    run->error = rc < 0 ? rc : -EINVAL;
    for (size_t i = rc < 0 ? 0 : (size_t)rc; i < count; i++)
        run->stream->slots[ops[i].user % run->stream->depth] = SLOT_FREE;
}

/* Begins as many tiles as there are free slots for, in one submission. */
static void begin(struct run *run)
{
    struct hst_aio_stream *stream = run->stream;
    struct hst_aio_op ops[DEPTH_MAX];
    size_t count = 0;
    while (run->begun < run->tile_count && stream->slots[run->begun % stream->depth] == SLOT_FREE) {
        stream->slots[run->begun % stream->depth] = run->job->from ? SLOT_READING : SLOT_FULL;
        if (run->job->from)
            ops[count++] = make_op(run, run->begun, HST_AIO_READ);
        run->begun++;
    }
    submit(run, ops, count);
}

/* Works on the tiles that have arrived, in order; each is given to the drive at once. */
static void work(struct run *run)
{
    struct hst_aio_stream *stream = run->stream;
    const struct hst_aio_stream_job *job = run->job;
    while (run->error == 0 && run->worked < run->begun &&
           stream->slots[run->worked % stream->depth] == SLOT_FULL) {
        const uint64_t tile = run->worked++;
        if (job->tile)
            run->error = job->tile(job->arg, memory_of(run, tile), tile * stream->tile_bytes,
                                   bytes_of(run, tile));
        const bool writes = run->error == 0 && job->to;
        stream->slots[tile % stream->depth] = writes ? SLOT_WRITING : SLOT_FREE;
        if (!writes) {
            run->ended++;
            continue;
        }
        const struct hst_aio_op op = make_op(run, tile, HST_AIO_WRITE);
        submit(run, &op, 1);
    }
}

static void take(struct run *run, const struct hst_aio_completion *done)
{
    enum slot *slot = &run->stream->slots[done->user % run->stream->depth];
    if (done->error) {
        if (run->error == 0 && run->bad)
            *run->bad = *done;
        if (run->error == 0)
            run->error = done->error;
        *slot = SLOT_FREE;
        return;
    }
    run->ended += *slot == SLOT_WRITING;
    *slot = *slot == SLOT_READING ? SLOT_FULL : SLOT_FREE;
}

static int check(const struct hst_aio_stream *stream, const struct hst_aio_stream_job *job)
{
    const bool hashed = job->read_hashes || job->write_hashes;
    if ((!job->from && !job->to) || job->bytes == 0 || hst_aio_in_flight(stream->aio) > 0)
        return -EINVAL;
    if ((job->bytes | job->from_offset | job->to_offset) % HST_AIO_ALIGN_BYTES ||
        (hashed && stream->tile_bytes % HST_AIO_HASH_BYTES))
        return -EINVAL;
    return 0;
}

int hst_aio_stream_run(struct hst_aio_stream *stream, const struct hst_aio_stream_job *job,
                       struct hst_aio_completion *bad)
{
    struct hst_aio_completion done[DEPTH_MAX];
    struct run run = {.stream = stream, .job = job, .bad = bad};
    int rc = check(stream, job);
    if (rc < 0)
        return rc;
    run.tile_count = (job->bytes + stream->tile_bytes - 1) / stream->tile_bytes;
    for (uint32_t i = 0; i < stream->depth; i++)
        stream->slots[i] = SLOT_FREE;
    while (run.ended < run.tile_count && run.error == 0) {
        begin(&run);
        work(&run);
        begin(&run); /* what the function has freed */
        if (run.error || hst_aio_in_flight(stream->aio) == 0)
            continue;
        rc = hst_aio_reap(stream->aio, done, DEPTH_MAX, 1, UINT64_MAX);
        for (int i = 0; i < rc; i++)
            take(&run, &done[i]);
        if (rc < 0)
            run.error = rc;
    }
    while (hst_aio_in_flight(stream->aio) > 0) /* after an error */
        if (hst_aio_reap(stream->aio, done, DEPTH_MAX, 1, UINT64_MAX) < 0)
            break;
    return run.error;
}

/* Seconds do not matter, only their order: ns of the fastest of a few rounds. */
static int measure(struct hst_aio_stream *stream, const struct hst_aio_stream_job *job,
                   uint64_t *best_ns)
{
    *best_ns = UINT64_MAX;
    for (int round = 0; round < TUNE_ROUNDS; round++) {
        const uint64_t begin_ns = hst_aio_clock_ns(stream->aio);
        int rc = hst_aio_stream_run(stream, job, NULL);
        if (rc < 0)
            return rc;
        const uint64_t took_ns = hst_aio_clock_ns(stream->aio) - begin_ns;
        *best_ns = took_ns < *best_ns ? took_ns : *best_ns;
    }
    return 0;
}

int hst_aio_stream_tune(struct hst_aio_stream *stream, struct hst_aio_file *file)
{
    struct hst_aio_stream_job job = {.from = file, .bytes = hst_aio_file_size(file)};
    uint64_t took_ns[DEPTH_MAX + 1], fastest_ns = UINT64_MAX;
    if (job.bytes > TUNE_BYTES)
        job.bytes = TUNE_BYTES;
    if (job.bytes < 2 * (uint64_t)stream->tile_bytes)
        return -EINVAL;
    const uint32_t before = stream->depth;
    for (uint32_t depth = 2; depth <= stream->capacity; depth *= 2) {
        stream->depth = depth;
        int rc = measure(stream, &job, &took_ns[depth]);
        if (rc < 0) {
            stream->depth = before;
            return rc;
        }
        fastest_ns = took_ns[depth] < fastest_ns ? took_ns[depth] : fastest_ns;
    }
    stream->depth = before;
    for (uint32_t depth = 2; depth <= stream->capacity; depth *= 2)
        if (took_ns[depth] <= fastest_ns + fastest_ns * 3 / 100) {
            stream->depth = depth;
            break;
        }
    return (int)stream->depth;
}
