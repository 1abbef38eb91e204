/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store that a run has left, read without that run: the weights are those that the engine itself
 * saves, and no extent changes on its way through other numbers of ranks. 44 tiles in five units.
 */
#include "ckpt/ckpt.h"
#include "toy_run.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include <cmocka.h>

enum { STEPS = 3, TILES = 44 };

static char root[] = "/dev/shm/hst-ckpt-XXXXXX"; /* in memory: 60 files are synced */
static struct toy_saved oracle, masters, found;  /* large: not on the stack */
static struct hst_error error;

static void must(int rc)
{
    if (rc)
        fail_msg("returned %d: E%d %s", rc, error.code, error.message);
}

/* "ROOT/a,ROOT/b" of "a,b". */
static const char *in_root(const char *names)
{
    static char text[256];
    size_t n = 0;
    for (const char *at = names; *at; at += strcspn(at, ","), at += *at == ',')
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s/%.*s", n ? "," : "", root,
                              (int)strcspn(at, ","), at);
    return text;
}

static int make_root(void **state)
{
    (void)state;
    if (mkdtemp(root))
        return 0;
    snprintf(root, sizeof root, "/tmp/hst-ckpt-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", root);
    return system(command);
}

static void empty_root(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'/*", root);
    assert_int_equal(system(command), 0);
}

#define OF_RUN(...)                                                                                \
    hst_config(.batch_tokens = 10, .grain_tokens = 4, .dram_bytes = 64u << 20, .threads = 2,       \
               .tile_elements = 8192, __VA_ARGS__)

static int take(void *context, const struct hst_param_ref *param, uint64_t offset, const void *src,
                size_t count, enum hst_dtype dtype)
{
    struct toy_saved *saved = context;
    (void)param;
    (void)offset;
    memcpy(saved->bytes + saved->used, src, count * hst_dtype_bytes(dtype));
    saved->used += count * hst_dtype_bytes(dtype);
    return 0;
}

/* Leaves a store; *saved, and the masters: what the engine saves at its end. */
static void train(enum hst_precision precision, const char *store, int steps,
                  struct toy_saved *saved)
{
    struct hst_engine *engine =
        toy_created(OF_RUN(.store = store, .precision = precision, .durability = "step",
                           .place = "states=nvme,weights=nvme"));
    struct hst_step_stats stats;
    saved->used = 0;
    toy_must(engine, toy_seal_and_load(engine));
    for (int s = 0; s < steps; s++)
        toy_must(engine, toy_step(engine, &stats));
    toy_must(engine, hst_engine_drain(engine, &stats));
    toy_must(engine, toy_save(engine, saved));
    masters.used = 0;
    toy_must(engine, hst_engine_save_masters(engine, &(struct hst_writer){take, &masters}));
    hst_engine_destroy(&engine);
}

static struct hst_ckpt *opened_at(const char *names, uint64_t step)
{
    struct hst_ckpt *ckpt = NULL;
    const struct hst_ckpt_config config = {
        .size = sizeof config, .store = in_root(names), .step = step, .hold = true};
    must(hst_ckpt_open(&config, &ckpt, &error));
    return ckpt;
}

static struct hst_ckpt *opened(const char *names)
{
    return opened_at(names, HST_NO_VERSION);
}

/* Those of the oracle. Closes the handle. */
static void check_weights_of(struct hst_ckpt *ckpt, enum hst_precision precision)
{
    struct hst_engine *model = toy_created(OF_RUN(.precision = precision));
    const struct hst_writer writer = {take, &found};
    found.used = 0;
    toy_must(model, toy_describe(model));
    must(hst_ckpt_model(ckpt, model, &error));
    must(hst_ckpt_save(ckpt, &writer, NULL, &error));
    assert_int_equal(found.used, oracle.used);
    assert_memory_equal(found.bytes, oracle.bytes, oracle.used);
    found.used = 0;
    must(hst_ckpt_save_masters(ckpt, &writer, NULL, &error));
    hst_ckpt_close(&ckpt);
    hst_engine_destroy(&model);
    assert_int_equal(found.used, oracle.used / (precision == HST_PRECISION_FP32 ? 4 : 2) * 4);
    assert_int_equal(masters.used, found.used);
    assert_memory_equal(found.bytes, masters.bytes, found.used);
}

static void check_weights(const char *names, enum hst_precision precision)
{
    check_weights_of(opened(names), precision);
}

