/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every request of a run fails in turn, in every way: the run recovers or stops with the right
 * code, it never hangs and never returns a wrong byte. First argument: the backend.
 */
#include "internal.h" /* a plan is put into an open context: one probe for all runs */
#include "kernel.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h> /* needs the ones before */

enum { KIB = 1 << 10, PIECE = 256 * KIB, FILE_BYTES = 2048 * KIB, OPS = 8 };

static enum hst_aio_backend backend;
static char directory[] = "aio-faults-XXXXXX";
static const char *model; /* of sim */

/* The run: one operation after the other, `requests` pieces each. */
static const struct {
    enum hst_aio_kind kind;
    uint32_t offset_kib, kib, requests;
} script[OPS] = {
    {HST_AIO_WRITE, 0, 1024, 4}, {HST_AIO_WRITE, 1024, 64, 1}, {HST_AIO_SYNC, 0, 0, 1},
    {HST_AIO_READ, 0, 1024, 4},  {HST_AIO_READ, 1024, 64, 1},  {HST_AIO_WRITE, 128, 512, 2},
    {HST_AIO_SYNC, 0, 0, 1},     {HST_AIO_READ, 128, 512, 2},
};
enum { REQUESTS = 4 + 1 + 1 + 4 + 1 + 2 + 1 + 2 };

