/* SPDX-License-Identifier: Apache-2.0 */
/* Which of OpenBLAS's cores a processor can run, and which texts stand for the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "host/cores.h"
#include "host/host.h"
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"Prescott",    "Core2",         "Penryn", "Nehalem",
                                    "Sandybridge", "Haswell",       "Zen",    "SkylakeX",
                                    "Cooperlake",  "SapphireRapids"};
#define COUNT (sizeof names / sizeof *names)

static void a_core_is_known_in_any_case_of_letters(void **state)
{
    (void)state;
    assert_string_equal(host_core_find("skylakeX")->name, "SkylakeX");
    assert_string_equal(host_core_find("HASWELL")->name, "Haswell");
    assert_null(host_core_find("Haswel"));
    assert_null(host_core_find(""));
    for (size_t i = 0; i < COUNT; i++) {
        assert_string_equal(host_core_find(names[i])->name, names[i]);
        assert_non_null(strstr(host_core_names(), names[i]));
    }
}

static void each_instruction_set_that_is_missing_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        const struct host_core *core = host_core_find(names[i]);
        assert_null(host_core_lacks(core, core->needs));
        assert_null(host_core_lacks(core, UINT64_MAX));
        assert_non_null(host_core_lacks(core, 0));
        for (uint64_t bit = 1; bit; bit <<= 1)
            if (core->needs & bit)
                assert_true(strlen(host_core_lacks(core, ~bit)) >= 3);
    }
    const uint64_t haswell = host_core_find("Haswell")->needs;
    assert_string_equal(host_core_lacks(host_core_find("SkylakeX"), haswell), "MOVBE");
    assert_string_equal(
        host_core_lacks(host_core_find("Haswell"), host_core_find("Sandybridge")->needs), "POPCNT");
    const uint64_t skylake = host_core_find("SkylakeX")->needs;
    assert_string_equal(host_core_lacks(host_core_find("Cooperlake"), skylake), "AVX512_VNNI");
    const uint64_t cooper = host_core_find("Cooperlake")->needs;
    assert_string_equal(host_core_lacks(host_core_find("SapphireRapids"), cooper), "AVX512_FP16");
}

/* The compiler asks the processor in its own way. */
static void features_are_those_that_the_compiler_finds(void **state)
{
    (void)state;
#if defined(__x86_64__)
    const uint64_t has = host_cpu_features();
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
    assert_int_equal(!host_core_lacks(host_core_find("Haswell"), has), avx2);
    assert_int_equal(!host_core_lacks(host_core_find("SkylakeX"), has), avx2 && wide);
    assert_int_equal(!host_core_lacks(host_core_find("Cooperlake"), has),
                     avx2 && wide && __builtin_cpu_supports("avx512vnni") &&
                         __builtin_cpu_supports("avx512bf16"));
#else
    assert_int_equal(host_cpu_features(), 0);
#endif
}

static void texts_are_equal_where_bytes_were_compared(void **state)
{
    (void)state;
    const char *const sky = "OpenBLAS 0.3.21 SkylakeX, glibc 2.36";
    assert_true(hst_dev_math_equal(sky, sky));
    assert_false(hst_dev_math_equal(sky, "OpenBLAS 0.3.21 Cooperlake, glibc 2.36"));
    assert_true(hst_dev_math_equal("OpenBLAS 0.3.21 Zen, a", "OpenBLAS 0.3.21 Haswell, a"));
    assert_false(hst_dev_math_equal(sky, "OpenBLAS 0.3.21 Haswell, glibc 2.36"));
    assert_false(hst_dev_math_equal("OpenBLAS 0.3.21 Zen, a", "OpenBLAS 0.3.21 Haswell, b"));
    assert_false(hst_dev_math_equal(sky, "OpenBLAS 0.3.22 SkylakeX, glibc 2.36"));
    assert_false(hst_dev_math_equal("OpenBLAS 0.3.22 Zen, a", "OpenBLAS 0.3.22 Haswell, a"));
    assert_false(hst_dev_math_equal("OpenBLAS 0.3.21 Nehalem, a", "OpenBLAS 0.3.21 Core2, a"));
    assert_false(hst_dev_math_equal("NVIDIA H100", "NVIDIA H200"));
}

static int open_with(const char *core, struct hst_dev_failure *failure)
{
    const struct hst_dev_config config = {.size = sizeof config, .host_math = core};
    struct hst_dev *dev = NULL;
    int rc = hst_dev_open("host", &config, &dev, failure);
    char math[HST_DEV_MATH_BYTES];
    if (!rc) {
        hst_dev_math(dev, math, sizeof math);
        assert_true(strncmp(math, "OpenBLAS ", 9) == 0);
        assert_non_null(strstr(math, ", glibc "));
    }
    hst_dev_close(&dev);
    return rc;
}

static void a_process_keeps_the_core_that_it_began_with(void **state)
{
    (void)state;
    struct hst_dev_failure failure;
    if (host_core_lacks(host_core_find("Nehalem"), host_cpu_features()))
        skip();
    setenv("OPENBLAS_CORETYPE", "Prescott", 1);
    assert_null(hst_dev_host_blas("cblas_sgemm"));
    assert_int_equal(open_with("nehalem", &failure), 0);
    assert_string_equal(getenv("OPENBLAS_CORETYPE"), "Prescott"); /* as it was */
    assert_non_null(hst_dev_host_blas("cblas_sgemm"));
    assert_int_equal(open_with("Nehalem", &failure), 0);
    assert_int_equal(open_with(NULL, &failure), 0);
    assert_int_equal(open_with("Prescott", &failure), -ENODEV);
    assert_int_equal(failure.why, HST_DEV_CORE);
    assert_non_null(strstr(failure.text, "has begun with OpenBLAS's Nehalem"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_core_is_known_in_any_case_of_letters),
        cmocka_unit_test(each_instruction_set_that_is_missing_is_named),
        cmocka_unit_test(features_are_those_that_the_compiler_finds),
        cmocka_unit_test(texts_are_equal_where_bytes_were_compared),
        cmocka_unit_test(a_process_keeps_the_core_that_it_began_with),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
