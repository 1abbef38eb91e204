/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a reshard leaves that was killed: nothing opens it, no run begins anew in it, no other
 * reshard takes it, and none of these changes it.
 */
#include "toy_run.h"

#include <hoistway/ckpt.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define OUT "x,y"

static char root[] = "/dev/shm/hst-unfinished-XXXXXX"; /* in memory: its files are synced */
static struct hst_error error;

#define CONFIG(name)                                                                               \
    hst_config(.batch_tokens = 10, .micro_batch_tokens = 4, .dram_bytes = 64u << 20, .threads = 2, \
               .tile_elements = 8192, .store = (name), .durability = "step",                       \
               .place = "states=nvme,weights=nvme", .error = &error)

/* A store of one step in "one", below a new root. */
static int make_store(void **state)
{
    struct hst_step_stats stats;
    (void)state;
    if (!mkdtemp(root) || chdir(root))
        return -1;
    struct hst_engine *engine = toy_created(CONFIG("one"));
    toy_must(engine, toy_seal_and_load(engine));
    toy_must(engine, toy_step(engine, &stats));
    toy_must(engine, hst_engine_drain(engine, &stats));
    hst_engine_destroy(&engine);
    return 0;
}

static int remove_root(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", root);
    return system(command);
}

/* To so many ranks in OUT. */
static int reshard(uint32_t world, const struct hst_ckpt_watch *watch)
{
    struct hst_ckpt *ckpt = NULL;
    const struct hst_ckpt_config config = {
        .size = sizeof config, .store = "one", .step = HST_NO_VERSION, .hold = true};
    int rc = hst_ckpt_open(&config, &ckpt, &error);
    rc = rc ? rc : hst_ckpt_reshard(ckpt, OUT, world, watch, &error);
    hst_ckpt_close(&ckpt);
    return rc;
}

static int open_out(void)
{
    struct hst_ckpt *ckpt = NULL;
    const struct hst_ckpt_config config = {
        .size = sizeof config, .store = OUT, .step = HST_NO_VERSION, .hold = true};
    int rc = hst_ckpt_open(&config, &ckpt, &error);
    hst_ckpt_close(&ckpt);
    return rc;
}

static int die_at(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    const uint64_t *part = context;
    if (done_bytes >= total_bytes / 8 * *part)
        _exit(77);
    return 0;
}

/* A process that ends at once leaves what one leaves that is killed. */
static void kill_reshard(uint32_t world, uint64_t part)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct hst_ckpt_watch watch = {.progress = die_at, .context = &part};
        (void)reshard(world, &watch);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 77);
}

static void assert_told(int rc, const struct hst_error *told)
{
    assert_int_equal(rc, -EEXIST);
    assert_int_equal(told->code, HST_E_STORE_EMPTY);
    assert_non_null(strstr(told->message, "reshard again"));
}

static void what_was_killed_is_neither_opened_nor_begun_anew(void **state)
{
    (void)state;
    for (uint32_t world = 1; world <= 4; world += 3) {
        for (uint64_t part = 1; part < 8; part += 2) { /* of four ranks in each */
            kill_reshard(world, part);
            assert_told(open_out(), &error);
            struct hst_engine *engine = NULL;
            assert_told(hst_engine_create(CONFIG(OUT), &engine), &error);
            assert_told(reshard(world, NULL), &error);
            assert_told(open_out(), &error); /* none of these has changed it */
            assert_int_equal(system("rm -r x y"), 0);
        }
    }
}

static void what_has_ended_is_a_store_even_where_its_marks_are_left(void **state)
{
    (void)state;
    assert_int_equal(reshard(4, NULL), 0);
    assert_int_equal(access("x/reshard.unfinished", F_OK), -1);
    assert_int_equal(access("y/reshard.unfinished", F_OK), -1);
    assert_int_equal(open_out(), 0);
    assert_int_equal(mknod("x/reshard.unfinished", S_IFREG | 0600, 0), 0);
    assert_int_equal(open_out(), 0);
    assert_int_equal(reshard(4, NULL), -EEXIST);
    assert_int_equal(error.code, HST_E_STORE_TAKEN);
    assert_int_equal(system("rm -r x y"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_killed_is_neither_opened_nor_begun_anew),
        cmocka_unit_test(what_has_ended_is_a_store_even_where_its_marks_are_left),
    };
    return cmocka_run_group_tests(tests, make_store, remove_root);
}
