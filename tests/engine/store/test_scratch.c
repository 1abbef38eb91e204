/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch extents on a real directory: what was written is read, in any order, and nothing stays
 * behind. */
#include "tier/extent.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TILE 8192u

struct fixture {
    char directory[64];
    struct layout layout;
    struct placement_in in;
    struct placement placement;
    struct hst_aio *aio[2];
    struct extents *extents;
};

/* Where scratch begins in the file that it is given on drive 0 (0: it has its own), that file. */
static uint64_t given_at;
static int given = -1;

/* Without a name once it is open. */
static struct hst_aio_file *give_file(const struct fixture *f)
{
    char path[96];
    struct hst_aio_file *file = NULL;
    snprintf(path, sizeof path, "%s/given", f->directory);
    assert_int_equal(hst_aio_file_open(f->aio[0], path, HST_AIO_CREATE,
                                       given_at + f->placement.drive_bytes[0], &file),
                     0);
    given = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(given >= 0);
    unlink(path);
    return file;
}

static void open_slots(struct fixture *f, enum hst_precision precision, uint32_t drives,
                       bool second_slots)
{
    char why[512];
    *f = (struct fixture){.directory = "hst-scratch-XXXXXX"};
    assert_non_null(mkdtemp(f->directory));
    struct hst_param_desc param = {.name = "p", .dim_count = 1, .dims = {10 * TILE + 4000}};
    struct hst_unit_desc unit = {.name = "u", .params = &param, .param_count = 1};
    assert_int_equal(layout_add(&f->layout, &unit, why, sizeof why), 0);
    assert_int_equal(layout_seal(&f->layout, TILE, SHARE_ALL), 0);
    f->in = (struct placement_in){
        .layout = &f->layout,
        .optimizer = optimizer_find(HST_OPTIMIZER_ADAMW, precision, HST_STATE_FP32),
        .has_nvme = true,
        .compute_tier = HST_TIER_DRAM,
        .dram_budget = 1u << 30,
        .nvme_budget = 1u << 30,
        .batch_tokens = 1,
        .micro_batch_tokens = 1};
    assert_int_equal(place_parse("states=nvme,weights=nvme", &f->in.wish, why, sizeof why), 0);
    f->in.drive_count = drives;
    f->in.second_slots = second_slots;
    for (uint32_t d = 0; d < drives; d++) {
        f->in.drive_rates[d] = 3 - d;
        f->in.drive_budgets[d] = 1u << 30;
    }
    assert_int_equal(placement_plan(&f->in, &f->placement, why, sizeof why), 0);
    struct hst_aio_config config = {.size = sizeof config, .queue_depth = 4};
    struct scratch_drive files[2];
    uint32_t at;
    for (uint32_t d = 0; d < drives; d++) {
        assert_int_equal(hst_aio_open(&config, f->directory, &f->aio[d], NULL), 0);
        files[d] = (struct scratch_drive){.aio = f->aio[d], .directory = f->directory};
    }
    if (given_at > 0) {
        files[0].file = give_file(f);
        files[0].file_at = given_at;
    }
    assert_int_equal(scratch_open(files, drives, &f->placement, &at, &f->extents), 0);
}

static void open_fixture(struct fixture *f, enum hst_precision precision, uint32_t drives)
{
    open_slots(f, precision, drives, false);
}

static int files_in(const char *directory)
{
    DIR *dir = opendir(directory);
    int count = 0;
    while (readdir(dir))
        count++;
    closedir(dir);
    return count - 2;
}

static void close_fixture(struct fixture *f)
{
    assert_int_equal(files_in(f->directory),
                     0); /* an unnamed file: nothing to clean up, even after kill -9 */
    f->extents->ops->close(f->extents);
    hst_aio_close(&f->aio[0]);
    hst_aio_close(&f->aio[1]);
    placement_free(&f->placement);
    layout_free(&f->layout);
    assert_int_equal(rmdir(f->directory), 0);
}

static void *buffer_filled(size_t bytes, unsigned seed)
{
    void *buffer = NULL;
    assert_int_equal(hst_aio_buffer_alloc(bytes, &buffer), 0);
    for (size_t i = 0; i < bytes / sizeof(unsigned); i++)
        ((unsigned *)buffer)[i] = seed * 2654435761u + (unsigned)i;
    return buffer;
}

static size_t extent_bytes(const struct fixture *f, enum extent_kind kind, uint32_t tile)
{
    uint32_t n = layout_tile(&f->layout, tile).elements;
    return kind == EXTENT_WEIGHTS ? n * optimizer_weight_bytes(f->in.optimizer)
                                  : record_layout(f->in.optimizer, n).bytes;
}

