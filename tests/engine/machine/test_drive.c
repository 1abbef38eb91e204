/* SPDX-License-Identifier: Apache-2.0 */
/* Which drive a directory is on, from trees of files as recorded machines show them in /sys. */
#include "machine/drive.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

struct tree {
    char root[64], sys[96], mountinfo[96];
    struct drive_system system;
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
    snprintf(t->root, sizeof t->root, "/tmp/hst_sys_XXXXXX");
    if (!mkdtemp(t->root))
        return -1;
    snprintf(t->sys, sizeof t->sys, "%s/sys", t->root);
    snprintf(t->mountinfo, sizeof t->mountinfo, "%s/mountinfo", t->root);
    t->system = (struct drive_system){t->sys, t->mountinfo};
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
    write_file(t, "sys/devices/pci/0000:01:00.0/nvme/nvme0/serial", "  S1234567\n");
    write_file(t, "sys/devices/pci/0000:01:00.0/current_link_speed", "16.0 GT/s PCIe\n");
    write_file(t, "sys/devices/pci/0000:01:00.0/current_link_width", "2\n");
    write_file(t, "sys/devices/pci/0000:01:00.0/max_link_speed", "16.0 GT/s PCIe\n");
    write_file(t, "sys/devices/pci/0000:01:00.0/max_link_width", "4\n");
    write_file(t, "sys/devices/pci/0000:01:00.0/numa_node", "1\n");
}

static void test_an_nvme_partition_leads_to_model_link_and_node(void **state)
{
    const struct tree *t = *state;
    struct hst_drive d = {.node = -1};
    make_nvme(t);
    write_file(t, "mountinfo",
               "22 27 0:21 / /proc rw - proc proc rw\n"
               "30 1 259:2 / /data rw,noatime shared:1 - xfs /dev/nvme0n1p2 rw\n");
    drive_read_block(&t->system, 259, 2, &d);
    drive_read_mount(&t->system, 259, 2, 0, &d);
    assert_string_equal(d.device, "nvme0n1p2");
    assert_string_equal(d.model, "ACME Turbo 2TB");
    assert_string_equal(d.serial, "S1234567");
    assert_string_equal(d.link, "16.0 GT/s PCIe x2");
    assert_string_equal(d.link_most, "16.0 GT/s PCIe x4");
    assert_int_equal(d.node, 1);
    assert_string_equal(d.file_system, "xfs");
    assert_string_equal(d.mount, "/data");
}

static void test_device_mapper_tells_its_name_and_no_more(void **state)
{
    const struct tree *t = *state;
    struct hst_drive d = {.node = -1};
    run_shell("cd %s/sys && mkdir -p devices/virtual/block/dm-0/dm && "
              "ln -s ../../devices/virtual/block/dm-0 dev/block/253:0",
              t->root);
    write_file(t, "sys/devices/virtual/block/dm-0/dm/name", "vg-scratch\n");
    drive_read_block(&t->system, 253, 0, &d);
    assert_string_equal(d.device, "dm-0");
    assert_string_equal(d.model, "device-mapper vg-scratch");
    assert_string_equal(d.link, "");
    assert_int_equal(d.node, -1);
}

static void test_what_is_not_known_is_said_to_be_unknown(void **state)
{
    const struct tree *t = *state;
    struct hst_drive d = {.node = -1};
    write_file(t, "mountinfo", "garbage\n1 2 0:44 / /b rw - btrfs /dev/sda1 rw\n3 4 0:45 - x\n");
    drive_read_block(&t->system, 0, 44, &d);
    drive_read_mount(&t->system, 0, 44, 0, &d);
    assert_string_equal(d.device, "sda1"); /* a btrfs has numbers of its own */
    d = (struct hst_drive){.node = -1};
    drive_read_mount(&t->system, 9, 9, 0, &d);
    assert_string_equal(d.file_system, "");
}

/* ---- which disks ---- */