/* What operations that are struck end with; 0: nothing, they recover. */
static const struct {
    const char *plan; /* after "op=… nth=…" */
    int read, write, sync;
    bool endless; /* also strikes all later ones */
    bool gone;    /* and later ones are refused */
} kinds[] = {
    {"err=EIO", 0, 0, -EIO, false, false},
    {"err=EIO times=all", -EIO, -EIO, -EIO, true, false},
    {"err=EREMOTEIO", 0, 0, -EREMOTEIO, false, false},
    {"err=EILSEQ", 0, 0, -EILSEQ, false, false},
    {"err=ENODATA times=all", -EIO, -EIO, -EIO, true, false},
    {"err=ENOSPC", -ENOSPC, -ENOSPC, -ENOSPC, false, false},
    {"err=EDQUOT", -EDQUOT, -EDQUOT, -EDQUOT, false, false},
    {"err=EFBIG", -EFBIG, -EFBIG, -EFBIG, false, false},
    {"err=EROFS", -EROFS, -EROFS, -EROFS, false, false},
    {"err=EINVAL", -EINVAL, -EINVAL, -EINVAL, false, false},
    {"err=ETIMEDOUT", -ETIMEDOUT, -ETIMEDOUT, -ETIMEDOUT, false, false},
    {"err=EAGAIN times=3", 0, 0, 0, false, false},
    {"err=EAGAIN times=all", -EAGAIN, -EAGAIN, -EAGAIN, true, false},
    {"err=EINTR times=8", 0, 0, 0, false, false},
    {"err=EINTR times=all", -EINTR, -EINTR, -EINTR, true, false},
    {"short=half", 0, 0, 0, false, false},
    {"short=half times=all", -ENODATA, -ENOSPC, 0, true, false}, /* down to half a block */
    {"short=0", -ENODATA, -ENOSPC, 0, false, false},
    {"short=512", 0, 0, 0, false, false},
    {"short=512 times=all", -ENODATA, -ENOSPC, 0, true, false},
    {"short=20K", 0, 0, 0, false, false},
    {"err=ENODEV", -ENODEV, -ENODEV, -ENODEV, true, true},
    {"err=ENXIO", -ENODEV, -ENODEV, -ENODEV, true, true},
    {"vanish", -ENODEV, -ENODEV, -ENODEV, true, true},
    {"torn", 0, 0, -EIO, false, false},
    {"torn=8K err=ENOSPC", -ENOSPC, -ENOSPC, -ENOSPC, false, false},
    {"late=3ms", 0, 0, 0, false, false},
    {"late=2ms times=all", 0, 0, 0, true, false},
    {"reordered", 0, 0, 0, false, false},
    {"reordered=1 times=all", 0, 0, 0, true, false},
    {"flip", -EBADMSG, 0, 0, false, false},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static struct hst_aio *aio;
static char *buffer, *bytes; /* bytes: what the file must hold */

static void open_context(const char *plan)
{
    const struct hst_aio_config config = {.size = sizeof config,
                                          .backend = backend,
                                          .piece_bytes = PIECE,
                                          .queue_depth = 4,
                                          .model = model,
                                          .fault = plan};
    assert_int_equal(hst_aio_open(&config, directory, &aio, NULL), 0);
}

static int run_op(struct hst_aio_op *op, struct hst_aio_completion *done)
{
    int rc = hst_aio_submit(aio, op, 1);
    if (rc < 0)
        return rc;
    rc = hst_aio_reap(aio, done, 1, 1, UINT64_MAX);
    if (rc < 0)
        return rc;
    assert_int_equal(rc, 1);
    assert_int_equal(hst_aio_in_flight(aio), 0);
    assert_int_equal(hst_aio_reap(aio, done + 1, 1, 1, UINT64_MAX), 0); /* only once */
    return done->error;
}

/* The run's operation i with fresh bytes; a read is checked where its bytes are known. */
static int run_step(struct hst_aio_file *file, size_t i, uint64_t seed, const bool *known)
{
    const uint64_t offset = script[i].offset_kib * KIB, length = script[i].kib * KIB;
    struct hst_aio_completion done[2] = {{0}};
    uint64_t hashes[2] = {0};
    struct hst_aio_op op = {
        .kind = script[i].kind, .file = file, .offset = offset, .buffer = buffer, .bytes = length};
    const bool checked = op.kind == HST_AIO_READ && *known;
    if (op.kind == HST_AIO_WRITE)
        for (size_t word = 0; word < length / 8; word++)
            ((uint64_t *)buffer)[word] = (seed + i) * 0x9e3779b97f4a7c15u ^ word << 20;
    if (op.kind == HST_AIO_WRITE)
        memcpy(bytes + offset, buffer, length);
    if (checked) {
        struct job job = {.op = op};
        job.op.buffer = bytes + offset;
        job.op.hashes = op.hashes = hashes;
        hst_aio_hash_fill(&job, length);
        memset(buffer, 0xa5, length);
    }
    const int error = run_op(&op, done);
    if (error == 0)
        assert_int_equal(done[0].bytes, length);
    if (error == 0 && checked)
        assert_memory_equal(buffer, bytes + offset, length);
    return error;
}

static int code_of(size_t kind, enum hst_aio_kind op)
{
    return op == HST_AIO_READ    ? kinds[kind].read
           : op == HST_AIO_WRITE ? kinds[kind].write
                                 : kinds[kind].sync;
}

static void run_script(size_t kind, uint32_t request)
{
    struct hst_aio_file *file = NULL;
    uint32_t first = 1;
    bool known = true;
    alarm(30); /* a hang ends the test */
    assert_int_equal(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, FILE_BYTES, &file), 0);
    for (size_t i = 0; i < OPS; i++) {
        const bool now = request >= first && request < first + script[i].requests;
        const bool struck = now || (kinds[kind].endless && request < first);
        const int expected = struck ? code_of(kind, script[i].kind) : 0;
        const int error = run_step(file, i, request, &known);
        if (error != expected)
            print_message("request %u, %s, operation %zu\n", request, kinds[kind].plan, i);
        assert_int_equal(error, expected);
        if (error && script[i].kind == HST_AIO_WRITE)
            known = false; /* which bytes a failed write moved is not known */
        first += script[i].requests;
    }
    struct hst_aio_op op = {.kind = HST_AIO_SYNC, .file = file};
    assert_true(!aio->gone || hst_aio_submit(aio, &op, 1) == -ENODEV);
    assert_int_equal(aio->gone != 0, kinds[kind].gone);
    hst_aio_file_close(&file);
    alarm(0);
}

static void every_request_fails_in_every_way(void **state)
{
    char plan[128];
    (void)state;
    open_context(NULL);
    for (size_t kind = 0; kind < KINDS; kind++)
        for (uint32_t request = 1; request <= REQUESTS; request++) {
            snprintf(plan, sizeof plan, "nth=%u %s; seed=%u", request, kinds[kind].plan, request);
            assert_int_equal(hst_aio_fault_open(aio, plan), 0);
            run_script(kind, request);
            hst_aio_fault_close(aio);
            aio->gone = 0; /* it was the plan's doing */
        }
    hst_aio_close(&aio);
}

