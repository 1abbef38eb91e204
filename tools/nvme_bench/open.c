/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how much a run writes, and refuses what cannot or should not be measured, before
 * anything is written; then opens the scratch files, which have no name: however the program ends,
 * nothing of them is left.
 */
#include "nvme_bench/drive.h"
#include "nvme_bench/measure.h"

#include "base/text.h"
#include "cli/message/message.h"
#include "cli/system.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB          (UINT64_C(1) << 20)
#define MILLISECOND  UINT64_C(1000000)
#define PROBE_BYTES  (20 * MIB) /* of each context: 10 MiB through each of two backends */
#define WINDOWS      64u        /* of the long write */
#define ROUNDS       2u         /* a file holds this often what is in flight, in each half */
#define LATENCY_ROOM (UINT64_C(1) << 17)

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t count_written(const struct nb_args *a, const struct nb_budget *b)
{
    uint64_t per_pair = b->point_bytes + b->point_bytes / 2; /* a write and half a mixed case */
    uint64_t sweep = b->sweep_points / NB_KINDS * per_pair;
    uint64_t steady = b->sustain_bytes + per_pair + b->recovery_bytes;
    uint64_t striped = a->paths.count > 1 ? per_pair : 0;
    return b->lanes * (PROBE_BYTES + b->file_bytes) + sweep + steady + striped;
}

int nb_budget_make(const struct nb_args *a, bool simulated, struct nb_budget *b,
                   struct hst_error *error)
{
    uint32_t threads = a->threads.values[a->threads.count - 1];
    uint32_t depth = a->depths.values[a->depths.count - 1] * threads;
    uint64_t block = a->blocks.values[a->blocks.count - 1];
    bool quick = a->quick;
    *b = (struct nb_budget){
        .lanes = simulated ? 1 : threads,
        .most_depth = depth,
        .most_block = (uint32_t)block,
        .sweep_points = a->blocks.count * a->depths.count * a->threads.count * NB_KINDS,
        .point_bytes = least(a->size_bytes, quick ? 96 * MIB : 1024 * MIB),
        .point_ns = (uint64_t)(a->case_s * 1e9),
        .sustain_bytes = a->sustain_bytes,
        .window_bytes = a->sustain_bytes / WINDOWS,
        .steady_ns = (quick ? 250 : 2000) * MILLISECOND,
        .recovery_bytes = least(a->size_bytes, quick ? 64 * MIB : 256 * MIB),
        .idle_ns = (uint64_t)(a->idle_s * 1e9),
    };
    b->file_bytes = a->size_bytes / b->lanes;
    b->file_bytes -= b->file_bytes % MIB;
    b->written_bytes = count_written(a, b);
    if (depth > NB_MAX_DEPTH)
        return fail(
            error, FAIL_VALUE, -EINVAL,
            "--depths and --threads ask for %u requests in flight; at most %u. Fix: smaller "
            "ones.",
            depth, NB_MAX_DEPTH);
    if (a->paths.count * (b->sweep_points + 2 * NB_KINDS) > NB_MAX_POINTS)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "%zu drives with %u cases each are too many; at most %u cases. Fix: fewer "
                    "--blocks, --depths or --threads.",
                    a->paths.count, b->sweep_points, NB_MAX_POINTS);
    uint64_t need = 2 * ROUNDS * block * depth * b->lanes + (b->lanes + 1) * MIB;
    char size[TEXT_BYTES], wanted[TEXT_BYTES], least[TEXT_BYTES];
    b->least_bytes = (need + MIB - 1) / MIB * MIB;
    if (a->size_bytes < need)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--size %s is too small for requests of %u KiB, %u at a time: %s are needed. "
                    "Fix: --size %s.",
                    text_size(a->size_bytes, size), b->most_block / 1024, depth,
                    text_size(need, wanted), text_typed_up(b->least_bytes, least));
    return 0;
}

uint64_t nb_budget_written(const struct nb_budget *b, const struct nb_drive *d)
{
    return b->written_bytes + (d->zeroed ? b->lanes * b->file_bytes : 0);
}

static size_t buffer_bytes(const struct nb_budget *b, uint32_t lane)
{
    uint64_t bytes =
        (uint64_t)b->most_block * (lane == 0 ? b->most_depth : b->most_depth / b->lanes);
    return bytes < 8 * MIB ? 8 * MIB : bytes; /* also what fills and reads back the files */
}

