/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A new store: where every extent will be, and files under names that nothing opens until version 0
 * is committed.
 */
#include "base/file_limit.h"
#include "base/size_text.h"
#include "plan/placement/record.h"
#include "store/room.h"
#include "store/store_state.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* Bytes of the weights and the record of one tile; a frozen one has no record. */
static uint64_t blocks_of_tile(const struct optimizer *optimizer, uint64_t elements, bool frozen)
{
    return store_blocks_of(elements * optimizer_weight_bytes(optimizer)) +
           (frozen ? 0 : store_blocks_of(record_layout(optimizer, elements).bytes));
}

/* Only a unit's last tile is shorter. */
void store_fixed_bytes(const struct layout *layout, const struct optimizer *optimizer,
                       uint32_t drives, uint64_t fixed_bytes[STRIPE_DRIVES_MAX])
{
    struct store_header h = {.drives = drives, .align_bytes = STORE_ALIGN_MAX};
    h.extents = STORE_KINDS * layout->tile_count;
    const uint64_t each = layout->tile_elements;
    for (uint32_t u = 0; u < layout->unit_count; u++) {
        const struct layout_unit *unit = &layout->units[u];
        if (unit->tile_count == 0)
            continue;
        const uint32_t last = unit->first_tile + unit->tile_count - 1;
        h.blocks += (unit->tile_count - 1) * blocks_of_tile(optimizer, each, unit->frozen) +
                    blocks_of_tile(optimizer, layout_tile(layout, last).elements, unit->frozen);
    }
    h.manifest_bytes = store_manifest_room(h.extents, h.blocks, h.align_bytes);
    for (; h.drive < drives; h.drive++)
        fixed_bytes[h.drive] = store_file_bytes(&h);
}

static int refuse_size(struct hst_error *error)
{
    return store_refuse(error, HST_E_VALUE, -EOVERFLOW,
                        "the store would be larger than a file can be. Fix: more directories");
}

/* An extent of the placement, without its place. The drive is the tile's in the placement. */
static struct store_entry extent_of(const struct store *store, uint32_t extent)
{
    const struct placement *p = store->placement;
    const enum extent_kind kind = (enum extent_kind)(extent / store->tiles);
    const uint32_t tile = extent % store->tiles;
    const bool fixed = p->layout->units[layout_tile(p->layout, tile).unit].frozen;
    const bool derived = kind == EXTENT_WEIGHTS && store->derived_weights && !fixed;
    const bool first = layout_begins_unit(p->layout, tile);
    uint64_t bytes;
    (void)placement_extent(p, kind, tile, &bytes);
    return (struct store_entry){
        .tile = layout_number_of_all(p->layout, tile),
        .kind = (uint8_t)kind,
        .drive = (uint8_t)(store->drives > 1 ? stripe_drive(&p->stripe, tile) : 0),
        .flags = (uint8_t)(STORE_ZERO | (derived ? STORE_DERIVED : 0) | (first ? STORE_UNIT : 0) |
                           (fixed ? STORE_FIXED : 0)),
        .bytes = (uint32_t)bytes,
    };
}

/* This holds of any rank: all of them have the same units. */
static bool has_fixed(const struct layout *layout)
{
    for (uint32_t u = 0; u < layout->unit_count; u++)
        if (layout->units[u].frozen)
            return true;
    return false;
}

/* Sizes of zones and of the manifest, in all headers. */
static int size_up(struct store *store, uint32_t align_bytes, const struct store_id *uuid,
                   struct hst_error *error)
{
    uint64_t blocks = 0;
    for (uint32_t d = 0; d < store->drives; d++)
        store->headers[d] =
            (struct store_header){.uuid = *uuid,
                                  .rank = store->rank,
                                  .world = store->world,
                                  .drive = d,
                                  .drives = store->drives,
                                  .align_bytes = align_bytes,
                                  .extents = STORE_KINDS * store->tiles,
                                  .tile_elements = store->placement->layout->tile_elements,
                                  .slices = layout_stores_slices(store->placement->layout),
                                  .fixed = has_fixed(store->placement->layout)};
    for (uint32_t i = 0; i < STORE_KINDS * store->tiles; i++) {
        const struct store_entry entry = extent_of(store, i);
        struct store_header *h = &store->headers[entry.drive];
        *(store_entry_has_one_slot(&entry) ? &h->derived_bytes : &h->slot_bytes) += entry.bytes;
        blocks += store_blocks_of(entry.bytes);
    }
    for (uint32_t d = 0; d < store->drives; d++) {
        struct store_header *h = &store->headers[d];
        h->blocks = blocks;
        h->manifest_bytes = store_manifest_room(h->extents, blocks, align_bytes);
        h->slot_bytes = (h->slot_bytes + align_bytes - 1) / align_bytes * align_bytes;
        h->derived_bytes = (h->derived_bytes + align_bytes - 1) / align_bytes * align_bytes;
        if (blocks > UINT32_MAX || h->manifest_bytes == 0 || store_file_bytes(h) == 0)
            return refuse_size(error);
    }
    return 0;
}

