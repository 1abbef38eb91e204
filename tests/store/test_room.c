/* SPDX-License-Identifier: Apache-2.0 */
/* Room for scratch: taken when a store is made, kept with it, lengthened or refused when it is
 * opened. Whatever a crash left of it, the store opens. */
#include "store/room.h"
#include "store/store_state.h"
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
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "real.h" /* uses what cmocka.h declares */

#define D0    "r00000.d0.blk"
#define D1    "r00000.d1.blk"
#define ROOM0 "r00000.d0.scratch"
#define ROOM1 "r00000.d1.scratch"
#define MIB   (UINT64_C(1) << 20)

struct roomy {
    struct toy toy;
    struct store_room rooms[TOY_DRIVES];
};

static const char *at(const struct roomy *r, uint32_t drive, const char *name)
{
    static char paths[4][400];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", r->toy.directories[drive], name);
    return path;
}

/* Of a file; -1: it is not there. */
static int64_t size_of(const struct roomy *r, uint32_t drive, const char *name)
{
    struct stat st;
    return lstat(at(r, drive, name), &st) ? -1 : st.st_size;
}

static uint64_t taken_by(const struct roomy *r, uint32_t drive, const char *name)
{
    struct stat st;
    return lstat(at(r, drive, name), &st) ? 0 : (uint64_t)st.st_blocks * 512;
}

static void want(struct roomy *r, uint64_t bytes_0, uint64_t bytes_1)
{
    r->rooms[0].bytes = bytes_0;
    r->rooms[1].bytes = bytes_1;
}

static void open_roomy(struct roomy *r)
{
    *r = (struct roomy){0};
    open_toy(&r->toy, TOY_DRIVES);
    for (uint32_t d = 0; d < TOY_DRIVES; d++)
        r->rooms[d].aio = new_aio(r->toy.directories[d], HST_AIO_THREADS);
    r->toy.config.rooms = r->rooms;
}

static void close_roomy(struct roomy *r)
{
    for (uint32_t d = 0; d < TOY_DRIVES; d++)
        hst_aio_close(&r->rooms[d].aio);
    toy_close(&r->toy);
}

static void close_store(struct roomy *r, struct store *store)
{
    store_rooms_close(r->rooms, TOY_DRIVES);
    store_close(&store);
}

/* A store of version 0, closed. */
static void with_store(struct roomy *r, uint64_t bytes_0, uint64_t bytes_1)
{
    open_roomy(r);
    want(r, bytes_0, bytes_1);
    struct store *store = create(&r->toy);
    assert_int_equal(toy_commit_all(&r->toy, store, 0), 0);
    close_store(r, store);
}

static void assert_opens(struct roomy *r)
{
    struct store_found found;
    struct store *store = reopen(&r->toy, &found);
    assert_null(toy_compare(&r->toy, store, 0));
    for (uint32_t d = 0; d < TOY_DRIVES; d++) {
        assert_int_equal(r->rooms[d].file != NULL, r->rooms[d].bytes > 0);
        if (r->rooms[d].file)
            assert_int_equal(hst_aio_file_size(r->rooms[d].file),
                             STORE_ROOM_AT + r->rooms[d].bytes);
    }
    close_store(r, store);
}

static void put(const struct roomy *r, const char *name, const void *bytes, size_t count)
{
    const int fd = open(at(r, 0, name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, count, 0), count);
    close(fd);
}