uint64_t nb_budget_memory(const struct nb_budget *b, const struct nb_drive *d)
{
    bool held = d->simulated || d->in_memory; /* the files too */
    uint64_t bytes = held ? b->lanes * b->file_bytes : 0;
    for (uint32_t i = 0; i < b->lanes; i++) /* what is read, what is written, what stands where */
        bytes +=
            2 * buffer_bytes(b, i) + b->file_bytes / NB_SECTOR_BYTES * sizeof(struct nb_written);
    return bytes;
}

/* ---- refusals ---- */

/* All of it is touched, and the kernel kills whom it likes where there is not enough. */
static int check_memory(const struct nb_bench *b)
{
    uint64_t need = 0, left;
    char needed[TEXT_BYTES], had[TEXT_BYTES];
    struct system_memory memory;
    for (uint32_t d = 0; d < b->result->drive_count; d++)
        need += nb_budget_memory(&b->budget, &b->result->drives[d]);
    system_memory(&memory);
    left = memory.available ? least(memory.available, memory.cgroup_left) : memory.cgroup_left;
    if (need > left)
        return fail(b->error, FAIL_DEVICE, -ENOMEM,
                    "%s of memory are needed, %s are free. Fix: smaller --blocks, --depths or "
                    "--size, or fewer drives at a time.",
                    text_size(need, needed), text_size(left, had));
    return 0;
}

/* It tells what would help, of what can be: smaller files, less on the file system, another one. */
static void room_fix(const struct nb_budget *b, const struct nb_drive *d, char *fix, size_t bytes)
{
    uint64_t need = b->file_bytes * b->lanes, room = nb_drive_room(d->size_bytes, d->free_bytes);
    uint64_t empty = nb_drive_room(d->size_bytes, d->size_bytes);
    uint64_t taken = d->size_bytes - d->free_bytes;
    char more[TEXT_BYTES], size[TEXT_BYTES];
    if (room >= b->least_bytes && empty >= need)
        snprintf(fix, bytes, "free %s, or --size %s", text_size(need + taken - empty, more),
                 text_typed_down(room / MIB * MIB, size));
    else if (room >= b->least_bytes)
        snprintf(fix, bytes, "--size %s", text_typed_down(room / MIB * MIB, size));
    else if (empty >= b->least_bytes)
        snprintf(fix, bytes, "free %s, and --size %s",
                 text_size(b->least_bytes + taken - empty, more),
                 text_typed_up(b->least_bytes, size));
    else
        snprintf(fix, bytes,
                 "a directory on a larger file system, or smaller --blocks, --depths or --threads "
                 "(as they are, files of %s are needed)",
                 text_size(b->least_bytes, more));
}

static int check_drive(const struct nb_bench *b, const struct nb_drive *d)
{
    uint64_t need = b->budget.file_bytes * b->budget.lanes;
    uint64_t room = nb_drive_room(d->size_bytes, d->free_bytes);
    char needed[TEXT_BYTES], left[TEXT_BYTES], fix[200];
    if (d->simulated)
        return 0;
    if (d->in_memory && !b->args->force)
        return fail(b->error, FAIL_STORE_DIR, -ENOTSUP,
                    "'%.200s' is in RAM (%s): its numbers would not be a drive's. Fix: give a "
                    "directory on a drive, or --force to measure RAM.",
                    d->path, d->file_system[0] ? d->file_system : "tmpfs");
    room_fix(&b->budget, d, fix, sizeof fix);
    if (need > room)
        return fail(b->error, FAIL_DISK_SPACE, -ENOSPC,
                    "'%.200s' has room for %s (a tenth of the file system is kept free), the "
                    "scratch files need %s. Fix: %s.",
                    d->path, text_size(room, left), text_size(need, needed), fix);
    return 0;
}

static int check_pair(const struct nb_bench *b, const struct nb_drive *one,
                      const struct nb_drive *other)
{
    char shared[NB_TEXT];
    if (nb_drives_share(one, other, shared))
        return fail(b->error, FAIL_VALUE, -EINVAL,
                    "'%.150s' and '%.150s' are on the same drive (%s): they share its rate and its "
                    "room. Fix: leave one out.",
                    one->path, other->path, shared);
    if (nb_drives_share_controller(one, other))
        cli_warn(CLI_VALUE,
                 "'%.150s' and '%.150s' are name spaces of one NVMe controller (%.60s, %.60s): if "
                 "that is one drive, only what is measured together counts",
                 one->path, other->path, one->disks, other->disks);
    return 0;
}

