/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds and loads OpenBLAS. A library of its name that is in the process already is the one: with
 * two of them, the functions that one calls inside would be the other's. Else where it is looked
 * for is short and known, as for plugins. The plain name comes last, because on Debian it is an
 * alternative for any of three flavours (blas.c says which one is right).
 *
 * Before it is loaded there must be room for it: where its constructor, or a thread's first
 * product, cannot map a buffer, OpenBLAS tries again for ever. Measured (0.3.21): 42 MiB of
 * library, when it is loaded 128 MiB per processor that is configured and for two at least, and
 * then 128 MiB per thread that calls it. It is address space: pages come when they are used.
 */
#include "base/failure.h"
#include "base/folders.h"
#include "blas.h"
#include "host.h"
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define LIBRARY_BYTES   (64ull << 20)
#define BUFFER_BYTES    (128ull << 20)
#define PROCESSORS_MOST 128 /* that any build knows */

static const char soname[] = "libopenblas.so.0";

/* ---- room ------------------------------------------------------------------------------------ */

static uint64_t library_bytes(void)
{
    long processors = sysconf(_SC_NPROCESSORS_CONF);
    processors = processors < 2 ? 2 : processors > PROCESSORS_MOST ? PROCESSORS_MOST : processors;
    return LIBRARY_BYTES + (uint64_t)processors * BUFFER_BYTES;
}

/* Asks the kernel itself, so that every limit counts (RLIMIT_AS, RLIMIT_DATA, overcommitment). */
bool host_blas_room(bool loaded, unsigned callers, struct hst_dev_failure *failure)
{
    const uint64_t needed = (loaded ? 0 : library_bytes()) + callers * BUFFER_BYTES;
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    char says[64] = "";
    void *tried = mmap(NULL, needed, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (tried != MAP_FAILED) {
        munmap(tried, needed);
        return true;
    }
    getrlimit(RLIMIT_AS, &limit);
    if (limit.rlim_cur != RLIM_INFINITY)
        snprintf(says, sizeof says, " (ulimit -v is %" PRIu64 " MiB)",
                 (uint64_t)limit.rlim_cur >> 20);
    dev_fail(failure, 0, HST_DEV_ADDRESS_SPACE, 0,
             "OpenBLAS maps %" PRIu64 " MiB for %u thread%s and waits for ever where it cannot, "
             "and so much address space is not left%s",
             needed >> 20, callers, callers == 1 ? "" : "s", says);
    return false;
}

/* ---- the search ------------------------------------------------------------------------------ */

static bool is_in_environment(struct dev_search *search)
{
    const char *folders = secure_getenv("HOISTWAY_BLAS_PATH");
    if (!folders || !*folders)
        return false;
    dev_search_tell(search, "HOISTWAY_BLAS_PATH (%.100s), ", folders);
    return dev_search_list(search, folders, false);
}

static bool find(struct dev_search *search)
{
    char folder[PATH_MAX];
    if (is_in_environment(search))
        return true;
    if (dev_own_folder(folder) && (dev_search_in(search, "%s/openblas-openmp", folder) ||
                                   dev_search_in(search, "%s/../lib/openblas-openmp", folder)))
        return true;
    dev_search_tell(search, "openblas-openmp beside this library, ");
    if (*HST_BLAS_DIR == '/') {
        dev_search_tell(search, "%.100s, ", HST_BLAS_DIR);
        if (dev_search_in(search, "%s", HST_BLAS_DIR))
            return true;
    }
    dev_search_tell(search, "the system's libraries");
    snprintf(search->path, sizeof search->path, "%s", soname);
    return false;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* OpenBLAS's constructor reads the core's name from the environment, and nowhere else. */
static void *load_with_core(const char *path, const char *core)
{
    const char *was = getenv(HOST_BLAS_CORE_VARIABLE);
    char *kept = was ? strdup(was) : NULL;
    if ((was && !kept) || setenv(HOST_BLAS_CORE_VARIABLE, core, 1)) {
        free(kept);
        return NULL;
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (kept)
        setenv(HOST_BLAS_CORE_VARIABLE, kept, 1);
    else
        unsetenv(HOST_BLAS_CORE_VARIABLE);
    free(kept);
    return handle;
}

void *host_blas_load(const char *core, unsigned callers, bool *loaded,
                     struct hst_dev_failure *failure)
{
    struct dev_search search = {.file = soname};
    void *handle = dlopen(soname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    *loaded = handle != NULL;
    if (handle || !host_blas_room(false, callers, failure))
        return handle;
    bool found = find(&search);
    handle = core ? load_with_core(search.path, core)
                  : dlopen(search.path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle)
        return handle;
    const char *why = dlerror();
    if (found)
        dev_fail(failure, 0, HST_DEV_BLAS, 0, "%.150s does not load: %s", search.path,
                 why ? why : "no memory");
    else
        dev_fail(failure, 0, HST_DEV_BLAS, 0, "no %s in: %s", soname, search.places);
    return NULL;
}
