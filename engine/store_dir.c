/* SPDX-License-Identifier: Apache-2.0 */
/* The directory that NVMe extents live in: made, checked, measured and opened, with a message for
 * each way it can fail. */
#include "engine_state.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int refuse_directory(struct hst_engine *engine, int native, const char *what,
                            const char *fix)
{
    return engine_fail(engine, HST_E_STORE_DIR, native, "store directory %s %s: %s. Fix: %s",
                       engine->config.store, what, strerror(-native), fix);
}

int store_dir_make(struct hst_engine *engine)
{
    const char *path = engine->config.store;
    struct stat status;
    if (mkdir(path, 0700) == 0)
        engine->store_created = true;
    else if (errno != EEXIST)
        return refuse_directory(engine, -errno, "can not be created",
                                "create its parent, or give another --store");
    if (stat(path, &status))
        return refuse_directory(engine, -errno, "can not be looked at", "give another --store");
    if (!S_ISDIR(status.st_mode))
        return refuse_directory(engine, -ENOTDIR, "is a file", "give a directory to --store");
    if (access(path, W_OK | X_OK))
        return refuse_directory(engine, -errno, "is not writable",
                                "chown or chmod it, or give another --store");
    return 0;
}

void store_dir_remove_if_ours(struct hst_engine *engine)
{
    if (engine->store_created)
        rmdir(engine->config.store); /* fails, as it should, where anything was put into it */
}

static enum hst_aio_backend backend_of(enum hst_io io)
{
    return io == HST_IO_URING     ? HST_AIO_URING
           : io == HST_IO_THREADS ? HST_AIO_THREADS
                                  : HST_AIO_AUTO;
}

static void say_rung(struct hst_engine *engine)
{
    const struct hst_aio_info *info = &engine->aio_info;
    engine_log(engine, HST_LOG_INFO, "I106 store %s: %s, %s", engine->config.store,
               info->backend == HST_AIO_URING ? "io_uring" : "threads",
               info->direct ? "O_DIRECT" : "page cache");
    if (engine->config.io == HST_IO_AUTO && info->uring_error) {
        char why[256];
        hst_io_reason(info->uring_error, info->uring_step, why, sizeof why);
        engine_log(engine, HST_LOG_WARNING, "W101 going on with threads: %s", why);
    }
    if (info->in_memory)
        engine_log(
            engine, HST_LOG_WARNING,
            "W105 store directory %s is in RAM (tmpfs): it saves no memory and is not durable",
            engine->config.store);
    else if (!info->direct)
        engine_log(engine, HST_LOG_WARNING,
                   "W104 the file system at %s does not support O_DIRECT (%s): going on through "
                   "the page cache (slower). "
                   "Use a mount on ext4 or xfs",
                   engine->config.store, strerror(-info->direct_error));
}

static int fail_open(struct hst_engine *engine, int native)
{
    const struct hst_aio_info *info = &engine->aio_info;
    if (engine->config.io == HST_IO_URING && info->uring_error) {
        char why[256];
        hst_io_reason(info->uring_error, info->uring_step, why, sizeof why);
        return engine_fail(engine, HST_E_IO_URING, native, "%s", why);
    }
    return refuse_directory(engine, native, "failed the I/O probe",
                            "check the drive and its free space, or give another --store");
}

int store_dir_open(struct hst_engine *engine)
{
    struct hst_aio_config config = {.size = sizeof config,
                                    .backend = backend_of(engine->config.io)};
    int rc = hst_aio_open(&config, engine->config.store, &engine->aio, &engine->aio_info);
    if (rc)
        return fail_open(engine, rc);
    say_rung(engine);
    rc = scratch_open(engine->aio, engine->config.store, &engine->placement, &engine->layout,
                      engine_precision(engine), &engine->extents);
    if (rc)
        return engine_fail(engine, rc == -ENOSPC ? HST_E_DISK_SPACE : HST_E_WRITE, rc,
                           "the scratch file of %.2f GB in %s can not be created: %s. Fix: free "
                           "space, raise the quota or "
                           "ulimit -f, or give another --store",
                           (double)engine->placement.nvme_bytes / 1e9, engine->config.store,
                           strerror(-rc));
    return 0;
}
