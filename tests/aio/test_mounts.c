/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File systems that a development machine seldom has: a full one, one in RAM, one without O_DIRECT
 * and fallocate, one that holds its writes back. Mounted in a mount namespace of a child, which
 * needs root; skips where that is refused.
 */
#include "hoistway/aio.h"

#include "kernel.h"
#include "sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

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
    const struct hst_aio_config full = {.size = sizeof full, .may_be_full = 1};
    CHECK(hst_aio_open(&full, directory, &aio, &info) == 0); /* for what is there already */
    CHECK(hst_aio_file_open(aio, path, 0, 12 * MIB, &file) == 0);
    hst_aio_file_close(&file);
    CHECK(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, 0, &file) == -EINVAL);
    CHECK(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, 8 * MIB, &file) == -ENOSPC);
    hst_aio_close(&aio);
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
        if (backend == HST_AIO_URING && !kernel_has_uring())
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

/* ---- ghosts: a file system that is frozen holds writes back until it is thawed ---- */

enum { FREEZE = _IOWR('X', 119, int), THAW = _IOWR('X', 120, int), BLOCKS = 8 };

static char disk[64], ghost[96]; /* where it is mounted, and the file on it */

static void run_program(const char *name, const char *argument)
{
    char *const arguments[] = {(char *)(uintptr_t)name, (char *)(uintptr_t) "-q",
                               (char *)(uintptr_t) "-F", (char *)(uintptr_t)argument, NULL};
    pid_t pid;
    int status;
    if (posix_spawnp(&pid, name, NULL, NULL, arguments, environ) != 0)
        exit(SKIP);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* An ext4 of its own, on a loop device that goes with it. */
static void mount_image(void)
{
    char image[64], loop[32];
    snprintf(image, sizeof image, "%s/image", directory);
    snprintf(disk, sizeof disk, "%s/disk", directory);
    snprintf(ghost, sizeof ghost, "%s/ghost", disk);
    const int fd = open(image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && unlink(image) == 0 && ftruncate(fd, 64 * MIB) == 0 && mkdir(disk, 0700) == 0);
    const int number = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);
    snprintf(loop, sizeof loop, "/dev/loop%d", number);
    const int device = number < 0 ? -1 : open(loop, O_RDWR | O_CLOEXEC);
    const struct loop_config config = {.fd = (unsigned)fd, .info.lo_flags = LO_FLAGS_AUTOCLEAR};
    if (device < 0 || ioctl(device, LOOP_CONFIGURE, &config) < 0)
        exit(SKIP);
    run_program("mkfs.ext4", loop);
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount(loop, disk, "ext4", 0, NULL) < 0)
        exit(SKIP);
    close(device);
    close(control);
    close(fd);
}

/* Writes the file full of 1, says so, and when it is told to, of 2; then stays. */
static void write_twice(enum hst_aio_backend backend, int ready, int go)
{
    struct hst_aio *aio = NULL;
    struct hst_aio_file *file = NULL;
    struct hst_aio_completion done[BLOCKS];
    void *memory;
    char byte = 'x';
    const struct hst_aio_config config = {.size = sizeof config, .backend = backend};
    CHECK(hst_aio_open(&config, disk, &aio, NULL) == 0);
    CHECK(hst_aio_buffer_alloc(BLOCKS * MIB, &memory) == 0);
    CHECK(hst_aio_file_open(aio, ghost, 0, BLOCKS * MIB, &file) == 0);
    for (int value = 1; value <= 2; value++) {
        memset(memory, value, BLOCKS * MIB);
        const struct hst_aio_op op = {
            .kind = HST_AIO_WRITE, .file = file, .buffer = memory, .bytes = BLOCKS * MIB};
        CHECK(hst_aio_submit(aio, &op, 1) == 1); /* the second time perhaps here for ever */
        CHECK(hst_aio_reap(aio, done, 1, 1, UINT64_MAX) == 1 && done[0].error == 0);
        CHECK(value == 2 || (write(ready, &byte, 1) == 1 && read(go, &byte, 1) == 1));
    }
    pause();
}

/* True where a thread of the process sleeps in the kernel, in a way that no signal ends. */
static bool has_stuck_thread(pid_t process)
{
    char path[64], text[512];
    bool stuck = false;
    snprintf(path, sizeof path, "/proc/%d/task", (int)process);
    DIR *tasks = opendir(path);
    CHECK(tasks != NULL);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char file[sizeof path + sizeof task->d_name + 8];
        snprintf(file, sizeof file, "%s/%s/stat", path, task->d_name);
        const int fd = open(file, O_RDONLY | O_CLOEXEC);
        const ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
        if (fd >= 0)
            close(fd);
        text[length > 0 ? length : 0] = '\0';
        const char *state = strrchr(text, ')');
        stuck |= state && strncmp(state, ") D", 3) == 0;
    }
    closedir(tasks);
    return stuck;
}

/* Thaws when this process ends, however it ends: a frozen disk keeps its processes for ever. */
static void guard(int frozen)
{
    int alive[2];
    char byte;
    CHECK(pipe(alive) == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(alive[1]);
        CHECK(read(alive[0], &byte, 1) == 0);
        ioctl(frozen, THAW, 0);
        _exit(0);
    }
    close(alive[0]);
}

static void read_all(struct hst_aio *aio, struct hst_aio_file *file, void *memory)
{
    struct hst_aio_completion done;
    const struct hst_aio_op op = {
        .kind = HST_AIO_READ, .file = file, .buffer = memory, .bytes = BLOCKS * MIB};
    CHECK(hst_aio_submit(aio, &op, 1) == 1);
    CHECK(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX) == 1 && done.error == 0);
}

