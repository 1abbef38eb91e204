/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The BLAS itself: may several threads call it at once? Debian's serial flavour of OpenBLAS 0.3.21
 * hands one packing buffer to two threads now and then, which makes a product wrong without any
 * sign of it.
 */
#include <cblas.h>
#include <errno.h>
#include <hoistway/kernels.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ROUNDS 300000

extern void *blas_memory_alloc(int procpos);
extern void blas_memory_free(void *buffer);

static _Atomic(void *) held[2];
static atomic_int shared;

static void *hold_buffers(void *arg)
{
    int self = *(int *)arg;
    for (int i = 0; i < ROUNDS; i++) {
        void *buffer = blas_memory_alloc(0);
        atomic_store(&held[self], buffer);
        if (atomic_load(&held[1 - self]) == buffer)
            atomic_fetch_add(&shared, 1);
        atomic_store(&held[self], NULL);
        blas_memory_free(buffer);
    }
    return NULL;
}

static void two_threads_never_hold_one_packing_buffer(void **state)
{
    (void)state;
    static int numbers[2] = {0, 1};
    pthread_t threads[2];
    for (int t = 0; t < 2; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, hold_buffers, &numbers[t]), 0);
    for (int t = 0; t < 2; t++)
        pthread_join(threads[t], NULL);
    assert_int_equal(atomic_load(&shared), 0);
}

static void the_flavour_is_one_that_locks(void **state)
{
    (void)state;
    assert_int_not_equal(openblas_get_parallel(), OPENBLAS_SEQUENTIAL);
}

/* A program that has OpenBLAS already, as this one does, has its core: another one is refused. */
static void the_library_that_is_there_is_the_one_and_keeps_its_core(void **state)
{
    (void)state;
    struct hst_dev_config config = {.size = sizeof config, .host_math = openblas_get_corename()};
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    struct hst_dev *dev = NULL;
    const bool prescott = strcmp(config.host_math, "Prescott") == 0;
    const char *const other = prescott ? "Core2" : "Prescott";
    void *const linked = (void *)(uintptr_t)cblas_sgemm;
    if (hst_dev_open("host", &config, &dev, &failure) && failure.why == HST_DEV_CORE)
        skip(); /* a core that has no name here */
    assert_ptr_equal(hst_dev_host_blas("cblas_sgemm"), linked);
    hst_dev_close(&dev);
    config.host_math = other;
    assert_int_equal(hst_dev_open("host", &config, &dev, &failure), -ENODEV);
    assert_int_equal(failure.why, HST_DEV_CORE);
    assert_non_null(strstr(failure.text, "this process has begun with OpenBLAS's"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_threads_never_hold_one_packing_buffer),
        cmocka_unit_test(the_flavour_is_one_that_locks),
        cmocka_unit_test(the_library_that_is_there_is_the_one_and_keeps_its_core),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
