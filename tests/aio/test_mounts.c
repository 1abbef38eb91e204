/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File systems that a development machine seldom has: a full one, one in RAM, one without O_DIRECT
 * and fallocate. Mounted in a mount namespace of a child, which needs root; skips where that is
 * refused.
 */
#include "hoistway/aio.h"

#include "sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cmocka.h> /* needs the ones before */

enum { MIB = 1 << 20 };

static char directory[] = "aio-mounts-XXXXXX";

static void mount_here(const char *type, const char *options)
{
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount(type, directory, type, 0, options) < 0)
        exit(SKIP);
}

static int count_files(void)
{
    int count = -2;
    DIR *dir = opendir(directory);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void on_a_small_disk(void)
{
    struct hst_aio *aio = NULL;
    struct hst_aio_info info;
    struct hst_aio_file *file = NULL;
    struct stat st;
    char path[64];
    snprintf(path, sizeof path, "%s/big", directory);
    mount_here("tmpfs", "size=16m");
    CHECK(hst_aio_open(NULL, directory, &aio, &info) == 0);
    CHECK(info.in_memory);
    CHECK(hst_aio_file_open(aio, path, HST_AIO_CREATE, 32 * MIB, &file) == -ENOSPC);
    CHECK(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, 32 * MIB, &file) == -ENOSPC);
    CHECK(count_files() == 0);
    CHECK(hst_aio_file_open(aio, path, HST_AIO_CREATE, 12 * MIB, &file) == 0);
    hst_aio_file_close(&file);
    CHECK(hst_aio_file_open(aio, path, 0, 32 * MIB, &file) == -ENOSPC);
    CHECK(hst_aio_file_open(aio, path, HST_AIO_READONLY, 0, &file) == 0);
    CHECK(hst_aio_file_size(file) == 12 * MIB); /* not extended */
    hst_aio_file_close(&file);
    refuse_always(__NR_fallocate,
                  EOPNOTSUPP); /* which undoes what it did; writing zeros does not */
    CHECK(hst_aio_file_open(aio, path, 0, 32 * MIB, &file) == -ENOSPC);
    CHECK(stat(path, &st) == 0 && st.st_size == 12 * MIB);
    hst_aio_close(&aio);
    CHECK(hst_aio_open(NULL, directory, &aio, &info) == -ENOSPC); /* no room for the probe */
}

static void u11_a_full_disk_is_found_at_the_open_and_nothing_is_left_behind(void **state)
{
    (void)state;
    assert_int_equal(in_child(on_a_small_disk), 0);
}

static void on_ramfs(void)
{
    mount_here("ramfs", NULL);
    for (enum hst_aio_backend backend = HST_AIO_AUTO; backend <= HST_AIO_THREADS; backend++) {
        struct hst_aio *aio = NULL;
        struct hst_aio_info info;
        struct hst_aio_file *file = NULL;
        const struct hst_aio_config config = {.size = sizeof config, .backend = backend};
        const int rc = hst_aio_open(&config, directory, &aio, &info);
        if (backend == HST_AIO_URING && (rc == -EPERM || rc == -ENOSYS))
            continue;
        CHECK(rc == 0); /* the probe has written and read back through the page cache */
        CHECK(info.in_memory && !info.direct && info.direct_error == -EINVAL);
        CHECK(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, 3 * MIB, &file) == 0);
        hst_aio_file_close(&file);
        hst_aio_close(&aio);
    }
    CHECK(count_files() == 0);
}

static void a_file_system_without_o_direct_is_used_buffered(void **state)
{
    (void)state;
    assert_int_equal(in_child(on_ramfs), 0);
}

static void on_a_readonly_disk(void)
{
    struct hst_aio *aio = NULL;
    mount_here("tmpfs", "size=16m,ro");
    CHECK(hst_aio_open(NULL, directory, &aio, NULL) == -EROFS);
}

static void a_readonly_directory_is_refused(void **state)
{
    (void)state;
    assert_int_equal(in_child(on_a_readonly_disk), 0);
}

static void try_mount(void)
{
    mount_here("tmpfs", "size=1m");
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(u11_a_full_disk_is_found_at_the_open_and_nothing_is_left_behind),
        cmocka_unit_test(a_file_system_without_o_direct_is_used_buffered),
        cmocka_unit_test(a_readonly_directory_is_refused),
    };
    if (!mkdtemp(directory))
        return 2;
    int failed = SKIP;
    if (in_child(try_mount) == 0)
        failed = cmocka_run_group_tests(cases, NULL, NULL);
    else
        printf("skipped: mounting in a namespace of our own is refused (it needs root)\n");
    if (rmdir(directory) < 0)
        return 1;
    return failed;
}
