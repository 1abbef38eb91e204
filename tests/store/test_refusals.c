/* SPDX-License-Identifier: Apache-2.0 */
/* What is no store of this user, this run and this version is refused, and left as it was. */
#include "store/files.h"
#include "store/format.h"
#include "toy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

#include "real.h" /* uses what cmocka.h declares */

#define D0     "r00000.d0.blk"
#define D1     "r00000.d1.blk"
#define D0_NEW D0 ".new"
#define D1_NEW D1 ".new"

/* ---- files ---- */

static const char *at(const struct toy *toy, uint32_t drive, const char *name)
{
    static char paths[4][400];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", toy->directories[drive], name);
    return path;
}

static uint64_t file_bytes(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_size;
}

static void file_read(const char *path, uint64_t offset, void *bytes, size_t count)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, bytes, count, (off_t)offset), count);
    close(fd);
}

static void file_write(const char *path, uint64_t offset, const void *bytes, size_t count)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, count, (off_t)offset), count);
    close(fd);
}

static void file_copy(const char *from, const char *to)
{
    const uint64_t count = file_bytes(from);
    void *bytes = malloc(count);
    assert_non_null(bytes);
    file_read(from, 0, bytes, count);
    file_write(to, 0, bytes, count);
    free(bytes);
}

/* Names and bytes of everything in the directories. */
static uint64_t digest(const struct toy *toy)
{
    uint64_t sum = 0;
    for (uint32_t d = 0; d < toy->config.drive_count; d++) {
        DIR *names = opendir(toy->directories[d]);
        assert_non_null(names);
        for (const struct dirent *entry; (entry = readdir(names)) != NULL;) {
            struct stat st;
            const char *path = at(toy, d, entry->d_name);
            assert_int_equal(lstat(path, &st), 0);
            sum += XXH3_64bits(path, strlen(path)) + st.st_mode;
            if (!S_ISREG(st.st_mode))
                continue;
            void *bytes = malloc((size_t)st.st_size + 1);
            assert_non_null(bytes);
            file_read(path, 0, bytes, (size_t)st.st_size);
            sum += XXH3_64bits(bytes, (size_t)st.st_size);
            free(bytes);
        }
        closedir(names);
    }
    return sum;
}

/* ---- refusals ---- */

static void assert_refused(struct toy *toy, bool creating, int native, int code)
{
    struct store *store = NULL;
    struct store_found found;
    struct hst_error error = {0};
    const uint64_t before = digest(toy);
    int rc = creating ? store_create(&toy->config, &store, &error)
                      : store_open(&toy->config, &store, &found, &error);
    if (rc != native || error.code != code)
        print_message("%d, E%d: %s\n", rc, error.code, error.message);
    assert_int_equal(rc, native);
    assert_int_equal(error.native, native);
    assert_int_equal(error.code, code);
    assert_non_null(strstr(error.message, "Fix: "));
    assert_null(store);
    assert_true(digest(toy) == before);
}

static void assert_open_refused(struct toy *toy, int native, int code)
{
    assert_refused(toy, false, native, code);
}

/* With a store of version 0. */
static void with_store(struct toy *toy)
{
    open_toy(toy, 2);
    struct store *store = create(toy);
    assert_int_equal(toy_commit_all(toy, store, 0), 0);
    store_close(&store);
}

static void assert_opens(struct toy *toy)
{
    struct store_found found;
    struct store *store = reopen(toy, &found);
    assert_null(toy_compare(toy, store, 0));
    store_close(&store);
}

