/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked into the program, this makes one rank end, stop or fail where a test wants it to. The
 * engine's own calls come by here (-Wl,--wrap), and two of MPI, as a program's symbols are found
 * before a library's. What is to happen is in the environment:
 *
 *     HOISTWAY_END=HOW,RANK,PLACE,NTH   HOW: see strike(); PLACE: see places[]
 *     HOISTWAY_END_MARK=FILE            is made just before, and holds the clock's seconds
 */
#include "ends.h"

#include "ckpt/recut.h"
#include "comm/wrap.h"
#include "exec/update/optimizer.h"
#include "store/store_state.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <hoistway/units.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SLOW_S 4
#define LONG_S 16 /* longer than any limit that ranks have in tests */

static const char *const places[PLACES] = {
    "number",
    "window",
    "load",
    "publish",
    "sync-name",
    "published",
    "move",
    "clean",
    "forward",
    "backward",
    "gather",
    "exchange",
    "agree",
    "agreed",
    "update",
    "manifest",
    "sync",
    "superblock",
    "superblock-sync",
    "vote",
    "committed",
    "versions",
    "versions-seen",
    "opened",
    "keep",
    "name",
    "samples",
    "export",
    "save",
    "take",
    "file",
    "leave",
    "close",
    "load-write",
    "load-read",
    "weights-read",
    "weights-write",
    "states-read",
    "states-write",
    "scratch-read",
    "scratch-write",
    "export-read",
    "export-write",
    "store-read",
};

static struct {
    char how[8];
    enum place place;
    unsigned long nth, seen;
} end = {.place = PLACES};

static void __attribute__((constructor)) read_end(void)
{
    const char *text = getenv("HOISTWAY_END"), *own = getenv("OMPI_COMM_WORLD_RANK");
    char name[24];
    unsigned long rank;
    own = own ? own : getenv("RANK"); /* of torchrun */
    if (!text)
        return;
    int found = sscanf(text, "%7[a-z],%lu,%23[a-z-],%lu", end.how, &rank, name, &end.nth);
    for (int i = 0; found == 4 && own && i < PLACES; i++)
        if (strcmp(name, places[i]) == 0 && strtoul(own, NULL, 10) == rank)
            end.place = i;
    for (int i = 0; found == 4 && i < PLACES; i++)
        if (strcmp(name, places[i]) == 0)
            return;
    fprintf(stderr, "HOISTWAY_END=%s: want HOW,RANK,PLACE,NTH\n", text);
    _exit(2);
}

static void make_mark(void)
{
    struct timespec now;
    char text[64];
    clock_gettime(CLOCK_MONOTONIC, &now);
    const int bytes =
        snprintf(text, sizeof text, "%lld.%09ld\n", (long long)now.tv_sec, now.tv_nsec);
    const int fd = open(getenv("HOISTWAY_END_MARK"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, text, (size_t)bytes) != bytes)
        abort();
    close(fd);
}

bool is_how(const char *how)
{
    return strcmp(end.how, how) == 0;
}

bool is_failure(void)
{
    return is_how("eio") || is_how("full");
}

int errno_of_how(void)
{
    return is_how("eio") ? -EIO : -ENOSPC;
}

bool strike(enum place place)
{
    if (place == PLACES || place != end.place || ++end.seen != end.nth)
        return false;
    make_mark();
    if (is_how("exit"))
        _exit(0); /* mpirun hears of no failure */
    if (is_how("fail"))
        _exit(1);
    if (is_how("kill"))
        raise(SIGKILL);
    if (is_how("segv"))
        raise(SIGSEGV);
    if (is_how("stop"))
        raise(SIGSTOP);
    if (is_how("slow")) /* this thread alone: the transport's goes on */
        sleep(SLOW_S);
    if (is_how("long"))
        sleep(LONG_S);
    return true;
}

/* ---- calls of MPI ---- */

/* MPI's own function of that name; its plugin has brought it. */
static void *find_mpi(const char *name)
{
    void *library = dlopen("libmpi.so.40", RTLD_LAZY | RTLD_NOLOAD);
    void *found = library ? dlsym(library, name) : NULL;
    if (!found)
        abort();
    return found;
}

