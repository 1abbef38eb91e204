/* SPDX-License-Identifier: Apache-2.0 */
/* Stores whose tables contradict themselves, under checksums that are right. */
#include "store/bytes.h"

#include "ckpt_run.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

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
    must(layout_seal(&ckpt->layout, ckpt->layout.tile_elements, (struct share){1, 2}));
    const struct layout_unit *unit = ckpt->layout.units;
    while (unit->tile_count < 2)
        unit++;
    const uint32_t first = (uint32_t)unit->first_of_all;
    hst_ckpt_close(&ckpt);
    return first;
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

/* As it was when ranks had whole tiles: a header without the feature. */
static void a_store_whose_ranks_have_whole_tiles_is_refused(void **state)
{
    (void)state;
    char path[64];
    unsigned char page[STORE_PAGE_BYTES];
    struct store_header header;
    empty_root();
    train(HST_PRECISION_FP32, in_root("one"), STEPS, &oracle);
    reshard("one", 2, "two");
    snprintf(path, sizeof path, "%s/two/r00000.d0.blk", root);
    const int fd = open(path, O_RDWR);
    for (unsigned copy = 0; copy < 2; copy++) {
        const uint64_t at = copy == 0 ? 0 : store_header_at(&header, copy);
        assert_int_equal(pread(fd, page, sizeof page, (off_t)at), sizeof page);
        assert_int_equal(store_header_decode(page, copy, &header).error, 0);
        memset(page + 64, 0, 4);
        page_seal(page, 0, copy);
        write_at(fd, page, sizeof page, at);
    }
    close(fd);
    struct hst_ckpt *ckpt = NULL;
    const struct hst_ckpt_config config = {
        .size = sizeof config, .store = in_root("two"), .step = HST_NO_VERSION};
    assert_int_equal(hst_ckpt_open(&config, &ckpt, &error), -ENOTSUP);
    assert_int_equal(error.code, HST_E_STORE_FORMAT);
    assert_non_null(strstr(error.message, "its ranks have whole tiles"));
}

static void tables_that_contradict_themselves_are_refused(void **state)
{
    (void)state;
    static const struct {
        void (*change)(struct look *look);
        const char *part;
    } ROWS[] = {
        {name_no_precision, "its precision or optimizer is none"},
        {name_fp16, "its weights and its precision"},
        {begin_with_no_unit, "begins no unit"},
        {join_units, "whole tiles"},
        {move_weights, "not those of its tiles"},
        {move_states, "not those of its tiles"},
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
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_whose_ranks_have_whole_tiles_is_refused),
        cmocka_unit_test(tables_that_contradict_themselves_are_refused),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
