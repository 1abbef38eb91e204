/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One measurement of aio: moves a range of a file and prints bytes, seconds and CPU seconds of that
 * alone as JSON.
 *
 *   aio_bench read|write|mixed FILE MIB BLOCK_KIB DEPTH BACKEND
 *   aio_bench stream-read|stream-write FILE MIB BLOCK_KIB DEPTH BACKEND
 *   aio_bench whole-read|whole-write FILE MIB BLOCK_KIB DEPTH BACKEND
 *   aio_bench null - MIB BLOCK_KIB DEPTH -
 *   aio_bench read|write|mixed FILE MIB BLOCK_KIB DEPTH BACKEND,BACKEND
 *
 * BACKEND: uring, uring-plain (nothing registered), threads.
 *
 * read, write, mixed: DEPTH blocks in flight in a small ring of buffers, sequential offsets; mixed
 * reads and writes by turns, each sequentially from the start, as fio's rw does. Two backends: by
 * turns on the same memory, whose pages matter more than they do, 128 MiB at a time; prints [which,
 * seconds, CPU seconds] of each turn. stream: tile by tile, each tile summed (or filled) where it
 * lies; whole: the range into one buffer as large as it, in one go, then summed (filled before).
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

enum { DEPTH_MAX = 256 };

/*
 * Keeps `depth` blocks in flight, from `first` in the file on: what a reap brings is given again in
 * one submit.
 */
static int move_blocks(const struct task *task, char *buffer, uint64_t first, uint64_t blocks)
{
    static struct hst_aio_op ops[DEPTH_MAX];
    static struct hst_aio_completion done[DEPTH_MAX];
    const bool null = strcmp(task->mode, "null") == 0;
    const bool mixed = strcmp(task->mode, "mixed") == 0;
    const bool write = strcmp(task->mode, "write") == 0;
    uint64_t given = 0, reaped = 0;
    uint32_t free_slots[DEPTH_MAX], free_count = task->depth;
    for (uint32_t i = 0; i < task->depth; i++)
        free_slots[i] = i;
    while (reaped < blocks) {
        size_t count = 0;
        for (; free_count > 0 && given < blocks; given++) {
            const uint32_t slot = free_slots[--free_count];
            const uint64_t block = null ? 0 : mixed ? given / 2 : given;
            ops[count++] = (struct hst_aio_op){.kind = write || (mixed && given % 2) ? HST_AIO_WRITE
                                                                                     : HST_AIO_READ,
                                               .file = task->file,
                                               .offset = first + block * task->block_bytes,
                                               .buffer = buffer + slot * task->block_bytes,
                                               .bytes = task->block_bytes,
                                               .user = slot};
        }
        int rc = hst_aio_submit(task->aio, ops, count);
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
    return 0;
}

static int run_blocks(struct task *task)
{
    const struct hst_aio_buffer_config config = {.size = sizeof config, .aio = task->aio};
    const uint64_t blocks = task->bytes / task->block_bytes;
    struct hst_aio_buffer buffer;
    int rc = hst_aio_buffer_open(&config, task->depth * task->block_bytes, &buffer);
    if (rc < 0)
        return die("buffer", rc);
    const struct moment begin = now();
    rc = move_blocks(task, buffer.memory, 0, blocks);
    if (rc == 0)
        print(task, begin, now(), blocks);
    hst_aio_buffer_close(&buffer);
    return rc;
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
    struct hst_aio_completion done = {0};
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

static int open_task(struct task *task, const char *backend)
{
    const bool null = strcmp(task->mode, "null") == 0;
    const bool whole = strncmp(task->mode, "whole", 5) == 0;
    const bool threads = strncmp(backend, "threads", 7) == 0;
    const struct hst_aio_config config = {
        .size = sizeof config,
        .backend = null      ? HST_AIO_NULL
                   : threads ? HST_AIO_THREADS
                             : HST_AIO_URING,
        .queue_depth = task->depth,
        .thread_count = task->depth < 16 ? task->depth : 16,
        .avoid = strncmp(backend, "uring-plain", 11) == 0 ? HST_AIO_AVOID_FIXED : 0,
        .piece_bytes = whole ? (uint32_t)task->block_bytes : 0,
    };
    int rc = hst_aio_open(&config, ".", &task->aio, NULL);
    if (rc < 0)
        return die("open", rc);
    return 0;
}

/* A file is one context's at a time. */
static int open_file(struct task *task)
{
    const uint64_t bytes = strcmp(task->mode, "null") == 0 ? task->block_bytes : task->bytes;
    int rc = hst_aio_file_open(task->aio, task->path, 0, bytes, &task->file);
    return rc < 0 ? die(task->path, rc) : 0;
}

static int run_one(struct task *task)
{
    int rc = open_file(task);
    if (rc)
        return rc;
    if (strncmp(task->mode, "whole", 5) == 0)
        rc = run_whole(task);
    else if (strncmp(task->mode, "stream", 6) == 0)
        rc = run_stream(task);
    else
        rc = run_blocks(task);
    hst_aio_file_close(&task->file);
    return rc;
}

/* Two backends by turns, the order reversed each round; the first round is not counted. */
static int run_pair(struct task tasks[2])
{
    enum { ROUNDS = 16, TURN_BYTES = 128 << 20 };
    struct hst_aio_buffer buffer;
    uint64_t first = 0;
    int rc = hst_aio_buffer_open(NULL, tasks[0].depth * tasks[0].block_bytes, &buffer);
    if (rc < 0)
        return die("buffer", rc);
    for (int i = 0; i < 2; i++) /* not all backends have something to register with */
        (void)hst_aio_buffer_register(tasks[i].aio, buffer.memory, buffer.size_bytes);
    printf("{\"turns\": [");
    for (int turn = 0; turn < 2 * ROUNDS && rc == 0; turn++) {
        const int which = (turn / 2 + turn) % 2;
        struct task *task = &tasks[which];
        rc = open_file(task);
        const struct moment begin = now();
        rc = rc ? rc : move_blocks(task, buffer.memory, first, TURN_BYTES / task->block_bytes);
        const struct moment end = now();
        hst_aio_file_close(&task->file);
        first = (first + TURN_BYTES) % task->bytes;
        if (turn >= 2)
            printf("%s[%d, %.6f, %.6f]", turn > 2 ? ", " : "", which, end.wall_s - begin.wall_s,
                   end.cpu_s - begin.cpu_s);
    }
    printf("], \"bytes\": %d}\n", TURN_BYTES);
    hst_aio_buffer_close(&buffer);
    return rc;
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
    struct task tasks[2] = {task, task};
    const char *second = strchr(argv[6], ',');
    if (task.depth == 0 || task.depth > DEPTH_MAX)
        return die("depth", -EINVAL);
    int rc = open_task(&tasks[0], argv[6]);
    if (rc == 0 && second)
        rc = open_task(&tasks[1], second + 1);
    if (rc == 0)
        rc = second ? run_pair(tasks) : run_one(&tasks[0]);
    for (int i = 0; i < 2; i++)
        hst_aio_close(&tasks[i].aio);
    return rc;
}
