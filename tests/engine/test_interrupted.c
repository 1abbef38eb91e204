/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A drive begins to fail at any request of a run that keeps versions: full, over a quota, broken,
 * gone. The run ends and says why; what it said was committed is there, and resumed without the
 * fault it ends with the bytes of a run that never met it.
 *
 *     test_engine_interrupted [STRIDE]     at every STRIDE-th request (1: all of them)
 */
#include "toy_run.h"
#include "toy_states.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 3 };
static long stride = 1;
static bool far;                       /* all is in a device's memory */
static struct toy_states alone, found; /* large: not on the stack */

static void clear_store(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -f '%s'/r0*", toy_store);
    assert_int_equal(system(command), 0);
}

struct ended {
    int rc;
    uint64_t began, ended; /* steps: before this run, and of it too */
    uint64_t version;      /* that the store is known to hold */
    struct hst_error error;
};

/* From the last version, or from the start, to the last step or to an error. */
static struct ended run(const char *fault, struct toy_states *states)
{
    struct ended end = {.version = HST_NO_VERSION};
    struct hst_engine *engine = NULL;
    struct hst_step_stats stats;
    size_t bytes;
    struct hst_config config =
        *hst_config(.store = toy_store, .batch_tokens = 10, .micro_batch_tokens = 4,
                    .dram_bytes = 64u << 20, .threads = 2, .tile_elements = 65536,
                    .precision = HST_PRECISION_FP32, .durability = "step",
                    .place = "states=nvme,weights=nvme,grads=nvme,acts=nvme", .io_fault = fault,
                    .error = &end.error);
    if (far) {
        config.device = "far";
        config.hbm_bytes = 64u << 20;
        config.place = "weights=hbm,grads=hbm,states=hbm";
    }
    end.rc = hst_engine_create(&config, &engine);
    end.rc = end.rc ? end.rc : toy_describe(engine);
    end.rc = end.rc ? end.rc : hst_engine_seal(engine, HST_ORDER_FORWARD);
    end.rc = end.rc ? end.rc : hst_engine_resume(engine, &end.began, NULL, 0, &bytes);
    if (end.rc == -ENOENT)
        end.rc = toy_load(engine);
    for (end.ended = end.began; end.ended < STEPS && end.rc == 0; end.ended += end.rc == 0)
        end.rc = toy_step(engine, &stats);
    end.rc = end.rc ? end.rc : hst_engine_drain(engine, NULL);
    if (end.rc == 0) /* reads what was trained: another request that can fail */
        end.rc = toy_states(engine, states);
    if (engine) {
        end.version = hst_engine_version(engine);
        end.error = *hst_engine_error(engine);
    }
    hst_engine_destroy(&engine);
    return end;
}

static void check_bytes(const char *fault)
{
    if (found.used != alone.used || memcmp(found.bytes, alone.bytes, alone.used) != 0)
        fail_msg("%s: other bytes", fault);
}

/* What a fault of this kind may be told as. */
struct kind {
    const char *what;
    int native, codes[3];
};

static void check_told(const struct kind *kind, const char *fault, const struct ended *end)
{
    bool known = false;
    for (int i = 0; i < 3; i++)
        known = known || end->error.code == kind->codes[i];
    if (!known || !strstr(end->error.message, "Fix: ") ||
        !strstr(end->error.message, strerror(-kind->native)))
        fail_msg("%s: %d, E%d %s", fault, end->rc, end->error.code, end->error.message);
}

/* No version that was known is lost, what was being written may be there too, and of the steps that
   had ended two at most are to be made again. */
static void check_resumed(const char *fault, const struct ended *end, uint64_t began)
{
    const uint64_t known = end->version == HST_NO_VERSION ? 0 : end->version;
    if (began < known || began > known + 1 || began + 2 < end->ended)
        fail_msg("%s: after step %llu, at version %llu, step %llu is found", fault,
                 (unsigned long long)end->ended, (unsigned long long)known,
                 (unsigned long long)began);
}

/* Returns whether the run met it. */
static bool strike(const struct kind *kind, long number)
{
    char fault[64];
    snprintf(fault, sizeof fault, kind->what, number);
    clear_store();
    const struct ended end = run(fault, &found);
    if (end.rc == 0)
        check_bytes(fault);
    else
        check_told(kind, fault, &end);
    const struct ended again = run(NULL, &found);
    if (again.rc)
        fail_msg("%s, then resumed: %d, E%d %s", fault, again.rc, again.error.code,
                 again.error.message);
    check_resumed(fault, &end, again.began);
    check_bytes(fault);
    return end.rc != 0;
}

static void strike_all(const struct kind *kind)
{
    long met = 0, number = 1;
    for (int missed = 0; missed < 2; number += stride) {
        const bool struck = strike(kind, number);
        met += struck;
        missed = struck ? 0 : missed + 1;
    }
    clear_store();
    print_message("%s: %ld of %ld runs met it\n", kind->what, met, (number - 1) / stride);
    assert_true(met > 2);
}

static void a_drive_that_is_full_ends_the_run_at_its_last_version(void **state)
{
    (void)state;
    strike_all(&(const struct kind){"op=write nth=%ld times=all err=ENOSPC",
                                    -ENOSPC,
                                    {HST_E_DISK_SPACE, HST_E_DISK_SPACE, HST_E_WRITE}});
    strike_all(&(const struct kind){"op=write nth=%ld times=all err=EDQUOT",
                                    -EDQUOT,
                                    {HST_E_DISK_SPACE, HST_E_DISK_SPACE, HST_E_WRITE}});
}

static void a_drive_that_fails_ends_the_run_at_its_last_version(void **state)
{
    (void)state;
    strike_all(&(const struct kind){
        "op=any nth=%ld times=all err=EIO", -EIO, {HST_E_WRITE, HST_E_READ, HST_E_STORE_DAMAGED}});
}

static void a_drive_that_vanishes_ends_the_run_at_its_last_version(void **state)
{
    (void)state;
    strike_all(&(const struct kind){
        "nth=%ld vanish", -ENODEV, {HST_E_WRITE, HST_E_READ, HST_E_STORE_DAMAGED}});
}

static void what_is_in_a_devices_memory_has_its_last_version_too(void **state)
{
    (void)state;
    far = true;
    strike_all(&(const struct kind){
        "op=any nth=%ld times=all err=EIO", -EIO, {HST_E_WRITE, HST_E_READ, HST_E_STORE_DAMAGED}});
    far = false;
}

static int make(void **state)
{
    int rc = toy_make_store(state);
    rc = rc ? rc : run(NULL, &alone).rc;
    clear_store();
    return rc;
}

int main(int argc, char **argv)
{
    stride = argc > 1 ? strtol(argv[1], NULL, 10) : 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drive_that_is_full_ends_the_run_at_its_last_version),
        cmocka_unit_test(a_drive_that_fails_ends_the_run_at_its_last_version),
        cmocka_unit_test(a_drive_that_vanishes_ends_the_run_at_its_last_version),
        cmocka_unit_test(what_is_in_a_devices_memory_has_its_last_version_too),
    };
    return cmocka_run_group_tests(tests, make, toy_remove_store);
}