int MPI_Comm_split(void *comm, int color, int key, void **made);
__attribute__((visibility("default"))) int MPI_Comm_split(void *comm, int color, int key,
                                                          void **made)
{
    int (*split)(void *, int, int, void **);
    *(void **)&split = find_mpi("PMPI_Comm_split");
    strike(NUMBER);
    return split(comm, color, key, made);
}

int MPI_Win_allocate_shared(ptrdiff_t bytes, int unit, void *info, void *comm, void *base,
                            void **window);
__attribute__((visibility("default"))) int MPI_Win_allocate_shared(ptrdiff_t bytes, int unit,
                                                                   void *info, void *comm,
                                                                   void *base, void **window)
{
    int (*allocate)(ptrdiff_t, int, void *, void *, void *, void **);
    *(void **)&allocate = find_mpi("PMPI_Win_allocate_shared");
    strike(WINDOW);
    return allocate(bytes, unit, info, comm, base, window);
}

/* ---- operations between ranks ---- */

struct watched {
    struct wrap wrap;
    struct comm_ops ops;
    uint64_t agree, versions; /* tickets that are waited for; 0: none */
};

static bool is_named(const struct comm_op *op, const char *name)
{
    return op->name && strcmp(op->name, name) == 0;
}

static enum place place_of(const struct comm_op *op)
{
    if (is_named(op, "the network's rates")) /* which are measured before the first step */
        return PLACES;
    if (op->kind == COMM_GATHER)
        return op->patient ? EXPORT : GATHER;
    if (op->kind == COMM_EXCHANGE)
        return EXCHANGE;
    if (op->kind == COMM_SUM64)
        return is_named(op, "the step's sums") ? AGREE
               : is_named(op, "the version")   ? VOTE
                                               : PLACES;
    if (op->kind == COMM_BCAST && is_named(op, "what a rank has of the store"))
        return TAKE;
    if (op->kind != COMM_SHARE)
        return PLACES;
    return is_named(op, "versions") ? VERSIONS : is_named(op, "a version's copy") ? KEEP : PLACES;
}

static int watched_begin(struct comm *comm, const struct comm_op *op, uint64_t *ticket)
{
    struct watched *w = (struct watched *)comm;
    const enum place place = place_of(op);
    const bool here = strike(place);
    if (here && is_how("nan"))
        memset((void *)(uintptr_t)op->in, 0xff, sizeof(float)); /* of whatever type it is */
    if (here && is_how("broken") &&
        comm_fault_wrap(&w->wrap.inner, &(struct comm_fault){COMM_FAULT_FAIL, 1, 0}, 1))
        abort();
    int rc = comm_begin(w->wrap.inner, op, ticket);
    if (rc == 0 && place == AGREE)
        w->agree = *ticket;
    if (rc == 0 && place == VERSIONS)
        w->versions = *ticket;
    return rc;
}

static int watched_test(struct comm *comm, uint64_t ticket)
{
    struct watched *w = (struct watched *)comm;
    int rc = comm_test(w->wrap.inner, ticket);
    if (rc == 0 && ticket == w->agree)
        strike(AGREED);
    if (rc == 0 && ticket == w->versions)
        strike(VERSIONS_SEEN);
    return rc;
}

static int watched_close(struct comm *comm)
{
    struct watched *w = (struct watched *)comm;
    strike(CLOSE);
    int rc = comm_close(&w->wrap.inner);
    if (rc == 0)
        free(w);
    return rc;
}

int __real_comm_open(const struct comm_config *config, struct comm **comm,
                     struct comm_failure *failure);
int __wrap_comm_open(const struct comm_config *config, struct comm **comm,
                     struct comm_failure *failure);