/* The same drive twice would share its room, and its rates. */
static int check_distinct(const struct nb_bench *b)
{
    const struct nb_result *r = b->result;
    int rc = 0;
    for (uint32_t i = 0; i < r->drive_count; i++)
        for (uint32_t j = 0; !rc && j < i; j++)
            rc = check_pair(b, &r->drives[j], &r->drives[i]);
    for (uint32_t i = 0; !rc && i < r->drive_count && r->drive_count > 1; i++) {
        const struct nb_drive *d = &r->drives[i];
        if (!d->simulated && !d->in_memory && !d->disks[0])
            cli_warn(CLI_VALUE,
                     "which disk '%.200s' is on is not known (%.60s): if it is another one's here, "
                     "both share its rate and its room",
                     d->path, d->file_system[0] ? d->file_system : "file system unknown");
    }
    return rc;
}

/* It asks, on drives that are none, whether aio understands the words, and what it read. */
static int check_words(const struct nb_bench *b, const struct hst_aio_config *config,
                       const char *what, const char *words, const char *example,
                       uint64_t *capacity_bytes)
{
    struct hst_aio *aio = NULL;
    struct hst_aio_info info = {0};
    int rc = hst_aio_open(config, ".", &aio, &info);
    hst_aio_close(&aio);
    *capacity_bytes = info.capacity_bytes;
    if (!rc)
        return 0;
    return fail(b->error, FAIL_VALUE, rc,
                "%s '%.150s' is refused: %.127s. Fix: as in %s; <hoistway/aio.h> has all words.",
                what, words, info.refusal[0] ? info.refusal : strerror(-rc), example);
}

static int check_all_words(const struct nb_bench *b)
{
    const struct hst_aio_config fault = {
        .size = sizeof fault, .backend = HST_AIO_NULL, .fault = b->args->io_fault};
    uint64_t capacity_bytes;
    int rc = fault.fault ? check_words(b, &fault, "--fault", fault.fault, "op=read nth=3 err=EIO",
                                       &capacity_bytes)
                         : 0;
    for (uint32_t d = 0; !rc && d < b->result->drive_count; d++) {
        struct nb_drive *drive = &b->result->drives[d];
        const struct hst_aio_config model = {
            .size = sizeof model, .backend = HST_AIO_SIM, .model = drive->path};
        if (!drive->simulated)
            continue;
        rc = check_words(b, &model, "the drive", model.model, "sim:read=7G,write=5G",
                         &capacity_bytes);
        drive->size_bytes = drive->free_bytes = capacity_bytes;
    }
    return rc;
}

int nb_bench_check(const struct nb_bench *b)
{
    int rc = check_all_words(b);
    rc = rc ? rc : check_distinct(b);
    for (uint32_t d = 0; !rc && d < b->result->drive_count; d++)
        rc = check_drive(b, &b->result->drives[d]);
    return rc ? rc : check_memory(b);
}

static int refuse_open(struct nb_bench *b, const struct nb_drive *d, int native,
                       const struct hst_aio_info *info)
{
    char reason[400];
    if (native == -ENOSPC || native == -EDQUOT)
        return fail(b->error, FAIL_DISK_SPACE, native,
                    "'%.200s' has no space left (%s). Fix: free some, or a smaller --size.",
                    d->path, strerror(-native));
    if (info && info->uring_error && b->args->io == HST_AIO_URING) {
        hst_io_reason(info->uring_error, info->uring_step, reason, sizeof reason);
        return fail(b->error, FAIL_IO_URING, native, "%s Fix: leave --io at auto.", reason);
    }
    if (native == -ETIMEDOUT)
        return fail(b->error, FAIL_READ, native,
                    "'%.200s' does not answer. Fix: see dmesg and smartctl -a for the drive.",
                    d->path);
    if (native == -EFBIG)
        return fail(b->error, FAIL_STORE_DIR, native,
                    "'%.200s': the greatest file size is limited (RLIMIT_FSIZE). Fix: ulimit -f "
                    "unlimited.",
                    d->path);
    if (native == -ENOMEM)
        return fail(b->error, FAIL_DEVICE, native,
                    "there is no memory for what is in flight. Fix: smaller --blocks or --depths.");
    return fail(b->error, FAIL_STORE_DIR, native,
                "'%.200s' cannot be used: %s. Fix: give a directory on a drive that you may write "
                "to.",
                d->path, strerror(-native));
}

