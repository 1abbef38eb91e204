/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This is what one rank has of a kept copy: its own tiles, for a run that has the store. The layout
 * is that of the run's engine, so no other rank's files are needed.
 */
#include "ckpt/ckpt.h"

#include "plan/placement/record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int no_memory(struct hst_error *error)
{
    return store_refuse(error, HST_E_BUDGET, -ENOMEM,
                        "no memory for a copy's tables. Fix: end other programs");
}

static int open_directories(const struct ckpt_own *own, struct hst_ckpt *ckpt,
                            struct hst_error *error)
{
    char name[KEPT_NAME_BYTES];
    kept_name(own->step, name);
    for (uint32_t d = 0; d < own->drives; d++) {
        if (asprintf(&ckpt->paths[d], "%s/%s", own->paths[d], name) < 0) {
            ckpt->paths[d] = NULL;
            return no_memory(error);
        }
        if (access(ckpt->paths[d], F_OK) < 0)
            return store_refuse(error, HST_E_STORE_EMPTY, -ENOENT,
                                "%s is not there, which the run had kept. Fix: leave kept copies "
                                "where they are until the run has ended",
                                ckpt->paths[d]);
        const int rc = store_directory_open(ckpt->paths[d], &ckpt->directories[d], error);
        if (rc)
            return rc;
    }
    return 0;
}

static int refuse_other(const struct hst_ckpt *ckpt, const char *what, struct hst_error *error)
{
    return store_refuse(error, HST_E_STORE_FORMAT, -EINVAL,
                        "the copy in %s is not this run's: %s. Fix: the copies that this run has "
                        "kept",
                        ckpt->paths[0], what);
}

static int load(const struct ckpt_own *own, struct hst_ckpt *ckpt, struct hst_error *error)
{
    struct look *look = ckpt->looks;
    int rc = look_open(ckpt->directories, ckpt->drives, own->rank, true, look, error);
    if (rc == -ENOENT)
        return store_refuse(error, HST_E_STORE_EMPTY, rc,
                            "%s has no file of rank %" PRIu32
                            ". Fix: leave kept copies as they are until the run has ended",
                            ckpt->paths[0], own->rank);
    const struct store_candidate last = {.version = rc ? 0 : look->newest.cur.version};
    rc = rc ? rc : look_load(look, &last, error);
    return rc || look->ref.step == own->step ? rc : refuse_other(ckpt, "of another step", error);
}

static int place_tiles(const struct ckpt_own *own, struct hst_ckpt *ckpt, struct hst_error *error)
{
    const struct layout *layout = own->layout;
    const struct store_header *header = &ckpt->looks->headers[0];
    if (header->extents / STORE_KINDS != layout->tile_count ||
        header->tile_elements != layout->tile_elements ||
        header->slices != layout_stores_slices(layout))
        return refuse_other(ckpt, "it has other tiles", error);
    ckpt->tiles = calloc((size_t)layout->tile_count + 1, sizeof *ckpt->tiles);
    if (!ckpt->tiles)
        return no_memory(error);
    ckpt->tile_count = layout->tile_count;
    for (uint32_t t = 0; t < layout->tile_count; t++) {
        const struct tile_range range = layout_tile(layout, t);
        ckpt->tiles[t] = (struct ckpt_tile){.rank = 0, .index = t, .range = range};
        if (ckpt_extent(ckpt, t, EXTENT_WEIGHTS).entry.bytes !=
                range.elements * optimizer_weight_bytes(own->optimizer) ||
            ckpt_extent(ckpt, t, EXTENT_STATES).entry.bytes !=
                (layout->units[range.unit].frozen
                     ? 0
                     : record_layout(own->optimizer, range.elements).bytes))
            return refuse_other(ckpt, "its tiles have other sizes", error);
    }
    return 0;
}

/* take: null where nothing is saved. */
int ckpt_own_save(const struct ckpt_own *own, bool masters, ckpt_take *take, void *context,
                  struct hst_error *error)
{
    struct look look = {.drives = 0};
    struct hst_ckpt ckpt = {
        .drives = own->drives,
        .world = 1, /* looks that are open */
        .held = true,
        .kept = true,
        .looks = &look,
        .layout = *own->layout, /* borrowed */
        .derived_weights = own->precision == HST_PRECISION_FP16,
        .precision = own->precision,
        .optimizer = own->optimizer,
        .model = own->layout,
    };
    for (uint32_t d = 0; d < STRIPE_DRIVES_MAX; d++)
        ckpt.directories[d].fd = -1;
    int rc = open_directories(own, &ckpt, error);
    rc = rc ? rc : load(own, &ckpt, error);
    rc = rc ? rc : place_tiles(own, &ckpt, error);
    rc = rc || !take ? rc : ckpt_save_tiles(&ckpt, masters, take, context, error);
    look_close(&look);
    for (uint32_t d = 0; d < own->drives; d++) {
        store_directory_close(&ckpt.directories[d]);
        free(ckpt.paths[d]);
    }
    free(ckpt.tiles);
    return rc;
}

bool ckpt_own_is_there(const struct ckpt_own *own)
{
    struct hst_error ignored = {0};
    return ckpt_own_save(own, false, NULL, NULL, &ignored) == 0;
}