static void a_plan_given_at_the_open_strikes_from_the_first_operation_on(void **state)
{
    (void)state;
    for (size_t kind = 0; kind < KINDS; kind += 4) {
        char plan[128];
        snprintf(plan, sizeof plan, "; nth=1,%s", kinds[kind].plan);
        open_context(plan);
        run_script(kind, 1);
        hst_aio_close(&aio);
    }
}

/* Whichever request is never answered: the others end, and then nobody waits for ever. */
static void a_request_that_is_never_answered_ends_the_wait(void **state)
{
    (void)state;
    const uint64_t limit_ms = backend == HST_AIO_SIM ? 50000 : 40;
    for (uint32_t request = 1; request <= REQUESTS; request++) {
        char plan[64];
        struct hst_aio_file *file = NULL;
        bool known = true;
        int error = 0;
        snprintf(plan, sizeof plan, "nth=%u late=1000s", request);
        open_context(plan);
        aio->config.timeout_ms = (uint32_t)limit_ms;
        assert_int_equal(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, FILE_BYTES, &file), 0);
        const uint64_t start_ns = hst_aio_clock_ns(aio);
        alarm(30);
        for (size_t i = 0; i < OPS && !error; i++)
            error = run_step(file, i, request, &known);
        alarm(0);
        assert_int_equal(error, -ETIMEDOUT);
        assert_true(hst_aio_clock_ns(aio) - start_ns >= limit_ms * 1000000u);
        assert_int_equal(hst_aio_in_flight(aio), 0);
        struct hst_aio_op op = {.kind = HST_AIO_SYNC, .file = file};
        assert_int_equal(hst_aio_submit(aio, &op, 1), -ETIMEDOUT); /* it stays broken */
        hst_aio_file_close(&file);
        hst_aio_close(&aio);
    }
}

/* It answers all the time, only never everything: that is a drive at work. */
static void a_drive_that_is_always_busy_is_not_taken_for_a_stuck_one(void **state)
{
    (void)state;
    if (backend != HST_AIO_SIM)
        skip(); /* it would take real time */
    open_context(NULL);
    aio->config.timeout_ms = 10;
    struct hst_aio_file *file = NULL;
    struct hst_aio_completion done;
    assert_int_equal(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, FILE_BYTES, &file), 0);
    const struct hst_aio_op op = {
        .kind = HST_AIO_READ, .file = file, .buffer = buffer, .bytes = PIECE};
    assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
    while (hst_aio_clock_ns(aio) < 100000000u) {
        assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
        assert_int_equal(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX), 1);
        assert_int_equal(done.error, 0);
    }
    assert_int_equal(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX), 1);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
}

/* Pauses between retries are ours, not the drive's. */
static void what_is_paused_waits_for_no_drive(void **state)
{
    (void)state;
    if (backend != HST_AIO_SIM)
        skip();
    open_context("times=all err=EAGAIN");
    aio->config.timeout_ms = 1;
    struct hst_aio_file *file = NULL;
    struct hst_aio_completion done[2];
    assert_int_equal(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, FILE_BYTES, &file), 0);
    struct hst_aio_op op = {.kind = HST_AIO_READ, .file = file, .buffer = buffer, .bytes = PIECE};
    assert_int_equal(run_op(&op, done), -EAGAIN);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
}

/* Requests that may have been answered while nobody looked are not late. */
static void a_caller_who_was_away_finds_its_results(void **state)
{
    const uint64_t second_ns = 1000000000u;
    (void)state;
    if (backend != HST_AIO_SIM)
        skip();
    open_context("nth=1 late=100s"); /* from when it is looked for */
    struct hst_aio_file *file = NULL;
    struct hst_aio_completion done;
    assert_int_equal(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, FILE_BYTES, &file), 0);
    const struct hst_aio_op op = {
        .kind = HST_AIO_READ, .file = file, .buffer = buffer, .bytes = PIECE};
    assert_int_equal(hst_aio_submit(aio, &op, 1), 1);
    hst_aio_idle(aio, 140 * second_ns);
    assert_int_equal(hst_aio_reap(aio, &done, 1, 0, 0), 0); /* the clock begins only now */
    assert_int_equal(hst_aio_reap(aio, &done, 1, 1, UINT64_MAX), 1);
    assert_int_equal(done.error, 0);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
}

