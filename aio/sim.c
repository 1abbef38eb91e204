/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sim backend: drives in memory, in virtual time.
 *
 * A world has one clock and any number of drives; a drive has files and a flow (sim_model.c). The
 * clock moves only while a caller waits, and then from event to event of the drive that is waited
 * for; the others catch up when they are looked at. Bytes are copied when a request completes: what
 * is in flight is not yet written. Files are mappings without reserved memory, so that only pages
 * that were written take some.
 */
#include "sim_model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct sim_file {
    struct sim_file *next;
    char *name; /* null: scratch */
    char *memory;
    uint64_t size_bytes;
    bool open;
    struct drive *drive;
};

struct drive {
    struct drive *next;
    char *name;
    bool open;       /* by a context */
    uint32_t number; /* in the world */
    uint64_t used_bytes;
    struct sim_file *files;
    struct sim_flow flow;
};

struct hst_aio_world {
    uint64_t now_ns;
    uint32_t drive_count;
    struct drive *drives;
};

struct sim { /* state of a context */
    struct hst_aio_world *world, *own;
    struct drive *drive;
    struct sim_request *requests; /* of all queues */
    struct piece **finished;
};

int hst_aio_world_create(struct hst_aio_world **world)
{
    if (!world)
        return -EINVAL;
    struct hst_aio_world *created = calloc(1, sizeof *created);
    if (!created)
        return -ENOMEM;
    *world = created;
    return 0;
}

static void file_destroy(struct sim_file *file)
{
    struct sim_file **link = &file->drive->files;
    while (*link != file)
        link = &(*link)->next;
    *link = file->next;
    file->drive->used_bytes -= file->size_bytes;
    munmap(file->memory, file->size_bytes);
    free(file->name);
    free(file);
}

void hst_aio_world_destroy(struct hst_aio_world **world)
{
    if (!*world)
        return;
    for (struct drive *drive; (drive = (*world)->drives) != NULL;) {
        (*world)->drives = drive->next;
        while (drive->files)
            file_destroy(drive->files);
        free(drive->name);
        free(drive);
    }
    free(*world);
    *world = NULL;
}

static int find_drive(struct hst_aio_world *world, const char *name, struct drive **out)
{
    struct drive *drive = world->drives;
    while (drive && strcmp(drive->name, name) != 0)
        drive = drive->next;
    if (!drive) {
        drive = calloc(1, sizeof *drive);
        if (!drive || !(drive->name = strdup(name))) {
            free(drive);
            return -ENOMEM;
        }
        drive->number = world->drive_count++;
        drive->next = world->drives;
        world->drives = drive;
    }
    if (drive->open)
        return -EBUSY;
    *out = drive;
    return 0;
}

static int sim_attach(struct hst_aio *aio, struct sim *sim, const char **step)
{
    struct sim_speed speed;
    *step = "model";
    int rc = hst_aio_sim_parse(aio->config.model, &speed, aio->info.refusal);
    if (rc < 0)
        return rc;
    aio->info.capacity_bytes = speed.size_bytes < UINT64_MAX ? speed.size_bytes : 0;
    *step = "memory";
    sim->requests = calloc((size_t)SIM_QUEUES * aio->piece_capacity, sizeof *sim->requests);
    sim->finished = calloc(aio->piece_capacity, sizeof(struct piece *));
    if (!sim->requests || !sim->finished)
        return -ENOMEM;
    if (!aio->config.world && (rc = hst_aio_world_create(&sim->own)) < 0)
        return rc;
    sim->world = sim->own ? sim->own : aio->config.world;
    *step = "drive";
    rc = find_drive(sim->world, aio->directory, &sim->drive);
    if (rc < 0)
        return rc;
    struct sim_flow *flow = &sim->drive->flow;
    hst_aio_sim_run(flow, sim->world->now_ns); /* drains at the speed it had */
    sim->drive->open = true;
    flow->speed = speed;
    flow->random = speed.seed + sim->drive->number;
    flow->finished = sim->finished;
    for (uint32_t i = 0; i < SIM_QUEUES; i++)
        flow->queues[i] = (struct sim_queue){.requests = sim->requests + i * aio->piece_capacity,
                                             .capacity = aio->piece_capacity};
    return 0;
}

static void sim_release(struct sim *sim)
{
    hst_aio_world_destroy(&sim->own);
    free(sim->requests);
    free(sim->finished);
    free(sim);
}

static int sim_open(struct hst_aio *aio, const char **step)
{
    *step = "memory";
    struct sim *sim = calloc(1, sizeof *sim);
    if (!sim)
        return -ENOMEM;
    int rc = sim_attach(aio, sim, step);
    if (rc < 0) {
        sim_release(sim);
        return rc;
    }
    aio->piece_limit = aio->piece_capacity;
    aio->state = sim;
    return 0;
}

static void sim_close(struct hst_aio *aio)
{
    struct sim *sim = aio->state;
    struct sim_flow *flow = &sim->drive->flow;
    for (int i = 0; i < SIM_QUEUES; i++)
        flow->queues[i] = (struct sim_queue){0};
    flow->finished = NULL;
    flow->finished_count = 0;
    sim->drive->open = false;
    sim_release(sim);
}

static void sim_push(struct hst_aio *aio, struct piece *piece)
{
    struct sim *sim = aio->state;
    hst_aio_sim_arrive(&sim->drive->flow, piece, sim->world->now_ns);
}