static void a_store_that_is_open_is_not_opened_again(void **state)
{
    (void)state;
    struct toy toy;
    struct store_found found;
    with_store(&toy);
    struct store *store = reopen(&toy, &found);
    struct hst_aio *mine[TOY_DRIVES];
    for (uint32_t d = 0; d < TOY_DRIVES; d++) {
        mine[d] = toy.drives[d].aio;
        toy.drives[d].aio = new_aio(toy.directories[d], HST_AIO_THREADS);
    }
    assert_open_refused(&toy, -EBUSY, HST_E_STORE_BUSY);
    assert_refused(&toy, true, -EEXIST, HST_E_STORE_TAKEN);
    for (uint32_t d = 0; d < TOY_DRIVES; d++) {
        hst_aio_close(&toy.drives[d].aio);
        toy.drives[d].aio = mine[d];
    }
    store_close(&store);
    assert_opens(&toy);
    toy_close(&toy);
}

static void what_others_could_change_is_refused(void **state)
{
    (void)state;
    struct toy toy;
    with_store(&toy);
    static const mode_t MODES[] = {0640, 0604, 0620, 0666};
    for (int i = 0; i < 4; i++) {
        chmod(at(&toy, 1, D1), MODES[i]);
        assert_open_refused(&toy, -EPERM, HST_E_STORE_ACCESS);
    }
    chmod(at(&toy, 1, D1), 0600);
    chmod(toy.directories[1], 0710);
    assert_open_refused(&toy, -EPERM, HST_E_STORE_ACCESS);
    assert_refused(&toy, true, -EPERM, HST_E_STORE_ACCESS);
    chmod(toy.directories[1], 0700);
    assert_int_equal(link(at(&toy, 0, D0), at(&toy, 0, "second")), 0);
    assert_open_refused(&toy, -EPERM, HST_E_STORE_ACCESS);
    unlink(at(&toy, 0, "second"));
    if (geteuid() == 0) { /* only root can give a file away */
        assert_int_equal(chown(at(&toy, 0, D0), 12345, (gid_t)-1), 0);
        assert_open_refused(&toy, -EPERM, HST_E_STORE_ACCESS);
        assert_int_equal(chown(at(&toy, 0, D0), 0, (gid_t)-1), 0);
    }
    assert_opens(&toy);
    toy_close(&toy);
}

/* 0755 as mkdir makes it, or with others in it: it is its owner's alone before a file is in it. */
static void an_empty_directory_of_ones_own_is_taken(void **state)
{
    (void)state;
    static const mode_t MODES[] = {0755, 0777, 0701, 0700};
    for (int i = 0; i < 4; i++) {
        struct toy toy;
        struct stat st;
        open_toy(&toy, 2);
        for (uint32_t d = 0; d < TOY_DRIVES; d++)
            assert_int_equal(chmod(toy.directories[d], MODES[i]), 0);
        assert_int_equal(mkdir(at(&toy, 1, "lost+found"), 0700), 0);
        assert_open_refused(&toy, -ENOENT, HST_E_STORE_EMPTY); /* and is left as it is */
        struct store *store = create(&toy);
        for (uint32_t d = 0; d < TOY_DRIVES; d++) {
            assert_int_equal(stat(toy.directories[d], &st), 0);
            assert_int_equal(st.st_mode & 07777, 0700);
        }
        assert_int_equal(toy_commit_all(&toy, store, 0), 0);
        store_close(&store);
        assert_opens(&toy);
        rmdir(at(&toy, 1, "lost+found"));
        toy_close(&toy);
    }
}

static void a_directory_that_is_not_empty_or_not_ones_own_is_left(void **state)
{
    (void)state;
    struct toy toy;
    open_toy(&toy, 2);
    file_write(at(&toy, 1, "notes"), 0, "mine", 4);
    assert_int_equal(chmod(toy.directories[1], 0755), 0);
    /* whose directory it is comes first: no store's is to be made its owner's alone */
    assert_refused(&toy, true, -EEXIST, HST_E_STORE_TAKEN);
    assert_open_refused(&toy, -EEXIST, HST_E_STORE_TAKEN);
    file_write(at(&toy, 1, D1), 0, "", 0);
    assert_refused(&toy, true, -EPERM, HST_E_STORE_ACCESS);
    assert_open_refused(&toy, -EPERM, HST_E_STORE_ACCESS);
    unlink(at(&toy, 1, D1));
    unlink(at(&toy, 1, "notes"));
    if (geteuid() == 0) {
        assert_int_equal(chown(toy.directories[1], 12345, (gid_t)-1), 0);
        assert_refused(&toy, true, -EPERM, HST_E_STORE_ACCESS);
        assert_int_equal(chown(toy.directories[1], 0, (gid_t)-1), 0);
    }
    toy_close(&toy);
}

