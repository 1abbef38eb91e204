/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a context: which backend runs, decided by a probe in the directory where the files will
 * live. A backend that was asked for by name runs or fails; only AUTO moves on to the next one, and
 * says why in the info. null and sim have no directory to probe.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The first version of the config had this size; smaller ones are not a config. */
enum { CONFIG_BYTES_MIN = offsetof(struct hst_aio_config, piece_bytes) + sizeof(uint32_t) };

static int check(const struct hst_aio_config *config)
{
    const uint32_t avoid = HST_AIO_AVOID_FIXED | HST_AIO_AVOID_DIRECT;
    if (config->backend > HST_AIO_SIM || config->queue_depth > HST_AIO_QUEUE_DEPTH_MAX ||
        config->thread_count > HST_AIO_THREADS_MAX ||
        config->piece_bytes > HST_AIO_PIECE_BYTES_MAX ||
        config->piece_bytes % HST_AIO_ALIGN_BYTES || (config->avoid & ~avoid))
        return -EINVAL;
    const bool sim = config->backend == HST_AIO_SIM;
    if (sim != (config->model != NULL) || (config->world && !sim))
        return -EINVAL;
    return 0;
}

static int resolve(const struct hst_aio_config *config, struct hst_aio_config *resolved)
{
    *resolved = (struct hst_aio_config){.size = sizeof *resolved};
    if (config) {
        if (config->size < CONFIG_BYTES_MIN)
            return -EINVAL;
        /*
         * A caller built against a newer header may set fields that do not exist here: only to
         * their default. One built against an older header has fewer of them.
         */
        const unsigned char *tail = (const unsigned char *)config;
        for (size_t i = sizeof *config; i < config->size; i++)
            if (tail[i] != 0)
                return -EINVAL;
        memcpy(resolved, config, config->size < sizeof *config ? config->size : sizeof *config);
        resolved->size = sizeof *resolved;
    }
    if (resolved->queue_depth == 0)
        resolved->queue_depth = 64;
    if (resolved->thread_count == 0)
        resolved->thread_count = 16;
    if (resolved->piece_bytes == 0)
        resolved->piece_bytes = 1 << 20;
    if (resolved->lock_timeout_ms == 0)
        resolved->lock_timeout_ms = 30000;
    if (resolved->timeout_ms == 0)
        resolved->timeout_ms = 120000;
    return check(resolved);
}

/* It fills what the one line about the machine needs, whatever the backend. */
static void look_around(struct hst_aio_info *info)
{
    struct rlimit limit;
    char text[8] = "";
    info->memlock_bytes = UINT64_MAX;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        info->memlock_bytes = limit.rlim_cur;
    info->uring_sysctl = -1;
    const int fd = open("/proc/sys/kernel/io_uring_disabled", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (read(fd, text, sizeof text - 1) > 0 && text[0] >= '0' && text[0] <= '2')
        info->uring_sysctl = text[0] - '0';
    close(fd);
}

/* Starts a backend and probes it; on failure the context is as before. */
static int try_backend(struct hst_aio *aio, const struct hst_aio_ops *ops,
                       struct hst_aio_file *file, const char **step)
{
    int rc = ops->open(aio, step);
    if (rc < 0)
        return rc;
    aio->ops = ops;
    if (file)
        rc = hst_aio_probe_backend(aio, file, step);
    if (rc < 0) {
        ops->close(aio);
        aio->ops = NULL;
        hst_aio_context_reset(aio);
        return rc;
    }
    *step = NULL;
    return 0;
}

static int choose_probed(struct hst_aio *aio, enum hst_aio_backend wanted)
{
    struct hst_aio_info *info = &aio->info;
    struct hst_aio_file *file;
    const char *step;
    int rc = hst_aio_probe_open(aio, aio->directory, info, &file);
    if (rc < 0)
        return rc;
    if (wanted != HST_AIO_THREADS) {
        info->backend = HST_AIO_URING;
        rc = try_backend(aio, &hst_aio_uring_ops, file, &info->uring_step);
        info->uring_error = rc;
    }
    /* a drive that does not answer one of them answers none */
    const bool falls = wanted == HST_AIO_AUTO && rc < 0 && rc != -ETIMEDOUT;
    if (wanted == HST_AIO_THREADS || falls) {
        info->backend = HST_AIO_THREADS;
        info->fixed = false;
        rc = try_backend(aio, &hst_aio_threads_ops, file, &step);
    }
    hst_aio_file_close(&file);
    return rc;
}

static int choose(struct hst_aio *aio)
{
    const enum hst_aio_backend wanted = aio->config.backend;
    const char *step;
    if (wanted != HST_AIO_NULL && wanted != HST_AIO_SIM)
        return choose_probed(aio, wanted);
    aio->info.backend = wanted;
    aio->info.in_memory = true;
    return try_backend(aio, wanted == HST_AIO_NULL ? &hst_aio_null_ops : &hst_aio_sim_ops, NULL,
                       &step);
}

/* After the probe: what the caller's own operations begin with. */
static int begin(struct hst_aio *aio)
{
    aio->info.request_limit = aio->piece_limit;
    memset(&aio->counters, 0, sizeof aio->counters);
    if (!aio->config.fault)
        return 0;
    int rc = hst_aio_fault_open(aio, aio->config.fault);
    if (rc < 0)
        aio->ops->close(aio);
    return rc;
}

int hst_aio_open(const struct hst_aio_config *config, const char *directory, struct hst_aio **out,
                 struct hst_aio_info *info)
{
    struct hst_aio_config resolved;
    struct hst_aio *aio;
    if (!directory || !out)
        return -EINVAL;
    int rc = resolve(config, &resolved);
    if (rc < 0)
        return rc;
    rc = hst_aio_context_create(&resolved, &aio);
    if (rc < 0)
        return rc;
    look_around(&aio->info);
    aio->directory = directory;
    rc = choose(aio);
    rc = rc ? rc : begin(aio);
    if (info && (rc == 0 || aio->info.backend != HST_AIO_AUTO || aio->info.refused_call))
        *info = aio->info;
    if (rc < 0) {
        hst_aio_context_destroy(aio);
        return rc;
    }
    aio->directory = aio->config.fault = aio->config.model = NULL;
    *out = aio;
    return 0;
}

void hst_aio_close(struct hst_aio **aio)
{
    struct hst_aio_completion dropped[16];
    if (!*aio)
        return;
    if (!*(*aio)->native) { /* a forked child has no queues, only a copy of their description */
        *aio = NULL;
        return;
    }
    while (hst_aio_in_flight(*aio) > 0)
        if (hst_aio_reap(*aio, dropped, 16, 1, UINT64_MAX) < 0)
            break;
    for (struct hst_aio_file *file = (*aio)->files; file; file = file->next) {
        if ((*aio)->ops->file_close)
            (*aio)->ops->file_close(file);
        file->aio = NULL;
    }
    if ((*aio)->fault)
        hst_aio_fault_close(*aio);
    (*aio)->ops->close(*aio);
    hst_aio_context_destroy(*aio);
    *aio = NULL;
}