static void write_then_read(enum hst_precision precision, uint32_t drives)
{
    struct fixture f;
    open_fixture(&f, precision, drives);
    const size_t most = extent_bytes(&f, EXTENT_STATES, 0);
    struct transfer transfers[2 * 16];
    void *buffers[2 * 16];
    unsigned n = 0;
    uint64_t total = 0;
    assert_int_equal(f.layout.tile_count, 11); /* the last one is shorter */
    for (uint32_t tile = 0; tile < f.layout.tile_count; tile++)
        for (int kind = 0; kind < 2; kind++, n++) {
            buffers[n] = buffer_filled(most, n);
            total += extent_bytes(&f, kind, tile);
            assert_int_equal(extents_write(f.extents, kind, tile, buffers[n], &transfers[n]), 0);
        }
    void *read = buffer_filled(most, 999);
    for (unsigned i = n;
         i-- > 0;) { /* backwards: some writes are still in flight when their read is asked for */
        struct transfer transfer;
        enum extent_kind kind = (enum extent_kind)(i % 2);
        assert_int_equal(extents_read(f.extents, kind, i / 2, read, &transfer), 0);
        assert_int_equal(extents_wait(f.extents, &transfer), 0);
        assert_memory_equal(read, buffers[i], extent_bytes(&f, kind, i / 2));
        hst_aio_buffer_free(buffers[i], most);
    }
    assert_int_equal(f.extents->counters.written_bytes, total);
    assert_int_equal(f.extents->counters.read_bytes, total);
    hst_aio_buffer_free(read, most);
    close_fixture(&f);
}

static void what_was_written_is_read_in_fp32(void **state)
{
    (void)state;
    write_then_read(HST_PRECISION_FP32, 1);
    write_then_read(HST_PRECISION_FP32, 2);
}

static void what_was_written_is_read_in_bf16(void **state)
{
    (void)state;
    write_then_read(HST_PRECISION_BF16, 1);
    write_then_read(HST_PRECISION_BF16, 2);
}

/* Who waits for other things too polls them, and takes without waiting what they tell of. */
static void each_drive_has_a_descriptor_that_tells(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, HST_PRECISION_FP32, 2);
    int fds[2];
    struct pollfd polled[2];
    assert_int_equal(f.extents->ops->descriptors(f.extents, fds, 1), -ENOTSUP);
    assert_int_equal(f.extents->ops->descriptors(f.extents, fds, 2), 2);
    void *buffer = buffer_filled(extent_bytes(&f, EXTENT_STATES, 0), 7);
    for (uint32_t tile = 0; tile < f.layout.tile_count; tile++) {
        struct transfer transfer;
        assert_int_equal(extents_write(f.extents, EXTENT_WEIGHTS, tile, buffer, &transfer), 0);
        while (transfer.active) {
            assert_int_equal(f.extents->ops->descriptors(f.extents, fds, 2), 2);
            for (int i = 0; i < 2; i++)
                polled[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
            assert_true(poll(polled, 2, 10000) > 0);
            assert_int_equal(f.extents->ops->progress(f.extents, 0), 0);
        }
        assert_int_equal(transfer.error, 0);
    }
    hst_aio_buffer_free(buffer, extent_bytes(&f, EXTENT_STATES, 0));
    close_fixture(&f);
}

static void closing_waits_for_writes_in_flight(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, HST_PRECISION_FP32, 2);
    const size_t bytes = extent_bytes(&f, EXTENT_STATES, 0);
    void *buffer = buffer_filled(bytes, 1);
    struct transfer transfers[4];
    for (uint32_t tile = 0; tile < 4; tile++)
        assert_int_equal(extents_write(f.extents, EXTENT_STATES, tile, buffer, &transfers[tile]),
                         0);
    close_fixture(&f);
    for (uint32_t tile = 0; tile < 4; tile++)
        assert_false(transfers[tile].active);
    hst_aio_buffer_free(buffer, bytes);
}

/* ---- two slots ---- */

/* What all extents of the fixture are written with, or are found to hold. */
static void each_extent(struct fixture *f, unsigned seed, bool write)
{
    for (uint32_t i = 0; i < 2 * f->layout.tile_count; i++) {
        enum extent_kind kind = (enum extent_kind)(i % 2);
        size_t bytes = extent_bytes(f, kind, i / 2);
        void *expected = buffer_filled(bytes, seed + i), *found = buffer_filled(bytes, 999);
        struct transfer transfer;
        if (write)
            assert_int_equal(extents_write(f->extents, kind, i / 2, expected, &transfer), 0);
        else
            assert_int_equal(extents_read(f->extents, kind, i / 2, found, &transfer), 0);
        assert_int_equal(extents_wait(f->extents, &transfer), 0);
        if (!write)
            assert_memory_equal(found, expected, bytes);
        hst_aio_buffer_free(expected, bytes);
        hst_aio_buffer_free(found, bytes);
    }
}

