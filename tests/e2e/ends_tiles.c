/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transfers of tiles, and writes of an export, that fail where a test wants it (ends.c). A transfer
 * is begun as ever, and fails when it has come: that is how the engine hears of a drive's errors.
 */
#include "ends.h"

#include "hf/hf.h"
#include "tier/extent.h"

#include <errno.h>
#include <hoistway/hoistway.h>
#include <stddef.h>
#include <sys/types.h>

static enum { LOADING, STEPPING, EXPORTING } phase;

void now_steps(void)
{
    phase = STEPPING;
}

/* ---- tiles ---- */

static struct {
    const struct transfer *transfer; /* that is being begun */
    enum place place;
} moving = {.place = PLACES};

static struct {
    const struct hst_aio *aio; /* null: none is to fail */
    uint64_t user;
} failing;

static enum place place_of_tile(enum extent_kind kind, bool write)
{
    static const enum place OF[EXTENT_KIND_COUNT][2] = {
        [EXTENT_WEIGHTS] = {WEIGHTS_READ, WEIGHTS_WRITE},
        [EXTENT_STATES] = {STATES_READ, STATES_WRITE},
        [EXTENT_GRADS] = {SCRATCH_READ, SCRATCH_WRITE},
        [EXTENT_ACTS] = {SCRATCH_READ, SCRATCH_WRITE},
    };
    if (phase == LOADING)
        return write ? LOAD_WRITE : LOAD_READ;
    return phase == EXPORTING && !write ? EXPORT_READ : OF[kind][write];
}

int __real_extents_read(struct extents *extents, enum extent_kind kind, uint32_t index,
                        void *buffer, struct transfer *transfer);
int __wrap_extents_read(struct extents *extents, enum extent_kind kind, uint32_t index,
                        void *buffer, struct transfer *transfer);
int __wrap_extents_read(struct extents *extents, enum extent_kind kind, uint32_t index,
                        void *buffer, struct transfer *transfer)
{
    moving.transfer = transfer;
    moving.place = place_of_tile(kind, false);
    return __real_extents_read(extents, kind, index, buffer, transfer);
}

int __real_extents_write(struct extents *extents, enum extent_kind kind, uint32_t index,
                         void *buffer, struct transfer *transfer);
int __wrap_extents_write(struct extents *extents, enum extent_kind kind, uint32_t index,
                         void *buffer, struct transfer *transfer);
int __wrap_extents_write(struct extents *extents, enum extent_kind kind, uint32_t index,
                         void *buffer, struct transfer *transfer)
{
    moving.transfer = transfer;
    moving.place = place_of_tile(kind, true);
    return __real_extents_write(extents, kind, index, buffer, transfer);
}

/* What ckpt reads has the number of its slot, and hashes, which the store's own tables have not. */
static enum place place_of_request(const struct hst_aio_op *op)
{
    if (op->user == (uint64_t)(uintptr_t)moving.transfer)
        return moving.place;
    return op->kind == HST_AIO_READ && op->hashes && op->user < 4096 ? STORE_READ : PLACES;
}

int __real_hst_aio_submit(struct hst_aio *aio, const struct hst_aio_op *ops, size_t count);
int __wrap_hst_aio_submit(struct hst_aio *aio, const struct hst_aio_op *ops, size_t count);
int __wrap_hst_aio_submit(struct hst_aio *aio, const struct hst_aio_op *ops, size_t count)
{
    int rc = __real_hst_aio_submit(aio, ops, count);
    if (rc == 1 && strike(place_of_request(ops)) && is_failure()) {
        failing.aio = aio;
        failing.user = ops->user;
    }
    return rc;
}

int __real_hst_aio_reap(struct hst_aio *aio, struct hst_aio_completion *completions,
                        size_t capacity, size_t least, uint64_t wait_ns);
int __wrap_hst_aio_reap(struct hst_aio *aio, struct hst_aio_completion *completions,
                        size_t capacity, size_t least, uint64_t wait_ns);
int __wrap_hst_aio_reap(struct hst_aio *aio, struct hst_aio_completion *completions,
                        size_t capacity, size_t least, uint64_t wait_ns)
{
    int n = __real_hst_aio_reap(aio, completions, capacity, least, wait_ns);
    for (int i = 0; i < n && aio == failing.aio; i++)
        if (completions[i].user == failing.user) {
            completions[i].error = errno_of_how();
            failing.aio = NULL;
        }
    return n;
}

/* ---- an export ---- */

int __real_hst_engine_save(struct hst_engine *engine, const struct hst_writer *writer);
int __wrap_hst_engine_save(struct hst_engine *engine, const struct hst_writer *writer);
int __wrap_hst_engine_save(struct hst_engine *engine, const struct hst_writer *writer)
{
    phase = EXPORTING;
    return __real_hst_engine_save(engine, writer);
}

int __real_hst_engine_save_masters(struct hst_engine *engine, const struct hst_writer *writer);
int __wrap_hst_engine_save_masters(struct hst_engine *engine, const struct hst_writer *writer);
int __wrap_hst_engine_save_masters(struct hst_engine *engine, const struct hst_writer *writer)
{
    phase = EXPORTING;
    return __real_hst_engine_save_masters(engine, writer);
}

static bool writes_export;

int __real_hf_export_write(struct hf_export *x, const char *name, uint64_t offset, const void *src,
                           size_t count, struct hst_error *error);
int __wrap_hf_export_write(struct hf_export *x, const char *name, uint64_t offset, const void *src,
                           size_t count, struct hst_error *error);
int __wrap_hf_export_write(struct hf_export *x, const char *name, uint64_t offset, const void *src,
                           size_t count, struct hst_error *error)
{
    writes_export = true;
    int rc = __real_hf_export_write(x, name, offset, src, count, error);
    writes_export = false;
    return rc;
}

ssize_t __real_pwrite64(int fd, const void *src, size_t bytes, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *src, size_t bytes, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *src, size_t bytes, off_t offset)
{
    if (!writes_export || !strike(EXPORT_WRITE) || !is_failure())
        return __real_pwrite64(fd, src, bytes, offset);
    errno = -errno_of_how();
    return -1;
}
