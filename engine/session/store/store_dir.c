/* SPDX-License-Identifier: Apache-2.0 */
/* The directories that NVMe extents live in, one per drive: made, checked, measured and opened,
 * with a message for each way it can fail. */
#include "base/file_limit.h"
#include "base/size_text.h"
#include "plan/graph/step_graph.h"
#include "session/engine_state.h"
#include "session/ranks/ranks.h"
#include "session/store/shares.h"
#include "store/files.h"
#include "store/room.h"
#include "store/site.h"
#include "store/store.h"

#include <hoistway/machine.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse_directory(struct hst_engine *engine, const struct drive *drive, int native,
                            const char *what, const char *fix)
{
    return report_fail(&engine->report, HST_E_STORE_DIR, native,
                       "store directory %s %s: %s. Fix: %s", drive->path, what, strerror(-native),
                       fix);
}

/* The directories between commas. Returns how many. */
static int split(const char *store, char *paths[STRIPE_DRIVES_MAX], struct hst_error *error)
{
    int count = 0;
    for (const char *at = store; at; at = at[strcspn(at, ",")] ? at + strcspn(at, ",") + 1 : NULL) {
        const size_t length = strcspn(at, ",");
        if (length == 0 || count == STRIPE_DRIVES_MAX)
            return store_refuse(error, HST_E_VALUE, -EINVAL,
                                "--store takes 1 to %u directories between commas (got \"%s\"). "
                                "Fix: name them without an empty one",
                                STRIPE_DRIVES_MAX, store);
        paths[count] = strndup(at, length);
        if (!paths[count++])
            return store_refuse(error, HST_E_STORE_DIR, -ENOMEM, "out of memory");
    }
    return count;
}

/* Another machine's, or none: what they hold is said, not looked at. */
static bool is_told(const struct hst_engine *engine)
{
    const struct hst_config *c = &engine->config;
    return c->nvme_bytes > 0 && (c->plan == HST_PLAN_ELSEWHERE || (c->plan && !c->store));
}

/* It refuses what a run would not take for its store before any of it is made. */
static int look(struct store_site *sites, uint32_t count, uint32_t rank, bool stored,
                enum store_expected expected, struct hst_error *error)
{
    int rc = store_sites_look(sites, count, error);
    return rc || !stored ? rc : store_sites_check(sites, count, rank, expected, error);
}

int hst_store_check(const char *store, bool begins, struct hst_error *error)
{
    char *paths[STRIPE_DRIVES_MAX] = {NULL};
    struct hst_error ignored;
    error = error ? error : &ignored;
    struct store_site *sites = calloc(STRIPE_DRIVES_MAX, sizeof *sites);
    if (!sites || !store) {
        free(sites);
        return store ? store_refuse(error, HST_E_BUDGET, -ENOMEM, "out of memory")
                     : store_refuse(error, HST_E_VALUE, -EINVAL,
                                    "no store directory is named. Fix: name one");
    }
    int rc = split(store, paths, error);
    for (int d = 0; d < rc; d++)
        sites[d].path = paths[d];
    rc = rc < 0 ? rc
                : look(sites, (uint32_t)rc, 0, true, begins ? STORE_BEGINS : STORE_GOES_ON, error);
    for (uint32_t d = 0; d < STRIPE_DRIVES_MAX; d++)
        free(paths[d]);
    free(sites);
    return rc;
}

/* A plan makes nothing: it keeps where a directory would be made. */
static int make(struct hst_engine *engine, struct drive *drive, const struct store_site *site)
{
    drive->file_system = site->file_system;
    if (site->there)
        return 0;
    if (engine->config.plan) {
        drive->parent = strdup(site->parent);
        return drive->parent
                   ? 0
                   : report_fail(&engine->report, HST_E_STORE_DIR, -ENOMEM, "out of memory");
    }
    drive->created = mkdir(drive->path, 0700) == 0;
    const int native = drive->created ? 0 : errno;
    if (native == EEXIST && engine->comm)
        drive->created = true; /* by another rank, just now: any of them removes it */
    if (native && native != EEXIST)
        return refuse_directory(engine, drive, -native, "cannot be created",
                                "create its parent, or give another --store");
    return 0;
}