static void links_and_other_things_are_no_files(void **state)
{
    (void)state;
    struct toy toy;
    with_store(&toy);
    rename(at(&toy, 0, D0), at(&toy, 0, "real"));
    assert_int_equal(symlink("real", at(&toy, 0, D0)), 0);
    assert_open_refused(&toy, -ELOOP, HST_E_STORE_ACCESS);
    unlink(at(&toy, 0, D0));
    assert_int_equal(mkfifo(at(&toy, 0, D0), 0600), 0);
    assert_open_refused(&toy, -EPERM, HST_E_STORE_ACCESS);
    unlink(at(&toy, 0, D0));
    assert_int_equal(mkdir(at(&toy, 0, D0), 0700), 0);
    assert_open_refused(&toy, -EPERM, HST_E_STORE_ACCESS);
    rmdir(at(&toy, 0, D0));
    rename(at(&toy, 0, "real"), at(&toy, 0, D0));
    char link_path[128];
    snprintf(link_path, sizeof link_path, "%s/link", toy.root);
    assert_int_equal(symlink(toy.directories[0], link_path), 0);
    toy.drives[0].directory = link_path;
    static const char *const BEHIND[] = {"", "/", "//", "/.", "/.//./"}; /* a link all the same */
    for (int i = 0; i < 5; i++) {
        snprintf(link_path, sizeof link_path, "%s/link%s", toy.root, BEHIND[i]);
        assert_open_refused(&toy, -ENOTDIR, HST_E_STORE_ACCESS);
    }
    snprintf(link_path, sizeof link_path, "%s/./", toy.directories[0]);
    assert_opens(&toy);
    snprintf(link_path, sizeof link_path, "%s/link", toy.root);
    unlink(link_path);
    assert_open_refused(&toy, -ENOENT, HST_E_STORE_DIR);
    toy.drives[0].directory = toy.directories[0];
    assert_opens(&toy);
    toy_close(&toy);
}

static void files_that_do_not_belong_together_are_refused(void **state)
{
    (void)state;
    struct toy toy, other;
    with_store(&toy);
    with_store(&other);
    rename(at(&toy, 1, D1), at(&toy, 1, "kept"));
    assert_open_refused(&toy, -EINVAL, HST_E_STORE_MIXED); /* missing */
    file_copy(at(&other, 1, D1), at(&toy, 1, D1));
    assert_open_refused(&toy, -EINVAL, HST_E_STORE_MIXED); /* another store's */
    unlink(at(&toy, 1, D1));
    file_copy(at(&toy, 0, D0), at(&toy, 1, D1));
    assert_open_refused(&toy, -EINVAL, HST_E_STORE_MIXED); /* drive 0's twice */
    unlink(at(&toy, 1, D1));
    rename(at(&toy, 1, "kept"), at(&toy, 1, D1));
    const uint64_t bytes = file_bytes(at(&toy, 1, D1));
    assert_int_equal(truncate(at(&toy, 1, D1), (off_t)bytes - 4096), 0);
    assert_open_refused(&toy, -ENODATA, HST_E_STORE_MIXED); /* cut */
    assert_int_equal(truncate(at(&toy, 1, D1), 100), 0);
    assert_open_refused(&toy, -EBADMSG, HST_E_STORE_FORMAT);
    toy.config.drive_count = 1;
    assert_open_refused(&toy, -EINVAL, HST_E_STORE_MIXED); /* one of two */
    toy_close(&other);
    toy.config.drive_count = 2;
    toy_close(&toy);
}