/* A block device of its own, below `folder`, with its numbers. */
static void make_block(const struct tree *t, const char *folder, const char *name, unsigned minor)
{
    char command[512];
    snprintf(command, sizeof command,
             "cd %s && mkdir -p %s/%s dev/block class/block && "
             "ln -s ../../%s/%s dev/block/259:%u && ln -s ../../%s/%s class/block/%s",
             t->sys, folder, name, folder, name, minor, folder, name, name);
    assert_int_equal(system(command), 0);
}

static void stack(const struct tree *t, const char *upper, const char *lower)
{
    char command[512];
    snprintf(command, sizeof command,
             "cd %s && mkdir -p v/%s/slaves && ln -s \"$(readlink -f class/block/%s)\" "
             "v/%s/slaves/%s",
             t->sys, upper, lower, upper, lower);
    assert_int_equal(system(command), 0);
}

/* sda with two partitions, sdb whole; dm-0 on sda2, dm-1 on dm-0 and sdb, md0 on sdb and sdc */
static void make_disks(const struct tree *t)
{
    make_block(t, "pci", "sda", 0);
    make_block(t, "pci/sda", "sda1", 1);
    make_block(t, "pci/sda", "sda2", 2);
    write_file(t, "sys/pci/sda/sda1/partition", "1\n");
    write_file(t, "sys/pci/sda/sda2/partition", "2\n");
    make_block(t, "pci", "sdb", 16);
    make_block(t, "pci", "sdc", 32);
    make_block(t, "v", "dm-0", 100);
    make_block(t, "v", "dm-1", 101);
    make_block(t, "v", "md0", 102);
    make_block(t, "v/md0", "md0p1", 103);
    write_file(t, "sys/v/md0/md0p1/partition", "1\n");
    stack(t, "dm-0", "sda2");
    stack(t, "dm-1", "dm-0");
    stack(t, "dm-1", "sdb");
    stack(t, "md0", "sdb");
    stack(t, "md0", "sdc");
}

static void test_what_is_stacked_leads_down_to_its_disks(void **state)
{
    const struct tree *t = *state;
    static const struct {
        unsigned minor;
        const char *disks;
    } wanted[] = {{0, "sda"},       {1, "sda"},       {2, "sda"},       {16, "sdb"}, {100, "sda"},
                  {101, "sda,sdb"}, {102, "sdb,sdc"}, {103, "sdb,sdc"}, {999, ""}};
    make_disks(t);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        struct hst_drive d = {.device = ""};
        drive_disks_add(&t->system, 259, wanted[i].minor, &d);
        assert_string_equal(d.disks, wanted[i].disks);
    }
}

static void test_devices_that_stand_on_themselves_end(void **state)
{
    const struct tree *t = *state;
    struct hst_drive d = {.device = ""};
    make_block(t, "v", "dm-7", 7);
    stack(t, "dm-7", "dm-7");
    drive_disks_add(&t->system, 259, 7, &d);
    assert_string_equal(d.disks, "dm-7");
}

static void test_a_loop_device_leads_to_the_disk_of_its_file(void **state)
{
    const struct tree *t = *state;
    struct hst_drive d = {.device = ""};
    struct stat st;
    char line[128];
    make_disks(t);
    make_block(t, "v", "loop0", 200);
    run_shell("mkdir %s/sys/v/loop0/loop", t->root);
    snprintf(line, sizeof line, "%s/image\n", t->root);
    write_file(t, "sys/v/loop0/loop/backing_file", line);
    drive_disks_add(&t->system, 259, 200, &d);
    assert_string_equal(d.disks, "loop0"); /* the file is not there, or no longer */
    write_file(t, "image", "");
    assert_int_equal(stat(t->root, &st), 0);
    snprintf(line, sizeof line, "cd %%s/sys && ln -sf ../../pci/sda/sda1 dev/block/%u:%u",
             major(st.st_dev), minor(st.st_dev));
    run_shell(line, t->root);
    d.disks[0] = '\0';
    drive_disks_add(&t->system, 259, 200, &d);
    assert_string_equal(d.disks, "sda");
}