static int make_all(struct hst_engine *engine, struct store_site *sites)
{
    struct hst_error error = {0};
    for (uint32_t d = 0; d < engine->drive_count; d++)
        sites[d].path = engine->drives[d].path;
    const bool found = engine->shares.map.fate != SHARE_NONE;
    int rc = look(sites, engine->drive_count, engine->ranks.rank, engine->plan_in.stored,
                  found ? STORE_GOES_ON : STORE_IF_ANY, &error);
    if (rc)
        return report_fail_as(&engine->report, &error);
    for (uint32_t d = 0; d < engine->drive_count && rc == 0; d++)
        rc = make(engine, &engine->drives[d], &sites[d]);
    return rc;
}

int store_dirs_make(struct hst_engine *engine)
{
    const char *store = engine->config.store;
    char *paths[STRIPE_DRIVES_MAX] = {NULL};
    struct hst_error error = {0};
    if (!store) {
        engine->drive_count = is_told(engine) ? 1 : 0;
        return 0;
    }
    int rc = split(store, paths, &error);
    engine->drive_count = rc > 0 ? (uint32_t)rc : 0;
    for (uint32_t d = 0; d < STRIPE_DRIVES_MAX; d++) {
        if (rc < 0 || is_told(engine))
            free(paths[d]);
        else
            engine->drives[d].path = paths[d];
    }
    if (rc < 0)
        return report_fail_as(&engine->report, &error);
    if (is_told(engine))
        return 0;
    struct store_site *sites = calloc(STRIPE_DRIVES_MAX, sizeof *sites);
    rc = sites ? make_all(engine, sites)
               : report_fail(&engine->report, HST_E_STORE_DIR, -ENOMEM, "out of memory");
    free(sites);
    return rc;
}

/* Those that this run has made and that nothing was put into. Where all ranks refuse, each waits
   until the others have done so: the first to end ends them too. */
static void remove_empty(struct hst_engine *engine)
{
    for (uint32_t d = 0; d < engine->drive_count; d++)
        if (engine->drives[d].created)
            rmdir(engine->drives[d].path); /* fails, as it should, where anything was put into it */
    if (engine->all_refuse)
        (void)ranks_meet(engine);
}

void store_dirs_close(struct hst_engine *engine)
{
    for (uint32_t d = 0; d < engine->drive_count; d++) {
        hst_aio_close(&engine->drives[d].aio);
        hst_aio_close(&engine->drives[d].store_aio);
    }
    remove_empty(engine);
    for (uint32_t d = 0; d < engine->drive_count; d++) {
        struct drive *drive = &engine->drives[d];
        free(drive->path);
        free(drive->parent);
    }
    hst_aio_world_destroy(&engine->world);
}

void hst_engine_abort(struct hst_engine *engine, int status)
{
    if (!engine || !engine->comm)
        return;
    remove_empty(engine); /* comm_abort does not return */
    comm_abort(engine->comm, status);
}

uint64_t store_dir_there(const struct hst_engine *engine, uint32_t drive)
{
    const char *path = engine->drives[drive].path;
    /* what is to be moved has its space beside what it is moved to */
    return path && !shares_move(engine) ? store_bytes_there(path, engine->ranks.rank, drive) : 0;
}

uint64_t store_dir_leftover(const struct hst_engine *engine, uint32_t drive)
{
    const char *path = engine->drives[drive].path, *first = engine->drives[0].path;
    if (!path || !engine->plan_in.stored || store_bytes_there(first, engine->ranks.rank, 0) > 0)
        return 0;
    return store_bytes_there(path, engine->ranks.rank, drive) +
           store_bytes_forming(path, engine->ranks.rank, drive) +
           store_room_there(path, engine->ranks.rank, drive);
}

uint64_t store_dir_room_there(const struct hst_engine *engine, uint32_t drive)
{
    const char *path = engine->drives[drive].path;
    return store_dir_there(engine, drive) > 0 ? store_room_there(path, engine->ranks.rank, drive)
                                              : 0;
}

/* Its files are there already: it may be full. */
static bool holds_store(const struct hst_engine *engine, uint32_t d)
{
    return engine->plan_in.stored && store_dir_there(engine, d) > 0;
}

/* ---- I/O ---- */

static enum hst_aio_backend backend_of(const struct hst_config *config)
{
    return config->io_model               ? HST_AIO_SIM
           : config->io == HST_IO_URING   ? HST_AIO_URING
           : config->io == HST_IO_THREADS ? HST_AIO_THREADS
                                          : HST_AIO_AUTO;
}

