/* SPDX-License-Identifier: Apache-2.0 */
#include "toy.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TILE 16384u /* elements: 64 KiB of f32 weights */

/* Of several ranks each has whole blocks, one's tiles as many as of one alone. */
static uint64_t elements_of(struct share share)
{
    return share.world == 1 ? (TOY_TILES - 1) * TILE + 5000
                            : share.world * ((TOY_TILES - 1) * (uint64_t)TILE + 8192);
}

/* All tiles but the first ones, which are a frozen unit's. */
static int add_units(struct layout *layout, uint32_t frozen_tiles, uint64_t elements, char *why,
                     size_t why_bytes)
{
    const uint64_t frozen = (uint64_t)frozen_tiles * TILE;
    const struct hst_param_desc params[] = {
        {.name = "f", .dim_count = 1, .dims = {frozen}, .flags = HST_PARAM_FROZEN},
        {.name = "p", .dim_count = 1, .dims = {elements - frozen}}};
    int rc = 0;
    for (int i = frozen > 0 ? 0 : 1; i < 2 && rc == 0; i++) {
        const struct hst_unit_desc unit = {
            .name = i ? "u" : "v", .params = &params[i], .param_count = 1};
        rc = layout_add(layout, &unit, why, why_bytes);
    }
    return rc;
}

static int plan(struct toy *toy, uint32_t drives, uint32_t frozen_tiles, struct share share)
{
    char why[512];
    struct placement_in in = {
        .layout = &toy->layout,
        .optimizer = optimizer_find(HST_OPTIMIZER_ADAMW, HST_PRECISION_FP32, HST_STATE_FP32),
        .has_nvme = true,
        .compute_tier = HST_TIER_DRAM,
        .dram_budget = 1u << 30,
        .nvme_budget = 1u << 30,
        .batch_tokens = 1,
        .micro_batch_tokens = 1,
        .drive_count = drives};
    for (uint32_t d = 0; d < drives; d++) {
        in.drive_rates[d] = 1;
        in.drive_budgets[d] = 1u << 30;
    }
    int rc = add_units(&toy->layout, frozen_tiles, elements_of(share), why, sizeof why);
    rc = rc ? rc : layout_seal(&toy->layout, TILE, share);
    rc = rc ? rc : place_parse("states=nvme,weights=nvme", &in.wish, why, sizeof why);
    return rc ? rc : placement_plan(&in, &toy->placement, why, sizeof why);
}

