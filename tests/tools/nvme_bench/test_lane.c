/* SPDX-License-Identifier: Apache-2.0 */
/* A lane on a simulated drive: where its blocks go, and that reading back finds what is wrong. */
#include "nvme_bench/lane.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB          (1u << 20)
#define FILE_BYTES   (8u * MIB)
#define BLOCK        (256u * 1024)
#define SECTORS      (FILE_BYTES / NB_SECTOR_BYTES)
#define HALF_SECTORS (SECTORS / 2)

static volatile sig_atomic_t never, now = 1;

static int setup(void **state)
{
    struct nb_lane *lane = calloc(1, sizeof *lane);
    const struct hst_aio_config config = {
        .size = sizeof config, .backend = HST_AIO_SIM, .model = "sim:read=2G,write=1G"};
    *lane = (struct nb_lane){
        .drive = 3, .index = 1, .run = 77, .file_bytes = FILE_BYTES, .stopped = &never};
    if (hst_aio_open(&config, "drive", &lane->aio, NULL) ||
        hst_aio_file_open(lane->aio, "drive", HST_AIO_SCRATCH, FILE_BYTES, &lane->file) ||
        nb_lane_open(lane, 4 * MIB))
        return -1;
    *state = lane;
    return 0;
}

static int teardown(void **state)
{
    nb_lane_close(*state);
    free(*state);
    return 0;
}

static struct nb_job job(enum nb_kind kind, uint64_t bytes)
{
    return (struct nb_job){
        .kind = kind, .block_bytes = BLOCK, .depth = 4, .most_bytes = bytes, .most_ns = UINT64_MAX};
}

static void run(struct nb_lane *lane, enum nb_kind kind, uint64_t bytes)
{
    const struct nb_job j = job(kind, bytes);
    assert_int_equal(nb_lane_run(lane, &j), 0);
    assert_true(lane->moved_bytes == bytes);
}

static void test_mixed_jobs_read_the_first_half_and_write_the_second(void **state)
{
    struct nb_lane *lane = *state;
    struct nb_mismatch wrong;
    uint64_t bytes;
    run(lane, NB_WRITE, FILE_BYTES);
    run(lane, NB_MIXED, FILE_BYTES);
    assert_true(lane->written_bytes == FILE_BYTES / 2);
    for (uint32_t i = 0; i < SECTORS; i++)
        assert_int_equal(lane->written[i].pass, i < HALF_SECTORS ? 1 : 2);
    assert_int_equal(nb_lane_verify(lane, &bytes, &wrong), 0);
    assert_true(bytes == FILE_BYTES);
}

static void test_what_was_never_written_is_not_compared(void **state)
{
    struct nb_lane *lane = *state;
    struct nb_mismatch wrong;
    uint64_t bytes;
    run(lane, NB_WRITE, 3 * BLOCK);
    assert_int_equal(nb_lane_verify(lane, &bytes, &wrong), 0);
    assert_true(bytes == 3 * BLOCK);
}

static void write_sector(struct nb_lane *lane, uint64_t offset, void *sector)
{
    struct hst_aio_completion done;
    const struct hst_aio_op op = {.kind = HST_AIO_WRITE,
                                  .file = lane->file,
                                  .offset = offset,
                                  .buffer = sector,
                                  .bytes = NB_SECTOR_BYTES};
    assert_int_equal(hst_aio_submit(lane->aio, &op, 1), 1);
    assert_int_equal(hst_aio_reap(lane->aio, &done, 1, 1, UINT64_MAX), 1);
    assert_int_equal(done.error, 0);
}

/* What was written there, with another stamp. */
static void write_stamped(struct nb_lane *lane, uint64_t offset, uint64_t stamped_offset,
                          uint32_t pass)
{
    const struct nb_stamp stamp = {
        .run = 77, .offset = stamped_offset, .drive = 3, .file = 1, .pass = pass};
    memcpy(lane->buffer,
           lane->source + lane->written[offset / NB_SECTOR_BYTES].origin * NB_SECTOR_BYTES,
           NB_SECTOR_BYTES);
    nb_stamp_put(lane->buffer, NB_SECTOR_BYTES, &stamp);
    write_sector(lane, offset, lane->buffer);
}

