/* SPDX-License-Identifier: Apache-2.0 */
/* Extents of frozen tiles: weights that are written once, in one slot, and states without bytes.
 * They are part of each version, are found again, and no later version writes to them. */
#include "toy.h"

#include "store/files.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "real.h" /* uses what cmocka.h declares */

#define FROZEN 2u

static bool is_fixed(uint32_t extent)
{
    return extent % TOY_TILES < FROZEN;
}

static void open_frozen(struct toy *toy, uint32_t drives)
{
    assert_int_equal(toy_open_frozen(toy, drives, FROZEN), 0);
    for (uint32_t d = 0; d < drives; d++)
        toy->drives[d].aio = toy->aio[d] = new_aio(toy->directories[d], HST_AIO_THREADS);
}

/* All that the version writes: of the first one weights of the frozen tiles, too. */
static void commit(struct toy *toy, struct store *store, uint64_t version)
{
    if (version > 0)
        memcpy(toy->stamps[version], toy->stamps[version - 1], sizeof toy->stamps[0]);
    for (uint32_t i = 0; i < TOY_EXTENTS; i++) {
        struct transfer transfer;
        if (is_fixed(i) && (version > 0 || toy_kind(i) == EXTENT_STATES))
            continue;
        assert_int_equal(toy_write(toy, store, version, i, &transfer), 0);
        assert_int_equal(extents_wait(store_extents(store), &transfer), 0);
    }
    assert_int_equal(toy_commit(store, version), 0);
}

static uint64_t file_bytes(const struct toy *toy)
{
    uint64_t bytes = 0;
    for (uint32_t d = 0; d < toy->config.drive_count; d++) {
        char name[STORE_NAME_BYTES], path[256];
        struct stat is;
        store_file_name(0, d, false, name);
        snprintf(path, sizeof path, "%s/%s", toy->directories[d], name);
        assert_int_equal(stat(path, &is), 0);
        bytes += (uint64_t)is.st_size;
    }
    return bytes;
}

static void what_is_frozen_has_one_slot_and_no_states(void **state)
{
    (void)state;
    for (uint32_t drives = 1; drives <= TOY_DRIVES; drives++) {
        uint64_t bytes[2], saved = 0;
        for (int frozen = 0; frozen < 2; frozen++) {
            struct toy toy;
            assert_int_equal(toy_open_frozen(&toy, drives, frozen ? FROZEN : 0), 0);
            for (uint32_t d = 0; d < drives; d++)
                toy.drives[d].aio = toy.aio[d] = new_aio(toy.directories[d], HST_AIO_THREADS);
            struct store *store = create(&toy);
            commit(&toy, store, 0);
            for (uint32_t i = 0; i < TOY_EXTENTS && !frozen; i++)
                saved +=
                    is_fixed(i) ? (toy_kind(i) == EXTENT_STATES ? 2 : 1) * toy_bytes(&toy, i) : 0;
            bytes[frozen] = file_bytes(&toy);
            store_close(&store);
            toy_close(&toy);
        }
        assert_true(saved > 0 && bytes[1] <= bytes[0] - saved); /* tables may be shorter */
        assert_true(bytes[1] + 8 * STORE_PAGE_BYTES > bytes[0] - saved);
    }
}

static void it_is_found_again_in_every_version(void **state)
{
    (void)state;
    for (uint32_t drives = 1; drives <= TOY_DRIVES; drives++) {
        struct toy toy;
        struct store_found found;
        struct store_place first, later;
        open_frozen(&toy, drives);
        struct store *store = create(&toy);
        commit(&toy, store, 0);
        store_extent_place(store, EXTENT_WEIGHTS, 0, &first);
        for (uint64_t version = 1; version < 4; version++)
            commit(&toy, store, version);
        store_close(&store);
        for (uint64_t version = 4; version < 7; version++) {
            store = reopen(&toy, &found);
            assert_null(toy_compare(&toy, store, version - 1));
            store_extent_place(store, EXTENT_WEIGHTS, 0, &later);
            assert_int_equal(later.offset, first.offset);
            commit(&toy, store, version);
            store_close(&store);
        }
        toy_close(&toy);
    }
}

static void a_committed_one_cannot_be_written_nor_states_that_are_not_there(void **state)
{
    (void)state;
    struct toy toy;
    struct transfer transfer;
    open_frozen(&toy, 1);
    struct store *store = create(&toy);
    assert_int_equal(toy_write(&toy, store, 0, TOY_TILES, &transfer), -EINVAL);
    commit(&toy, store, 0);
    assert_int_equal(toy_write(&toy, store, 1, 0, &transfer), -EINVAL);
    assert_int_equal(toy_write(&toy, store, 1, FROZEN, &transfer), 0);
    assert_int_equal(extents_wait(store_extents(store), &transfer), 0);
    assert_int_equal(store_error(store)->code, 0);
    store_close(&store);
    toy_close(&toy);
}

static void flip(const struct toy *toy, const struct store_place *place)
{
    char path[256];
    unsigned char byte;
    snprintf(path, sizeof path, "%s/%s", toy->directories[0], place->file);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)place->offset + 100), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)place->offset + 100), 1);
    close(fd);
}

static void its_bytes_are_compared(void **state)
{
    (void)state;
    struct toy toy;
    struct store_found found;
    struct store_place place;
    struct transfer transfer = {.kind = EXTENT_WEIGHTS, .index = 1};
    open_frozen(&toy, 1);
    struct store *store = create(&toy);
    commit(&toy, store, 0);
    commit(&toy, store, 1);
    store_extent_place(store, EXTENT_WEIGHTS, 1, &place);
    store_close(&store);
    flip(&toy, &place);
    store = reopen(&toy, &found);
    assert_int_equal(extents_read(store_extents(store), EXTENT_WEIGHTS, 1, toy.read, &transfer), 0);
    assert_int_equal(extents_wait(store_extents(store), &transfer), -EBADMSG);
    store_close(&store);
    toy_close(&toy);
}

static void another_model_is_not_taken_for_it(void **state)
{
    (void)state;
    struct toy toy, other;
    struct store_found found;
    struct hst_error error = {0};
    open_frozen(&toy, 1);
    struct store *store = create(&toy);
    commit(&toy, store, 0);
    store_close(&store);
    for (uint32_t frozen = 0; frozen < FROZEN; frozen++) {
        assert_int_equal(toy_open_frozen(&other, 1, frozen), 0);
        other.drives[0] = toy.drives[0];
        assert_int_equal(store_open(&other.config, &store, &found, &error), -EINVAL);
        assert_int_equal(error.code, HST_E_STORE_OTHER);
        toy_close(&other);
    }
    toy_close(&toy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_frozen_has_one_slot_and_no_states),
        cmocka_unit_test(it_is_found_again_in_every_version),
        cmocka_unit_test(a_committed_one_cannot_be_written_nor_states_that_are_not_there),
        cmocka_unit_test(its_bytes_are_compared),
        cmocka_unit_test(another_model_is_not_taken_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