static int digest_part(void *context, struct ckpt_part *part)
{
    uint64_t *digest = context;
    const uint64_t seed = *digest + 3 * part->extent.tile + (uint64_t)part->extent.kind;
    assert_int_equal(part->error, 0);
    *digest = XXH3_64bits_withSeed(part->bytes, part->extent.entry.bytes, seed);
    return 0;
}

/* Of every extent in the order of the model. */
static uint64_t digest_of(const char *names)
{
    struct hst_ckpt *ckpt = opened(names);
    uint64_t digest = 0;
    const struct ckpt_reading reading = {
        .share = {0, 1}, .weights = true, .states = true, .visit = digest_part, .context = &digest};
    assert_int_equal(ckpt->layout.tile_count, TILES);
    assert_int_equal(ckpt->layout.unit_count, TOY_UNITS);
    must(ckpt_read(ckpt, &reading, &error));
    hst_ckpt_close(&ckpt);
    return digest;
}

static void reshard(const char *from, uint32_t world, const char *to)
{
    struct hst_ckpt *ckpt = opened(from);
    must(hst_ckpt_reshard(ckpt, in_root(to), world, NULL, &error));
    hst_ckpt_close(&ckpt);
}

static void check_ranks(const char *names, uint32_t world)
{
    struct hst_ckpt *ckpt = opened(names);
    uint64_t damaged = 99;
    assert_int_equal(ckpt->world, world);
    for (uint32_t r = 0; r < world; r++)
        assert_int_equal(ckpt->looks[r].headers[0].extents / STORE_KINDS,
                         share_tiles(&ckpt->layout, (struct share){r, world}));
    must(hst_ckpt_verify(ckpt, NULL, &damaged, &error));
    assert_int_equal(damaged, 0);
    hst_ckpt_close(&ckpt);
}

static void there_and_back_no_extent_changes(void **state)
{
    (void)state;
    static const enum hst_precision PRECISIONS[] = {HST_PRECISION_FP32, HST_PRECISION_BF16,
                                                    HST_PRECISION_FP16};
    for (size_t p = 0; p < sizeof PRECISIONS / sizeof *PRECISIONS; p++) {
        empty_root();
        train(PRECISIONS[p], in_root("one"), STEPS, &oracle);
        check_weights("one", PRECISIONS[p]);
        const uint64_t digest = digest_of("one");
        reshard("one", 2, "two");
        reshard("two", 4, "four-a,four-b,four-c");
        reshard("four-a,four-b,four-c", 1, "again-a,again-b");
        check_ranks("two", 2);
        check_ranks("four-a,four-b,four-c", 4);
        assert_true(digest_of("two") == digest);
        assert_true(digest_of("four-a,four-b,four-c") == digest);
        assert_true(digest_of("again-a,again-b") == digest);
        check_weights("four-a,four-b,four-c", PRECISIONS[p]);
        check_weights("again-a,again-b", PRECISIONS[p]);
    }
}

static void there_are_no_more_ranks_than_tiles(void **state)
{
    (void)state;
    empty_root();
    train(HST_PRECISION_BF16, in_root("one"), STEPS, &oracle);
    reshard("one", TILES, "most");
    check_ranks("most", TILES);
    struct hst_ckpt *ckpt = opened("one");
    assert_int_equal(hst_ckpt_reshard(ckpt, in_root("more"), TILES + 1, NULL, &error), -EINVAL);
    assert_int_equal(error.code, HST_E_VALUE);
    assert_int_equal(access(in_root("more"), F_OK), -1);
    hst_ckpt_close(&ckpt);
}

struct stop {
    uint64_t at_bytes, done_bytes, total_bytes;
};

static int stop_at(void *context, uint64_t done_bytes, uint64_t total_bytes)
{
    struct stop *stop = context;
    assert_true(done_bytes > stop->done_bytes);
    stop->done_bytes = done_bytes;
    stop->total_bytes = total_bytes;
    return done_bytes >= stop->at_bytes;
}

static void what_is_stopped_leaves_nothing(void **state)
{
    (void)state;
    empty_root();
    train(HST_PRECISION_FP32, in_root("one"), STEPS, &oracle);
    struct hst_ckpt *ckpt = opened("one");
    struct hst_ckpt_info info;
    hst_ckpt_info(ckpt, &info);
    const uint64_t all = info.weights_bytes + info.states_bytes;
    for (uint64_t at = all / 8; at < all; at += all / 4) { /* in each of four ranks */
        struct stop stop = {.at_bytes = at};
        const struct hst_ckpt_watch watch = {.progress = stop_at, .context = &stop};
        assert_int_equal(hst_ckpt_reshard(ckpt, in_root("x,y"), 4, &watch, &error), -ECANCELED);
        assert_true(stop.done_bytes >= at && stop.done_bytes < all);
        assert_int_equal(access(in_root("x"), F_OK), -1);
        assert_int_equal(access(in_root("y"), F_OK), -1);
    }
    struct stop none = {.at_bytes = UINT64_MAX};
    const struct hst_ckpt_watch watch = {.progress = stop_at, .context = &none};
    must(hst_ckpt_reshard(ckpt, in_root("x,y"), 4, &watch, &error));
    assert_int_equal(none.done_bytes, all);
    assert_int_equal(none.total_bytes, all);
    hst_ckpt_close(&ckpt);
}

