/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a store for reading: all ranks' files, the version that all of them have, and what the
 * model is made of as far as the files tell. Everything is checked against the way in which it
 * would have been written.
 */
#include "ckpt/ckpt.h"

#include "ckpt/version_text.h"
#include "plan/placement/record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int refuse(const struct hst_ckpt *ckpt, int code, int native, const char *what,
                  struct hst_error *error)
{
    return store_refuse(error, code, native, "the store in %s %s", ckpt->paths[0], what);
}

static int no_memory(struct hst_error *error)
{
    (void)store_refuse(error, HST_E_BUDGET, -ENOMEM,
                       "no memory for the store's tables. Fix: end other programs");
    return -ENOMEM;
}

/* ---- directories ---- */

int ckpt_split(const char *store, char *paths[STRIPE_DRIVES_MAX])
{
    int count = 0;
    for (const char *at = store; *at; at += strcspn(at, ","), at += *at == ',') {
        if (count == STRIPE_DRIVES_MAX || *at == ',')
            return -EINVAL;
        paths[count] = strndup(at, strcspn(at, ","));
        if (!paths[count++])
            return -ENOMEM;
    }
    return count > 0 ? count : -EINVAL;
}

static int open_directories(struct hst_ckpt *ckpt, struct hst_error *error)
{
    int rc = 0;
    for (uint32_t d = 0; d < ckpt->drives && rc == 0; d++)
        rc = store_directory_open(ckpt->paths[d], &ckpt->directories[d], error);
    return rc;
}

static void close_directories(struct hst_ckpt *ckpt)
{
    for (uint32_t d = 0; d < ckpt->drives; d++)
        store_directory_close(&ckpt->directories[d]);
}

/* ---- ranks ---- */

enum { RANKS_TOLD = 4 };