static void a_revert_forgets_what_was_written_since_it_was_settled(void **state)
{
    (void)state;
    for (uint32_t drives = 1; drives <= 2; drives++) {
        struct fixture f;
        open_slots(&f, HST_PRECISION_BF16, drives, true);
        each_extent(&f, 100, true);
        each_extent(&f, 100, false); /* before it stands, too */
        for (unsigned turn = 1; turn < 4; turn++) {
            unsigned stands = 100 * turn, next = 100 * (turn + 1);
            scratch_settle(f.extents);
            scratch_settle(f.extents);
            each_extent(&f, 5000, true);
            each_extent(&f, 6000, true); /* over the one before */
            each_extent(&f, 6000, false);
            assert_int_equal(scratch_revert(f.extents), 0);
            each_extent(&f, stands, false);
            assert_int_equal(scratch_revert(f.extents), 0);
            each_extent(&f, stands, false);
            each_extent(&f, next, true);
            each_extent(&f, next, false);
        }
        close_fixture(&f);
    }
}

static void what_is_on_its_way_can_be_settled_and_not_reverted(void **state)
{
    (void)state;
    struct fixture f;
    open_slots(&f, HST_PRECISION_FP32, 2, true);
    each_extent(&f, 100, true);
    scratch_settle(f.extents);
    const size_t bytes = extent_bytes(&f, EXTENT_STATES, 0);
    void *buffer = buffer_filled(bytes, 1), *found = buffer_filled(bytes, 2);
    struct transfer write, read;
    for (int settled = 0; settled < 2; settled++) {
        assert_int_equal(extents_write(f.extents, EXTENT_STATES, 3, buffer, &write), 0);
        if (settled)
            scratch_settle(f.extents);
        assert_int_equal(scratch_revert(f.extents), settled ? 0 : -EBUSY);
        assert_int_equal(extents_wait(f.extents, &write), 0);
        assert_int_equal(scratch_revert(f.extents), 0);
        assert_int_equal(extents_read(f.extents, EXTENT_STATES, 3, found, &read), 0);
        assert_int_equal(extents_wait(f.extents, &read), 0);
        assert_true((memcmp(found, buffer, bytes) == 0) == settled);
    }
    hst_aio_buffer_free(buffer, bytes);
    hst_aio_buffer_free(found, bytes);
    close_fixture(&f);
}

/* Nothing tells the two apart. */
static void of_one_slot_nothing_is_reverted(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, HST_PRECISION_BF16, 2);
    each_extent(&f, 100, true);
    scratch_settle(f.extents);
    each_extent(&f, 200, true);
    assert_int_equal(scratch_revert(f.extents), 0);
    each_extent(&f, 200, false);
    const size_t bytes = extent_bytes(&f, EXTENT_STATES, 0);
    void *buffer = buffer_filled(bytes, 201);
    struct transfer transfer;
    assert_int_equal(extents_write(f.extents, EXTENT_STATES, 0, buffer, &transfer), 0);
    assert_int_equal(scratch_revert(f.extents), 0); /* on its way */
    assert_int_equal(extents_wait(f.extents, &transfer), 0);
    each_extent(&f, 200, false);
    hst_aio_buffer_free(buffer, bytes);
    close_fixture(&f);
}

static bool any_bytes(uint64_t from, uint64_t to)
{
    unsigned char byte;
    for (; from < to; from++)
        if (pread(given, &byte, 1, (off_t)from) != 1 || byte != 0)
            return true;
    return false;
}

static void in_a_file_that_is_given_nothing_lies_before_the_room(void **state)
{
    (void)state;
    for (int second_slots = 0; second_slots < 2; second_slots++) {
        struct fixture f;
        given_at = 8192;
        open_slots(&f, HST_PRECISION_BF16, 2, second_slots);
        each_extent(&f, 100, true);
        each_extent(&f, 100, false);
        if (second_slots) {
            scratch_settle(f.extents);
            each_extent(&f, 200, true);
            each_extent(&f, 200, false);
        }
        given_at = 0;
        assert_false(any_bytes(0, 8192));
        assert_true(any_bytes(8192, 8192 + 4096));
        close_fixture(&f);
        close(given);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read_in_fp32),
        cmocka_unit_test(what_was_written_is_read_in_bf16),
        cmocka_unit_test(each_drive_has_a_descriptor_that_tells),
        cmocka_unit_test(closing_waits_for_writes_in_flight),
        cmocka_unit_test(a_revert_forgets_what_was_written_since_it_was_settled),
        cmocka_unit_test(what_is_on_its_way_can_be_settled_and_not_reverted),
        cmocka_unit_test(of_one_slot_nothing_is_reverted),
        cmocka_unit_test(in_a_file_that_is_given_nothing_lies_before_the_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