static void what_is_not_held_or_not_described_is_not_read(void **state)
{
    (void)state;
    empty_root();
    train(HST_PRECISION_FP32, in_root("one"), STEPS, &oracle);
    struct hst_ckpt *ckpt = NULL;
    const struct hst_writer writer = {take, &found};
    struct hst_ckpt_config config = {
        .size = sizeof config, .store = in_root("one"), .step = HST_NO_VERSION};
    uint64_t damaged = 0;
    must(hst_ckpt_open(&config, &ckpt, &error));
    assert_int_equal(hst_ckpt_verify(ckpt, NULL, &damaged, &error), -EINVAL);
    assert_int_equal(hst_ckpt_save(ckpt, &writer, NULL, &error), -EINVAL);
    struct hst_engine *model = toy_created(OF_RUN(.precision = HST_PRECISION_BF16));
    toy_must(model, toy_describe(model));
    assert_int_equal(hst_ckpt_model(ckpt, model, &error), -EINVAL);
    assert_int_equal(error.code, HST_E_STORE_OTHER);
    hst_engine_destroy(&model);
    hst_ckpt_close(&ckpt);
    config.step = STEPS + 1;
    assert_int_equal(hst_ckpt_open(&config, &ckpt, &error), -ENOENT);
    config.store = "";
    assert_int_equal(hst_ckpt_open(&config, &ckpt, &error), -EINVAL);
    config.store = "a,,b";
    assert_int_equal(hst_ckpt_open(&config, &ckpt, &error), -EINVAL);
    assert_null(ckpt);
}

/* ---- tables that contradict themselves, under checksums that are right ---- */

static void write_at(int fd, const void *bytes, size_t count, uint64_t offset)
{
    assert_int_equal(pwrite(fd, bytes, count, (off_t)offset), count);
}

static void forge(const char *name, uint32_t rank, void (*change)(struct look *look))
{
    char path[64];
    unsigned char page[STORE_PAGE_BYTES];
    struct store_directory directory;
    struct look look;
    snprintf(path, sizeof path, "%s/%s", root, name);
    must(store_directory_open(path, &directory, &error));
    must(look_open(&directory, 1, rank, false, &look, &error));
    struct store_superblock s = look.newest;
    must(look_load(&look, &(struct store_candidate){.version = s.cur.version}, &error));
    change(&look);
    s.cur.digest = store_digest(look.manifest, s.cur.bytes);
    s.prev = (struct store_ref){.version = STORE_NO_VERSION};
    snprintf(path, sizeof path, "%s/%s/r%05u.d0.blk", root, name, rank);
    const int fd = open(path, O_WRONLY);
    for (unsigned copy = 0; copy < 2; copy++) {
        store_superblock_encode(&s, copy, page);
        write_at(fd, page, sizeof page, store_superblock_at(look.headers, s.seq & 1, copy));
        write_at(fd, look.manifest, s.cur.bytes, store_manifest_at(look.headers, s.cur.slot, copy));
    }
    close(fd);
    look_close(&look);
    store_directory_close(&directory);
}

static void set_settings(struct look *look, const char *was, const char *is)
{
    char *text = memmem(look->manifest, look->ref.bytes, was, strlen(was));
    assert_non_null(text);
    memcpy(text, is, strlen(is));
}

static void name_no_precision(struct look *look)
{
    set_settings(look, "precision bf16", "precision bf61");
}

static void name_fp16(struct look *look)
{
    set_settings(look, "precision bf16", "precision fp16");
}

static void join_unit(struct look *look, unsigned nth)
{
    struct store_entry entry;
    for (uint32_t i = 0; i < TILES; i++) {
        store_entry_get(look->manifest, i, &entry);
        if (!(entry.flags & STORE_UNIT) || nth-- > 0)
            continue;
        entry.flags &= (uint8_t)~STORE_UNIT;
        store_entry_put(look->manifest, i, &entry);
        return;
    }
}