const char *store_dir_backend(const struct hst_engine *engine)
{
    if (engine->config.plan && engine->config.io == HST_IO_AUTO)
        return "auto";
    if (engine->config.plan)
        return engine->config.io == HST_IO_URING ? "uring" : "threads";
    switch (engine->drives[0].info.backend) {
    case HST_AIO_URING:
        return "uring";
    case HST_AIO_SIM:
        return "sim";
    default:
        return "threads";
    }
}

static void say_rung(struct hst_engine *engine, const struct drive *drive)
{
    const struct hst_aio_info *info = &drive->info;
    if (info->backend == HST_AIO_SIM) {
        report_log(&engine->report, HST_LOG_INFO, "I106 store %s: %s", drive->path,
                   engine->io_model);
        return;
    }
    report_log(&engine->report, HST_LOG_INFO, "I106 store %s: %s, %s", drive->path,
               info->backend == HST_AIO_URING ? "io_uring" : "threads",
               info->direct ? "O_DIRECT" : "page cache");
    if (engine->config.io == HST_IO_AUTO && info->uring_error) {
        char why[256];
        hst_io_reason(info->uring_error, info->uring_step, why, sizeof why);
        report_log(&engine->report, HST_LOG_WARNING, "W101 going on with threads: %s", why);
    }
    if (info->in_memory)
        report_log(
            &engine->report, HST_LOG_WARNING,
            "W105 store directory %s is in RAM (tmpfs): it saves no memory and is not durable",
            drive->path);
    else if (!info->direct)
        report_log(&engine->report, HST_LOG_WARNING,
                   "W104 the file system at %s does not support O_DIRECT (%s): going on through "
                   "the page cache (slower). "
                   "Use a mount on ext4 or xfs",
                   drive->path, strerror(-info->direct_error));
}

static bool is_full(int native)
{
    return native == -ENOSPC || native == -EDQUOT;
}

static int refuse_full(struct hst_engine *engine, const struct drive *drive, int native,
                       const char *what)
{
    return report_fail(&engine->report, HST_E_DISK_SPACE, native,
                       "store directory %s has no room for %s: %s. Fix: free space there, raise "
                       "the quota, or leave it out",
                       drive->path, what, strerror(-native));
}

static int fail_open(struct hst_engine *engine, const struct drive *drive, int native)
{
    const struct hst_aio_info *info = &drive->info;
    char limit[FILE_LIMIT_BYTES];
    if (info->refusal[0])
        return report_fail(&engine->report, HST_E_VALUE, native,
                           "io_model or io_fault is refused: %s. Fix: <hoistway/aio.h> tells what "
                           "they may say",
                           info->refusal);
    if (is_full(native))
        return refuse_full(engine, drive, native, "the few MiB of the I/O probe");
    if (native == -EFBIG)
        return report_fail(&engine->report, HST_E_STORE_DIR, native,
                           "store directory %s cannot hold the few MiB of the I/O probe: %s",
                           drive->path, file_limit(HST_AIO_PROBE_BYTES, limit));
    if (info->refused_call)
        return report_fail(&engine->report, HST_E_STORE_DIR, native,
                           "store directory %s cannot be used: a sandbox refuses %s (%s), and "
                           "without it core dumps and forked children would get the store's "
                           "buffers. Fix: a seccomp profile that allows %s",
                           drive->path, info->refused_call, strerror(-native), info->refused_call);
    if (engine->config.io == HST_IO_URING && info->uring_error) {
        char why[256];
        hst_io_reason(info->uring_error, info->uring_step, why, sizeof why);
        return report_fail(&engine->report, HST_E_IO_URING, native, "%s", why);
    }
    return refuse_directory(engine, drive, native, "failed the I/O probe",
                            "check the drive and its free space, or give another --store");
}

/* Beside the store nothing may be left for it, and before planning nothing is. */
static bool has_scratch(const struct hst_engine *engine)
{
    if (!engine->plan_in.stored)
        return true;
    for (uint32_t d = 0; d < engine->drive_count; d++)
        if (engine->placement.drive_bytes[d] > 0)
            return true;
    return false;
}