/* A page cache may have to be written first. */
static void a_sync_has_ten_times_as_long(void **state)
{
    static const struct {
        const char *late;
        int error;
    } cases[] = {{"op=sync late=900ms", 0}, {"op=sync late=1100ms", -ETIMEDOUT}};
    (void)state;
    if (backend != HST_AIO_SIM)
        skip();
    for (size_t i = 0; i < 2; i++) {
        struct hst_aio_file *file = NULL;
        struct hst_aio_completion done[2];
        open_context(cases[i].late);
        aio->config.timeout_ms = 100;
        assert_int_equal(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, FILE_BYTES, &file), 0);
        struct hst_aio_op op = {.kind = HST_AIO_SYNC, .file = file};
        assert_int_equal(run_op(&op, done), cases[i].error);
        hst_aio_file_close(&file);
        hst_aio_close(&aio);
    }
}

static void a_stream_tells_of_each_request_that_fails(void **state)
{
    enum { TILE = 64 * KIB, TILES = FILE_BYTES / TILE };
    (void)state;
    for (unsigned nth = 1; nth <= TILES; nth += 5)
        for (int write = 0; write < 2; write++) {
            char plan[64];
            struct hst_aio_file *file = NULL;
            struct hst_aio_stream *stream = NULL;
            struct hst_aio_completion bad = {0};
            const struct hst_aio_stream_config config = {
                .size = sizeof config, .tile_bytes = TILE, .depth = 4};
            snprintf(plan, sizeof plan, "op=%s at=%u len=%u times=all err=EIO",
                     write ? "write" : "read", (nth - 1) * TILE, TILE);
            open_context(plan);
            assert_int_equal(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, FILE_BYTES, &file),
                             0);
            const struct hst_aio_stream_job job = {
                .from = write ? NULL : file, .to = write ? file : NULL, .bytes = FILE_BYTES};
            assert_int_equal(hst_aio_stream_open(aio, &config, &stream), 0);
            assert_int_equal(hst_aio_stream_run(stream, &job, &bad), -EIO);
            assert_int_equal(bad.error, -EIO);
            assert_int_equal(bad.bad_offset, (nth - 1) * TILE);
            assert_int_equal(hst_aio_in_flight(aio), 0);
            hst_aio_stream_close(&stream);
            hst_aio_file_close(&file);
            hst_aio_close(&aio);
        }
}

static void u12_the_exact_range_of_a_media_error_is_reported(void **state)
{
    static const struct {
        uint32_t at, length; /* bad on the medium */
        uint64_t bad_offset, bad_bytes;
    } cases[] = {
        {700 * KIB + 512, 10, 700 * KIB, 4 * KIB},  {0, 1, 0, 4 * KIB},
        {511 * KIB, 512, 508 * KIB, 4 * KIB},       {300 * KIB, 40 * KIB, 300 * KIB, 40 * KIB},
        {1020 * KIB, 4 * KIB, 1020 * KIB, 4 * KIB}, {264 * KIB, 128 * KIB, 264 * KIB, 248 * KIB},
    };
    (void)state;
    open_context(NULL);
    struct hst_aio_file *file = NULL;
    assert_int_equal(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, FILE_BYTES, &file), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char plan[128];
        struct hst_aio_completion done[2] = {{0}};
        struct hst_aio_op op = {
            .kind = HST_AIO_READ, .file = file, .buffer = buffer, .bytes = 1024 * KIB};
        snprintf(plan, sizeof plan, "op=read at=%u len=%u times=all err=EIO", cases[i].at,
                 cases[i].length);
        assert_int_equal(hst_aio_fault_open(aio, plan), 0);
        assert_int_equal(run_op(&op, done), -EIO);
        assert_int_equal(done[0].bad_offset, cases[i].bad_offset);
        assert_int_equal(done[0].bad_bytes, cases[i].bad_bytes);
        hst_aio_fault_close(aio);
    }
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
}

