/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_aio.h"
#include "toy.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define DEPTH 6u

struct hst_aio_file {
    int fd;
    uint32_t number;
    uint64_t size_bytes;
};

struct taken {
    struct hst_aio_op op;
    int64_t event; /* in the record; -1: in none */
    unsigned char *copy;
};

struct hst_aio {
    struct taken taken[DEPTH];
    size_t count;
};

static uint64_t random_state;
static struct fake_record *recording;
static struct {
    enum fake_fault kind;
    uint64_t number, operations;
    int error;
} fault;

void fake_seed(uint64_t seed)
{
    random_state = seed;
}

void fake_record(struct fake_record *record)
{
    recording = record;
}

void fake_fault(enum fake_fault kind, uint64_t number, int error)
{
    fault.kind = kind;
    fault.number = number;
    fault.error = error;
    fault.operations = 0;
}

uint64_t fake_operations(void)
{
    return fault.operations;
}

static bool broken(void)
{
    return fault.kind == FAKE_BROKEN && fault.operations >= fault.number;
}

static int64_t record(const struct fake_event *event)
{
    struct fake_record *r = recording;
    if (!r)
        return -1;
    if (r->count == r->room) {
        r->room = r->room ? 2 * r->room : 256;
        r->events = realloc(r->events, r->room * sizeof *r->events);
        assert(r->events);
    }
    struct fake_event *added = &r->events[r->count];
    *added = *event;
    added->submitted = r->now++;
    added->completed = added->durable = UINT64_MAX;
    return r->count++;
}

void fake_mark(int mark, uint64_t number)
{
    record(&(struct fake_event){.kind = FAKE_MARK, .mark = mark, .number = number});
}

void fake_finish(struct fake_record *r)
{
    for (uint32_t s = 0; s < r->count; s++) {
        const struct fake_event *sync = &r->events[s];
        for (uint32_t w = 0; sync->kind == FAKE_SYNC && w < s; w++) {
            struct fake_event *write = &r->events[w];
            if (write->kind == FAKE_WRITE && write->file == sync->file &&
                write->completed < sync->submitted && sync->completed < write->durable)
                write->durable = sync->completed;
        }
    }
}

void fake_free(struct fake_record *r)
{
    for (uint32_t i = 0; i < r->count; i++)
        free(r->events[i].data);
    free(r->events);
    *r = (struct fake_record){0};
}

/* ---- crashes ---- */

static void land(const struct fake_event *write, uint64_t unit, int how, uint64_t *random,
                 struct fake_image *image)
{
    const uint64_t odds = 1 + toy_below(random, 4); /* some writes as a whole, others hardly */
    assert(write->offset + write->bytes <= image->count);
    for (uint64_t at = 0; at < write->bytes; at += unit)
        if (how == 2 || toy_below(random, odds) == 0)
            memcpy(image->bytes + write->offset + at, write->data + at, unit);
}

void fake_crash(const struct fake_record *r, uint64_t moment, uint64_t unit, int how, uint64_t seed,
                struct fake_image images[FAKE_FILES])
{
    uint32_t *pending = calloc(r->count + 1, sizeof *pending), count = 0;
    assert(pending);
    for (uint32_t i = 0; i < r->count && r->events[i].submitted < moment; i++) {
        const struct fake_event *event = &r->events[i];
        if (event->kind != FAKE_WRITE)
            continue;
        if (event->durable < moment)
            land(event, event->bytes, 2, &seed, &images[event->file]);
        else
            pending[count++] = i;
    }
    for (uint32_t i = 0; how != 1 && i < count; i++) {
        if (how == 0) { /* any order */
            const uint32_t other = i + (uint32_t)toy_below(&seed, count - i);
            const uint32_t swapped = pending[i];
            pending[i] = pending[other];
            pending[other] = swapped;
        }
        const struct fake_event *event = &r->events[pending[i]];
        if (how == 2 || toy_below(&seed, 3) > 0)
            land(event, unit, how, &seed, &images[event->file]);
    }
    free(pending);
}

/* ---- the calls of aio.h ---- */

int hst_aio_open(const struct hst_aio_config *config, const char *directory, struct hst_aio **aio,
                 struct hst_aio_info *info)
{
    (void)config, (void)directory, (void)info;
    *aio = calloc(1, sizeof **aio);
    return *aio ? 0 : -ENOMEM;
}

void hst_aio_close(struct hst_aio **aio)
{
    assert(!*aio || (*aio)->count == 0);
    free(*aio);
    *aio = NULL;
}

int hst_aio_file_open(struct hst_aio *aio, const char *path, unsigned flags, uint64_t size_bytes,
                      struct hst_aio_file **file)
{
    (void)aio;
    const int create = flags & HST_AIO_CREATE ? O_CREAT | O_EXCL : 0;
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | create, 0600);
    if (fd < 0)
        return -errno;
    struct stat st;
    const bool whole = fstat(fd, &st) == 0 &&
                       (st.st_size >= (off_t)size_bytes || ftruncate(fd, (off_t)size_bytes) == 0);
    assert(whole);
    *file = calloc(1, sizeof **file);
    assert(*file);
    (*file)->fd = fd;
    (*file)->number = strstr(path, ".d1.blk") ? 1 : 0;
    (*file)->size_bytes = size_bytes;
    return 0;
}

void hst_aio_file_close(struct hst_aio_file **file)
{
    if (*file)
        close((*file)->fd);
    free(*file);
    *file = NULL;
}