static uint64_t sum_of(const struct roomy *r, uint32_t drive, const char *name)
{
    uint64_t sum = 14695981039346656037u;
    const int fd = open(at(r, drive, name), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    unsigned char bytes[4096];
    for (ssize_t n; fd >= 0 && (n = read(fd, bytes, sizeof bytes)) > 0;)
        for (ssize_t i = 0; i < n; i++)
            sum = (sum ^ bytes[i]) * 1099511628211u;
    if (fd >= 0)
        close(fd);
    return sum;
}

static char refusal[512];

/* Refused, and neither the store's files nor what is there of room has changed. */
static void assert_refused(struct roomy *r, bool creating, int native, int code)
{
    struct store *store = NULL;
    struct store_found found;
    struct hst_error error = {0};
    static const char *const NAMES[] = {D0, D1, ROOM0, ROOM1};
    int64_t sizes[4];
    uint64_t sums[4];
    for (int i = 0; i < 4; i++) {
        sizes[i] = size_of(r, i % 2, NAMES[i]);
        sums[i] = sum_of(r, i % 2, NAMES[i]);
    }
    const int rc = creating ? store_create(&r->toy.config, &store, &error)
                            : store_open(&r->toy.config, &store, &found, &error);
    if (rc != native || error.code != code)
        print_message("%d, E%d: %s\n", rc, error.code, error.message);
    assert_int_equal(rc, native);
    assert_int_equal(error.code, code);
    assert_non_null(strstr(error.message, "Fix: "));
    snprintf(refusal, sizeof refusal, "%s", error.message);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(size_of(r, i % 2, NAMES[i]), sizes[i]);
        assert_true(sum_of(r, i % 2, NAMES[i]) == sums[i]);
    }
    for (uint32_t d = 0; d < TOY_DRIVES; d++)
        assert_null(r->rooms[d].file);
}

/* ---- sizes ---- */

static void room_is_taken_with_the_store_and_never_gets_smaller(void **state)
{
    (void)state;
    struct roomy r;
    with_store(&r, MIB, 0);
    assert_int_equal(size_of(&r, 0, ROOM0), STORE_ROOM_AT + MIB);
    assert_true(taken_by(&r, 0, ROOM0) >= STORE_ROOM_AT + MIB); /* no holes */
    assert_int_equal(size_of(&r, 1, ROOM1), -1);
    static const struct {
        uint64_t bytes[2];
        int64_t sizes[2];
    } ROWS[] = {
        {{MIB, 0}, {STORE_ROOM_AT + MIB, -1}},
        {{4096, 0}, {STORE_ROOM_AT + MIB, -1}},
        {{0, 0}, {STORE_ROOM_AT + MIB, -1}},
        {{0, 8192}, {STORE_ROOM_AT + MIB, STORE_ROOM_AT + 8192}},
        {{2 * MIB, MIB}, {STORE_ROOM_AT + 2 * MIB, STORE_ROOM_AT + MIB}},
        {{MIB, MIB}, {STORE_ROOM_AT + 2 * MIB, STORE_ROOM_AT + MIB}},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        want(&r, ROWS[i].bytes[0], ROWS[i].bytes[1]);
        assert_opens(&r);
        assert_int_equal(size_of(&r, 0, ROOM0), ROWS[i].sizes[0]);
        assert_int_equal(size_of(&r, 1, ROOM1), ROWS[i].sizes[1]);
    }
    assert_true(taken_by(&r, 0, ROOM0) >= STORE_ROOM_AT + 2 * MIB);
    close_roomy(&r);
}

static void a_store_of_a_run_that_had_no_room_gets_some(void **state)
{
    (void)state;
    struct roomy r;
    with_store(&r, 0, 0);
    const int64_t before = size_of(&r, 0, D0);
    assert_int_equal(size_of(&r, 0, ROOM0), -1);
    want(&r, MIB, MIB);
    assert_opens(&r);
    assert_int_equal(size_of(&r, 0, ROOM0), STORE_ROOM_AT + MIB);
    assert_int_equal(size_of(&r, 1, ROOM1), STORE_ROOM_AT + MIB);
    assert_int_equal(size_of(&r, 0, D0), before);
    close_roomy(&r);
}