static void other_ranks_worlds_and_models_are_refused(void **state)
{
    (void)state;
    struct toy toy;
    with_store(&toy);
    toy.layout.share.world = 2;
    assert_open_refused(&toy, -EINVAL, HST_E_STORE_MIXED);
    toy.layout.share.rank = 1;
    assert_open_refused(&toy, -ENOENT, HST_E_STORE_EMPTY);
    rename(at(&toy, 0, D0), at(&toy, 0, "r00001.d0.blk"));
    assert_open_refused(&toy, -EINVAL, HST_E_STORE_MIXED);
    rename(at(&toy, 0, "r00001.d0.blk"), at(&toy, 0, D0));
    toy.layout.share = SHARE_ALL;
    toy.config.derived_weights = true;
    assert_open_refused(&toy, -EINVAL, HST_E_STORE_OTHER);
    toy.config.derived_weights = false;
    const struct optimizer *own = toy.placement.optimizer;
    struct optimizer narrow = *own;
    narrow.host.weights = HST_CPU_BF16;
    toy.placement.optimizer = &narrow;
    assert_open_refused(&toy, -EINVAL, HST_E_STORE_OTHER);
    toy.placement.optimizer = own;
    toy.layout.tile_count--;
    assert_open_refused(&toy, -EINVAL, HST_E_STORE_OTHER);
    toy.layout.tile_count++;
    assert_opens(&toy);
    toy_close(&toy);
}

static void swapped_directories_are_neither_opened_nor_overwritten(void **state)
{
    (void)state;
    struct toy toy;
    with_store(&toy);
    const struct scratch_drive first = toy.drives[0];
    toy.drives[0] = toy.drives[1];
    toy.drives[1] = first;
    assert_open_refused(&toy, -EINVAL, HST_E_STORE_MIXED);
    assert_refused(&toy, true, -EEXIST, HST_E_STORE_TAKEN);
    toy.config.drive_count = 1; /* and the second directory alone */
    assert_open_refused(&toy, -EINVAL, HST_E_STORE_MIXED);
    assert_refused(&toy, true, -EEXIST, HST_E_STORE_TAKEN);
    toy.config.drive_count = 2;
    toy_close(&toy);
}

/* Changes both copies of a header, checksums made anew. */
static void change_header(const char *path, uint32_t field_at, uint32_t value)
{
    const uint64_t ats[2] = {0, file_bytes(path) - STORE_PAGE_BYTES};
    for (unsigned copy = 0; copy < 2; copy++) {
        unsigned char page[STORE_PAGE_BYTES];
        file_read(path, ats[copy], page, sizeof page);
        memcpy(page + field_at, &value, sizeof value);
        memset(page + 16, 0, 16);
        const XXH128_hash_t hash = XXH3_128bits_withSeed(page, sizeof page, copy);
        memcpy(page + 16, &hash.low64, 8);
        memcpy(page + 24, &hash.high64, 8);
        file_write(path, ats[copy], page, sizeof page);
    }
}

static void other_formats_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint32_t field_at, value, was;
        int native;
    } ROWS[] = {
        {12, STORE_MAJOR + 1, STORE_MAJOR, -ENOTSUP}, /* version */
        {8, 0x04030201, 0x01020304, -ENOTSUP},        /* byte order */
        {64, 8, 0, -ENOTSUP},                         /* a feature */
        {0, 0, 0x53545348, -EINVAL},                  /* magic: "HSTS" */
        {104, 1, 0, -EINVAL},                         /* a zone */
    };
    struct toy toy;
    with_store(&toy);
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        change_header(at(&toy, 1, D1), ROWS[i].field_at, ROWS[i].value);
        assert_open_refused(&toy, ROWS[i].native, HST_E_STORE_FORMAT);
        change_header(at(&toy, 1, D1), ROWS[i].field_at, ROWS[i].was);
    }
    assert_opens(&toy);
    toy_close(&toy);
}