static struct hst_drive on_mount(const struct tree *t, unsigned minor, uint64_t id)
{
    struct hst_drive d = {.device_major = 0, .device_minor = minor};
    drive_read_block(&t->system, 0, minor, &d);
    drive_disks_add(&t->system, 0, minor, &d);
    drive_read_mount(&t->system, 0, minor, id, &d);
    return d;
}

static void test_file_systems_with_numbers_of_their_own_lead_to_disks_too(void **state)
{
    const struct tree *t = *state;
    struct stat st;
    char text[1024], line[128];
    make_disks(t);
    assert_int_equal(stat(t->root, &st), 0);
    snprintf(line, sizeof line, "cd %%s/sys && ln -sf ../../v/dm-1 dev/block/%u:%u",
             major(st.st_dev), minor(st.st_dev));
    run_shell(line, t->root);
    run_shell("mkdir '%s/an upper'", t->root);
    snprintf(text, sizeof text,
             "40 1 0:44 / /a rw - btrfs /dev/sda2 rw\n"
             "41 1 0:44 /sub /b rw - btrfs /dev/sda2 rw\n"
             "42 1 0:50 / /o rw shared:1 - overlay overlay rw,lowerdir=/x,upperdir=%s/an\\040upper"
             ",workdir=/w\n"
             "43 1 0:51 / /o2 rw - overlay overlay rw,lowerdir=/x:/y\n"
             "44 1 0:60 / /z rw - zfs tank/data rw\n"
             "45 1 0:61 / /z2 rw - zfs tank rw\n"
             "46 1 0:70 / /n rw - nfs4 server:/x rw\n",
             t->root);
    write_file(t, "mountinfo", text);
    assert_string_equal(on_mount(t, 44, 0).disks, "sda");
    assert_string_equal(on_mount(t, 44, 0).mount, "/a");
    assert_string_equal(on_mount(t, 44, 41).mount, "/b"); /* by its number, not the first */
    assert_string_equal(on_mount(t, 77, 41).disks,
                        "sda"); /* a subvolume, numbered unlike its mount */
    assert_string_equal(on_mount(t, 50, 0).disks, "sda,sdb");
    assert_string_equal(on_mount(t, 51, 0).disks, "");
    assert_string_equal(on_mount(t, 60, 0).disks, "ZFS pool tank");
    assert_string_equal(on_mount(t, 61, 0).disks, "ZFS pool tank");
    assert_string_equal(on_mount(t, 70, 0).disks, "");
}

/* In a chroot whose root is no mount of its own the kernel shows none of what it is on. */
static bool is_mounted_here(dev_t device)
{
    char line[4096], number[32];
    bool found = false;
    FILE *file = fopen("/proc/self/mountinfo", "re");
    assert_non_null(file);
    snprintf(number, sizeof number, " %u:%u ", major(device), minor(device));
    while (!found && fgets(line, sizeof line, file))
        found = strstr(line, number) != NULL;
    fclose(file);
    return found;
}

static void test_a_real_directory_is_on_something(void **state)
{
    const struct tree *t = *state;
    struct hst_drive d = {.node = 77};
    struct stat st;
    assert_int_equal(hst_drive_of("/dev/null", &d), -ENOTDIR);
    assert_int_equal(hst_drive_of("/nowhere/at/all", &d), -ENOENT);
    assert_int_equal(d.node, 77); /* untouched */
    assert_int_equal(hst_drive_of(t->root, &d), 0);
    assert_int_equal(stat(t->root, &st), 0);
    assert_true(d.device_major == major(st.st_dev) && d.device_minor == minor(st.st_dev));
    assert_true(d.size_bytes > 0 && d.free_bytes <= d.size_bytes);
    assert_int_equal(*d.file_system != '\0', is_mounted_here(st.st_dev));
    assert_int_equal(*d.mount != '\0', is_mounted_here(st.st_dev));
    assert_true(d.node >= -1);
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
        cmocka_unit_test_setup_teardown(test_what_is_stacked_leads_down_to_its_disks, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_devices_that_stand_on_themselves_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_loop_device_leads_to_the_disk_of_its_file, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_file_systems_with_numbers_of_their_own_lead_to_disks_too, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_real_directory_is_on_something, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