static void begin_with_no_unit(struct look *look)
{
    join_unit(look, 0);
}

static void join_units(struct look *look)
{
    for (uint32_t n = 1; n < TOY_UNITS; n++)
        join_unit(look, 1);
}

/* From one tile to the next, and all behind it moves up. */
static void move_page(struct look *look, uint32_t extent)
{
    struct store_entry entry;
    store_entry_get(look->manifest, extent, &entry);
    entry.bytes -= STORE_PAGE_BYTES;
    store_entry_put(look->manifest, extent, &entry);
    store_entry_get(look->manifest, extent + 1, &entry);
    entry.bytes += STORE_PAGE_BYTES;
    entry.offset -= STORE_PAGE_BYTES;
    store_entry_put(look->manifest, extent + 1, &entry);
}

static void move_weights(struct look *look)
{
    move_page(look, 0);
}

static void move_states(struct look *look)
{
    move_page(look, TILES);
}

/* The tile where rank 1 begins is rank 0's, or the other way round. */
static void move_tile(struct look *look, uint32_t from, uint32_t to)
{
    struct store_entry entry;
    uint32_t moved = 0;
    for (uint32_t i = 0; i < look->headers[0].extents; i++) {
        store_entry_get(look->manifest, i, &entry);
        if (entry.tile != from)
            continue;
        entry.tile = to;
        store_entry_put(look->manifest, i, &entry);
        moved++;
    }
    assert_int_equal(moved, STORE_KINDS);
}

/* In a unit of more than the last tile, which may be smaller. */
static uint32_t first_of_rank_1(void)
{
    struct hst_ckpt *ckpt = opened("one");
    const struct layout_unit *unit = ckpt->layout.units;
    while (unit->tile_count < 4)
        unit++;
    const struct share_run run = share_of_unit(unit, (struct share){1, 2});
    hst_ckpt_close(&ckpt);
    return run.first;
}

static void take_from_rank_0(struct look *look)
{
    const uint32_t tile = first_of_rank_1();
    move_tile(look, tile, tile - 1);
}

static void take_from_rank_1(struct look *look)
{
    const uint32_t tile = first_of_rank_1();
    move_tile(look, tile - 1, tile);
}

static void refuse_open(const char *name, int code, const char *part)
{
    struct hst_ckpt *ckpt = NULL;
    const struct hst_ckpt_config config = {
        .size = sizeof config, .store = in_root(name), .step = HST_NO_VERSION};
    assert_int_equal(hst_ckpt_open(&config, &ckpt, &error), -EINVAL);
    assert_null(ckpt);
    if (error.code != code || !strstr(error.message, part))
        fail_msg("E%d %s; want E%d \"%s\"", error.code, error.message, code, part);
}

static void tables_that_contradict_themselves_are_refused(void **state)
{
    (void)state;
    static const struct {
        void (*change)(struct look *look);
        const char *part;
    } ROWS[] = {
        {name_no_precision, "its precision is none"}, {name_fp16, "its weights and its precision"},
        {begin_with_no_unit, "begins no unit"},       {join_units, "whole tiles"},
        {move_weights, "not those of its tiles"},     {move_states, "not those of its tiles"},
    };
    empty_root();
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        train(HST_PRECISION_BF16, in_root("one"), STEPS, &oracle);
        forge("one", 0, ROWS[i].change);
        refuse_open("one", HST_E_STORE_FORMAT, ROWS[i].part);
        empty_root();
    }
    train(HST_PRECISION_BF16, in_root("one"), STEPS, &oracle);
    reshard("one", 2, "two");
    forge("two", 1, take_from_rank_0);
    refuse_open("two", HST_E_STORE_MIXED, "not one model's");
    forge("two", 0, take_from_rank_1);
    refuse_open("two", HST_E_STORE_FORMAT, "shares");
}

/* ---- copies that are kept ---- */

/* A copy waits here while the test has it. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

ssize_t __real_copy_file_range(int from, off64_t *in, int to, off64_t *out, size_t bytes,
                               unsigned flags);
ssize_t __wrap_copy_file_range(int from, off64_t *in, int to, off64_t *out, size_t bytes,
                               unsigned flags);
ssize_t __wrap_copy_file_range(int from, off64_t *in, int to, off64_t *out, size_t bytes,
                               unsigned flags)
{
    pthread_mutex_lock(&gate);
    const ssize_t n = __real_copy_file_range(from, in, to, out, bytes, flags);
    pthread_mutex_unlock(&gate);
    return n;
}

/* Where the file system shares bytes there would be nothing to wait for. */
int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
    (void)fd;
    (void)request;
    errno = EOPNOTSUPP;
    return -1;
}

