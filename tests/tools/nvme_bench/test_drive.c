/* SPDX-License-Identifier: Apache-2.0 */
/* Which drive a directory is on, from trees of files as recorded machines show them in /sys. */
#include "nvme_bench/drive.h"
#include "nvme_bench/report.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct tree {
    char root[64], sys[96], mountinfo[96];
    struct nb_system system;
};

static void run_shell(const char *format, const char *root)
{
    char command[1024];
    snprintf(command, sizeof command, format, root, root, root, root);
    assert_int_equal(system(command), 0);
}

static void write_file(const struct tree *t, const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s/%s", t->root, path);
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int setup(void **state)
{
    struct tree *t = calloc(1, sizeof *t);
    snprintf(t->root, sizeof t->root, "/tmp/nvme_bench_sys_XXXXXX");
    if (!mkdtemp(t->root))
        return -1;
    snprintf(t->sys, sizeof t->sys, "%s/sys", t->root);
    snprintf(t->mountinfo, sizeof t->mountinfo, "%s/mountinfo", t->root);
    t->system = (struct nb_system){t->sys, t->mountinfo};
    run_shell("mkdir -p %s/sys/dev/block", t->root);
    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct tree *t = *state;
    run_shell("rm -rf %s", t->root);
    free(t);
    return 0;
}

/* A partition of an NVMe drive in a slot that gives it half of its lanes. */
static void make_nvme(const struct tree *t)
{
    run_shell("cd %s/sys && mkdir -p devices/pci/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p2 && "
              "ln -s ../../nvme0 devices/pci/0000:01:00.0/nvme/nvme0/nvme0n1/device && "
              "ln -s ../../devices/pci/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p2 dev/block/259:2",
              t->root);
    write_file(t, "sys/devices/pci/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p2/partition", "2\n");
    write_file(t, "sys/devices/pci/0000:01:00.0/nvme/nvme0/model", "ACME Turbo 2TB          \n");
    write_file(t, "sys/devices/pci/0000:01:00.0/current_link_speed", "16.0 GT/s PCIe\n");
    write_file(t, "sys/devices/pci/0000:01:00.0/current_link_width", "2\n");
    write_file(t, "sys/devices/pci/0000:01:00.0/max_link_speed", "16.0 GT/s PCIe\n");
    write_file(t, "sys/devices/pci/0000:01:00.0/max_link_width", "4\n");
    write_file(t, "sys/devices/pci/0000:01:00.0/numa_node", "1\n");
}

static void test_an_nvme_partition_leads_to_model_link_and_node(void **state)
{
    const struct tree *t = *state;
    struct nb_drive d = {.numa_node = -1, .direct = true, .backend = "io_uring"};
    char text[NB_SENTENCE];
    make_nvme(t);
    write_file(t, "mountinfo",
               "22 27 0:21 / /proc rw - proc proc rw\n"
               "30 1 259:2 / /data rw,noatime shared:1 - xfs /dev/nvme0n1p2 rw\n");
    nb_drive_read_block(&t->system, 259, 2, &d);
    nb_drive_read_mount(&t->system, 259, 2, &d);
    assert_string_equal(d.device, "nvme0n1p2");
    assert_string_equal(d.model, "ACME Turbo 2TB");
    assert_string_equal(d.link, "16.0 GT/s PCIe x2");
    assert_string_equal(d.link_most, "16.0 GT/s PCIe x4");
    assert_int_equal(d.numa_node, 1);
    assert_string_equal(d.file_system, "xfs");
    assert_string_equal(d.mount, "/data");
    nb_drive_text(&d, text);
    assert_string_equal(text, "ACME Turbo 2TB, device nvme0n1p2, xfs, link 16.0 GT/s PCIe x2 (can "
                              "do 16.0 GT/s PCIe x4), NUMA node 1, io_uring, O_DIRECT");
}

static void test_device_mapper_tells_its_name_and_no_more(void **state)
{
    const struct tree *t = *state;
    struct nb_drive d = {.numa_node = -1};
    run_shell("cd %s/sys && mkdir -p devices/virtual/block/dm-0/dm && "
              "ln -s ../../devices/virtual/block/dm-0 dev/block/253:0",
              t->root);
    write_file(t, "sys/devices/virtual/block/dm-0/dm/name", "vg-scratch\n");
    nb_drive_read_block(&t->system, 253, 0, &d);
    assert_string_equal(d.device, "dm-0");
    assert_string_equal(d.model, "device-mapper vg-scratch");
    assert_string_equal(d.link, "");
    assert_int_equal(d.numa_node, -1);
}

static void test_what_is_not_known_is_said_to_be_unknown(void **state)
{
    const struct tree *t = *state;
    struct nb_drive d = {.numa_node = -1, .backend = "threads"};
    char text[NB_SENTENCE];
    write_file(t, "mountinfo", "garbage\n1 2 0:44 / /b rw - btrfs /dev/sda1 rw\n3 4 0:45 - x\n");
    nb_drive_read_block(&t->system, 0, 44, &d);
    nb_drive_read_mount(&t->system, 0, 44, &d);
    assert_string_equal(d.device, "sda1"); /* a btrfs has numbers of its own */
    nb_drive_text(&d, text);
    assert_string_equal(text, "model unknown, device sda1, btrfs, PCIe link unknown, NUMA node "
                              "unknown, threads, no O_DIRECT: the page cache's numbers");
    d = (struct nb_drive){.numa_node = -1};
    nb_drive_read_mount(&t->system, 9, 9, &d);
    assert_string_equal(d.file_system, "");
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
    const struct tree *t = *state;
    struct nb_drive d = {.path = "/dev/null"};
    struct hst_error error = {0};
    assert_int_not_equal(nb_drive_identify(&t->system, &d, &error), 0);
    assert_int_equal(error.code, FAIL_STORE_DIR);
    d = (struct nb_drive){.path = "/nowhere/at/all"};
    assert_int_not_equal(nb_drive_identify(&t->system, &d, &error), 0);
    assert_int_equal(error.code, FAIL_STORE_DIR);
    d = (struct nb_drive){.path = "sim:read=1G"};
    assert_int_equal(nb_drive_identify(&t->system, &d, &error), 0);
    assert_true(d.simulated);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_an_nvme_partition_leads_to_model_link_and_node, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_device_mapper_tells_its_name_and_no_more, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_what_is_not_known_is_said_to_be_unknown, setup,
                                        teardown),
        cmocka_unit_test(test_a_tenth_of_the_file_system_is_left),
        cmocka_unit_test_setup_teardown(test_only_directories_and_simulated_drives_are_taken, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