static void the_rates_of_the_last_run_are_kept_with_it(void **state)
{
    (void)state;
    struct roomy r;
    const double first[TOY_DRIVES] = {1.5e9, 0}, then[TOY_DRIVES] = {3, 0.1};
    double found[TOY_DRIVES];
    open_roomy(&r);
    want(&r, MIB, 0);
    r.toy.config.rates = first;
    struct store *store = create(&r.toy);
    assert_int_equal(toy_commit_all(&r.toy, store, 0), 0);
    close_store(&r, store);
    assert_true(store_room_rates(r.toy.directories[0], 0, 0, TOY_DRIVES, found));
    assert_memory_equal(found, first, sizeof found);
    assert_false(store_room_rates(r.toy.directories[1], 0, 1, TOY_DRIVES, found)); /* no room */
    assert_false(store_room_rates(r.toy.directories[0], 0, 0, 1, found)); /* of other drives */
    assert_false(store_room_rates(r.toy.directories[0], 1, 0, TOY_DRIVES, found));
    r.toy.config.rates = then;
    assert_opens(&r);
    assert_true(store_room_rates(r.toy.directories[0], 0, 0, TOY_DRIVES, found));
    assert_memory_equal(found, then, sizeof found);
    put(&r, ROOM0, "HSTROOMX", 8);
    assert_false(store_room_rates(r.toy.directories[0], 0, 0, TOY_DRIVES, found));
    close_roomy(&r);
}

/* ---- crashes ---- */

/* The engine's call: what has the name of room, and how large it is by then. */
static struct {
    const struct roomy *of; /* null: nobody looks */
    int64_t room_bytes;     /* the largest that was synced */
    uint64_t store_sum;     /* of drive 0's file then */
} synced;

int fsync(int fd)
{
    char link[64], path[400] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (synced.of && readlink(link, path, sizeof path - 1) > 0 && strstr(path, ROOM0)) {
        synced.room_bytes = size_of(synced.of, 0, ROOM0);
        synced.store_sum = sum_of(synced.of, 0, D0);
    }
    return (int)syscall(SYS_fsync, fd);
}

static void room_is_on_the_drive_before_anything_is_written(void **state)
{
    (void)state;
    struct roomy r;
    with_store(&r, 0, 0);
    for (uint64_t bytes = MIB; bytes <= 2 * MIB; bytes += MIB) { /* made, then lengthened */
        const uint64_t before = sum_of(&r, 0, D0);
        want(&r, bytes, 0);
        synced.of = &r;
        assert_opens(&r);
        synced.of = NULL;
        assert_int_equal(synced.room_bytes, STORE_ROOM_AT + bytes);
        assert_true(synced.store_sum == before);
        assert_true(sum_of(&r, 0, D0) != before);
    }
    close_roomy(&r);
}

/* Room has reached the drive before the store's first name, or before anything that an open
   writes; until then any part of it may be there. The store's own files are those of a process that
   was killed. */
static void whatever_a_crash_left_of_room_the_store_opens_and_has_it_all(void **state)
{
    (void)state;
    struct roomy r;
    static unsigned char bytes[STORE_ROOM_AT + 2 * MIB];
    static const int64_t SIZES[] = {-1, 0, 100, 512, 4095, 4096, 4097, 8192, MIB, sizeof bytes};
    unsigned char sector[512];
    with_store(&r, 2 * MIB, 8192);
    const int fd = open(at(&r, 0, ROOM0), O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, sector, sizeof sector, 0), sizeof sector);
    close(fd);
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        for (int begun = 0; begun < 3; begun++) {
            unlink(at(&r, 0, ROOM0));
            memset(bytes, 0, sizeof bytes);
            if (begun > 0) /* torn, or with what a run had put there */
                memcpy(bytes, sector, sizeof sector);
            if (begun > 1)
                memset(bytes + STORE_ROOM_AT, 0xa5, sizeof bytes - STORE_ROOM_AT);
            if (SIZES[i] >= 0)
                put(&r, ROOM0, bytes, (size_t)SIZES[i]);
            struct store_found found;
            struct store *store = reopen(&r.toy, &found);
            assert_null(toy_compare(&r.toy, store, 0));
            assert_int_equal(size_of(&r, 0, ROOM0), sizeof bytes);
            assert_true(taken_by(&r, 0, ROOM0) >= sizeof bytes);
            store_rooms_close(r.rooms, TOY_DRIVES);
            store_free(store); /* killed again */
        }
    close_roomy(&r);
}

