/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one door to OpenBLAS, called from several threads at once, each call one piece of one
 * operation and held at one thread. It is opened when a host device is, never when a program
 * starts: its constructor takes a third of a gigabyte of address space and more.
 *
 * It must be the OpenMP flavour. Debian's serial one (0.3.21) looks for a free packing buffer
 * without a lock: now and then two threads get the same one, and a product is silently wrong (seen
 * in 1 training step of 10; tests/kernels/test_blas.c asks the library itself). The OpenMP flavour
 * locks, and starts no thread as long as the calling thread's own OpenMP setting is one thread,
 * which is what host_gemm sees to.
 *
 * OpenBLAS before 0.3.25 falls back to its oldest kernels ("Prescott", SSE3) on every Intel
 * processor that is newer than itself: five times slower, and Debian 12 ships 0.3.21. Its
 * initialisation can be run again with a core named in the environment, which is what this file
 * does, once, if and only if that fallback was taken, the processor has AVX2, and nobody has named
 * a core. Source: github.com/OpenMathLib/OpenBLAS/issues/4267.
 */
#include "blas.h"
#include "base/failure.h"
#include "cores.h"
#include "host.h"
#include <cblas.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { BLAS_SERIAL = 0, BLAS_PTHREAD = 1 }; /* of openblas_get_parallel */

/* The process has these, as the library: written under the lock before the first device is
 * there. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct host_blas blas;
static char loaded_for[24]; /* the core that it was loaded to run; "": its own choice */
static unsigned reserved;   /* buffers that are mapped for callers */
static bool in_use;         /* a device computes with it, or did: its core stays */

/* ---- which kernels --------------------------------------------------------------------------- */

/* A core that this processor cannot run would end the process: refused before it is named. */
static int check_core(const char *core, const char *from, struct hst_dev_failure *failure)
{
    const struct host_core *known = host_core_find(core);
    if (!known)
        return dev_fail(failure, -ENODEV, HST_DEV_CORE, 0,
                        "%s is \"%.40s\", which is no core that is known here (%s)", from, core,
                        host_core_names());
    const char *lacks = host_core_lacks(known, host_cpu_features());
    if (lacks)
        return dev_fail(failure, -ENODEV, HST_DEV_CORE, 0,
                        "%s is %s, whose kernels need %s, which this processor has not got", from,
                        known->name, lacks);
    return 0;
}

/* OpenBLAS would take a core that this processor cannot run, or pass over a name that it does not
   know: bits that were to be pinned would not be. */
static int check_environment(struct hst_dev_failure *failure)
{
    const char *core = getenv(HOST_BLAS_CORE_VARIABLE);
    return core && *core && HOST_CORES_KNOWN ? check_core(core, HOST_BLAS_CORE_VARIABLE, failure)
                                             : 0;
}

static void mend(void)
{
    const struct host_math *best = host_math_usable()[0];
    if (!blas.dynamic_init || !blas.dynamic_quit || getenv(HOST_BLAS_CORE_VARIABLE))
        return;
    if (best == &host_math_baseline || strcmp(blas.corename(), "Prescott") != 0)
        return;
    const char *core = strcmp(best->isa, "avx512") == 0 ? "SkylakeX" : "Haswell";
    if (setenv(HOST_BLAS_CORE_VARIABLE, core, 1))
        return;
    blas.dynamic_quit();
    blas.dynamic_init();
    unsetenv(HOST_BLAS_CORE_VARIABLE);
}

static int compare_core(const char *core, struct hst_dev_failure *failure)
{
    const char *runs = blas.corename();
    if (!core || strcasecmp(core, runs) == 0)
        return 0;
    return dev_fail(failure, -ENODEV, HST_DEV_CORE, 0,
                    strcasecmp(core, loaded_for) == 0
                        ? "host math is to be %s, but this OpenBLAS runs %s in its place"
                        : "host math is to be %s, but this process has begun with OpenBLAS's %s",
                    core, runs);
}

/* ---- the library ----------------------------------------------------------------------------- */