static void one_damaged_copy_of_metadata_is_repaired(void **state)
{
    (void)state;
    struct toy toy;
    struct store_found found;
    unsigned char page[STORE_PAGE_BYTES], noise[STORE_PAGE_BYTES], again[STORE_PAGE_BYTES];
    memset(noise, 0xee, sizeof noise);
    with_store(&toy);
    for (unsigned copy = 0; copy < 2; copy++) {
        const char *path = at(&toy, 1, D1);
        const uint64_t header_at = copy ? file_bytes(path) - STORE_PAGE_BYTES : 0;
        file_read(path, header_at, page, sizeof page);
        file_write(path, header_at, noise, sizeof noise);
        struct store *store = reopen(&toy, &found);
        assert_int_equal(found.repaired, 1);
        store_close(&store);
        file_read(at(&toy, 1, D1), header_at, again, sizeof again);
        assert_memory_equal(again, page, sizeof page);
    }
    struct store_header header;
    file_read(at(&toy, 0, D0), 0, page, sizeof page);
    assert_int_equal(store_header_decode(page, 0, &header).error, 0);
    const uint64_t manifest_at = store_manifest_at(&header, 0, 0); /* of version 0 */
    file_read(at(&toy, 0, D0), manifest_at, page, sizeof page);
    file_write(at(&toy, 0, D0), manifest_at, noise, sizeof noise);
    struct store *store = reopen(&toy, &found);
    assert_int_equal(found.repaired, 1);
    assert_null(toy_compare(&toy, store, 0));
    store_close(&store);
    file_read(at(&toy, 0, D0), manifest_at, again, sizeof again);
    assert_memory_equal(again, page, sizeof page);
    for (unsigned slot = 0; slot < 2; slot++) /* all superblocks */
        for (unsigned copy = 0; copy < 2; copy++)
            file_write(at(&toy, 0, D0), store_superblock_at(&header, slot, copy), noise,
                       sizeof noise);
    assert_open_refused(&toy, -EBADMSG, HST_E_STORE_DAMAGED);
    toy_close(&toy);
}

/* ---- creation ---- */

static void a_directory_with_anything_else_is_not_taken(void **state)
{
    (void)state;
    static const char *const NAMES[] = {
        "model.safetensors",     ".hidden",  "r0.d0.blk", "r00000.d0.blk.old",
        "r00000.d0.blk.new.new", "x.blk.new"};
    struct toy toy;
    open_toy(&toy, 2);
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        file_write(at(&toy, 1, NAMES[i]), 0, "", 0);
        assert_refused(&toy, true, -EEXIST, HST_E_STORE_TAKEN);
        unlink(at(&toy, 1, NAMES[i]));
    }
    file_write(at(&toy, 0, D0_NEW), 0, "someone's", 9); /* our name, not our bytes */
    assert_refused(&toy, true, -EEXIST, HST_E_STORE_TAKEN);
    unlink(at(&toy, 0, D0_NEW));
    assert_int_equal(mkdir(at(&toy, 0, "lost+found"), 0700), 0); /* the root of a file system */
    file_write(at(&toy, 0, "r00007.d0.blk"), 0, "rank 7", 6);
    struct store *store = create(&toy);
    assert_int_equal(toy_commit_all(&toy, store, 0), 0);
    store_close(&store);
    assert_int_equal(file_bytes(at(&toy, 0, "r00007.d0.blk")), 6);
    rmdir(at(&toy, 0, "lost+found"));
    toy_close(&toy);
}

static void a_store_that_was_never_committed_is_none(void **state)
{
    (void)state;
    struct toy toy;
    struct transfer transfer;
    open_toy(&toy, 2);
    assert_open_refused(&toy, -ENOENT, HST_E_STORE_EMPTY);
    struct store *store = create(&toy);
    assert_int_equal(file_bytes(at(&toy, 0, D0_NEW)) % 4096, 0);
    assert_open_refused(&toy, -ENOENT, HST_E_STORE_EMPTY);
    assert_int_equal(toy_write(&toy, store, 0, 0, &transfer), 0);
    store_close(&store);
    assert_int_equal(access(at(&toy, 0, D0_NEW), F_OK), -1); /* nothing remains */
    assert_int_equal(access(at(&toy, 1, D1_NEW), F_OK), -1);
    toy_close(&toy);
}