static void a_creation_that_was_killed_leaves_room_that_the_next_one_takes_up(void **state)
{
    (void)state;
    struct roomy r;
    static const unsigned char ZEROS[6000];
    with_store(&r, MIB, MIB);
    for (int left = 0; left < 4; left++) {
        rename(at(&r, 0, D0), at(&r, 0, D0 ".new"));
        if (left > 0) /* before any name was given, or somebody has removed the store */
            unlink(at(&r, 1, D1));
        if (left > 1)
            unlink(at(&r, 0, D0 ".new"));
        if (left > 2) {
            unlink(at(&r, 0, ROOM0));
            put(&r, ROOM0, ZEROS, sizeof ZEROS);
        }
        want(&r, 4096, 0);
        struct store *store = create(&r.toy);
        assert_int_equal(toy_commit_all(&r.toy, store, 0), 0);
        assert_int_equal(size_of(&r, 0, ROOM0), STORE_ROOM_AT + 4096);
        assert_int_equal(size_of(&r, 1, ROOM1), -1);
        close_store(&r, store);
        want(&r, MIB, MIB);
        assert_opens(&r);
    }
    close_roomy(&r);
}

static void a_store_without_a_version_leaves_no_room(void **state)
{
    (void)state;
    struct roomy r;
    open_roomy(&r);
    want(&r, MIB, MIB);
    struct store *store = create(&r.toy);
    assert_int_equal(size_of(&r, 0, ROOM0), STORE_ROOM_AT + MIB);
    close_store(&r, store);
    assert_int_equal(size_of(&r, 0, ROOM0), -1);
    assert_int_equal(size_of(&r, 1, ROOM1), -1);
    close_roomy(&r);
}

/* ---- refusals ---- */

/* What is there in the place of drive 0's room. */
static void put_in_its_place(const struct roomy *r, int what, const unsigned char *page)
{
    unsigned char bytes[STORE_PAGE_BYTES];
    memcpy(bytes, page, sizeof bytes);
    unlink(at(r, 0, ROOM0));
    if (what == 0)
        memcpy(bytes, "someone's", 9);
    else if (what == 1)
        bytes[12]++; /* another version */
    else if (what == 2)
        memcpy(bytes + 8, (const unsigned char[]){1, 2, 3, 4}, 4); /* the other byte order */
    else if (what == 3)
        bytes[9] ^= 0x40;
    if (what < 4)
        put(r, ROOM0, bytes, sizeof bytes);
    else if (what == 4)
        assert_int_equal(symlink(D0, at(r, 0, ROOM0)), 0);
    else if (what == 5)
        assert_int_equal(mkfifo(at(r, 0, ROOM0), 0600), 0);
    else if (what == 6)
        assert_int_equal(link(at(r, 1, ROOM1), at(r, 0, ROOM0)), 0);
    else {
        put(r, ROOM0, page, STORE_PAGE_BYTES);
        assert_int_equal(chmod(at(r, 0, ROOM0), 0640), 0);
    }
}