int __wrap_comm_open(const struct comm_config *config, struct comm **comm,
                     struct comm_failure *failure)
{
    int rc = __real_comm_open(config, comm, failure);
    if (rc || config->dev) /* what is wrapped has no device memory */
        return rc;
    struct watched *w = calloc(1, sizeof *w);
    if (!w)
        abort();
    w->wrap.inner = *comm;
    w->ops = wrap_ops();
    w->ops.begin = watched_begin;
    w->ops.test = watched_test;
    w->ops.close = watched_close;
    w->wrap.base.ops = &w->ops;
    *comm = &w->wrap.base;
    return 0;
}

/* ---- load, visits, updates ---- */

void __real_optimizer_begin(const struct optimizer_kernel *kernel, const float *x,
                            const struct optimizer_arrays *arrays, size_t n);
void __wrap_optimizer_begin(const struct optimizer_kernel *kernel, const float *x,
                            const struct optimizer_arrays *arrays, size_t n);
void __wrap_optimizer_begin(const struct optimizer_kernel *kernel, const float *x,
                            const struct optimizer_arrays *arrays, size_t n)
{
    strike(LOAD);
    __real_optimizer_begin(kernel, x, arrays, n);
}

int __real_hst_unit_acquire(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep,
                            struct hst_stream *stream, const struct hst_unit_view **view);
int __wrap_hst_unit_acquire(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep,
                            struct hst_stream *stream, const struct hst_unit_view **view);
int __wrap_hst_unit_acquire(struct hst_engine *engine, uint32_t unit, enum hst_sweep sweep,
                            struct hst_stream *stream, const struct hst_unit_view **view)
{
    now_steps();
    if (sweep == HST_FORWARD || sweep == HST_BACKWARD)
        strike(sweep == HST_FORWARD ? FORWARD : BACKWARD);
    return __real_hst_unit_acquire(engine, unit, sweep, stream, view);
}

void __real_optimizer_update(struct executor *exec, struct scheduled at);
void __wrap_optimizer_update(struct executor *exec, struct scheduled at);
void __wrap_optimizer_update(struct executor *exec, struct scheduled at)
{
    strike(UPDATE);
    __real_optimizer_update(exec, at);
}

int __real_hst_engine_sum(struct hst_engine *engine, int64_t *values, size_t count);
int __wrap_hst_engine_sum(struct hst_engine *engine, int64_t *values, size_t count);
int __wrap_hst_engine_sum(struct hst_engine *engine, int64_t *values, size_t count)
{
    strike(SAMPLES);
    return __real_hst_engine_sum(engine, values, count);
}

/* ---- the store ---- */

static enum place place_in(const struct store *store)
{
    switch (store->commit) {
    case COMMIT_NONE:
        return OPENED;
    case COMMIT_MANIFEST:
        return MANIFEST;
    case COMMIT_SYNC:
        return SYNC;
    case COMMIT_SUPERBLOCK:
        return SUPERBLOCK;
    case COMMIT_SUPERBLOCK_SYNC:
        return SUPERBLOCK_SYNC;
    default:
        return PLACES;
    }
}

void __real_own_add(struct store *store, uint32_t drive, enum hst_aio_kind kind, uint64_t offset,
                    void *buffer, uint64_t bytes);
void __wrap_own_add(struct store *store, uint32_t drive, enum hst_aio_kind kind, uint64_t offset,
                    void *buffer, uint64_t bytes);
void __wrap_own_add(struct store *store, uint32_t drive, enum hst_aio_kind kind, uint64_t offset,
                    void *buffer, uint64_t bytes)
{
    if (!is_failure())
        strike(place_in(store));
    __real_own_add(store, drive, kind, offset, buffer, bytes);
}

int __real_own_result(const struct store *store);
int __wrap_own_result(const struct store *store);
int __wrap_own_result(const struct store *store)
{
    if (is_failure() && strike(place_in(store)))
        return errno_of_how();
    return __real_own_result(store);
}

int __real_hst_aio_file_open(struct hst_aio *aio, const char *path, unsigned flags,
                             uint64_t size_bytes, struct hst_aio_file **file);
int __wrap_hst_aio_file_open(struct hst_aio *aio, const char *path, unsigned flags,
                             uint64_t size_bytes, struct hst_aio_file **file);