static uint64_t hash(const struct hst_aio_op *op, uint64_t block)
{
    const uint64_t first = block * HST_AIO_HASH_BYTES, left = op->bytes - first;
    return XXH3_64bits((const char *)op->buffer + first,
                       left < HST_AIO_HASH_BYTES ? left : HST_AIO_HASH_BYTES);
}

static void take(struct hst_aio *aio, const struct hst_aio_op *op)
{
    struct taken *taken = &aio->taken[aio->count++];
    *taken = (struct taken){.op = *op, .event = -1};
    assert(op->offset % HST_AIO_ALIGN_BYTES == 0 && op->bytes % HST_AIO_ALIGN_BYTES == 0);
    assert(op->kind == HST_AIO_SYNC || op->offset + op->bytes <= op->file->size_bytes);
    struct fake_event event = {
        .kind = FAKE_SYNC, .file = op->file->number, .offset = op->offset, .bytes = op->bytes};
    if (op->kind == HST_AIO_WRITE) {
        for (uint64_t i = 0; op->hashes && i * HST_AIO_HASH_BYTES < op->bytes; i++)
            op->hashes[i] = hash(op, i);
        taken->copy = malloc(op->bytes);
        assert(taken->copy);
        memcpy(taken->copy, op->buffer, op->bytes);
        event.kind = FAKE_WRITE;
        event.data = taken->copy;
    }
    if (op->kind != HST_AIO_READ)
        taken->event = record(&event);
}

int hst_aio_submit(struct hst_aio *aio, const struct hst_aio_op *ops, size_t count)
{
    if (broken())
        return fault.error;
    if (aio->count == DEPTH || (aio->count > 0 && toy_below(&random_state, 4) == 0))
        return -EAGAIN;
    assert(count == 1);
    take(aio, ops);
    return 1;
}

/* What the drive does to bytes; of a write that fails, any part. */
static void move(const struct taken *taken, bool fails)
{
    const struct hst_aio_op *op = &taken->op;
    uint64_t bytes = op->bytes;
    ssize_t moved = 0;
    if (fails)
        bytes = toy_below(&random_state, bytes / 512 + 1) * 512;
    if (op->kind == HST_AIO_WRITE) {
        assert(memcmp(taken->copy, op->buffer, op->bytes) == 0); /* it was only lent */
        moved = pwrite(op->file->fd, op->buffer, bytes, (off_t)op->offset);
    } else if (op->kind == HST_AIO_READ) {
        moved = pread(op->file->fd, op->buffer, bytes, (off_t)op->offset);
    }
    assert(op->kind == HST_AIO_SYNC || moved == (ssize_t)bytes);
}

static struct hst_aio_completion carry_out(struct taken *taken)
{
    const struct hst_aio_op *op = &taken->op;
    struct hst_aio_completion done = {.user = op->user, .bytes = op->bytes};
    const uint64_t number = ++fault.operations;
    const bool once = (fault.kind == FAKE_ONCE && number == fault.number);
    if (once || (fault.kind == FAKE_ALWAYS && number >= fault.number))
        done.error = fault.error;
    move(taken, done.error != 0);
    if (op->kind == HST_AIO_READ && fault.kind == FAKE_FLIP && number == fault.number) {
        const uint64_t bit = toy_below(&random_state, op->bytes * 8);
        ((unsigned char *)op->buffer)[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (uint64_t i = 0; op->kind == HST_AIO_READ && op->hashes && done.error == 0 &&
                         i * HST_AIO_HASH_BYTES < op->bytes;
         i++)
        if (op->hashes[i] != hash(op, i))
            done.error = -EBADMSG;
    if (taken->event >= 0 && recording)
        recording->events[taken->event].completed = recording->now++;
    else
        free(taken->copy);
    return done;
}

/* Of what is lost, some is carried out all the same. */
static int lose_all(struct hst_aio *aio)
{
    while (aio->count > 0) {
        struct taken *taken = &aio->taken[--aio->count];
        if (toy_below(&random_state, 2) && taken->op.kind == HST_AIO_WRITE)
            move(taken, true);
        free(taken->copy);
    }
    return fault.error;
}

int hst_aio_reap(struct hst_aio *aio, struct hst_aio_completion *completions, size_t capacity,
                 size_t least, uint64_t timeout_ns)
{
    (void)timeout_ns;
    if (broken())
        return lose_all(aio);
    size_t wanted = toy_below(&random_state, aio->count + 1), n = 0;
    wanted = wanted < least ? least : wanted;
    for (; n < wanted && n < capacity && aio->count > 0; n++) {
        const size_t which = toy_below(&random_state, aio->count);
        completions[n] = carry_out(&aio->taken[which]);
        aio->taken[which] = aio->taken[--aio->count];
    }
    return (int)n;
}

int hst_aio_fd(struct hst_aio *aio)
{
    (void)aio;
    return -ENOTSUP;
}

size_t hst_aio_in_flight(const struct hst_aio *aio)
{
    return aio->count;
}

int hst_aio_wait_any(struct hst_aio *const *contexts, size_t count, bool *ready,
                     uint64_t timeout_ns)
{
    int n = 0;
    (void)timeout_ns;
    for (size_t i = 0; i < count; i++)
        n += ready[i] = contexts[i]->count > 0 || broken();
    return n;
}

int hst_aio_buffer_alloc(size_t size_bytes, void **buffer)
{
    *buffer = aligned_alloc(4096, (size_bytes + 4095) / 4096 * 4096);
    if (*buffer)
        memset(*buffer, 0, size_bytes);
    return *buffer ? 0 : -ENOMEM;
}

void hst_aio_buffer_free(void *buffer, size_t size_bytes)
{
    (void)size_bytes;
    free(buffer);
}