static int open_drives(struct hst_engine *engine)
{
    if (engine->io_model && !engine->world && hst_aio_world_create(&engine->world) < 0)
        return report_fail(&engine->report, HST_E_BUDGET, -ENOMEM,
                           "no memory for simulated drives");
    struct hst_aio_config config = {.size = sizeof config,
                                    .backend = backend_of(&engine->config),
                                    .model = engine->io_model,
                                    .fault = engine->io_fault,
                                    .world = engine->world};
    for (uint32_t d = 0; d < engine->drive_count; d++) {
        struct drive *drive = &engine->drives[d];
        int rc = 0;
        /* its files are there already, or go before new ones are made */
        config.may_be_full = holds_store(engine, d) || store_dir_leftover(engine, d) > 0;
        if (engine->plan_in.stored && !drive->store_aio)
            rc = hst_aio_open(&config, drive->path, &drive->store_aio, &drive->info);
        if (rc == 0 && has_scratch(engine) && !drive->aio)
            rc = hst_aio_open(&config, drive->path, &drive->aio, &drive->info);
        if (rc)
            return fail_open(engine, drive, rc);
    }
    return 0;
}

/* ---- rates: what tiles are shared out by ---- */

#define RATE_BYTES (UINT64_C(160) << 20) /* written to each drive, at most */

/* All of them at once, as training uses them. */
static int probe(struct hst_engine *engine, struct hst_rates *rates)
{
    struct hst_probe_drive drives[STRIPE_DRIVES_MAX];
    for (uint32_t d = 0; d < engine->drive_count; d++)
        drives[d] = (struct hst_probe_drive){
            .directory = engine->drives[d].path,
            .aio = engine->plan_in.stored ? engine->drives[d].store_aio : engine->drives[d].aio};
    const struct hst_probe probe = {.size = sizeof probe,
                                    .parts = HST_PROBE_DRIVES,
                                    .drive_bytes = RATE_BYTES,
                                    .stopped = engine->config.stopped,
                                    .stopped_context = engine->config.stopped_context,
                                    .drives = drives,
                                    .drive_count = engine->drive_count};
    return hst_probe(&probe, rates);
}

/* Bytes written, then read: what nvme-bench shares by too. */
static double rate_of(const struct hst_drive_rates *drive)
{
    return 2 / (1 / drive->read.value + 1 / drive->write.value);
}

/* A plan measures nothing. A drive whose rate is not known counts as the least of the others. */
static int share_as_told(const struct hst_engine *engine, struct placement_in *in)
{
    const struct hst_rates *rates = engine->config.rates;
    bool known = rates && rates->drive_count == engine->drive_count;
    for (uint32_t d = 0; known && d < engine->drive_count; d++)
        in->drive_rates[d] = rate_of(&rates->drives[d]);
    return 0;
}

/* It shares out what a store has room for as it was: its drives may be full. */
static bool share_as_before(const struct hst_engine *engine, struct placement_in *in)
{
    const uint32_t drives = engine->drive_count;
    bool known = false;
    for (uint32_t d = 0; d < drives && !known; d++)
        known =
            holds_store(engine, d) && store_room_rates(engine->drives[d].path, engine->ranks.rank,
                                                       d, drives, in->drive_rates);
    return known;
}

int store_dirs_rates(struct hst_engine *engine, struct placement_in *in)
{
    struct hst_rates rates;
    char limit[FILE_LIMIT_BYTES];
    in->drive_count = engine->drive_count;
    if (engine->drive_count < 2 || share_as_before(engine, in))
        return 0;
    if (engine->config.plan)
        return share_as_told(engine, in);
    int rc = open_drives(engine);
    rc = rc ? rc : probe(engine, &rates);
    for (uint32_t d = 0; d < engine->drive_count && rc == 0; d++) {
        struct drive *drive = &engine->drives[d];
        rc = rates.drives[d].error;
        if (is_full(rc) && (holds_store(engine, d) || store_dir_leftover(engine, d) > 0)) {
            rc = 0; /* it counts as the slowest; of a store the tiles have their drives already */
            continue;
        }
        if (is_full(rc))
            return refuse_full(engine, drive, rc, "the file that its rate is measured with");
        if (rc == -EFBIG)
            return report_fail(&engine->report, HST_E_STORE_DIR, rc,
                               "the rate of store directory %s cannot be measured: %s", drive->path,
                               file_limit(RATE_BYTES, limit));
        if (rc)
            return refuse_directory(engine, drive, rc, "failed the measurement of its rate",
                                    "check the drive and its free space, or leave it out");
        in->drive_rates[d] = rate_of(&rates.drives[d]);
        report_log(&engine->report, HST_LOG_INFO, "I106 store %s: %.2f GB/s written and read",
                   drive->path, in->drive_rates[d] / 1e9);
    }
    return rc;
}

