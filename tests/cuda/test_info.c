/* SPDX-License-Identifier: Apache-2.0 */
/* What sysfs says of a PCI device, from files as Linux writes them; the search for libraries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda.h"
#include "libraries/library.h"
#include <cmocka.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PCI   "0000:3b:00.0"
#define PROBE "libhoistway-probe.so.1" /* that the loader does not know */

static char root[64], folder[128];

/* In the folder, which the name may leave by "..". */
static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!text) {
        (void)unlink(path);
        return;
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static const char *const names[] = {"numa_node", "current_link_speed", "max_link_speed",
                                    "current_link_width", "max_link_width"};

static struct hst_dev_info read_files(const char *const texts[5])
{
    struct hst_dev_info info = {.pci = PCI, .numa_node = 7, .pcie_lanes = 7};
    for (size_t i = 0; i < 5; i++)
        put(names[i], texts[i]);
    cuda_info_read_pci(root, &info);
    return info;
}

static void a_link_and_a_node_are_read(void **state)
{
    (void)state;
    struct hst_dev_info info = read_files(
        (const char *const[]){"1\n", "2.5 GT/s PCIe\n", "32.0 GT/s PCIe\n", "8\n", "16\n"});
    assert_int_equal(info.numa_node, 1);
    assert_int_equal(info.pcie_generation, 1);
    assert_int_equal(info.pcie_generation_max, 5);
    assert_int_equal(info.pcie_lanes, 8);
    assert_int_equal(info.pcie_lanes_max, 16);
}

static void every_generation_is_known_by_its_speed(void **state)
{
    (void)state;
    static const char *const speeds[] = {"2.5", "5.0", "8.0", "16.0", "32.0", "64.0"};
    for (unsigned i = 0; i < 6; i++) {
        char text[32];
        snprintf(text, sizeof text, "%s GT/s PCIe\n", speeds[i]);
        struct hst_dev_info info =
            read_files((const char *const[]){"0\n", text, "8.0 GT/s\n", "1\n", "1\n"});
        assert_int_equal(info.pcie_generation, i + 1);
        assert_int_equal(info.pcie_generation_max, 3);
        assert_int_equal(info.numa_node, 0);
    }
}

static void what_is_not_known_stays_so(void **state)
{
    (void)state;
    static const char *const odd[][5] = {{NULL, NULL, NULL, NULL, NULL},
                                         {"-1\n", "Unknown\n", "Unknown\n", "0\n", "255\n"},
                                         {"", "", "", "", ""},
                                         {"\n", "fast\n", "-8 GT/s\n", "-4\n", "63\n"}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct hst_dev_info info = read_files(odd[i]);
        assert_int_equal(info.numa_node, -1);
        assert_int_equal(info.pcie_generation, 0);
        assert_int_equal(info.pcie_generation_max, 0);
        assert_int_equal(info.pcie_lanes, 0);
        assert_int_equal(info.pcie_lanes_max, 0);
    }
}

static void a_library_that_is_nowhere_is_told_with_every_place(void **state)
{
    (void)state;
    struct hst_dev_failure failure;
    assert_int_equal(setenv("HOISTWAY_CUDA_PATH", "/nowhere/cuda:relative", 1), 0);
    bool there = true;
    assert_null(cuda_library_open("libhoistway-nothing.so.1", &there, &failure));
    assert_false(there);
    assert_int_equal(failure.why, HST_DEV_LIBRARY);
    assert_non_null(strstr(failure.text, "libhoistway-nothing.so.1 was not found"));
    static const char *const places[] = {
        "/nowhere/cuda",           "LD_LIBRARY_PATH", "/usr/local/cuda*/lib64",
        "/usr/local/nvidia/lib64", "VIRTUAL_ENV",     "CONDA_PREFIX"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        assert_non_null(strstr(failure.text, places[i]));
    assert_null(cuda_library_open("libhoistway-nothing.so.1", NULL, NULL));
}

static void a_library_of_the_named_folder_is_taken_at_its_word(void **state)
{
    (void)state;
    struct hst_dev_failure failure;
    char folders[300];
    put("../libm.so.6", "no library\n");
    snprintf(folders, sizeof folders, "/nowhere:%s", root); /* no colons in it */
    assert_int_equal(setenv("HOISTWAY_CUDA_PATH", folders, 1), 0);
    bool there = false;
    assert_null(cuda_library_open("libm.so.6", &there, &failure)); /* the system's would do */
    assert_true(there);
    assert_non_null(strstr(failure.text, "libm.so.6 does not load"));
    put("../libm.so.6", NULL);
    assert_non_null(cuda_library_open("libm.so.6", NULL, &failure));
}

static void a_library_of_another_version_is_named(void **state)
{
    (void)state;
    char text[300], want[300];
    assert_int_equal(setenv("HOISTWAY_CUDA_PATH", "relative:/nowhere", 1), 0);
    cuda_library_unlike("libhoistway-probe.so.2", text, sizeof text);
    assert_string_equal(text, "");
    snprintf(want, sizeof want, "relative:/nowhere:%s", root);
    assert_int_equal(setenv("HOISTWAY_CUDA_PATH", want, 1), 0);
    put("../libhoistway-probe.so.2", "");
    put("../libhoistway-probe.so.2.1", "");
    put("../libhoistway-probe.sol.3", "");
    cuda_library_unlike("libhoistway-probe.so.2", text, sizeof text);
    assert_string_equal(text, ""); /* it is the version that is asked for */
    put("../libhoistway-probe.so.12", "");
    snprintf(want, sizeof want, "%s/libhoistway-probe.so.12 (this build takes %s)", root,
             "libhoistway-probe.so.2");
    cuda_library_unlike("libhoistway-probe.so.2", text, sizeof text);
    assert_string_equal(text, want);
    put("../libhoistway-probe.so.2", NULL);
    put("../libhoistway-probe.so.2.1", NULL);
    put("../libhoistway-probe.sol.3", NULL);
    put("../libhoistway-probe.so.12", NULL);
}

static void a_relative_folder_is_not_looked_in(void **state)
{
    (void)state;
    put("../libm.so.6", "no library\n");
    assert_int_equal(chdir(root), 0);
    assert_int_equal(setenv("HOISTWAY_CUDA_PATH", ".", 1), 0);
    assert_non_null(cuda_library_open("libm.so.6", NULL, NULL));
    assert_int_equal(chdir("/"), 0);
    put("../libm.so.6", NULL);
}

static void the_driver_s_version_is_its_file_s_first_line(void **state)
{
    (void)state;
    char path[256], text[64] = "driver";
    put("numa_node", "580.95.05\nmore\n");
    snprintf(path, sizeof path, "%s/numa_node", folder);
    cuda_math_driver(path, text, sizeof text);
    assert_string_equal(text, "driver 580.95.05");
    cuda_math_driver("/nowhere", text, sizeof text);
    assert_string_equal(text, "driver 580.95.05");
}

static void variables_that_change_what_libraries_compute_are_told(void **state)
{
    (void)state;
    char text[64] = "card";
    setenv("NVIDIA_TF32_OVERRIDE", "", 1);
    setenv("CUBLAS_LOGINFO_DBG", "1", 1); /* changes no bit */
    cuda_math_environment(text, sizeof text);
    assert_string_equal(text, "card");
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1);
    setenv("NVIDIA_TF32_OVERRIDE", "0", 1);
    cuda_math_environment(text, sizeof text);
    assert_string_equal(text, "card, NVIDIA_TF32_OVERRIDE=0, CUBLAS_WORKSPACE_CONFIG=:4096:8");
    cuda_math_environment(text, sizeof text); /* is cut, not written beyond its end */
    assert_int_equal(strlen(text), sizeof text - 1);
}

/* A library that the loader does not know, in a folder below root that is made for it. */
static void put_library(const char *below)
{
    char path[PATH_MAX], command[3 * PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", root, below);
    const char *libm = cuda_library_path(cuda_library_open("libm.so.6", NULL, NULL));
    snprintf(command, sizeof command, "mkdir -p '%s' && cp '%s' '%s/" PROBE "'", path, libm, path);
    assert_int_equal(system(command), 0);
}

static void remove_libraries(void)
{
    char command[PATH_MAX];
    snprintf(command, sizeof command, "rm -rf '%s/env' '%s/late'", root, root);
    assert_int_equal(system(command), 0);
}

/* Expects the library that is below root, by the variable that names root and `value`. */
static void expect_found(const char *variable, const char *value, const char *below)
{
    char set[PATH_MAX], want[PATH_MAX];
    snprintf(set, sizeof set, "%s/%s", root, value);
    snprintf(want, sizeof want, "%s/%s/" PROBE, root, below);
    put_library(below);
    assert_null(cuda_library_open(PROBE, NULL, NULL));
    assert_int_equal(setenv(variable, set, 1), 0);
    void *library = cuda_library_open(PROBE, NULL, NULL);
    assert_non_null(library);
    assert_string_equal(cuda_library_path(library), want);
    assert_int_equal(unsetenv(variable), 0);
    remove_libraries();
}

static void libraries_of_python_environments_are_found(void **state)
{
    (void)state;
    static const char packages[] = "env/lib/python3.11/site-packages/nvidia/cu13/lib";
    assert_int_equal(unsetenv("HOISTWAY_CUDA_PATH"), 0);
    expect_found("VIRTUAL_ENV", "env", packages);
    expect_found("CONDA_PREFIX", "env", packages);
    expect_found("CONDA_PREFIX", "env", "env/lib");
}

static void a_loader_path_that_was_set_late_is_looked_in(void **state)
{
    (void)state;
    assert_int_equal(unsetenv("HOISTWAY_CUDA_PATH"), 0);
    expect_found("LD_LIBRARY_PATH", "late", "late");
}

/* A pattern in the variable would be followed anywhere. */
static void an_environment_that_is_a_pattern_is_not_followed(void **state)
{
    (void)state;
    char pattern[PATH_MAX];
    put_library("env/lib");
    snprintf(pattern, sizeof pattern, "%s/*", root);
    assert_int_equal(setenv("CONDA_PREFIX", pattern, 1), 0);
    assert_null(cuda_library_open(PROBE, NULL, NULL));
    assert_int_equal(unsetenv("CONDA_PREFIX"), 0);
    remove_libraries();
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/hst-info-XXXXXX");
    if (!mkdtemp(root))
        return -1;
    snprintf(folder, sizeof folder, "%s/%s", root, PCI);
    return mkdir(folder, 0700);
}

static int drop_folder(void **state)
{
    (void)state;
    for (size_t i = 0; i < 5; i++)
        put(names[i], NULL);
    return rmdir(folder) || rmdir(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_link_and_a_node_are_read),
        cmocka_unit_test(every_generation_is_known_by_its_speed),
        cmocka_unit_test(what_is_not_known_stays_so),
        cmocka_unit_test(a_library_that_is_nowhere_is_told_with_every_place),
        cmocka_unit_test(a_library_of_the_named_folder_is_taken_at_its_word),
        cmocka_unit_test(a_library_of_another_version_is_named),
        cmocka_unit_test(a_relative_folder_is_not_looked_in),
        cmocka_unit_test(the_driver_s_version_is_its_file_s_first_line),
        cmocka_unit_test(variables_that_change_what_libraries_compute_are_told),
        cmocka_unit_test(libraries_of_python_environments_are_found),
        cmocka_unit_test(a_loader_path_that_was_set_late_is_looked_in),
        cmocka_unit_test(an_environment_that_is_a_pattern_is_not_followed),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