static int open_of(struct toy *toy, uint32_t drives, uint32_t frozen_tiles, struct share share)
{
    const char *tmp = getenv("TMPDIR");
    *toy = (struct toy){.last_stamp = 1};
    snprintf(toy->root, sizeof toy->root, "%.40s/hst-store-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(toy->root))
        return -errno;
    int rc = plan(toy, drives, frozen_tiles, share);
    if (rc)
        return rc;
    for (uint32_t d = 0; d < drives; d++) {
        snprintf(toy->directories[d], sizeof toy->directories[d], "%s/%c", toy->root, 'a' + d);
        if (mkdir(toy->directories[d], 0700) < 0)
            return -errno;
        toy->drives[d].directory = toy->directories[d];
    }
    void *memory;
    for (uint32_t i = 0; i <= TOY_EXTENTS; i++) {
        rc = hst_aio_buffer_alloc(1 << 18, &memory);
        if (rc)
            return rc;
        *(i < TOY_EXTENTS ? &toy->buffers[i] : &toy->read) = memory;
    }
    toy->config = (struct store_config){.drives = toy->drives,
                                        .drive_count = drives,
                                        .placement = &toy->placement,
                                        .align_bytes = STORE_PAGE_BYTES,
                                        .lock_timeout_ms = 1};
    return 0;
}

int toy_open(struct toy *toy, uint32_t drives)
{
    return toy_open_share(toy, drives, SHARE_ALL);
}

int toy_open_frozen(struct toy *toy, uint32_t drives, uint32_t frozen_tiles)
{
    return open_of(toy, drives, frozen_tiles, SHARE_ALL);
}

int toy_open_share(struct toy *toy, uint32_t drives, struct share share)
{
    return open_of(toy, drives, 0, share);
}

static void empty(const char *path)
{
    DIR *names = opendir(path);
    if (!names)
        return;
    for (const struct dirent *entry; (entry = readdir(names)) != NULL;)
        (void)unlinkat(dirfd(names), entry->d_name, 0);
    closedir(names);
}

void toy_empty(const struct toy *toy)
{
    for (uint32_t d = 0; d < toy->config.drive_count; d++)
        empty(toy->directories[d]);
}

void toy_close(struct toy *toy)
{
    toy_empty(toy);
    for (uint32_t d = 0; d < toy->config.drive_count; d++) {
        hst_aio_close(&toy->aio[d]);
        rmdir(toy->directories[d]);
    }
    rmdir(toy->root);
    for (uint32_t i = 0; i < TOY_EXTENTS; i++)
        hst_aio_buffer_free(toy->buffers[i], 1 << 18);
    hst_aio_buffer_free(toy->read, 1 << 18);
    placement_free(&toy->placement);
    layout_free(&toy->layout);
}

uint64_t toy_bytes(const struct toy *toy, uint32_t extent)
{
    uint64_t bytes;
    (void)placement_extent(&toy->placement, toy_kind(extent), extent % TOY_TILES, &bytes);
    return bytes;
}

/* Every word of every extent and stamp is another one. */
static uint64_t word(uint32_t extent, uint64_t stamp, uint64_t at)
{
    return stamp == 0 ? 0 : stamp * 0x9e3779b97f4a7c15u + ((uint64_t)extent << 32 | at);
}

void toy_fill(const struct toy *toy, uint32_t extent, uint64_t stamp, unsigned char *bytes)
{
    const uint64_t words = toy_bytes(toy, extent) / 8;
    for (uint64_t i = 0; i < words; i++) {
        const uint64_t value = word(extent, stamp, i);
        memcpy(bytes + i * 8, &value, 8);
    }
}

bool toy_holds(const struct toy *toy, uint32_t extent, uint64_t stamp, const unsigned char *bytes)
{
    const uint64_t words = toy_bytes(toy, extent) / 8;
    for (uint64_t i = 0; i < words; i++) {
        const uint64_t value = word(extent, stamp, i);
        if (memcmp(bytes + i * 8, &value, 8) != 0)
            return false;
    }
    return true;
}

struct store_cursor toy_cursor(uint64_t version, char text[32])
{
    const int bytes = snprintf(text, 32, "at %llu", (unsigned long long)version * 7);
    return (struct store_cursor){.step = version * 3 + 1,
                                 .updates = version * 2 + 1,
                                 .loss_scale = (float)(1u << version % 16),
                                 .good_steps = (uint32_t)version + 5,
                                 .opaque = text,
                                 .opaque_bytes = (uint32_t)bytes};
}

static bool same_cursor(const struct store_cursor *a, const struct store_cursor *b)
{
    return a->step == b->step && a->updates == b->updates && a->loss_scale == b->loss_scale &&
           a->good_steps == b->good_steps && a->opaque_bytes == b->opaque_bytes &&
           memcmp(a->opaque, b->opaque, a->opaque_bytes) == 0;
}

const char *toy_compare(struct toy *toy, struct store *store, uint64_t version)
{
    char text[32];
    const struct store_cursor cursor = toy_cursor(version, text);
    if (store_version(store) != version)
        return "another version";
    if (!same_cursor(store_cursor(store), &cursor))
        return "another cursor";
    for (uint32_t i = 0; i < TOY_EXTENTS; i++) {
        struct transfer transfer;
        struct extents *extents = store_extents(store);
        memset(toy->read, 0xa5, toy_bytes(toy, i));
        int rc = extents_read(extents, toy_kind(i), i % TOY_TILES, toy->read, &transfer);
        if (rc || extents_wait(extents, &transfer))
            return "an extent that cannot be read";
        if (!toy_holds(toy, i, toy->stamps[version][i], toy->read))
            return "other bytes";
    }
    return NULL;
}

int toy_write(struct toy *toy, struct store *store, uint64_t version, uint32_t extent,
              struct transfer *transfer)
{
    toy->stamps[version][extent] = ++toy->last_stamp;
    toy_fill(toy, extent, toy->last_stamp, toy->buffers[extent]);
    return extents_write(store_extents(store), toy_kind(extent), extent % TOY_TILES,
                         toy->buffers[extent], transfer);
}

int toy_commit(struct store *store, uint64_t version)
{
    char text[32];
    const struct store_cursor cursor = toy_cursor(version, text);
    int rc = store_commit_begin(store, &cursor);
    while (rc == 0 && store_commit_state(store) == STORE_COMMIT_UNDERWAY)
        rc = store_extents(store)->ops->progress(store_extents(store), UINT64_MAX);
    if (rc == 0 && store_error(store)->code)
        rc = store_error(store)->native;
    return rc ? rc : store_commit_end(store);
}

int toy_commit_all(struct toy *toy, struct store *store, uint64_t version)
{
    struct transfer transfers[TOY_EXTENTS] = {{.active = false}};
    int rc = 0;
    for (uint32_t i = 0; i < TOY_EXTENTS && rc == 0; i++)
        rc = toy_write(toy, store, version, i, &transfers[i]);
    for (uint32_t i = 0; i < TOY_EXTENTS; i++) {
        int done = transfers[i].active ? extents_wait(store_extents(store), &transfers[i]) : 0;
        rc = rc ? rc : done;
    }
    return rc ? rc : toy_commit(store, version);
}