int __wrap_hst_aio_file_open(struct hst_aio *aio, const char *path, unsigned flags,
                             uint64_t size_bytes, struct hst_aio_file **file)
{
    if (strike(FILE_OPEN) && is_failure())
        return -EIO;
    return __real_hst_aio_file_open(aio, path, flags, size_bytes, file);
}

int __real_store_files_publish(const struct store_directory *directories, uint32_t drives,
                               uint32_t rank, bool replaces, struct hst_error *error);
int __wrap_store_files_publish(const struct store_directory *directories, uint32_t drives,
                               uint32_t rank, bool replaces, struct hst_error *error);
int __wrap_store_files_publish(const struct store_directory *directories, uint32_t drives,
                               uint32_t rank, bool replaces, struct hst_error *error)
{
    strike(PUBLISH);
    int rc = __real_store_files_publish(directories, drives, rank, replaces, error);
    strike(PUBLISHED);
    return rc;
}

int __real_store_directory_sync(const struct store_directory *directory, struct hst_error *error);
int __wrap_store_directory_sync(const struct store_directory *directory, struct hst_error *error);
int __wrap_store_directory_sync(const struct store_directory *directory, struct hst_error *error)
{
    strike(SYNC_NAME);
    return __real_store_directory_sync(directory, error);
}

int __real_recut_take(struct recut *recut, enum extent_kind kind, struct tile_range range,
                      const unsigned char *bytes, bool zero);
int __wrap_recut_take(struct recut *recut, enum extent_kind kind, struct tile_range range,
                      const unsigned char *bytes, bool zero);
int __wrap_recut_take(struct recut *recut, enum extent_kind kind, struct tile_range range,
                      const unsigned char *bytes, bool zero)
{
    strike(MOVE);
    return __real_recut_take(recut, kind, range, bytes, zero);
}

void __real_store_files_discard(const struct store_directory *directories, uint32_t drives,
                                uint32_t rank, const struct store_id *uuid, bool forming);
void __wrap_store_files_discard(const struct store_directory *directories, uint32_t drives,
                                uint32_t rank, const struct store_id *uuid, bool forming);
void __wrap_store_files_discard(const struct store_directory *directories, uint32_t drives,
                                uint32_t rank, const struct store_id *uuid, bool forming)
{
    strike(CLEAN);
    __real_store_files_discard(directories, drives, rank, uuid, forming);
}

void __real_store_note_committed(struct store *store);
void __wrap_store_note_committed(struct store *store);
void __wrap_store_note_committed(struct store *store)
{
    __real_store_note_committed(store);
    if (store->commit == COMMIT_NONE)
        strike(COMMITTED);
}

int __real_renameat(int from_folder, const char *from, int folder, const char *name);
int __wrap_renameat(int from_folder, const char *from, int folder, const char *name);
int __wrap_renameat(int from_folder, const char *from, int folder, const char *name)
{
    if (strncmp(name, "step-", 5) == 0)
        strike(NAME);
    return __real_renameat(from_folder, from, folder, name);
}

/* ---- memory that is not to be had ---- */

static bool no_memory_is_left; /* for what is asked for next */

struct optimizer_kernel __real_optimizer_kernel_find(const struct optimizer *optimizer,
                                                     const struct hst_cpu_adam_ops *ops);
struct optimizer_kernel __wrap_optimizer_kernel_find(const struct optimizer *optimizer,
                                                     const struct hst_cpu_adam_ops *ops);
struct optimizer_kernel __wrap_optimizer_kernel_find(const struct optimizer *optimizer,
                                                     const struct hst_cpu_adam_ops *ops)
{
    no_memory_is_left = strike(SAVE) && is_how("empty");
    return __real_optimizer_kernel_find(optimizer, ops);
}

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    if (!no_memory_is_left)
        return __real_malloc(bytes);
    no_memory_is_left = false;
    errno = ENOMEM;
    return NULL;
}

int __real_hst_engine_leave(struct hst_engine *engine);
int __wrap_hst_engine_leave(struct hst_engine *engine);
int __wrap_hst_engine_leave(struct hst_engine *engine)
{
    strike(LEAVE);
    return __real_hst_engine_leave(engine);
}