static int find_functions(void *handle, struct hst_dev_failure *failure)
{
    struct host_blas found = {.handle = handle, .sgemm = dlsym(handle, "cblas_sgemm")};
    *(void **)&found.parallel = dlsym(handle, "openblas_get_parallel");
    *(void **)&found.config = dlsym(handle, "openblas_get_config");
    *(void **)&found.corename = dlsym(handle, "openblas_get_corename");
    *(void **)&found.set_num_threads = dlsym(handle, "openblas_set_num_threads");
    *(void **)&found.memory_alloc = dlsym(handle, "blas_memory_alloc");
    *(void **)&found.memory_free = dlsym(handle, "blas_memory_free");
    /* absent from builds for one processor, which have nothing to mend */
    *(void **)&found.dynamic_init = dlsym(handle, "gotoblas_dynamic_init");
    *(void **)&found.dynamic_quit = dlsym(handle, "gotoblas_dynamic_quit");
    *(void **)&found.omp_set_num_threads = dlsym(handle, "omp_set_num_threads");
    if (!found.sgemm || !found.parallel || !found.config || !found.corename ||
        !found.set_num_threads)
        return dev_fail(failure, -ENODEV, HST_DEV_BLAS, 0,
                        "the libopenblas.so.0 that was found is not OpenBLAS: it has no %s",
                        found.sgemm ? "openblas_get_corename" : "cblas_sgemm");
    if (found.parallel() == BLAS_SERIAL)
        return dev_fail(failure, -ENOTSUP, HST_DEV_BLAS, 0,
                        "the OpenBLAS that was found is the serial flavour, which gives wrong "
                        "products to several threads");
    blas = found;
    return 0;
}

static int open_once(const char *core, unsigned callers, struct hst_dev_failure *failure)
{
    bool loaded = false;
    int rc = core ? check_core(core, "host math", failure) : check_environment(failure);
    if (rc)
        return rc;
    void *handle = host_blas_load(core, callers, &loaded, failure);
    rc = handle                                  ? find_functions(handle, failure)
         : failure->why == HST_DEV_ADDRESS_SPACE ? -ENOMEM
                                                 : -ENODEV;
    if (rc)
        return rc;
    if (blas.parallel() == BLAS_PTHREAD)
        blas.set_num_threads(1);
    if (core && !loaded)
        snprintf(loaded_for, sizeof loaded_for, "%s", core);
    return compare_core(core, failure);
}

/*
 * Has a buffer mapped for each thread that will call, while there is room for it: OpenBLAS keeps
 * them, and no product has then to wait for one that limits do not allow any more. (It has places
 * for 128; its own threads' are among them.)
 */
static int reserve(unsigned callers, struct hst_dev_failure *failure)
{
    enum { BUFFERS_MOST = 64 };
    void *buffers[BUFFERS_MOST];
    if (!blas.memory_alloc || !blas.memory_free || callers <= reserved)
        return 0;
    if (!host_blas_room(true, callers, failure))
        return -ENOMEM;
    unsigned count = callers < BUFFERS_MOST ? callers : BUFFERS_MOST;
    for (unsigned i = 0; i < count; i++)
        buffers[i] = blas.memory_alloc(0);
    for (unsigned i = 0; i < count; i++)
        if (buffers[i])
            blas.memory_free(buffers[i]);
    reserved = callers;
    return 0;
}

int host_blas_open(const char *core, unsigned callers, struct hst_dev_failure *failure)
{
    pthread_mutex_lock(&lock);
    int rc = blas.handle ? compare_core(core, failure) : open_once(core, callers, failure);
    if (!rc && !in_use && !core)
        mend(); /* where the first one asked for a core that it did not get, this is still to do */
    rc = rc ? rc : reserve(callers, failure);
    in_use = in_use || !rc;
    pthread_mutex_unlock(&lock);
    return rc;
}

/* The configuration's first words are "OpenBLAS 0.3.21". */
void host_blas_name(char *text, size_t text_bytes)
{
    const char *config = blas.config();
    size_t name = sizeof "OpenBLAS " - 1;
    bool versioned = strncmp(config, "OpenBLAS ", name) == 0;
    int length = versioned ? (int)(name + strcspn(config + name, " ")) : 0;
    snprintf(text, text_bytes, "%.*s %s", length ? length : 8, length ? config : "OpenBLAS",
             blas.corename());
}

void *hst_dev_host_blas(const char *name)
{
    pthread_mutex_lock(&lock);
    void *function = blas.handle ? dlsym(blas.handle, name) : NULL;
    pthread_mutex_unlock(&lock);
    return function;
}

void host_gemm(const struct host_gemm *g)
{
    static _Thread_local bool held_at_one_thread;
    __typeof__(cblas_sgemm) *sgemm;
    if (!g->m || !g->n)
        return;
    if (!held_at_one_thread && blas.omp_set_num_threads) {
        blas.omp_set_num_threads(1); /* of this thread alone: OpenMP's settings are per thread */
        held_at_one_thread = true;
    }
    *(void **)&sgemm = blas.sgemm;
    sgemm(CblasRowMajor, g->a_transposed ? CblasTrans : CblasNoTrans,
          g->b_transposed ? CblasTrans : CblasNoTrans, (blasint)g->m, (blasint)g->n, (blasint)g->k,
          g->alpha, g->a, (blasint)g->a_ld, g->b, (blasint)g->b_ld, g->beta, g->c,
          (blasint)g->c_ld);
}