static void what_is_no_room_of_a_store_is_refused_and_left(void **state)
{
    (void)state;
    static const struct {
        int native, code;
    } ROWS[] = {
        {-EINVAL, HST_E_STORE_FORMAT},  {-ENOTSUP, HST_E_STORE_FORMAT},
        {-ENOTSUP, HST_E_STORE_FORMAT}, {-EINVAL, HST_E_STORE_FORMAT},
        {-ELOOP, HST_E_STORE_ACCESS},   {-EPERM, HST_E_STORE_ACCESS},
        {-EPERM, HST_E_STORE_ACCESS},   {-EPERM, HST_E_STORE_ACCESS},
    };
    struct roomy r;
    unsigned char page[STORE_PAGE_BYTES];
    with_store(&r, MIB, MIB);
    const int fd = open(at(&r, 0, ROOM0), O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, page, sizeof page, 0), sizeof page);
    close(fd);
    for (int i = 0; i < (int)(sizeof ROWS / sizeof *ROWS); i++) {
        put_in_its_place(&r, i, page);
        assert_refused(&r, false, ROWS[i].native, ROWS[i].code);
        if (i == 0)
            assert_int_equal(size_of(&r, 0, ROOM0), sizeof page);
        want(&r, 0, 0); /* nobody asks for it */
        assert_opens(&r);
        want(&r, MIB, MIB);
    }
    unlink(at(&r, 0, ROOM0));
    assert_opens(&r);
    unlink(at(&r, 0, D0)); /* no store, and somebody's file with our name */
    unlink(at(&r, 1, D1));
    put_in_its_place(&r, 0, page);
    assert_refused(&r, true, -EEXIST, HST_E_STORE_TAKEN);
    close_roomy(&r);
}

