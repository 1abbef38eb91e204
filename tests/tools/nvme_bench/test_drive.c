/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of drives, how much of one may be taken, which paths are taken for one, and which
 * two are on one. */
#include "nvme_bench/drive.h"
#include "nvme_bench/report/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_a_drive_is_told_with_model_link_and_node(void **state)
{
    (void)state;
    const struct nb_drive d = {.device = "nvme0n1p2",
                               .model = "ACME Turbo 2TB",
                               .file_system = "xfs",
                               .link = "16.0 GT/s PCIe x2",
                               .link_most = "16.0 GT/s PCIe x4",
                               .numa_node = 1,
                               .direct = true,
                               .backend = "io_uring"};
    char text[NB_SENTENCE];
    nb_drive_text(&d, text);
    assert_string_equal(text, "ACME Turbo 2TB, device nvme0n1p2, xfs, link 16.0 GT/s PCIe x2 (can "
                              "do 16.0 GT/s PCIe x4), NUMA node 1, io_uring, O_DIRECT");
}

static void test_what_is_not_known_is_said_to_be_unknown(void **state)
{
    (void)state;
    const struct nb_drive d = {
        .device = "sda1", .file_system = "btrfs", .numa_node = -1, .backend = "threads"};
    char text[NB_SENTENCE];
    nb_drive_text(&d, text);
    assert_string_equal(text, "model unknown, device sda1, btrfs, PCIe link unknown, NUMA node "
                              "unknown, threads, no O_DIRECT: the page cache's numbers");
}

static void test_drives_are_the_same_by_file_system_or_disk(void **state)
{
    char shared[NB_TEXT];
    struct nb_drive a = {.device_major = 259, .device_minor = 1, .disks = "sda", .device = "sda1"};
    struct nb_drive b = {.device_major = 259, .device_minor = 2, .disks = "sda,sdb"};
    struct nb_drive c = {.device_major = 259, .device_minor = 3, .disks = "sdb,sd"};
    struct nb_drive d = {.device_major = 0, .device_minor = 44}, e = d, none = {.device = ""};
    (void)state;
    assert_string_equal(nb_drives_share(&a, &b, shared), "sda");
    assert_string_equal(nb_drives_share(&b, &c, shared), "sdb");
    assert_null(nb_drives_share(&a, &c, shared)); /* "sd" is not "sda" */
    assert_string_equal(nb_drives_share(&a, &a, shared), "one file system, sda1");
    assert_string_equal(nb_drives_share(&d, &e, shared), "one file system"); /* without a name */
    e.device_minor = 45;
    assert_null(nb_drives_share(&d, &e, shared));
    assert_null(nb_drives_share(&none, &none, shared));
    a.simulated = true;
    assert_null(nb_drives_share(&a, &a, shared));
}

static void test_name_spaces_of_one_controller_are_recognised(void **state)
{
    struct nb_drive a = {.disks = "nvme0n1"}, b = {.disks = "nvme0n2"}, c = {.disks = "nvme1n1"};
    struct nb_drive none = {.disks = "sda"};
    (void)state;
    assert_true(nb_drives_share_controller(&a, &b));
    assert_false(nb_drives_share_controller(&a, &c));
    assert_false(nb_drives_share_controller(&a, &none));
    assert_false(nb_drives_share_controller(&none, &none));
}

static void test_a_tenth_of_the_file_system_is_left(void **state)
{
    (void)state;
    assert_true(nb_drive_room(1000, 1000) == 900);
    assert_true(nb_drive_room(1000, 101) == 1);
    assert_true(nb_drive_room(1000, 100) == 0);
    assert_true(nb_drive_room(1000, 3) == 0);
}

static void test_only_directories_and_simulated_drives_are_taken(void **state)
{
    (void)state;
    struct nb_drive d = {.path = "/dev/null"}, odd = {.path = "sim:\x1b[2J"};
    struct hst_error error = {0};
    assert_int_not_equal(nb_drive_identify(&odd, &error), 0);
    assert_true(error.code == FAIL_VALUE && strstr(error.message, "sim:\\x1b[2J"));
    assert_int_not_equal(nb_drive_identify(&d, &error), 0);
    assert_int_equal(error.code, FAIL_STORE_DIR);
    d = (struct nb_drive){.path = "/nowhere/at/all"};
    assert_int_not_equal(nb_drive_identify(&d, &error), 0);
    assert_int_equal(error.code, FAIL_STORE_DIR);
    d = (struct nb_drive){.path = "sim:read=1G"};
    assert_int_equal(nb_drive_identify(&d, &error), 0);
    assert_true(d.simulated);
}

static void bytes_have_the_unit_that_fits(void **state)
{
    (void)state;
    static const struct {
        double bytes;
        const char *text;
    } rows[] = {{0, "0 kB"}, {24e6, "24.0 MB"}, {192.7e9, "192.7 GB"}, {12.5e12, "12.5 TB"}};
    char text[32];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        nb_bytes_text(rows[i].bytes, text);
        assert_string_equal(text, rows[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_have_the_unit_that_fits),
        cmocka_unit_test(test_a_drive_is_told_with_model_link_and_node),
        cmocka_unit_test(test_what_is_not_known_is_said_to_be_unknown),
        cmocka_unit_test(test_drives_are_the_same_by_file_system_or_disk),
        cmocka_unit_test(test_name_spaces_of_one_controller_are_recognised),
        cmocka_unit_test(test_a_tenth_of_the_file_system_is_left),
        cmocka_unit_test(test_only_directories_and_simulated_drives_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
