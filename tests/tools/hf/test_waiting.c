/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `train` does at its end where the disk of the export is full: the clock, and what the disk
 * says, are the test's own.
 */
#include "support.h"

#include "cli/message/message.h"
#include "verbs/train/export.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- time passes in sleeps alone ---- */

static uint64_t now_ns;

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    assert_int_equal(clock, CLOCK_MONOTONIC);
    *now = (struct timespec){(time_t)(1000 + now_ns / 1000000000), (long)(now_ns % 1000000000)};
    return 0;
}

static struct {
    uint64_t until_ns;   /* the disk is full */
    bool sync_alone;     /* which only a sync finds out, and with it loses what was written */
    uint64_t signal_ns;  /* 0: no signal comes */
    bool signal_in_sync; /* one comes while the disk is found full */
    int error;
    unsigned told, saved, failed_syncs;
    uint64_t told_at_ns[8];
} disk;

static volatile sig_atomic_t stopped;

int __wrap_nanosleep(const struct timespec *pause, struct timespec *left);
int __wrap_nanosleep(const struct timespec *pause, struct timespec *left)
{
    (void)left;
    now_ns += (uint64_t)pause->tv_sec * 1000000000 + (uint64_t)pause->tv_nsec;
    stopped = disk.signal_ns && now_ns >= disk.signal_ns;
    return 0;
}

/* ---- what is full ---- */

ssize_t __real_pwrite64(int fd, const void *src, size_t bytes, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *src, size_t bytes, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *src, size_t bytes, off_t offset)
{
    errno = disk.error;
    return now_ns < disk.until_ns && !disk.sync_alone ? -1
                                                      : __real_pwrite64(fd, src, bytes, offset);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    static const char lost[4096];
    struct stat st;
    if (now_ns >= disk.until_ns || !disk.sync_alone)
        return __real_fsync(fd);
    assert_int_equal(fstat(fd, &st), 0);
    for (off_t at = 0; at < st.st_size; at += (off_t)sizeof lost) {
        const off_t left = st.st_size - at;
        const size_t part = left < (off_t)sizeof lost ? (size_t)left : sizeof lost;
        assert_int_equal(__real_pwrite64(fd, lost, part, at), (ssize_t)part);
    }
    disk.failed_syncs++;
    stopped = stopped || disk.signal_in_sync;
    errno = disk.error;
    return -1;
}

/* ---- what train_export.c calls ---- */

void cli_warn(enum cli_code code, const char *format, ...)
{
    assert_int_equal(code, CLI_ROOM);
    assert_non_null(strstr(format, "waits for room"));
    assert_true(disk.told < 8);
    disk.told_at_ns[disk.told++] = now_ns;
}

static const struct llama_tensor tensors[] = {{"z.weight", 2, {3, 2}, 6}, {"a.weight", 1, {5}, 5}};

const struct llama_tensor *llama_tensor(const struct llama *model, size_t i)
{
    (void)model;
    return i < 2 ? &tensors[i] : NULL;
}

uint64_t llama_parameter_count(const struct llama *model)
{
    (void)model;
    return tensors[0].count + tensors[1].count;
}

/* What is told while it is written is not of this test. */
void progress_begin(const struct progress *progress, const char *what)
{
    (void)progress;
    (void)what;
}

void progress_bytes(const struct progress *progress, uint64_t done_bytes, uint64_t total_bytes)
{
    (void)progress;
    (void)done_bytes;
    (void)total_bytes;
}

const char *const export_choices[] = {NULL}; /* of options alone */

int hst_engine_save(struct hst_engine *engine, const struct hst_writer *writer)
{
    (void)engine;
    (void)writer;
    return -ENOSYS; /* the cases have a save of their own */
}

int hst_engine_save_masters(struct hst_engine *engine, const struct hst_writer *writer)
{
    return hst_engine_save(engine, writer);
}

static const float z[] = {11, 12, 13, 14, 15, 16}, a[] = {1, 2, 3, 4, 5};

static int save(void *from, bool masters, const struct hst_writer *writer, struct hst_error *error)
{
    (void)from;
    (void)error;
    assert_false(masters);
    const struct hst_param_ref refs[] = {{.name = "z.weight"}, {.name = "a.weight"}};
    disk.saved++;
    int rc = writer->write(writer->context, &refs[0], 0, z, 4, HST_F32);
    rc = rc ? rc : writer->write(writer->context, &refs[0], 4, z + 4, 2, HST_F32);
    return rc ? rc : writer->write(writer->context, &refs[1], 0, a, 5, HST_F32);
}

/* ---- cases ---- */

struct run {
    struct train_export export;
    struct hf_model *model;
    char source[4096], target[4096];
};

/* Begun while there is room. */
static void begin(const char *folder, struct run *run)
{
    struct hst_error error = {0};
    now_ns = 0;
    stopped = 0;
    memset(&disk, 0, sizeof disk);
    snprintf(run->source, sizeof run->source, "%s/source", folder);
    snprintf(run->target, sizeof run->target, "%s/out", folder);
    assert_true(mkdir(run->source, 0700) == 0 || errno == EEXIST);
    put_config(run->source, "\"dtype\": \"float32\",");
    run->model = open_model(run->source, false);
    run->export = (struct train_export){.directory = run->target,
                                        .source = run->model,
                                        .working = HST_F32,
                                        .dtype = HST_F32,
                                        .stopped = &stopped};
    assert_int_equal(train_export_begin(&run->export, &error), 0);
    disk.error = ENOSPC;
}

static int finish(struct run *run, struct hst_error *error)
{
    *error = (struct hst_error){0};
    int rc = train_export_write(&run->export, save, NULL, error);
    train_export_end(&run->export);
    hf_model_close(&run->model);
    return rc;
}

