/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One measurement of aio: moves a range of a file and prints bytes, seconds and CPU seconds of that
 * alone as JSON.
 *
 *   aio_bench read|write|mixed FILE MIB BLOCK_KIB DEPTH BACKEND
 *   aio_bench stream-read|stream-write FILE MIB BLOCK_KIB DEPTH BACKEND
 *   aio_bench whole-read|whole-write FILE MIB BLOCK_KIB DEPTH BACKEND
 *   aio_bench null - MIB BLOCK_KIB DEPTH -
 *
 * BACKEND: uring, uring-plain (nothing registered), threads.
 *
 * read, write, mixed: DEPTH blocks in flight in a small ring of buffers, sequential offsets; mixed
 * takes turns. stream: tile by tile, each tile summed (or filled) where it lies; whole: the range
 * into one buffer as large as it, in one go, then summed (filled before).
 */
#include "hoistway/aio.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

struct task {
    const char *mode, *path;
    uint64_t bytes, block_bytes;
    uint32_t depth;
    struct hst_aio *aio;
    struct hst_aio_file *file;
    uint64_t sum; /* of what was read, so that it is looked at */
};

struct moment {
    double wall_s, cpu_s;
};

static struct moment now(void)
{
    struct timespec wall;
    struct rusage usage;
    clock_gettime(CLOCK_MONOTONIC, &wall);
    getrusage(RUSAGE_SELF, &usage);
    const double user_s = (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec * 1e-6;
    const double system_s = (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec * 1e-6;
    return (struct moment){(double)wall.tv_sec + (double)wall.tv_nsec * 1e-9, user_s + system_s};
}

static void print(const struct task *task, struct moment begin, struct moment end,
                  uint64_t requests)
{
    printf("{\"bytes\": %llu, \"seconds\": %.6f, \"cpu_seconds\": %.6f, \"requests\": %llu, "
           "\"sum\": %llu}\n",
           (unsigned long long)task->bytes, end.wall_s - begin.wall_s, end.cpu_s - begin.cpu_s,
           (unsigned long long)requests, (unsigned long long)task->sum);
}

static int die(const char *what, int rc)
{
    fprintf(stderr, "aio_bench: %s: %s\n", what, strerror(-rc));
    return 1;
}

static uint64_t sum_of(const void *memory, uint64_t bytes)
{
    const uint64_t *words = memory;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < bytes / sizeof *words; i++)
        sum += words[i];
    return sum;
}

/* Keeps `depth` blocks in flight: what a reap brings is given again in one submit. */
static int run_blocks(struct task *task)
{
    enum { DEPTH_MAX = 256 };
    static struct hst_aio_op ops[DEPTH_MAX];
    static struct hst_aio_completion done[DEPTH_MAX];
    const bool null = strcmp(task->mode, "null") == 0;
    const bool mixed = strcmp(task->mode, "mixed") == 0;
    const bool write = strcmp(task->mode, "write") == 0;
    const uint64_t blocks = task->bytes / task->block_bytes;
    const struct hst_aio_buffer_config config = {.size = sizeof config, .aio = task->aio};
    struct hst_aio_buffer buffer;
    int rc = hst_aio_buffer_open(&config, task->depth * task->block_bytes, &buffer);
    if (rc < 0 || task->depth > DEPTH_MAX)
        return die("buffer", rc);
    uint64_t given = 0, reaped = 0;
    uint32_t free_slots[DEPTH_MAX], free_count = task->depth;
    for (uint32_t i = 0; i < task->depth; i++)
        free_slots[i] = i;
    const struct moment begin = now();
    while (reaped < blocks) {
        size_t count = 0;
        for (; free_count > 0 && given < blocks; given++) {
            const uint32_t slot = free_slots[--free_count];
            ops[count++] = (struct hst_aio_op){
                .kind = write || (mixed && given % 2) ? HST_AIO_WRITE : HST_AIO_READ,
                .file = task->file,
                .offset = null ? 0 : given * task->block_bytes,
                .buffer = (char *)buffer.memory + slot * task->block_bytes,
                .bytes = task->block_bytes,
                .user = slot};
        }
        rc = hst_aio_submit(task->aio, ops, count);
        if (rc < 0 || (size_t)rc != count)
            return die("submit", rc);
        rc = hst_aio_reap(task->aio, done, DEPTH_MAX, 1, UINT64_MAX);
        for (int i = 0; i < rc; i++) {
            if (done[i].error)
                return die("operation", done[i].error);
            free_slots[free_count++] = (uint32_t)done[i].user;
        }
        reaped += (uint64_t)(rc > 0 ? rc : 0);
    }
    print(task, begin, now(), blocks);
    hst_aio_buffer_close(&buffer);
    return 0;
}

static int sum_tile(void *arg, void *memory, uint64_t offset, uint64_t bytes)
{
    struct task *task = arg;
    (void)offset;
    task->sum += sum_of(memory, bytes);
    return 0;
}

static int fill_tile(void *arg, void *memory, uint64_t offset, uint64_t bytes)
{
    (void)arg;
    memset(memory, (int)(offset >> 20), bytes);
    return 0;
}

static int run_stream(struct task *task)
{
    const bool reads = strcmp(task->mode, "stream-read") == 0;
    struct hst_aio_stream *stream;
    const struct hst_aio_stream_config config = {
        .size = sizeof config, .tile_bytes = (uint32_t)task->block_bytes, .depth = task->depth};
    int rc = hst_aio_stream_open(task->aio, &config, &stream);
    if (rc < 0)
        return die("stream", rc);
    const struct hst_aio_stream_job job = {.from = reads ? task->file : NULL,
                                           .to = reads ? NULL : task->file,
                                           .bytes = task->bytes,
                                           .tile = reads ? sum_tile : fill_tile,
                                           .arg = task};
    const struct moment begin = now();
    rc = hst_aio_stream_run(stream, &job, NULL);
    if (rc < 0)
        return die("run", rc);
    print(task, begin, now(), task->bytes / task->block_bytes);
    hst_aio_stream_close(&stream);
    return 0;
}

static int run_whole(struct task *task)
{
    const bool reads = strcmp(task->mode, "whole-read") == 0;
    struct hst_aio_buffer buffer;
    struct hst_aio_completion done;
    int rc = hst_aio_buffer_open(NULL, task->bytes, &buffer);
    if (rc < 0)
        return die("buffer", rc);
    const struct hst_aio_op op = {.kind = reads ? HST_AIO_READ : HST_AIO_WRITE,
                                  .file = task->file,
                                  .buffer = buffer.memory,
                                  .bytes = task->bytes};
    const struct moment begin = now();
    for (uint64_t at = 0; !reads && at < task->bytes; at += task->block_bytes)
        fill_tile(task, (char *)buffer.memory + at, at, task->block_bytes);
    rc = hst_aio_submit(task->aio, &op, 1);
    if (rc == 1)
        rc = hst_aio_reap(task->aio, &done, 1, 1, UINT64_MAX);
    if (rc != 1 || done.error)
        return die("operation", rc < 0 ? rc : done.error);
    if (reads)
        task->sum = sum_of(buffer.memory, task->bytes);
    print(task, begin, now(), 1);
    hst_aio_buffer_close(&buffer);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: see the head of %s\n", __FILE__);
        return 2;
    }
    struct task task = {.mode = argv[1],
                        .path = argv[2],
                        .bytes = strtoull(argv[3], NULL, 10) << 20,
                        .block_bytes = strtoull(argv[4], NULL, 10) << 10,
                        .depth = (uint32_t)strtoul(argv[5], NULL, 10)};
    const bool null = strcmp(task.mode, "null") == 0;
    const bool whole = strncmp(task.mode, "whole", 5) == 0;
    const bool threads = strcmp(argv[6], "threads") == 0;
    struct hst_aio_config config = {
        .size = sizeof config,
        .backend = null      ? HST_AIO_NULL
                   : threads ? HST_AIO_THREADS
                             : HST_AIO_URING,
        .queue_depth = task.depth,
        .thread_count = task.depth < 16 ? task.depth : 16,
        .avoid = strcmp(argv[6], "uring-plain") == 0 ? HST_AIO_AVOID_FIXED : 0,
        .piece_bytes = whole ? (uint32_t)task.block_bytes : 0,
    };
    int rc = hst_aio_open(&config, ".", &task.aio, NULL);
    if (rc < 0)
        return die("open", rc);
    rc =
        hst_aio_file_open(task.aio, task.path, 0, null ? task.block_bytes : task.bytes, &task.file);
    if (rc < 0)
        return die(task.path, rc);
    if (whole)
        rc = run_whole(&task);
    else if (strncmp(task.mode, "stream", 6) == 0)
        rc = run_stream(&task);
    else
        rc = run_blocks(&task);
    hst_aio_file_close(&task.file);
    hst_aio_close(&task.aio);
    return rc;
}