static void creation_takes_up_what_a_killed_one_left(void **state)
{
    (void)state;
    struct toy toy;
    static const unsigned char ZEROS[3 * STORE_PAGE_BYTES];
    with_store(&toy);
    for (int left = 0; left < 4; left++) {
        if (left < 3)
            rename(at(&toy, 0, D0), at(&toy, 0, D0_NEW));
        if (left == 0) /* before any name was given */
            rename(at(&toy, 1, D1), at(&toy, 1, D1_NEW));
        if (left == 1) /* between the two names: nothing to do */
            assert_int_equal(access(at(&toy, 1, D1), F_OK), 0);
        if (left == 2) { /* nothing had reached the drives */
            file_write(at(&toy, 0, D0_NEW), 0, ZEROS, sizeof ZEROS);
            rename(at(&toy, 1, D1), at(&toy, 1, D1_NEW));
            assert_int_equal(truncate(at(&toy, 1, D1_NEW), 0), 0);
        }
        if (left == 3) { /* one in use */
            rename(at(&toy, 0, D0), at(&toy, 0, D0_NEW));
            rename(at(&toy, 1, D1), at(&toy, 1, D1_NEW));
            const int fd = open(at(&toy, 0, D0_NEW), O_RDWR | O_CLOEXEC);
            assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
            struct store *store;
            struct hst_error error;
            assert_int_equal(store_create(&toy.config, &store, &error), -EBUSY);
            assert_int_equal(error.code, HST_E_STORE_BUSY);
            assert_int_equal(access(at(&toy, 0, D0_NEW), F_OK), 0);
            close(fd);
        }
        if (left != 3)
            assert_open_refused(&toy, -ENOENT, HST_E_STORE_EMPTY);
        struct store *store = create(&toy);
        assert_int_equal(toy_commit_all(&toy, store, 0), 0);
        store_close(&store);
        assert_opens(&toy);
    }
    toy_close(&toy);
}

static void a_message_with_a_long_path_keeps_its_fix(void **state)
{
    (void)state;
    struct store_directory directory;
    struct hst_error error = {0};
    char path[2048] = "/tmp/";
    while (strlen(path) + 40 < sizeof path)
        strcat(path, "a-name-of-a-directory-that-is-not-there/");
    assert_int_not_equal(store_directory_open(path, &directory, &error), 0);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
    assert_int_equal(strncmp(error.message, "store directory /tmp/a-name", 27), 0);
    const char *fix = strstr(error.message, "... Fix: ");
    assert_non_null(fix);
    assert_true(strlen(fix) > strlen("... Fix: ") + 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_that_is_open_is_not_opened_again),
        cmocka_unit_test(what_others_could_change_is_refused),
        cmocka_unit_test(an_empty_directory_of_ones_own_is_taken),
        cmocka_unit_test(a_directory_that_is_not_empty_or_not_ones_own_is_left),
        cmocka_unit_test(links_and_other_things_are_no_files),
        cmocka_unit_test(files_that_do_not_belong_together_are_refused),
        cmocka_unit_test(other_ranks_worlds_and_models_are_refused),
        cmocka_unit_test(swapped_directories_are_neither_opened_nor_overwritten),
        cmocka_unit_test(other_formats_are_refused),
        cmocka_unit_test(one_damaged_copy_of_metadata_is_repaired),
        cmocka_unit_test(a_directory_with_anything_else_is_not_taken),
        cmocka_unit_test(a_store_that_was_never_committed_is_none),
        cmocka_unit_test(creation_takes_up_what_a_killed_one_left),
        cmocka_unit_test(a_message_with_a_long_path_keeps_its_fix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