static int sim_flush(struct hst_aio *aio)
{
    (void)aio;
    return 0;
}

/* It does to the bytes what a complete request does. */
static void carry_out(struct piece *piece)
{
    char *place = piece->file->sim->memory + piece->offset;
    if (piece->kind == HST_AIO_READ)
        memcpy(piece->buffer, place, piece->bytes);
    if (piece->kind == HST_AIO_WRITE)
        memcpy(place, piece->buffer, piece->bytes);
    piece->result = (int)piece->bytes;
}

static int sim_wait(struct hst_aio *aio, uint32_t least, uint64_t timeout_ns)
{
    struct sim *sim = aio->state;
    struct sim_flow *flow = &sim->drive->flow;
    uint64_t *now_ns = &sim->world->now_ns, deadline_ns;
    if (__builtin_add_overflow(*now_ns, timeout_ns, &deadline_ns))
        deadline_ns = UINT64_MAX - 1;
    hst_aio_sim_run(flow, *now_ns);
    while (flow->finished_count < least && *now_ns < deadline_ns) {
        const uint64_t next_ns = hst_aio_sim_next_ns(flow);
        *now_ns = next_ns < deadline_ns ? next_ns : deadline_ns;
        hst_aio_sim_run(flow, *now_ns);
    }
    const uint32_t count = flow->finished_count;
    flow->finished_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        carry_out(flow->finished[i]);
        aio->finished[i] = flow->finished[i];
    }
    return (int)count;
}

static uint64_t sim_now(const struct hst_aio *aio)
{
    const struct sim *sim = aio->state;
    return sim->world->now_ns;
}

static uint64_t sim_due(struct hst_aio *aio)
{
    const struct sim *sim = aio->state;
    hst_aio_sim_run(&sim->drive->flow, sim->world->now_ns);
    const bool finished = sim->drive->flow.finished_count > 0;
    return finished ? sim->world->now_ns : hst_aio_sim_next_ns(&sim->drive->flow);
}

static void sim_travel(struct hst_aio *aio, uint64_t to_ns)
{
    struct sim *sim = aio->state;
    if (to_ns > sim->world->now_ns)
        sim->world->now_ns = to_ns;
}

/* Makes a file at least so long; what is new reads as zeros. */
static int grow(struct sim_file *file, uint64_t size_bytes)
{
    struct drive *drive = file->drive;
    if (size_bytes <= file->size_bytes)
        return 0;
    const uint64_t more_bytes = size_bytes - file->size_bytes;
    if (more_bytes > drive->flow.speed.size_bytes ||
        drive->used_bytes > drive->flow.speed.size_bytes - more_bytes)
        return -ENOSPC;
    void *memory = file->memory ? mremap(file->memory, file->size_bytes, size_bytes, MREMAP_MAYMOVE)
                                : mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return -ENOMEM;
    file->memory = memory;
    file->size_bytes = size_bytes;
    drive->used_bytes += more_bytes;
    return 0;
}

static int create(struct drive *drive, const char *name, struct sim_file **out)
{
    struct sim_file *file = calloc(1, sizeof *file);
    if (!file)
        return -ENOMEM;
    if (name && !(file->name = strdup(name))) {
        free(file);
        return -ENOMEM;
    }
    file->drive = drive;
    file->next = drive->files;
    drive->files = file;
    *out = file;
    return 0;
}

static int sim_file_open(struct hst_aio *aio, struct hst_aio_file *handle, const char *path,
                         unsigned flags, uint64_t size_bytes)
{
    struct drive *drive = ((struct sim *)aio->state)->drive;
    struct sim_file *file = flags & HST_AIO_SCRATCH ? NULL : drive->files;
    while (file && (!file->name || strcmp(file->name, path) != 0))
        file = file->next;
    const bool created = !file;
    if (file && (flags & HST_AIO_CREATE))
        return -EEXIST;
    if (!file && !(flags & (HST_AIO_CREATE | HST_AIO_SCRATCH)))
        return -ENOENT;
    if (file && file->open)
        return -EBUSY;
    int rc = file ? 0 : create(drive, flags & HST_AIO_SCRATCH ? NULL : path, &file);
    if (rc < 0)
        return rc;
    if (flags & HST_AIO_READONLY)
        rc = size_bytes > file->size_bytes ? -ENODATA : 0;
    else
        rc = grow(file, size_bytes);
    if (rc < 0) {
        if (created)
            file_destroy(file);
        return rc;
    }
    file->open = true;
    handle->fd = -1;
    handle->sim = file;
    handle->size_bytes = size_bytes > 0 ? size_bytes : file->size_bytes;
    return 0;
}

static void sim_file_close(struct hst_aio_file *handle)
{
    handle->sim->open = false;
    if (!handle->sim->name)
        file_destroy(handle->sim);
    handle->sim = NULL;
}

const struct hst_aio_ops hst_aio_sim_ops = {
    .id = HST_AIO_SIM,
    .open = sim_open,
    .close = sim_close,
    .push = sim_push,
    .flush = sim_flush,
    .wait = sim_wait,
    .now = sim_now,
    .due = sim_due,
    .travel = sim_travel,
    .file_open = sim_file_open,
    .file_close = sim_file_close,
};