/* A disk without a block for a directory as long as the copy of step 2 is there. */
static bool full;

int __real_mkdirat(int at, const char *name, mode_t mode);
int __wrap_mkdirat(int at, const char *name, mode_t mode);
int __wrap_mkdirat(int at, const char *name, mode_t mode)
{
    char kept[64];
    snprintf(kept, sizeof kept, "%s/one/step-2", root);
    if (!full || access(kept, F_OK) < 0)
        return __real_mkdirat(at, name, mode);
    errno = ENOSPC;
    return -1;
}

static void count_kept(void *context, enum hst_log_level level, const char *message)
{
    int *counts = context;
    (void)level;
    counts[0] += strncmp(message, "I623", 4) == 0;
    counts[1] += strncmp(message, "W623", 4) == 0;
}

static void run_with_copies(struct hst_engine *engine, int steps)
{
    struct hst_step_stats stats;
    for (int s = 1; s <= steps; s++) {
        toy_must(engine, toy_step(engine, &stats));
        toy_must(engine, hst_engine_drain(engine, &stats));
    }
}

static void where_a_disk_is_full_the_oldest_goes_first_if_it_would_go_anyway(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= 2; count++) {
        uint64_t steps[4], damaged = 99;
        int told[2] = {0};
        empty_root();
        struct hst_engine *engine = toy_created(
            OF_RUN(.store = in_root("one"), .precision = HST_PRECISION_BF16, .durability = "step",
                   .place = "states=nvme,weights=nvme", .keep = count, .keep_every = 2,
                   .log = count_kept, .log_context = told));
        toy_must(engine, toy_seal_and_load(engine));
        full = true;
        run_with_copies(engine, 5);
        hst_engine_destroy(&engine);
        full = false;
        assert_int_equal(hst_ckpt_kept(in_root("one"), steps, 4), 1);
        assert_int_equal(steps[0], count == 1 ? 4 : 2);
        assert_int_equal(told[0], count == 1 ? 2 : 1);
        assert_int_equal(told[1], count == 1 ? 0 : 1);
        struct hst_ckpt *ckpt = opened_at("one", steps[0]);
        must(hst_ckpt_verify(ckpt, NULL, &damaged, &error));
        assert_int_equal(damaged, 0);
        hst_ckpt_close(&ckpt);
    }
}

static void no_version_follows_the_one_that_is_being_copied(void **state)
{
    (void)state;
    enum { KEPT = 2, LATER = 7 };
    struct hst_step_stats stats;
    uint64_t steps[4], damaged = 99;
    empty_root();
    train(HST_PRECISION_BF16, in_root("two"), KEPT, &oracle);
    struct hst_engine *engine = toy_created(
        OF_RUN(.store = in_root("one"), .precision = HST_PRECISION_BF16, .durability = "step",
               .place = "states=nvme,weights=nvme", .keep = 1, .keep_every = KEPT));
    toy_must(engine, toy_seal_and_load(engine));
    pthread_mutex_lock(&gate);
    for (int s = 1; s <= LATER; s++) {
        toy_must(engine, toy_step(engine, &stats));
        assert_true(hst_engine_version(engine) <= KEPT);
    }
    assert_int_equal(hst_engine_version(engine), KEPT);
    assert_int_equal(hst_ckpt_kept(in_root("one"), steps, 4), 0); /* it has no name yet */
    pthread_mutex_unlock(&gate);
    hst_engine_destroy(&engine); /* finishes it */
    assert_int_equal(hst_ckpt_kept(in_root("one"), steps, 4), 1);
    assert_int_equal(steps[0], KEPT);
    struct hst_ckpt *ckpt = opened_at("one", KEPT);
    assert_true(ckpt->kept);
    must(hst_ckpt_verify(ckpt, NULL, &damaged, &error));
    assert_int_equal(damaged, 0);
    check_weights_of(ckpt, HST_PRECISION_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back_no_extent_changes),
        cmocka_unit_test(there_are_no_more_ranks_than_tiles),
        cmocka_unit_test(what_is_stopped_leaves_nothing),
        cmocka_unit_test(what_is_not_held_or_not_described_is_not_read),
        cmocka_unit_test(tables_that_contradict_themselves_are_refused),
        cmocka_unit_test(where_a_disk_is_full_the_oldest_goes_first_if_it_would_go_anyway),
        cmocka_unit_test(no_version_follows_the_one_that_is_being_copied),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