static void check_values(const char *directory)
{
    struct hf_model *model = open_model(directory, true);
    float values[6];
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            hf_model_require(model, tensors[i].name, tensors[i].dim_count, tensors[i].dims, NULL),
            0);
    assert_int_equal(hf_model_read(model, "z.weight", 0, values, 6, NULL), 0);
    assert_memory_equal(values, z, sizeof z);
    assert_int_equal(hf_model_read(model, "a.weight", 0, values, 5, NULL), 0);
    assert_memory_equal(values, a, sizeof a);
    hf_model_close(&model);
}

static void a_full_disk_is_told_again_every_thirty_seconds(void **state)
{
    struct run run;
    struct hst_error error;
    begin(*state, &run);
    disk.until_ns = 95000000000;
    assert_int_equal(finish(&run, &error), 0);
    assert_int_equal(disk.told, 4);
    for (unsigned i = 0; i < disk.told; i++)
        assert_int_equal(disk.told_at_ns[i], i * 30000000000);
    assert_int_equal(disk.saved, 1);
    check_values(run.target);
    assert_int_equal(entry_count(*state), 2);
}

static void what_a_sync_finds_full_is_waited_for_and_written_again(void **state)
{
    static const int errors[] = {ENOSPC, EDQUOT};
    for (int i = 0; i < 2; i++) {
        struct run run;
        struct hst_error error;
        begin(*state, &run);
        disk.error = errors[i];
        disk.sync_alone = true;
        disk.until_ns = 35000000000;
        assert_int_equal(finish(&run, &error), 0);
        assert_int_equal(disk.told, 2);
        assert_true(disk.failed_syncs > 1 && disk.saved == disk.failed_syncs + 1);
        check_values(run.target);
        assert_int_equal(entry_count(*state), 2);
    }
}

/* Of 1e5 fp16 has no finite value. */
static int save_large(void *from, bool masters, const struct hst_writer *writer,
                      struct hst_error *error)
{
    const float large[] = {1, 1e5f, 3, 4, 5, -1e5f};
    const struct hst_param_ref ref = {.name = "z.weight"}, other = {.name = "a.weight"};
    (void)from;
    (void)error;
    assert_true(masters);
    disk.saved++;
    int rc = writer->write(writer->context, &ref, 0, large, 6, HST_F32);
    return rc ? rc : writer->write(writer->context, &other, 0, a, 5, HST_F32);
}

static void infinite_weights_that_are_written_again_count_once(void **state)
{
    struct run run;
    struct hst_error error = {0};
    begin(*state, &run);
    train_export_end(&run.export);
    run.export.dtype = HST_F16;
    assert_int_equal(train_export_begin(&run.export, &error), 0);
    disk.sync_alone = true;
    disk.until_ns = 1;
    assert_int_equal(train_export_write(&run.export, save_large, NULL, &error), 0);
    assert_int_equal(disk.saved, 2);
    assert_int_equal(run.export.infinite_count, 2);
    assert_string_equal(run.export.infinite_tensor, "z.weight");
    hf_model_close(&run.model);
}

static void a_signal_ends_the_wait_and_nothing_is_left(void **state)
{
    for (int sync_alone = 0; sync_alone < 2; sync_alone++) {
        struct run run;
        struct hst_error error;
        begin(*state, &run);
        disk.sync_alone = sync_alone;
        disk.until_ns = UINT64_MAX;
        disk.signal_ns = 40000000000;
        assert_int_equal(finish(&run, &error), -ECANCELED);
        assert_int_equal(disk.told, 2);
        assert_int_equal(now_ns, disk.signal_ns);
        assert_int_equal(entry_count(*state), 1);
    }
}

/* Not in the wait: what is then to be told is the stop, and not the disk. */
static void a_signal_while_the_disk_is_found_full_ends_the_export(void **state)
{
    struct run run;
    struct hst_error error;
    begin(*state, &run);
    disk.sync_alone = disk.signal_in_sync = true;
    disk.until_ns = UINT64_MAX;
    assert_int_equal(finish(&run, &error), -ECANCELED);
    assert_int_equal(disk.failed_syncs, 1);
    assert_int_equal(entry_count(*state), 1);
}

static void where_nobody_could_end_the_wait_there_is_none(void **state)
{
    for (int sync_alone = 0; sync_alone < 2; sync_alone++) {
        struct run run;
        struct hst_error error;
        begin(*state, &run);
        run.export.stopped = NULL;
        disk.sync_alone = sync_alone;
        disk.until_ns = UINT64_MAX;
        assert_int_equal(finish(&run, &error), -ENOSPC);
        assert_int_equal(error.code, FAIL_DISK_SPACE);
        assert_int_equal(disk.told, 0);
        assert_int_equal(entry_count(*state), 1);
    }
}

static void a_drive_that_fails_at_the_sync_is_not_waited_for(void **state)
{
    struct run run;
    struct hst_error error;
    begin(*state, &run);
    disk.error = EIO;
    disk.sync_alone = true;
    disk.until_ns = UINT64_MAX;
    assert_int_equal(finish(&run, &error), -EIO);
    assert_int_equal(error.code, FAIL_WRITE);
    assert_int_equal(disk.told, 0);
    assert_int_equal(entry_count(*state), 1);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup_directory, teardown_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_full_disk_is_told_again_every_thirty_seconds),
        CASE(what_a_sync_finds_full_is_waited_for_and_written_again),
        CASE(infinite_weights_that_are_written_again_count_once),
        CASE(a_signal_ends_the_wait_and_nothing_is_left),
        CASE(a_signal_while_the_disk_is_found_full_ends_the_export),
        CASE(where_nobody_could_end_the_wait_there_is_none),
        CASE(a_drive_that_fails_at_the_sync_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
