/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one door to OpenBLAS, called from several threads at once, each call one piece of one
 * operation and held at one thread.
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
 * does, once, if and only if that fallback was taken, the processor has AVX2, and the user has not
 * named a core. Source: github.com/OpenMathLib/OpenBLAS/issues/4267.
 */
#include "host.h"
#include <cblas.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* libgomp's; its header is gcc's own, and other compilers do not find it. */
extern void omp_set_num_threads(int threads);

/* Absent from builds for one processor, which have nothing to mend. */
extern void gotoblas_dynamic_init(void) __attribute__((weak));
extern void gotoblas_dynamic_quit(void) __attribute__((weak));

static const char core_variable[] = "OPENBLAS_CORETYPE";

enum { BLAS_SERIAL = 0, BLAS_PTHREAD = 1 }; /* of openblas_get_parallel */

static void prepare(void)
{
    if (openblas_get_parallel() == BLAS_PTHREAD)
        openblas_set_num_threads(1);
    const struct host_math *best = host_math_usable()[0];
    if (!gotoblas_dynamic_init || !gotoblas_dynamic_quit || getenv(core_variable))
        return;
    if (best == &host_math_baseline || strcmp(openblas_get_corename(), "Prescott") != 0)
        return;
    const char *core = strcmp(best->isa, "avx512") == 0 ? "SkylakeX" : "Haswell";
    if (setenv(core_variable, core, 1))
        return;
    gotoblas_dynamic_quit();
    gotoblas_dynamic_init();
    unsetenv(core_variable);
}

int host_blas_prepare(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (openblas_get_parallel() == BLAS_SERIAL)
        return -ENOTSUP;
    pthread_once(&once, prepare);
    return 0;
}

void host_gemm(const struct host_gemm *g)
{
    static _Thread_local bool held_at_one_thread;
    if (!g->m || !g->n)
        return;
    if (!held_at_one_thread) {
        omp_set_num_threads(1); /* of this thread alone: OpenMP's settings are per thread */
        held_at_one_thread = true;
    }
    cblas_sgemm(CblasRowMajor, g->a_transposed ? CblasTrans : CblasNoTrans,
                g->b_transposed ? CblasTrans : CblasNoTrans, (blasint)g->m, (blasint)g->n,
                (blasint)g->k, g->alpha, g->a, (blasint)g->a_ld, g->b, (blasint)g->b_ld, g->beta,
                g->c, (blasint)g->c_ld);
}