static void u13_a_vanished_drive_stops_everything_at_once(void **state)
{
    (void)state;
    open_context(NULL);
    struct hst_aio_file *file = NULL;
    struct hst_aio_completion done[4];
    struct hst_aio_op ops[4];
    struct hst_aio_counters before, after;
    assert_int_equal(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, FILE_BYTES, &file), 0);
    for (size_t i = 0; i < 4; i++)
        ops[i] = (struct hst_aio_op){
            .kind = HST_AIO_READ, .file = file, .buffer = buffer, .bytes = FILE_BYTES, .user = i};
    assert_int_equal(hst_aio_fault_open(aio, "nth=2 vanish"), 0);
    hst_aio_counters(aio, &before);
    assert_int_equal(hst_aio_submit(aio, ops, 4), 4);
    assert_int_equal(hst_aio_reap(aio, done, 4, 4, 10000000000u), 4);
    hst_aio_counters(aio, &after);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(done[i].error, -ENODEV);
    assert_int_equal(after.requests - before.requests, 16); /* none after the first answers */
    assert_int_equal(hst_aio_submit(aio, ops, 1), -ENODEV);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
}

static void u13_what_stopped_short_when_the_drive_vanished_is_never_said_to_be_whole(void **state)
{
    enum { FIRST, SECOND, OPS_HERE };
    (void)state;
    open_context("nth=1 err=ENODEV; nth=2 times=4 short=half");
    struct hst_aio_file *file = NULL;
    struct hst_aio_completion done[OPS_HERE];
    assert_int_equal(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, FILE_BYTES, &file), 0);
    const struct hst_aio_op ops[OPS_HERE] = {
        {.kind = HST_AIO_WRITE, .file = file, .buffer = buffer, .bytes = PIECE, .user = FIRST},
        {.kind = HST_AIO_WRITE,
         .file = file,
         .offset = PIECE,
         .buffer = buffer,
         .bytes = 4 * PIECE,
         .user = SECOND}};
    assert_int_equal(hst_aio_submit(aio, ops, OPS_HERE), OPS_HERE);
    assert_int_equal(hst_aio_reap(aio, done, OPS_HERE, OPS_HERE, 10000000000u), OPS_HERE);
    for (size_t i = 0; i < OPS_HERE; i++) {
        if (done[i].user == FIRST || backend == HST_AIO_SIM || done[i].error)
            assert_int_equal(done[i].error, -ENODEV);
        else /* a drive that was so fast that all had been continued before */
            assert_int_equal(done[i].bytes, 4 * PIECE);
    }
    assert_int_equal(hst_aio_submit(aio, ops, 1), -ENODEV);
    hst_aio_file_close(&file);
    hst_aio_close(&aio);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(every_request_fails_in_every_way),
        cmocka_unit_test(a_plan_given_at_the_open_strikes_from_the_first_operation_on),
        cmocka_unit_test(a_request_that_is_never_answered_ends_the_wait),
        cmocka_unit_test(a_drive_that_is_always_busy_is_not_taken_for_a_stuck_one),
        cmocka_unit_test(what_is_paused_waits_for_no_drive),
        cmocka_unit_test(a_caller_who_was_away_finds_its_results),
        cmocka_unit_test(a_sync_has_ten_times_as_long),
        cmocka_unit_test(a_stream_tells_of_each_request_that_fails),
        cmocka_unit_test(u12_the_exact_range_of_a_media_error_is_reported),
        cmocka_unit_test(u13_a_vanished_drive_stops_everything_at_once),
        cmocka_unit_test(u13_what_stopped_short_when_the_drive_vanished_is_never_said_to_be_whole),
    };
    static const char *const names[] = {"auto", "uring", "threads", "null", "sim"};
    for (int i = 1; i <= HST_AIO_SIM; i++)
        if (argc == 2 && strcmp(argv[1], names[i]) == 0)
            backend = (enum hst_aio_backend)i;
    model = backend == HST_AIO_SIM ? "sim:read=7G,write=5G,lat=80us" : NULL;
    void *memory = NULL;
    if (backend == HST_AIO_AUTO || !mkdtemp(directory) ||
        hst_aio_buffer_alloc(2 * FILE_BYTES, &memory) < 0)
        return 2;
    buffer = memory;
    bytes = buffer + FILE_BYTES;
    int failed = 77;
    if (backend == HST_AIO_URING && !kernel_has_uring())
        printf("skipped: io_uring is refused here\n");
    else
        failed = cmocka_run_group_tests(cases, NULL, NULL);
    hst_aio_buffer_free(memory, 2 * FILE_BYTES);
    rmdir(directory);
    return failed;
}
