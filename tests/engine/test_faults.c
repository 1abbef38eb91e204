/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every transfer of a small run fails once: the run ends with the right code, says what failed,
 * moves nothing more, and can be destroyed with transfers still in flight. ASan and TSan watch.
 */
#include "cases.h"
#include "session/engine_state.h"
#include "toy_run.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char store[] = "hst-faults-XXXXXX";

/* Stands in front of an engine's extents: the operation whose number comes up completes with an
   error, either at once (refused) or when it is reaped (after its bytes have moved). */
static struct {
    const struct extents_ops *behind;
    unsigned operations, fail_at;
    bool refuse, doomed_write;
    struct transfer *doomed;
    bool lazy;                /* progress is made only where somebody waits */
    unsigned waits, break_at; /* the wait that finds the backend broken */
} fault;

static int begin(struct transfer *transfer, int rc)
{
    if (rc == 0 && fault.operations == fault.fail_at)
        fault.doomed = transfer;
    return rc;
}

static bool refused(bool write)
{
    if (++fault.operations == fault.fail_at)
        fault.doomed_write = write;
    return fault.operations == fault.fail_at && fault.refuse;
}

static int fault_read(struct extents *extents, enum extent_kind kind, uint32_t index, void *buffer,
                      struct transfer *transfer)
{
    if (refused(false))
        return -EIO;
    return begin(transfer, fault.behind->read(extents, kind, index, buffer, transfer));
}

static int fault_write(struct extents *extents, enum extent_kind kind, uint32_t index, void *buffer,
                       struct transfer *transfer)
{
    if (refused(true))
        return -EIO;
    return begin(transfer, fault.behind->write(extents, kind, index, buffer, transfer));
}

static int fault_progress(struct extents *extents, uint64_t wait_ns)
{
    bool wait = wait_ns > 0;
    if (fault.lazy && !wait)
        return 0;
    fault.waits += wait;
    if (fault.waits >= fault.break_at) /* from then on, for good */
        return -ENXIO;
    int rc = fault.behind->progress(extents, wait_ns);
    if (fault.doomed && !fault.doomed->active) {
        fault.doomed->error = -EIO;
        fault.doomed = NULL;
    }
    return rc;
}

static void fault_close(struct extents *extents)
{
    fault.doomed = NULL;
    extents->ops = fault.behind;
    extents->ops->close(extents);
}

static const struct extents_ops FAULT_OPS = {fault_read, fault_write, fault_progress, NULL,
                                             fault_close};

static struct toy_saved saved;

/* Two steps and a save with the n-th operation failing. Returns the first code. */
static int run_with_fault(unsigned fail_at, bool refuse, struct hst_error *error)
{
    struct hst_engine *engine = NULL;
    const struct hst_config *config =
        hst_config(.store = store, .durability = "none", .place = "states=nvme,weights=nvme",
                   .batch_tokens = 10, .micro_batch_tokens = 4, .dram_bytes = 64u << 20,
                   .threads = 2, .tile_elements = 65536);
    assert_int_equal(hst_engine_create(config, &engine), 0);
    assert_int_equal(toy_seal_and_load(engine), 0);
    fault.behind = engine->extents->ops;
    fault.operations = 0;
    fault.fail_at = fail_at;
    fault.refuse = refuse;
    fault.doomed = NULL;
    fault.doomed_write = false;
    fault.waits = 0;
    engine->extents->ops = &FAULT_OPS;
    return toy_try(engine, 0, &saved, error);
}

static void every_operation_can_fail(bool refuse)
{
    struct hst_error error;
    assert_int_equal(run_with_fault(UINT32_MAX, refuse, &error), 0);
    unsigned all = fault.operations, untold = 0, reads = 0, writes = 0;
    assert_true(all > 50);
    for (unsigned n = 1; n <= all; n++) {
        int rc = run_with_fault(n, refuse, &error);
        if (rc == 0) { /* only a read ahead for a step that never came may stay untold */
            assert_false(refuse || fault.doomed_write);
            untold++;
            continue;
        }
        assert_int_equal(rc, -EIO);
        assert_int_equal(error.code, fault.doomed_write ? HST_E_WRITE : HST_E_READ);
        assert_non_null(strstr(error.message, "tile"));
        reads += error.code == HST_E_READ;
        writes += error.code == HST_E_WRITE;
    }
    assert_true(reads > 20 && writes > 10);
    assert_true(untold <= 3 * 4); /* three reservations of at most four tiles */
}

static void a_backend_that_breaks_down_ends_the_run(void **state)
{
    (void)state;
    struct hst_error error;
    fault.break_at = UINT32_MAX;
    assert_int_equal(run_with_fault(UINT32_MAX, false, &error), 0);
    unsigned all = fault.waits;
    assert_true(all > 5);
    for (unsigned n = 1; n <= all; n++) {
        fault.break_at = n;
        int rc = run_with_fault(UINT32_MAX, false, &error);
        if (rc == 0)
            assert_true(fault.waits < n); /* fewer waits this time: it did not break down */
        else
            assert_int_equal(rc, -ENXIO);
    }
    fault.break_at = UINT32_MAX;
}

static void an_operation_that_is_refused_ends_the_run(void **state)
{
    (void)state;
    every_operation_can_fail(true);
}

static void an_operation_that_completes_with_an_error_ends_the_run(void **state)
{
    (void)state;
    every_operation_can_fail(false);
}

static void a_drain_ends_when_all_writes_have_completed(void **state)
{
    (void)state;
    struct hst_engine *engine = NULL;
    struct hst_step_stats stats;
    const struct hst_config *config =
        hst_config(.store = store, .durability = "none", .place = "states=nvme,weights=nvme",
                   .batch_tokens = 10, .micro_batch_tokens = 4, .dram_bytes = 64u << 20,
                   .threads = 2, .tile_elements = 65536);
    assert_int_equal(hst_engine_create(config, &engine), 0);
    assert_int_equal(toy_seal_and_load(engine), 0);
    fault.behind = engine->extents->ops;
    fault.fail_at = UINT32_MAX;
    fault.lazy = true;
    engine->extents->ops = &FAULT_OPS;
    assert_int_equal(toy_step(engine, &stats), 0);
    assert_int_equal(hst_engine_drain(engine, NULL), 0);
    /* loaded and updated: everything was written twice */
    assert_int_equal(engine->extents->counters.written_bytes, 2 * engine->placement.nvme_bytes);
    fault.lazy = false;
    hst_engine_destroy(&engine);
}

static int make_store(void **state)
{
    (void)state;
    return mkdtemp(store) ? 0 : -1;
}

static int remove_store(void **state)
{
    (void)state;
    return rmdir(store);
}

static int never_broken(void **state)
{
    fault.break_at = UINT32_MAX;
    return make_store(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_operation_that_is_refused_ends_the_run),
        cmocka_unit_test(an_operation_that_completes_with_an_error_ends_the_run),
        cmocka_unit_test(a_backend_that_breaks_down_ends_the_run),
        cmocka_unit_test(a_drain_ends_when_all_writes_have_completed),
    };
    return run_cases(tests, never_broken, remove_store);
}