static void after_a_kill_by(enum hst_aio_backend backend)
{
    int ready[2], go[2], status;
    char byte = 'x';
    struct hst_aio *aio = NULL;
    struct hst_aio_file *file = NULL;
    void *before, *after;
    mount_image();
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    const int made = open(ghost, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(made >= 0 && close(made) == 0);
    const pid_t writer = fork();
    if (writer == 0)
        write_twice(backend, ready[1], go[0]);
    close(ready[1]);
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(hst_aio_buffer_alloc(BLOCKS * MIB, &before) == 0);
    CHECK(hst_aio_buffer_alloc(BLOCKS * MIB, &after) == 0);
    const struct hst_aio_config hasty = {.size = sizeof hasty, .lock_timeout_ms = 50},
                                patient = {.size = sizeof patient}; /* 30 s */
    CHECK(hst_aio_open(&hasty, directory, &aio, NULL) == 0);

    const int frozen = open(disk, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(frozen >= 0);
    guard(frozen);
    CHECK(ioctl(frozen, FREEZE, 0) == 0);
    CHECK(write(go[1], &byte, 1) == 1);
    while (!has_stuck_thread(writer)) /* until a write is under way */
        sched_yield();
    CHECK(kill(writer, SIGKILL) == 0);
    CHECK(hst_aio_file_open(aio, ghost, HST_AIO_READONLY, 0, &file) == -EBUSY);
    hst_aio_close(&aio);

    CHECK(hst_aio_open(&patient, directory, &aio, NULL) == 0);
    CHECK(ioctl(frozen, THAW, 0) == 0);
    CHECK(hst_aio_file_open(aio, ghost, HST_AIO_READONLY, 0, &file) == 0);
    read_all(aio, file, before);
    CHECK(waitpid(writer, &status, 0) == writer && WIFSIGNALED(status));
    read_all(aio, file, after);
    CHECK(memcmp(before, after, BLOCKS * MIB) == 0);
    CHECK(memchr(after, 2, BLOCKS * MIB) != NULL); /* it did write after it was killed */
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
    close(frozen);
}

static void after_a_kill_of_uring(void)
{
    after_a_kill_by(HST_AIO_URING);
}

static void after_a_kill_of_threads(void)
{
    after_a_kill_by(HST_AIO_THREADS);
}

static void u20_a_killed_writer_keeps_its_file_until_it_has_written(void **state)
{
    (void)state;
    void (*const bodies[])(void) = {after_a_kill_of_threads, after_a_kill_of_uring};
    for (size_t i = 0; i < (kernel_has_uring() ? 2 : 1); i++) {
        alarm(40);
        const int status = in_child(bodies[i]);
        alarm(0);
        snprintf(disk, sizeof disk, "%s/disk", directory);
        rmdir(disk); /* the mount went with its name space */
        if (status == SKIP)
            skip(); /* no loop device, no mkfs.ext4 */
        assert_int_equal(status, 0);
    }
}

/* ---- what a context has held, its file system does not hold for it ---- */

/* Files that are open when the context is closed, and one that was closed before. */
static void unmounts_after(enum hst_aio_backend backend)
{
    mount_image();
    for (int round = 0; round < 3; round++) {
        struct hst_aio *aio = NULL;
        struct hst_aio_file *file = NULL, *scratch = NULL, *before = NULL;
        struct hst_aio_completion done;
        void *memory;
        const struct hst_aio_config config = {.size = sizeof config, .backend = backend};
        CHECK(hst_aio_open(&config, disk, &aio, NULL) == 0);
        CHECK(hst_aio_buffer_alloc(BLOCKS * MIB, &memory) == 0);
        CHECK(hst_aio_file_open(aio, disk, HST_AIO_SCRATCH, MIB, &before) == 0);
        CHECK(hst_aio_file_open(aio, ghost, round ? 0 : HST_AIO_CREATE, BLOCKS * MIB, &file) == 0);
        CHECK(hst_aio_file_open(aio, disk, HST_AIO_SCRATCH, MIB, &scratch) == 0);
        hst_aio_file_close(&before);
        memset(memory, 1, BLOCKS * MIB);
        const struct hst_aio_op op = {
            .kind = HST_AIO_WRITE, .file = file, .buffer = memory, .bytes = BLOCKS * MIB};
        CHECK(hst_aio_submit(aio, &op, 1) == 1);
        CHECK(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX) == 1 && done.error == 0);
        hst_aio_close(&aio);
        hst_aio_file_close(&scratch);
        hst_aio_file_close(&file);
        hst_aio_buffer_free(memory, BLOCKS * MIB);
        /* refused as long as anything holds a file that is open for writing */
        CHECK(mount(NULL, disk, NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0);
        CHECK(mount(NULL, disk, NULL, MS_REMOUNT, NULL) == 0);
    }
    CHECK(umount(disk) == 0);
}

static void unmounts_after_uring(void)
{
    unmounts_after(HST_AIO_URING);
}

static void unmounts_after_threads(void)
{
    unmounts_after(HST_AIO_THREADS);
}

static void a_file_system_can_be_unmounted_once_its_context_is_closed(void **state)
{
    (void)state;
    void (*const bodies[])(void) = {unmounts_after_threads, unmounts_after_uring};
    for (size_t i = 0; i < (kernel_has_uring() ? 2 : 1); i++) {
        const int status = in_child(bodies[i]);
        snprintf(disk, sizeof disk, "%s/disk", directory);
        rmdir(disk);
        if (status == SKIP)
            skip(); /* no loop device, no mkfs.ext4 */
        assert_int_equal(status, 0);
    }
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
        cmocka_unit_test(u20_a_killed_writer_keeps_its_file_until_it_has_written),
        cmocka_unit_test(a_file_system_can_be_unmounted_once_its_context_is_closed),
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