void store_dirs_there(const struct hst_engine *engine, struct placement_in *in)
{
    in->store_align = STORE_ALIGN_MAX;
    in->store_room_fixed = STORE_ROOM_AT;
    bool whole = true; /* a store that is there has all its files, or is not resumed */
    for (uint32_t d = 0; d < engine->drive_count; d++)
        whole = whole && holds_store(engine, d);
    for (uint32_t d = 0; d < engine->drive_count; d++)
        in->store_there[d] = whole ? store_dir_there(engine, d) : 0;
}

/* ---- memory ---- */

/* The buffer pools that tiles pass through stay registered with each drive's queue: the kernel then
 * need not look for their pages, request by request. A wish: without it all works. A child that is
 * forked does not get them: a page it shared could be copied away from under a request. */
static int register_pools(struct hst_engine *engine, const struct drive *drive, uint64_t *bytes)
{
    int rc = 0;
    *bytes = 0;
    for (unsigned i = POOL_WEIGHTS; i < POOL_DEVICE_WEIGHTS; i++) {
        const struct buffer_pool of = step_graph_pool(&engine->placement, i);
        unsigned char *buffer_pool = engine->host_arena + of.at;
        const uint64_t pool_bytes = of.count * of.bytes;
        *bytes += pool_bytes;
        if (pool_bytes > 0)
            (void)madvise(buffer_pool, pool_bytes, MADV_DONTFORK);
        if (rc == 0 && pool_bytes > 0 && drive->info.fixed && drive->aio)
            rc = hst_aio_buffer_register(drive->aio, buffer_pool, pool_bytes);
        if (rc == 0 && pool_bytes > 0 && drive->info.fixed && drive->store_aio)
            rc = hst_aio_buffer_register(drive->store_aio, buffer_pool, pool_bytes);
    }
    return rc;
}

static void register_memory(struct hst_engine *engine)
{
    for (uint32_t d = 0; d < engine->drive_count; d++) {
        const struct drive *drive = &engine->drives[d];
        char size[SIZE_TEXT_BYTES], limit[SIZE_TEXT_BYTES];
        uint64_t bytes;
        if (register_pools(engine, drive, &bytes) != -ENOMEM ||
            drive->info.memlock_bytes == UINT64_MAX)
            continue;
        report_log(&engine->report, HST_LOG_INFO,
                   "I106 store %s: %s of buffers are not registered with io_uring, which costs CPU "
                   "time: ulimit -l is %s. Fix: ulimit -l unlimited",
                   drive->path, size_text(bytes, size),
                   size_text(drive->info.memlock_bytes, limit));
    }
}

/* ---- files ---- */

int store_dirs_open(struct hst_engine *engine)
{
    struct scratch_drive files[STRIPE_DRIVES_MAX] = {0};
    int rc = open_drives(engine);
    for (uint32_t d = 0; d < engine->drive_count && rc == 0; d++) {
        say_rung(engine, &engine->drives[d]);
        files[d].aio = engine->drives[d].aio;
        files[d].directory = engine->drives[d].path;
    }
    if (rc)
        return rc;
    uint32_t at = 0;
    char size[SIZE_TEXT_BYTES], limit[FILE_LIMIT_BYTES];
    if (engine->plan_in.stored) { /* what is scratch has room that comes with the store */
        register_memory(engine);
        return 0;
    }
    rc = scratch_open(files, engine->drive_count, &engine->placement, &at, &engine->extents);
    if (rc == -EFBIG)
        return report_fail(&engine->report, HST_E_WRITE, rc,
                           "the scratch file in %s cannot be created: %s", engine->drives[at].path,
                           file_limit(engine->placement.drive_bytes[at], limit));
    if (rc)
        return report_fail(&engine->report, is_full(rc) ? HST_E_DISK_SPACE : HST_E_WRITE, rc,
                           "the scratch file of %s in %s cannot be created: %s. Fix: free "
                           "space, raise the quota, or give another --store",
                           size_text(engine->placement.drive_bytes[at], size),
                           engine->drives[at].path, strerror(-rc));
    register_memory(engine);
    return 0;
}