static void place_extents(struct store *store)
{
    uint64_t next[STRIPE_DRIVES_MAX] = {0}, next_derived[STRIPE_DRIVES_MAX] = {0};
    uint32_t block = 0;
    for (uint32_t d = 0; d < store->drives; d++) {
        next[d] = store_data_at(&store->headers[d]);
        next_derived[d] = store_derived_at(&store->headers[d]);
    }
    for (uint32_t i = 0; i < STORE_KINDS * store->tiles; i++) {
        struct store_entry entry = extent_of(store, i);
        uint64_t *at =
            store_entry_has_one_slot(&entry) ? &next_derived[entry.drive] : &next[entry.drive];
        entry.offset = *at;
        entry.first_block = block;
        *at += entry.bytes;
        block += (uint32_t)store_blocks_of(entry.bytes);
        store_entry_put(store->manifest, i, &entry);
    }
}

static int make_file(struct store *store, uint32_t d, struct hst_error *error)
{
    char name[STORE_NAME_BYTES], path[STORE_PATH_BYTES], size[SIZE_TEXT_BYTES];
    char limit[FILE_LIMIT_BYTES];
    const uint64_t bytes = store_file_bytes(&store->headers[d]);
    store_file_name(store->number, d, true, name);
    store_file_path(&store->directories[d], name, path);
    int rc = hst_aio_file_open(store->aio[d], path, HST_AIO_CREATE, bytes, &store->files[d]);
    if (rc == 0)
        return 0;
    if (rc == -EFBIG)
        return store_refuse(error, HST_E_STORE_DIR, rc, "%s/%s cannot be made: %s",
                            store->directories[d].path, name, file_limit(bytes, limit));
    const bool full = rc == -ENOSPC || rc == -EDQUOT;
    return store_refuse(error, full ? HST_E_DISK_SPACE : HST_E_STORE_DIR, rc,
                        "%s/%s, of %s, cannot be made: %s. Fix: %s", store->directories[d].path,
                        name, size_text_up(bytes, size), strerror(-rc),
                        full ? "free space there, or give another directory"
                             : "give another directory");
}

static int write_headers(struct store *store, uint32_t d)
{
    own_begin(store);
    for (unsigned copy = 0; copy < 2; copy++) {
        store_header_encode(&store->headers[d], copy, store->pages[copy]);
        own_add(store, d, HST_AIO_WRITE, store_header_at(&store->headers[d], copy),
                store->pages[copy], STORE_PAGE_BYTES);
    }
    int rc = own_wait(store);
    return rc ? rc : own_result(store);
}

static int form(struct store *store, const struct store_config *config, struct hst_error *error)
{
    struct store_id uuid;
    const uint32_t align_bytes = config->align_bytes ? config->align_bytes : STORE_ALIGN_MAX;
    assert(align_bytes >= STORE_PAGE_BYTES && align_bytes <= STORE_ALIGN_MAX &&
           (align_bytes & (align_bytes - 1)) == 0);
    assert(store->drives == 1 || store->drives == store->placement->stripe.drives);
    int rc = 0;
    if (config->agreed)
        uuid = config->agreed->uuid;
    else
        rc = store_draw_id(&uuid, error);
    rc = rc ? rc : size_up(store, align_bytes, &uuid, error);
    if (rc)
        return rc;
    if (store_allocate(store))
        return store_refuse(error, HST_E_BUDGET, -ENOMEM,
                            "no memory for the store's tables. Fix: end other programs");
    place_extents(store);
    if (!config->marked)
        rc = store_unfinished_check(store->directories, store->drives, error);
    if (rc)
        return rc;
    rc = store_directories_clear(store->directories, store->drives, store->number, config, error);
    for (uint32_t d = 0; d < store->drives && rc == 0; d++)
        rc = store_directory_take(&store->directories[d], error);
    for (uint32_t d = 0; d < store->drives && rc == 0; d++) {
        rc = make_file(store, d, error);
        if (rc)
            return rc;
        rc = write_headers(store, d);
        if (rc)
            store_refuse(error, HST_E_WRITE, rc,
                         "writing the first bytes of the store in %s failed: %s. Fix: check the "
                         "drive (dmesg, smartctl -a)",
                         store->directories[d].path, strerror(-rc));
    }
    return rc ? rc
              : store_rooms_open(config->rooms, store->directories, store->drives, store->number,
                                 config->rates, error);
}

int store_create(const struct store_config *config, struct store **out, struct hst_error *error)
{
    struct store *store = store_new(config, error);
    if (!store)
        return error->native;
    int rc = form(store, config, error);
    if (rc) {
        if (store->files[0]) /* what is there is of this creation */
            store_close(&store);
        else
            store_free(store);
        return rc;
    }
    store->superblock = (struct store_superblock){
        .uuid = store->headers[0].uuid, .rank = store->rank, .world = store->world};
    *out = store;
    return 0;
}
