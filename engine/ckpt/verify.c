/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a version and tells every block of it that is not what was written, and what lies there. */
#include "ckpt/verify_together.h"

#include "plan/placement/record.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

struct verify {
    const struct hst_ckpt *ckpt;
    const struct hst_ckpt_watch *watch;
    unsigned char *block; /* STORE_BLOCK_BYTES */
    uint64_t damaged;
    struct together *together; /* null: nobody else reads any of it */
};

/* ---- what lies where ---- */

/* The element of its tile whose bytes are at `at` of an extent; those of the last one behind it. */
static uint64_t element_of(const struct hst_ckpt *ckpt, const struct ckpt_extent *extent,
                           uint64_t at, uint32_t elements)
{
    if (extent->kind == EXTENT_STATES)
        return record_element(ckpt->optimizer, elements, at);
    const uint64_t element = at / optimizer_weight_bytes(ckpt->optimizer);
    return element < elements ? element : elements - 1;
}

static void name_place(const struct hst_ckpt *ckpt, const struct ckpt_extent *extent, uint64_t at,
                       struct hst_ckpt_damage *damage)
{
    if (!ckpt->model)
        return;
    const struct layout *layout = ckpt->model;
    struct tile_range range = layout_range_in(layout, &ckpt->layout, extent->range);
    const struct layout_unit *unit = &layout->units[range.unit];
    damage->unit = unit->name;
    range.offset += element_of(ckpt, extent, at, range.elements);
    const uint32_t param = layout_first_param_in(layout, range);
    if (param < unit->first_param + unit->param_count &&
        layout->params[param].offset <= range.offset)
        damage->param = layout->params[param].name;
}

/* ---- blocks ---- */

/* directory: where the file is. */
static void tell_place(struct verify *v, const struct ckpt_place *place, const char *directory)
{
    const struct ckpt_extent at = ckpt_extent(v->ckpt, place->tile, (enum extent_kind)place->kind);
    const struct ckpt_extent *extent = &at;
    char name[STORE_NAME_BYTES];
    store_file_name(extent->look->rank, extent->entry.drive, false, name);
    struct hst_ckpt_damage damage = {
        .what = extent->kind == EXTENT_WEIGHTS ? "weights" : "optimizer states",
        .tile = extent->tile,
        .rank = extent->look->rank,
        .directory = directory,
        .file = name,
        .offset = place->offset,
        .bytes = place->bytes,
        .error = place->error,
    };
    name_place(v->ckpt, extent, place->offset - look_offset(extent->look, &extent->entry), &damage);
    if (v->watch && v->watch->damage)
        v->watch->damage(v->watch->context, &damage);
}

static int tell_of_all(void *context, const struct ckpt_place *place, const char *directory)
{
    struct verify *v = context;
    tell_place(v, place, directory);
    return 0;
}

static int tell(struct verify *v, const struct ckpt_part *part, uint64_t offset, uint64_t bytes,
                int error)
{
    const struct ckpt_extent *extent = &part->extent;
    const struct ckpt_place place = {.tile = extent->tile,
                                     .kind = extent->kind,
                                     .error = error,
                                     .offset = offset,
                                     .bytes = bytes};
    v->damaged++;
    if (v->together)
        return together_note(v->together, &place);
    tell_place(v, &place, extent->look->directories[extent->entry.drive].path);
    return 0;
}

/* 0; -EBADMSG; or why it cannot be read. */
static int check_block(struct verify *v, const struct ckpt_part *part, uint64_t at, uint64_t bytes,
                       uint64_t hash)
{
    const struct look *look = part->extent.look;
    const int fd = look->fds[part->extent.entry.drive];
    for (uint64_t got = 0; got < bytes;) {
        const ssize_t n = pread(fd, v->block + got, bytes - got, (off_t)(at + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        got += (uint64_t)n;
    }
    return XXH3_64bits(v->block, bytes) == hash ? 0 : -EBADMSG;
}

/* The reading has told of the first place alone: each block of the piece is looked at. */
static int visit(void *context, struct ckpt_part *part)
{
    struct verify *v = context;
    const struct store_entry *entry = &part->extent.entry;
    const uint64_t start = look_offset(part->extent.look, entry) + part->at, before = v->damaged;
    const uint64_t *hashes = look_hashes(part->extent.look, entry) + part->at / STORE_BLOCK_BYTES;
    int told = 0;
    if (part->error == 0)
        return 0;
    for (uint64_t b = 0; b < store_blocks_of(part->size) && told == 0; b++) {
        const uint64_t at = b * STORE_BLOCK_BYTES, left = part->size - at;
        const uint64_t bytes = left < STORE_BLOCK_BYTES ? left : STORE_BLOCK_BYTES;
        const int rc = check_block(v, part, start + at, bytes, hashes[b]);
        if (rc)
            told = tell(v, part, start + at, bytes, rc);
    }
    if (v->damaged == before) /* it reads well a second time: the drive is not to be trusted */
        told = tell(v, part, part->bad_bytes ? part->bad_offset : start,
                    part->bad_bytes ? part->bad_bytes : part->size, part->error);
    return told;
}

static int read_all(struct verify *v, const struct hst_ckpt_watch *watch, struct hst_error *error)
{
    const struct ckpt_reading reading = {.share = SHARE_ALL,
                                         .readers = CKPT_EACH_ITS_FILES,
                                         .weights = true,
                                         .states = true,
                                         .piece_bytes = STORE_BLOCK_BYTES,
                                         .visit = visit,
                                         .context = v,
                                         .watch = watch};
    return ckpt_read(v->ckpt, &reading, error);
}

/* Each its files; all of it is told on all of them. */
static int read_together(struct verify *v, struct hst_error *error)
{
    struct together together;
    together_open(&together, v->ckpt, v->watch);
    v->together = &together;
    const struct hst_ckpt_watch watch = {.progress = together_progress, .context = &together};
    int rc = together_begin(&together);
    rc = rc ? rc : read_all(v, &watch, error);
    rc = together_end(&together, rc);
    rc = rc ? rc : together_tell(&together, tell_of_all, v, error);
    v->damaged = together.count;
    v->together = NULL;
    together_close(&together);
    return rc;
}

int hst_ckpt_verify(struct hst_ckpt *ckpt, const struct hst_ckpt_watch *watch, uint64_t *damaged,
                    struct hst_error *error)
{
    struct verify v = {.ckpt = ckpt, .watch = watch, .block = malloc(STORE_BLOCK_BYTES)};
    int rc = v.block ? 0
                     : store_refuse(error, HST_E_BUDGET, -ENOMEM,
                                    "no memory for a block of the store. Fix: end other programs");
    rc = ckpt->shares ? ckpt_agree(ckpt, rc, error) : rc;
    if (rc == 0)
        rc = ckpt->shares ? read_together(&v, error) : read_all(&v, watch, error);
    free(v.block);
    if (rc == 0)
        *damaged = v.damaged;
    return rc;
}