static void test_a_lost_or_misplaced_write_is_found_with_its_place(void **state)
{
    struct nb_lane *lane = *state;
    struct nb_mismatch wrong;
    uint64_t bytes;
    const uint64_t place = 5 * (uint64_t)BLOCK + 3 * NB_SECTOR_BYTES;
    run(lane, NB_WRITE, FILE_BYTES);
    run(lane, NB_WRITE, FILE_BYTES);
    write_stamped(lane, place, place, 1); /* the second pass's write was lost */
    assert_int_equal(nb_lane_verify(lane, &bytes, &wrong), -EBADMSG);
    assert_true(wrong.is_other && wrong.offset == place);
    assert_true(wrong.found.pass == 1 && wrong.found.offset == place);
    write_stamped(lane, place, place + NB_SECTOR_BYTES, 2); /* the neighbour's data */
    assert_int_equal(nb_lane_verify(lane, &bytes, &wrong), -EBADMSG);
    assert_true(wrong.is_other && wrong.offset == place);
    assert_true(wrong.found.offset == place + NB_SECTOR_BYTES);
    write_stamped(lane, place, place, 2);
    assert_int_equal(nb_lane_verify(lane, &bytes, &wrong), 0);
}

/* One bit of one byte, wherever it stands in its 4 KiB. */
static void test_every_byte_is_compared(void **state)
{
    struct nb_lane *lane = *state;
    struct nb_mismatch wrong;
    uint64_t bytes;
    const uint64_t place = 20 * (uint64_t)BLOCK + 9 * NB_SECTOR_BYTES;
    run(lane, NB_WRITE, FILE_BYTES);
    run(lane, NB_MIXED, FILE_BYTES);
    run(lane, NB_READ, FILE_BYTES);
    for (uint32_t at = 0; at < NB_SECTOR_BYTES; at += at < 40 || at > 4080 ? 1 : 13) {
        char *sector = lane->buffer;
        const struct hst_aio_op op = {.kind = HST_AIO_READ,
                                      .file = lane->file,
                                      .offset = place,
                                      .buffer = sector,
                                      .bytes = NB_SECTOR_BYTES};
        struct hst_aio_completion done;
        assert_int_equal(hst_aio_submit(lane->aio, &op, 1), 1);
        assert_int_equal(hst_aio_reap(lane->aio, &done, 1, 1, UINT64_MAX), 1);
        sector[at] ^= 0x20;
        write_sector(lane, place, sector);
        unsigned char there = (unsigned char)sector[at];
        assert_int_equal(nb_lane_verify(lane, &bytes, &wrong), -EBADMSG);
        assert_true(bytes == place && !wrong.is_other && wrong.offset == place + at);
        assert_int_equal(wrong.byte, there);
        assert_int_equal(wrong.wanted, there ^ 0x20);
        write_stamped(lane, place, place, 2);
    }
    assert_int_equal(nb_lane_verify(lane, &bytes, &wrong), 0);
    assert_true(bytes == FILE_BYTES);
}

/* Of a mixed job, the request that failed is told, not the kind of the job. */
static void test_the_request_that_failed_is_kept(void **state)
{
    static const char *const plans[] = {"op=read nth=5 times=all err=EIO",
                                        "op=write nth=5 times=all err=EIO"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct hst_aio_config config = {.size = sizeof config,
                                              .backend = HST_AIO_SIM,
                                              .model = "sim:read=2G,write=1G",
                                              .fault = plans[i]};
        struct nb_lane lane = {.file_bytes = FILE_BYTES, .stopped = &never};
        const struct nb_job j = job(NB_MIXED, FILE_BYTES);
        assert_int_equal(hst_aio_open(&config, "drive", &lane.aio, NULL), 0);
        assert_int_equal(
            hst_aio_file_open(lane.aio, "drive", HST_AIO_SCRATCH, FILE_BYTES, &lane.file), 0);
        assert_int_equal(nb_lane_open(&lane, 4 * MIB), 0);
        assert_int_equal(nb_lane_run(&lane, &j), -EIO);
        assert_true(lane.failed.write == (i == 1));
        assert_true(lane.failed.offset >= (i ? FILE_BYTES / 2 : 0));
        assert_true(lane.failed.offset < (i ? FILE_BYTES : FILE_BYTES / 2));
        nb_lane_close(&lane);
    }
}

static void test_a_job_ends_with_its_time_or_a_signal(void **state)
{
    struct nb_lane *lane = *state;
    struct nb_job j = job(NB_READ, UINT64_MAX / 2);
    j.most_ns = 10 * 1000000;
    assert_int_equal(nb_lane_run(lane, &j), 0);
    uint64_t passed = lane->end_ns - lane->start_ns;
    assert_true(passed >= 10 * 1000000 && passed < 11 * 1000000);
    lane->stopped = &now;
    assert_int_equal(nb_lane_run(lane, &j), 0);
    assert_true(lane->moved_bytes == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_mixed_jobs_read_the_first_half_and_write_the_second,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_was_never_written_is_not_compared, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_lost_or_misplaced_write_is_found_with_its_place,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_byte_is_compared, setup, teardown),
        cmocka_unit_test(test_the_request_that_failed_is_kept),
        cmocka_unit_test_setup_teardown(test_a_job_ends_with_its_time_or_a_signal, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
