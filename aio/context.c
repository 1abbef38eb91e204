/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a context: which backend runs, decided by a probe in the directory where the files will
 * live. A backend that was asked for by name runs or fails; only AUTO moves on to the next one, and
 * says why in the info.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

static int resolve(const struct hst_aio_config *config, struct hst_aio_config *resolved)
{
    *resolved = (struct hst_aio_config){.size = sizeof *resolved};
    if (config) {
        if (config->size < sizeof *config)
            return -EINVAL;
        /*
         * A caller built against a newer header may set fields that do not exist here: only to
         * their default.
         */
        const unsigned char *tail = (const unsigned char *)config;
        for (size_t i = sizeof *config; i < config->size; i++)
            if (tail[i] != 0)
                return -EINVAL;
        memcpy(resolved, config, sizeof *config);
    }
    if (resolved->queue_depth == 0)
        resolved->queue_depth = 64;
    if (resolved->thread_count == 0)
        resolved->thread_count = 4;
    if (resolved->piece_bytes == 0)
        resolved->piece_bytes = 1 << 20;
    if (resolved->backend > HST_AIO_THREADS || resolved->queue_depth > HST_AIO_QUEUE_DEPTH_MAX ||
        resolved->thread_count > HST_AIO_THREADS_MAX ||
        resolved->piece_bytes > HST_AIO_PIECE_BYTES_MAX ||
        resolved->piece_bytes % HST_AIO_ALIGN_BYTES)
        return -EINVAL;
    return 0;
}

/* Starts a backend and probes it; on failure the context is as before. */
static int try_backend(struct hst_aio *aio, const struct hst_aio_ops *ops,
                       struct hst_aio_file *file, const char **step)
{
    int rc = ops->open(aio, step);
    if (rc < 0)
        return rc;
    aio->ops = ops;
    rc = hst_aio_probe_backend(aio, file, step);
    if (rc < 0) {
        ops->close(aio);
        hst_aio_context_reset(aio);
        return rc;
    }
    *step = NULL;
    return 0;
}

static int choose(struct hst_aio *aio, enum hst_aio_backend wanted, const char *directory,
                  struct hst_aio_info *info)
{
    struct hst_aio_file *file;
    const char *step;
    int rc = hst_aio_probe_open(aio, directory, info, &file);
    if (rc < 0)
        return rc;
    if (wanted != HST_AIO_THREADS) {
        info->backend = HST_AIO_URING;
        rc = try_backend(aio, &hst_aio_uring_ops, file, &info->uring_step);
        info->uring_error = rc;
    }
    if (wanted == HST_AIO_THREADS || (wanted == HST_AIO_AUTO && rc < 0)) {
        info->backend = HST_AIO_THREADS;
        rc = try_backend(aio, &hst_aio_threads_ops, file, &step);
    }
    hst_aio_file_close(&file);
    return rc;
}

int hst_aio_open(const struct hst_aio_config *config, const char *directory, struct hst_aio **out,
                 struct hst_aio_info *info)
{
    struct hst_aio_config resolved;
    struct hst_aio_info found = {0};
    struct hst_aio *aio;
    if (!directory || !out)
        return -EINVAL;
    int rc = resolve(config, &resolved);
    if (rc < 0)
        return rc;
    rc = hst_aio_context_create(&resolved, &aio);
    if (rc < 0)
        return rc;
    rc = choose(aio, resolved.backend, directory, &found);
    if (info && (rc == 0 || found.backend != HST_AIO_AUTO))
        *info = found;
    if (rc < 0) {
        hst_aio_context_destroy(aio);
        return rc;
    }
    *out = aio;
    return 0;
}

void hst_aio_close(struct hst_aio **aio)
{
    struct hst_aio_completion dropped[16];
    if (!*aio)
        return;
    while (hst_aio_in_flight(*aio) > 0)
        if (hst_aio_reap(*aio, dropped, 16, 1, UINT64_MAX) < 0)
            break;
    (*aio)->ops->close(*aio);
    hst_aio_context_destroy(*aio);
    *aio = NULL;
}