/* Those whose first file is not here may be on other nodes. */
static int refuse_missing(const struct hst_ckpt *ckpt, uint32_t world, struct hst_error *error)
{
    const struct store_directory *first = &ckpt->directories[0];
    char name[STORE_NAME_BYTES], ranks[64] = "", more[32] = "";
    uint32_t missing = 0;
    size_t n = 0;
    for (uint32_t r = 0; r < world; r++) {
        store_file_name(r, 0, false, name);
        if (faccessat(first->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            continue;
        if (missing++ < RANKS_TOLD)
            n += (size_t)snprintf(ranks + n, sizeof ranks - n, "%s%u", n ? ", " : "", r);
    }
    if (missing > RANKS_TOLD)
        snprintf(more, sizeof more, " and %u more", missing - RANKS_TOLD);
    return store_refuse(error, HST_E_STORE_MIXED, -EINVAL,
                        "the store in %s is of %u ranks, and the file%s of rank%s %s%s %s not "
                        "there. Fix: bring the files of all ranks together; or leave them on their "
                        "nodes, and start a rank on each: mpirun -n %u hoistway ckpt ...",
                        ckpt->paths[0], world, missing == 1 ? "" : "s", missing == 1 ? "" : "s",
                        ranks, more, missing == 1 ? "is" : "are", world);
}

/* No file of rank 0 is in the first directory. What a run would do there helps nobody who reads. */
static int refuse_none(const struct hst_ckpt *ckpt, struct hst_error *error)
{
    const uint32_t other = store_rank_there(ckpt->paths[0]);
    struct store_header header;
    if (other != UINT32_MAX &&
        store_first_look(&ckpt->directories[0], other, false, &header, error) == 0 &&
        header.world > other && header.world <= CKPT_RANKS_MAX)
        return refuse_missing(ckpt, header.world, error);
    const int rc = store_directory_holds_other(&ckpt->directories[0], error);
    return rc ? rc
              : store_refuse(error, HST_E_STORE_EMPTY, -ENOENT,
                             "%s holds no version: r00000.d0.blk is not there. Fix: name the "
                             "directories of a store that a run has begun, in the order that "
                             "--store had",
                             ckpt->paths[0]);
}

/* It opens as many as the first one's file says. */
static int open_ranks(struct hst_ckpt *ckpt, struct hst_error *error)
{
    int rc = 0;
    ckpt->looks = calloc(1, sizeof *ckpt->looks);
    if (!ckpt->looks)
        return no_memory(error);
    ckpt->world = 1;
    rc = look_open(ckpt->directories, ckpt->drives, ckpt->replica, ckpt->held, ckpt->looks, error);
    if (rc == -ENOENT)
        return refuse_none(ckpt, error);
    const uint32_t world = rc ? 1 : ckpt->looks[0].headers[0].world;
    if (world > CKPT_RANKS_MAX)
        return refuse(ckpt, HST_E_STORE_FORMAT, -EINVAL,
                      "is of more ranks than 4,096. Fix: restore its files from a copy", error);
    struct look *looks = world > 1 ? realloc(ckpt->looks, world * sizeof *looks) : ckpt->looks;
    if (!looks)
        return no_memory(error);
    ckpt->looks = looks;
    for (uint32_t r = 1; r < world && rc == 0; r++) {
        rc = look_open(ckpt->directories, ckpt->drives, r, ckpt->held, &ckpt->looks[r], error);
        ckpt->world = r + 1;
        if (rc == -ENOENT)
            rc = refuse_missing(ckpt, world, error);
        else if (rc == 0 && (ckpt->looks[r].headers[0].world != world ||
                             !store_id_equal(&ckpt->looks[r].headers[0].uuid,
                                             &ckpt->looks[0].headers[0].uuid)))
            rc = store_refuse(error, HST_E_STORE_MIXED, -EINVAL,
                              "in %s the file of rank %u is of another store than that of rank 0. "
                              "Fix: bring the files of one store together",
                              ckpt->paths[0], r);
    }
    return rc;
}

int ckpt_load_version(struct hst_ckpt *ckpt, struct hst_error *error)
{
    struct store_candidates *all = calloc(ckpt->world, sizeof *all);
    if (!all)
        return no_memory(error);
    for (uint32_t r = 0; r < ckpt->world; r++)
        all[r] = ckpt->looks[r].candidates;
    const uint64_t below =
        ckpt->shares && ckpt->shares->below ? ckpt->shares->below : STORE_NO_VERSION;
    const struct store_candidate *x = store_choose_version(all, ckpt->world, below);
    ckpt->stepped_back = store_newest_damaged(all, ckpt->world, &ckpt->damaged_step);
    int rc = x ? 0
               : refuse(ckpt, HST_E_STORE_MIXED, -EINVAL,
                        "has no version that all of its ranks have. Fix: bring the files of one "
                        "moment together",
                        error);
    for (uint32_t r = 0; r < ckpt->world && rc == 0; r++)
        if (ckpt_is_here(ckpt, r))
            rc = look_load(&ckpt->looks[r], x, error);
    free(all);
    return rc;
}

/* ---- what the version says beside the bytes ---- */

static int refuse_format(const struct hst_ckpt *ckpt, const char *what, struct hst_error *error)
{
    return store_refuse(error, HST_E_STORE_FORMAT, -EINVAL,
                        "the store in %s cannot be read: %s. Fix: use the version of hoistway that "
                        "wrote it",
                        ckpt->paths[0], what);
}

static int read_settings(struct hst_ckpt *ckpt, struct hst_error *error)
{
    struct version_text text;
    if (!version_text_split(&ckpt->looks[0].about.cursor, &text) ||
        text.settings_bytes >= sizeof ckpt->settings)
        return refuse_format(ckpt, "what stands beside its bytes is not this engine's", error);
    memcpy(ckpt->settings, text.settings, text.settings_bytes);
    ckpt->cursor = text.cursor;
    ckpt->cursor_bytes = text.cursor_bytes;
    ckpt->optimizer = version_settings_optimizer(ckpt->settings);
    if (!ckpt->optimizer)
        return refuse_format(ckpt, "its precision or optimizer is none that is known", error);
    ckpt->precision = ckpt->optimizer->precision;
    ckpt->state = ckpt->optimizer->state;
    return 0;
}

/* ---- tiles and units ---- */

/* Every tile is some rank's, once. */
static int map_tiles(struct hst_ckpt *ckpt, struct hst_error *error)
{
    uint64_t total = 0;
    struct store_entry entry;
    for (uint32_t r = 0; r < ckpt->world; r++)
        total += ckpt->looks[r].headers[0].extents / STORE_KINDS;
    if (total == 0)
        return refuse_format(ckpt, "it has no tiles", error);
    ckpt->tiles = total < UINT32_MAX ? malloc(total * sizeof *ckpt->tiles) : NULL;
    if (!ckpt->tiles)
        return no_memory(error);
    memset(ckpt->tiles, 0xff, total * sizeof *ckpt->tiles);
    for (uint32_t r = 0; r < ckpt->world; r++) {
        for (uint32_t i = 0; i < ckpt->looks[r].headers[0].extents / STORE_KINDS; i++) {
            store_entry_get(ckpt->looks[r].manifest, i, &entry);
            if (entry.tile >= total || ckpt->tiles[entry.tile].rank != UINT32_MAX)
                return refuse(ckpt, HST_E_STORE_MIXED, -EINVAL,
                              "has ranks whose tiles are not one model's. Fix: bring the files of "
                              "one store together",
                              error);
            ckpt->tiles[entry.tile] = (struct ckpt_tile){.rank = r, .index = i};
        }
    }
    ckpt->tile_count = (uint32_t)total; /* none is left out: there are as many places */
    return 0;
}

struct ckpt_extent ckpt_extent(const struct hst_ckpt *ckpt, uint32_t tile, enum extent_kind kind)
{
    const struct ckpt_tile *at = &ckpt->tiles[tile];
    const struct look *look = &ckpt->looks[at->rank];
    const uint32_t tiles = look->headers[0].extents / STORE_KINDS;
    struct ckpt_extent extent = {.tile = tile, .range = at->range, .kind = kind, .look = look};
    store_entry_get(look->manifest, (uint32_t)kind * tiles + at->index, &extent.entry);
    return extent;
}

/* Units begin where their first tiles say. */
static int build_layout(struct hst_ckpt *ckpt, struct hst_error *error)
{
    struct layout *layout = &ckpt->layout;
    struct store_entry entry;
    for (uint32_t t = 0; t < ckpt->tile_count; t++) {
        entry = ckpt_extent(ckpt, t, EXTENT_WEIGHTS).entry;
        layout->unit_room += (entry.flags & STORE_UNIT) != 0;
    }
    layout->units = calloc((size_t)layout->unit_room + 1, sizeof *layout->units);
    layout->slices = ckpt->looks[0].headers[0].slices;
    if (!layout->units)
        return no_memory(error);
    for (uint32_t t = 0; t < ckpt->tile_count; t++) {
        entry = ckpt_extent(ckpt, t, EXTENT_WEIGHTS).entry;
        layout->unit_count += (entry.flags & STORE_UNIT) != 0;
        if (layout->unit_count == 0)
            return refuse_format(ckpt, "its first tile begins no unit", error);
        struct layout_unit *unit = &layout->units[layout->unit_count - 1];
        unit->elements += entry.bytes / optimizer_weight_bytes(ckpt->optimizer);
        unit->frozen = unit->frozen || (entry.flags & STORE_FIXED);
    }
    return 0;
}

static int check_tile(struct hst_ckpt *ckpt, uint32_t tile, struct hst_error *error)
{
    const struct tile_range range = ckpt->tiles[tile].range;
    const uint32_t elements = range.elements;
    const bool frozen = ckpt->layout.units[range.unit].frozen;
    struct store_entry weights, states;
    weights = ckpt_extent(ckpt, tile, EXTENT_WEIGHTS).entry;
    states = ckpt_extent(ckpt, tile, EXTENT_STATES).entry;
    if (weights.bytes != elements * optimizer_weight_bytes(ckpt->optimizer) ||
        states.bytes != (frozen ? 0 : record_layout(ckpt->optimizer, elements).bytes) ||
        ((weights.flags & STORE_FIXED) != 0) != frozen ||
        ((weights.flags & STORE_DERIVED) != 0) != (ckpt->derived_weights && !frozen) ||
        (states.flags & STORE_DERIVED))
        return refuse_format(ckpt, "its extents are not those of its tiles", error);
    return 0;
}

/* The elements of a rank's tiles are those that a layout of these units gives it. */
static int place_tiles(struct hst_ckpt *ckpt, uint32_t rank, struct hst_error *error)
{
    struct layout *layout = &ckpt->layout;
    const struct store_header *header = &ckpt->looks[rank].headers[0];
    const int rc =
        layout_seal(layout, (uint32_t)header->tile_elements, (struct share){rank, ckpt->world});
    if (rc || layout->tile_count != header->extents / STORE_KINDS ||
        layout->tiles_of_all != ckpt->tile_count)
        return refuse_format(ckpt, "its units are not made of whole tiles", error);
    for (uint32_t t = 0; t < layout->tile_count; t++) {
        const uint32_t number = layout_number_of_all(layout, t);
        struct ckpt_tile *tile = &ckpt->tiles[number];
        if (tile->rank != rank || tile->index != t)
            return refuse_format(ckpt, "its ranks' shares are cut in another way", error);
        tile->range = layout_tile(layout, t);
        if (check_tile(ckpt, number, error))
            return -EINVAL;
    }
    return 0;
}

static int check_tiles(struct hst_ckpt *ckpt, struct hst_error *error)
{
    struct store_entry weights;
    int rc = 0;
    weights = ckpt_extent(ckpt, 0, EXTENT_WEIGHTS).entry;
    ckpt->derived_weights = (weights.flags & STORE_DERIVED) != 0;
    if (ckpt->derived_weights != (ckpt->precision == HST_PRECISION_FP16))
        return refuse_format(ckpt, "its weights and its precision contradict each other", error);
    for (uint32_t r = 0; r < ckpt->world && rc == 0; r++)
        rc = place_tiles(ckpt, r, error);
    return rc ? rc : layout_seal(&ckpt->layout, ckpt->layout.tile_elements, SHARE_ALL);
}

/* ---- life ---- */

static int open_all(struct hst_ckpt *ckpt, struct hst_error *error)
{
    int rc = ckpt->shares ? ckpt_look_at_shares(ckpt, error) : open_directories(ckpt, error);
    if (!ckpt->shares) {
        rc = rc ? rc : open_ranks(ckpt, error);
        rc = rc ? rc : ckpt_load_version(ckpt, error);
    }
    if (rc)
        return rc;
    rc = read_settings(ckpt, error);
    rc = rc ? rc : map_tiles(ckpt, error);
    rc = rc ? rc : build_layout(ckpt, error);
    rc = rc ? rc : check_tiles(ckpt, error);
    return ckpt->shares ? ckpt_agree(ckpt, rc, error) : rc;
}

static void forget(struct hst_ckpt *ckpt)
{
    for (uint32_t r = 0; ckpt->looks && r < ckpt->world; r++)
        look_close(&ckpt->looks[r]);
    free(ckpt->looks);
    free(ckpt->tiles);
    layout_free(&ckpt->layout);
    close_directories(ckpt);
    ckpt->looks = NULL;
    ckpt->tiles = NULL;
}

/* From the store's directories to those of a copy in them, where there is one of that step. */
static int enter_kept(struct hst_ckpt *ckpt, uint64_t step)
{
    char name[KEPT_NAME_BYTES];
    kept_name(step, name);
    for (uint32_t d = 0; d < ckpt->drives; d++) {
        char *path;
        if (asprintf(&path, "%s/%s", ckpt->paths[d], name) < 0)
            return -ENOMEM;
        if (d == 0 && access(path, F_OK) < 0) {
            free(path);
            return 0;
        }
        free(ckpt->paths[d]);
        ckpt->paths[d] = path;
    }
    ckpt->kept = true;
    return 0;
}

int ckpt_refuse_no_copy(const char *store, uint64_t step, struct hst_error *error)
{
    return store_refuse(error, HST_E_STORE_EMPTY, -ENOENT,
                        "the store in %s has no copy of step %" PRIu64 ". Fix: hoistway ckpt list "
                        "tells which are kept",
                        store, step);
}

static int open_step(struct hst_ckpt *ckpt, const struct hst_ckpt_config *config,
                     struct hst_error *error)
{
    if (config->step != HST_NO_VERSION && enter_kept(ckpt, config->step))
        return no_memory(error);
    if (config->copy && config->step != HST_NO_VERSION && !ckpt->kept)
        return ckpt_refuse_no_copy(ckpt->paths[0], config->step, error);
    int rc = open_all(ckpt, error);
    if (rc == 0 && config->step != HST_NO_VERSION && ckpt->looks[0].ref.step != config->step)
        return store_refuse(error, HST_E_STORE_EMPTY, -ENOENT,
                            "the store in %s has no version of step %" PRIu64 ": its last one is "
                            "of step %" PRIu64 ". Fix: hoistway ckpt list tells which are kept",
                            ckpt->paths[0], config->step, ckpt->looks[0].ref.step);
    return rc;
}

static struct hst_ckpt *new_ckpt(bool held, enum hst_io io, struct hst_error *error)
{
    struct hst_ckpt *ckpt = calloc(1, sizeof *ckpt);
    if (!ckpt) {
        (void)no_memory(error);
        return NULL;
    }
    ckpt->held = held;
    ckpt->io = io;
    for (uint32_t d = 0; d < STRIPE_DRIVES_MAX; d++)
        ckpt->directories[d].fd = -1;
    return ckpt;
}

/* Processes may have been told different ones. */
static int check_drives(const struct hst_ckpt *ckpt, const char *store, struct hst_error *error)
{
    const uint32_t drives = ckpt->shares->drives;
    if (ckpt->drives == drives)
        return 0;
    return store_refuse(error, HST_E_STORE_MIXED, -EINVAL,
                        "the store has files in %u director%s, and '%.200s' names %u. Fix: as many "
                        "directories as it had",
                        drives, drives == 1 ? "y" : "ies", store, ckpt->drives);
}

int ckpt_open_shares(struct ckpt_shares *shares, const char *store, enum hst_io io,
                     struct hst_ckpt **out, struct hst_error *error)
{
    struct hst_ckpt *ckpt = new_ckpt(shares->hold, io, error);
    if (!ckpt)
        return -ENOMEM;
    ckpt->shares = shares;
    ckpt->replica = shares->replica;
    int rc = ckpt_split(store, ckpt->paths);
    ckpt->drives = rc > 0 ? (uint32_t)rc : 0;
    if (rc > 0)
        rc = check_drives(ckpt, store, error);
    rc = ckpt_agree(ckpt, rc, error);
    rc = rc ? rc : open_all(ckpt, error);
    if (rc) {
        ckpt->shares = NULL; /* the caller's */
        hst_ckpt_close(&ckpt);
    } else {
        *out = ckpt;
    }
    return rc;
}

int hst_ckpt_open(const struct hst_ckpt_config *config, struct hst_ckpt **out,
                  struct hst_error *error)
{
    struct hst_error ignored;
    error = error ? error : &ignored;
    if (!config || config->size < sizeof *config || !config->store || !out)
        return store_refuse(error, HST_E_VALUE, -EINVAL,
                            "a store is opened by its directories. Fix: name them");
    struct hst_ckpt *ckpt = new_ckpt(config->hold, config->io, error);
    if (!ckpt)
        return -ENOMEM;
    int rc = ckpt_split(config->store, ckpt->paths);
    ckpt->drives = rc > 0 ? (uint32_t)rc : 0;
    ckpt->replica = config->replica;
    rc = rc > 0
             ? open_step(ckpt, config, error)
             : store_refuse(error, HST_E_VALUE, rc,
                            "'%.200s' are not 1 to %u directories between commas. Fix: name them "
                            "so",
                            config->store, STRIPE_DRIVES_MAX);
    if (rc)
        hst_ckpt_close(&ckpt);
    else
        *out = ckpt;
    return rc;
}

void hst_ckpt_close(struct hst_ckpt **ckpt)
{
    if (!*ckpt)
        return;
    forget(*ckpt);
    if ((*ckpt)->shares && (*ckpt)->shares->release)
        (*ckpt)->shares->release((*ckpt)->shares);
    for (uint32_t d = 0; d < STRIPE_DRIVES_MAX; d++)
        free((*ckpt)->paths[d]);
    free(*ckpt);
    *ckpt = NULL;
}

/* ---- what it is ---- */

static void hexadecimal(const struct store_id *id, char text[33])
{
    for (size_t i = 0; i < sizeof id->bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", id->bytes[i]);
}

void hst_ckpt_info(const struct hst_ckpt *ckpt, struct hst_ckpt_info *info)
{
    const struct look *first = &ckpt->looks[0];
    const struct store_cursor *cursor = &first->about.cursor;
    *info = (struct hst_ckpt_info){
        .version = first->ref.version,
        .step = cursor->step,
        .updates = cursor->updates,
        .loss_scale = cursor->loss_scale,
        .world = ckpt->world,
        .drives = ckpt->drives,
        .kept = ckpt->kept,
        .clean = true,
        .units = ckpt->layout.unit_count,
        .tiles = ckpt->tile_count,
        .tile_elements = ckpt->layout.tile_elements,
        .elements = ckpt->layout.elements,
        .stepped_back = ckpt->stepped_back,
        .damaged_step = ckpt->damaged_step,
        .precision = ckpt->precision,
        .state = ckpt->state,
        .settings = ckpt->settings,
        .cursor = ckpt->cursor,
        .cursor_bytes = ckpt->cursor_bytes,
    };
    hexadecimal(&first->headers[0].uuid, info->uuid);
    hexadecimal(&first->ref.commit_id, info->commit_id);
    for (uint32_t r = 0; r < ckpt->world; r++) {
        const struct look *look = &ckpt->looks[r];
        info->in_use = info->in_use || look->in_use;
        info->clean = info->clean && look->clean;
        info->damaged_copies += look->damaged_copies;
        for (uint32_t d = 0; d < ckpt->drives; d++)
            info->file_bytes += store_file_bytes(&look->headers[d]);
    }
    for (uint32_t t = 0; t < ckpt->tile_count; t++) {
        struct store_entry weights, states;
        weights = ckpt_extent(ckpt, t, EXTENT_WEIGHTS).entry;
        states = ckpt_extent(ckpt, t, EXTENT_STATES).entry;
        info->weights_bytes += ckpt->derived_weights ? 0 : weights.bytes;
        info->states_bytes += states.bytes;
    }
}

int ckpt_take_model(struct hst_ckpt *ckpt, enum hst_precision precision, const struct layout *model,
                    struct hst_error *error)
{
    uint64_t digest = 0;
    if (precision != ckpt->precision || !version_settings_digest(ckpt->settings, &digest) ||
        digest != layout_digest(model))
        return refuse(ckpt, HST_E_STORE_OTHER, -EINVAL,
                      "is of another model. Fix: the model that it was trained from", error);
    ckpt->model = model;
    return 0;
}