static void warn_about(const struct nb_drive *d, const struct nb_lane *lane,
                       const struct hst_aio_info *info)
{
    char reason[400];
    if (d->simulated)
        return;
    if (info->fixed && lane->register_error == -ENOMEM && info->memlock_bytes != UINT64_MAX)
        cli_warn((enum cli_code)FAIL_IO_URING,
                 "'%.200s': %.1f MiB of buffers are not registered with io_uring, which costs rate "
                 "and CPU time: ulimit -l is %.1f MiB. Fix: ulimit -l unlimited",
                 d->path, 2.0 * (double)lane->buffer_bytes / (double)MIB,
                 (double)info->memlock_bytes / (double)MIB);
    if (info->uring_error) {
        hst_io_reason(info->uring_error, info->uring_step, reason, sizeof reason);
        cli_warn((enum cli_code)FAIL_IO_URING, "%s", reason);
    }
    if (d->in_memory)
        cli_warn((enum cli_code)FAIL_STORE_DIR, "'%.200s' is in RAM: not a drive's numbers",
                 d->path);
    else if (!info->direct)
        cli_warn((enum cli_code)104, "'%.200s' has no O_DIRECT: these are the page cache's numbers",
                 d->path);
}

/* ---- opening ---- */

static int open_lane(struct nb_bench *b, uint32_t drive, uint32_t index, uint64_t run,
                     struct hst_aio_info *info)
{
    const struct nb_drive *d = &b->result->drives[drive];
    struct nb_lane *lane = &b->lanes[drive][index];
    char name[16];
    snprintf(name, sizeof name, "sim%u", drive);
    const char *directory = d->simulated ? name : d->path;
    const struct hst_aio_config config = {
        .size = sizeof config,
        .backend = d->simulated ? HST_AIO_SIM : (enum hst_aio_backend)b->args->io,
        .queue_depth = b->budget.most_depth < 8 ? 8 : b->budget.most_depth,
        .piece_bytes = b->budget.most_block < MIB ? (uint32_t)MIB : b->budget.most_block,
        .model = d->simulated ? d->path : NULL,
        .fault = b->args->io_fault,
        .world = b->world,
    };
    *lane = (struct nb_lane){.drive = drive,
                             .index = index,
                             .run = run,
                             .file_bytes = b->budget.file_bytes,
                             .stopped = b->stopped};
    int rc = hst_aio_open(&config, directory, &lane->aio, info);
    if (rc)
        return refuse_open(b, d, rc, info);
    rc = hst_aio_file_open(lane->aio, directory, HST_AIO_SCRATCH, lane->file_bytes, &lane->file);
    rc = rc ? rc : nb_lane_open(lane, buffer_bytes(&b->budget, index));
    return rc ? refuse_open(b, d, rc, NULL) : 0;
}

static int open_drive(struct nb_bench *b, uint32_t drive, uint64_t run)
{
    static const char *const names[] = {"?", "io_uring", "threads", "null", "simulated"};
    struct nb_drive *d = &b->result->drives[drive];
    struct hst_aio_info info = {0};
    for (uint32_t i = 0; i < b->budget.lanes; i++) {
        int rc = open_lane(b, drive, i, run, &info);
        if (rc)
            return rc;
    }
    d->direct = info.direct;
    if (d->zeroed)
        b->result->written_bytes += b->budget.lanes * b->budget.file_bytes;
    snprintf(d->backend, sizeof d->backend, "%s", names[info.backend]);
    uint32_t shown = 0; /* the first lane that could not register its buffers */
    while (shown + 1 < b->budget.lanes && !b->lanes[drive][shown].register_error)
        shown++;
    warn_about(d, &b->lanes[drive][shown], &info);
    return 0;
}

/* Distinct for each run, so that another one's data is not taken for ours. */
static uint64_t run_number(bool simulated)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return simulated ? 1 : (uint64_t)now.tv_sec << 32 ^ (uint64_t)now.tv_nsec ^ (uint64_t)getpid();
}

int nb_bench_open(struct nb_bench *b)
{
    struct nb_result *r = b->result;
    bool simulated = r->drives[0].simulated;
    int rc = 0;
    b->scratch = malloc(NB_MAX_DRIVES * NB_MAX_THREADS * LATENCY_ROOM * sizeof *b->scratch);
    if (!b->scratch || (simulated && hst_aio_world_create(&b->world)))
        return fail(b->error, FAIL_DEVICE, -ENOMEM, "there is no memory. Fix: end other programs.");
    r->file_bytes = b->budget.file_bytes * b->budget.lanes;
    uint64_t run = run_number(simulated);
    for (uint32_t d = 0; !rc && d < r->drive_count; d++)
        rc = open_drive(b, d, run);
    return rc;
}

void nb_bench_close(struct nb_bench *b)
{
    for (uint32_t d = 0; d < NB_MAX_DRIVES; d++)
        for (uint32_t i = 0; i < NB_MAX_THREADS; i++)
            nb_lane_close(&b->lanes[d][i]);
    hst_aio_world_destroy(&b->world);
    free(b->scratch);
    b->scratch = NULL;
}
