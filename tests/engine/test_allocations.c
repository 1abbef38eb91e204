/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every allocation of a small run with a store fails in turn: of one that begins, and of one that
 * is resumed. Either nothing comes of it, or the run stops and says why; nothing leaks (the
 * sanitizers watch), and the store that is there is resumed to the same bytes.
 *
 *     test_engine_allocations [STRIDE]     every STRIDE-th (1: all of them)
 */
#include "toy_run.h"
#include "toy_states.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the allocator: workers and threads of aio allocate too ---- */

static atomic_long until = -1; /* allocations from now on; below 0: none fails */
static long left;              /* of those, when a run was over */

static bool fails(void)
{
    return atomic_load(&until) >= 0 && atomic_fetch_sub(&until, 1) == 0;
}

#define WRAPPED(type, name, parameters, arguments, failed)                                         \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        return fails() ? failed : __real_##name arguments;                                         \
    }

WRAPPED(void *, malloc, (size_t bytes), (bytes), NULL)
WRAPPED(void *, calloc, (size_t count, size_t bytes), (count, bytes), NULL)
WRAPPED(void *, realloc, (void *old, size_t bytes), (old, bytes), NULL)
WRAPPED(char *, strdup, (const char *text), (text), NULL)
WRAPPED(char *, strndup, (const char *text, size_t bytes), (text, bytes), NULL)
WRAPPED(void *, mmap, (void *at, size_t bytes, int access, int flags, int fd, off_t offset),
        (at, bytes, access, flags, fd, offset), (errno = ENOMEM, MAP_FAILED))

/* ---- runs ---- */

enum { STEPS = 2 };
static long stride = 1;
static struct toy_states alone, found; /* large: not on the stack */

#define KEPT(...)                                                                                  \
    hst_config(.store = toy_store, .batch_tokens = 10, .micro_batch_tokens = 4,                    \
               .dram_bytes = 64u << 20, .threads = 2, .tile_elements = 65536,                      \
               .durability = "step", .place = "states=nvme,weights=nvme,grads=nvme,acts=nvme",     \
               __VA_ARGS__)

static void clear_store(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -f '%s'/r0*", toy_store);
    assert_int_equal(system(command), 0);
}

/* Begins or goes on, to the last step; *states is of the end, where it comes to that. Returns the
 * first code, and what it was told with. */
static int run(bool resume, uint64_t last, struct toy_states *states, struct hst_error *error)
{
    struct hst_engine *engine = NULL;
    struct hst_config config = *KEPT(.error = error);
    struct hst_step_stats stats;
    uint64_t step = 0;
    size_t bytes;
    *error = (struct hst_error){0};
    int rc = hst_engine_create(&config, &engine);
    rc = rc ? rc : toy_describe(engine);
    rc = rc ? rc : hst_engine_seal(engine, HST_ORDER_FORWARD);
    if (rc == 0 && resume)
        rc = hst_engine_resume(engine, &step, NULL, 0, &bytes);
    if (rc == 0 && !resume)
        rc = toy_load(engine);
    if (resume && rc == -ENOENT) /* nothing was ever committed: from the start */
        rc = toy_load(engine);
    while (rc == 0 && step++ < last)
        rc = toy_step(engine, &stats);
    rc = rc ? rc : hst_engine_drain(engine, &stats);
    left = atomic_exchange(&until, -1);
    if (rc == 0)
        toy_must(engine, toy_states(engine, states));
    if (engine)
        *error = *hst_engine_error(engine);
    hst_engine_destroy(&engine);
    return rc;
}

static void check_end(long number)
{
    if (found.used != alone.used || memcmp(found.bytes, alone.bytes, alone.used) != 0)
        fail_msg("allocation %ld: other bytes", number);
}

/* A store of one step, or none. */
static void begin(bool resume)
{
    struct hst_error error;
    clear_store();
    if (resume)
        assert_int_equal(run(false, 1, &found, &error), 0);
}

/* The n-th allocation fails; then the store that is left goes on. Returns whether it stopped. */
static bool strike(long number, bool resume)
{
    struct hst_error error;
    begin(resume);
    atomic_store(&until, number);
    const int rc = run(resume, STEPS, &found, &error);
    if (rc == 0)
        check_end(number);
    if (rc && error.code == 0 && rc != -ENOMEM)
        fail_msg("allocation %ld: %d, and nothing is told", number, rc);
    if (rc && error.code && (error.message[0] == 0 || error.native == 0))
        fail_msg("allocation %ld: %d, E%d without a reason", number, rc, error.code);
    const int again = run(true, STEPS, &found, &error);
    if (again)
        fail_msg("allocation %ld, then resumed: %d, E%d %s", number, again, error.code,
                 error.message);
    check_end(number);
    return rc != 0;
}

static void strike_all(bool resume)
{
    const long most = 1000000;
    struct hst_error error;
    long stopped = 0, tried = 0;
    begin(resume);
    atomic_store(&until, most);
    assert_int_equal(run(resume, STEPS, &found, &error), 0);
    const long count = most - left;
    for (long number = 0; number < count; number += stride, tried++)
        stopped += strike(number, resume);
    clear_store();
    print_message("%ld of %ld allocations failed, %ld of them stopped the run\n", tried, count,
                  stopped);
    assert_true(stopped > tried / 2); /* most are needed */
}

static void every_allocation_of_a_new_run_fails(void **state)
{
    (void)state;
    strike_all(false);
}

static void every_allocation_of_a_resumed_run_fails(void **state)
{
    (void)state;
    strike_all(true);
}

static int make(void **state)
{
    struct hst_error error;
    int rc = toy_make_store(state);
    rc = rc ? rc : run(false, STEPS, &alone, &error);
    clear_store();
    return rc;
}

int main(int argc, char **argv)
{
    stride = argc > 1 ? strtol(argv[1], NULL, 10) : 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_of_a_new_run_fails),
        cmocka_unit_test(every_allocation_of_a_resumed_run_fails),
    };
    return cmocka_run_group_tests(tests, make, toy_remove_store);
}