static void room_that_can_not_be_had_leaves_the_store_as_it_was(void **state)
{
    (void)state;
    struct roomy r;
    with_store(&r, 0, MIB);
    const struct rlimit limit = {64 * MIB, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    want(&r, MIB, 64 * MIB); /* the first one is made, and goes away again */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_refused(&r, false, -EFBIG, HST_E_STORE_DIR);
    assert_non_null(strstr(refusal, "ulimit -f"));
    want(&r, 64 * MIB, 0);
    unlink(at(&r, 1, ROOM1));
    assert_refused(&r, false, -EFBIG, HST_E_STORE_DIR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    want(&r, MIB, MIB);
    assert_opens(&r);
    close_roomy(&r);
}

static void an_open_that_fails_behind_it_lets_go_of_room(void **state)
{
    (void)state;
    struct roomy r;
    with_store(&r, MIB, MIB);
    const struct hst_aio_config config = {.size = sizeof config,
                                          .backend = HST_AIO_THREADS,
                                          .fault = "op=write every=1 times=all err=EIO"};
    struct hst_aio *whole = r.toy.drives[0].aio;
    assert_int_equal(hst_aio_open(&config, r.toy.directories[0], &r.toy.drives[0].aio, NULL), 0);
    struct store *store = NULL;
    struct store_found found;
    struct hst_error error = {0};
    assert_int_equal(store_open(&r.toy.config, &store, &found, &error), -EIO);
    assert_int_equal(error.code, HST_E_WRITE);
    for (uint32_t d = 0; d < TOY_DRIVES; d++)
        assert_null(r.rooms[d].file);
    hst_aio_close(&r.toy.drives[0].aio);
    r.toy.drives[0].aio = whole;
    assert_opens(&r);
    close_roomy(&r);
}

static unsigned compared, end_at; /* the call that ends it; 0: none */

static int note_compared(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    (void)context;
    assert_true(done_bytes <= total_bytes);
    return ++compared == end_at;
}

/* A store whose run was killed: all of its bytes are compared. */
static void with_killed_store(struct roomy *r, uint64_t bytes_0, uint64_t bytes_1)
{
    struct store_found found;
    with_store(r, bytes_0, bytes_1);
    struct store *store = reopen(&r->toy, &found);
    store_rooms_close(r->rooms, TOY_DRIVES);
    store_free(store);
    r->toy.config.progress = note_compared;
    compared = 0;
}

static void a_comparison_that_is_ended_leaves_no_room_that_was_not_there(void **state)
{
    (void)state;
    struct roomy r;
    struct store *store = NULL;
    struct store_found found;
    struct hst_error error = {0};
    with_killed_store(&r, 0, MIB);
    want(&r, MIB, MIB);
    end_at = 2;
    assert_int_equal(store_open(&r.toy.config, &store, &found, &error), -ECANCELED);
    end_at = 0;
    assert_int_equal(size_of(&r, 0, ROOM0), -1);
    assert_int_equal(size_of(&r, 1, ROOM1), STORE_ROOM_AT + MIB);
    assert_opens(&r);
    assert_int_equal(size_of(&r, 0, ROOM0), STORE_ROOM_AT + MIB);
    close_roomy(&r);
}

/* aio's call. */
static bool full;

int fallocate(int fd, int mode, off_t offset, off_t count)
{
    char link[64], path[400] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (full && readlink(link, path, sizeof path - 1) > 0 && strstr(path, ".scratch")) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, offset, count);
}

static void a_full_drive_is_told_before_all_bytes_are_compared(void **state)
{
    (void)state;
    struct roomy r;
    with_killed_store(&r, MIB, 0);
    want(&r, MIB, MIB);
    full = true;
    assert_refused(&r, false, -ENOSPC, HST_E_DISK_SPACE);
    full = false;
    assert_int_equal(compared, 0);
    assert_opens(&r);
    close_roomy(&r);
}

static void room_on_a_full_drive_is_refused_as_that(void **state)
{
    (void)state;
    struct roomy r;
    with_store(&r, 0, 8192);
    full = true;
    for (int there = 0; there < 2; there++) {
        want(&r, there ? 0 : MIB, MIB);
        assert_refused(&r, false, -ENOSPC, HST_E_DISK_SPACE);
    }
    full = false;
    assert_opens(&r);
    close_roomy(&r);
}

static void a_creation_whose_room_can_not_be_had_leaves_nothing(void **state)
{
    (void)state;
    struct roomy r;
    struct store *store = NULL;
    struct hst_error error = {0};
    open_roomy(&r);
    want(&r, MIB, 64 * MIB);
    const struct rlimit limit = {64 * MIB, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(store_create(&r.toy.config, &store, &error), -EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    for (uint32_t d = 0; d < TOY_DRIVES; d++) {
        DIR *names = opendir(r.toy.directories[d]);
        int count = 0;
        while (readdir(names))
            count++;
        closedir(names);
        assert_int_equal(count, 2); /* . and .. */
    }
    close_roomy(&r);
}

static void a_store_in_use_is_refused_at_once_whatever_has_its_room(void **state)
{
    (void)state;
    struct roomy r;
    with_store(&r, MIB, MIB);
    const int fd = open(at(&r, 0, ROOM0), O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_refused(&r, true, -EEXIST, HST_E_STORE_TAKEN);
    assert_refused(&r, false, -EBUSY, HST_E_STORE_BUSY);
    unlink(at(&r, 0, D0)); /* a creation that was killed, whose last writes are under way */
    unlink(at(&r, 1, D1));
    assert_refused(&r, true, -EBUSY, HST_E_STORE_BUSY);
    close(fd);
    close_roomy(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_is_taken_with_the_store_and_never_gets_smaller),
        cmocka_unit_test(a_store_of_a_run_that_had_no_room_gets_some),
        cmocka_unit_test(the_rates_of_the_last_run_are_kept_with_it),
        cmocka_unit_test(room_is_on_the_drive_before_anything_is_written),
        cmocka_unit_test(whatever_a_crash_left_of_room_the_store_opens_and_has_it_all),
        cmocka_unit_test(a_creation_that_was_killed_leaves_room_that_the_next_one_takes_up),
        cmocka_unit_test(a_store_without_a_version_leaves_no_room),
        cmocka_unit_test(what_is_no_room_of_a_store_is_refused_and_left),
        cmocka_unit_test(room_that_can_not_be_had_leaves_the_store_as_it_was),
        cmocka_unit_test(an_open_that_fails_behind_it_lets_go_of_room),
        cmocka_unit_test(a_comparison_that_is_ended_leaves_no_room_that_was_not_there),
        cmocka_unit_test(a_full_drive_is_told_before_all_bytes_are_compared),
        cmocka_unit_test(room_on_a_full_drive_is_refused_as_that),
        cmocka_unit_test(a_creation_whose_room_can_not_be_had_leaves_nothing),
        cmocka_unit_test(a_store_in_use_is_refused_at_once_whatever_has_its_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
