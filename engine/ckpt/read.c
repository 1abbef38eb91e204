/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every extent once, in order, through a ring of buffers: while one is visited, those behind it are
 * on their way, each drive by queues of its own. What is read is compared with its hashes on the
 * way in. Where nobody needs an extent as a whole it comes in pieces, so that the memory that this
 * takes does not grow with the tiles of the store.
 */
#include "ckpt/ckpt.h"

#include "base/size_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* On their way at once: enough for a drive, and no more memory than this where extents are large */
#define DEPTH_MOST  16u
#define DEPTH_LEAST 4u
#define RING_BYTES  (UINT64_C(256) << 20)

struct slot {
    struct ckpt_part part;
    bool waiting; /* for its bytes */
};

struct reader {
    const struct hst_ckpt *ckpt;
    const struct ckpt_reading *reading;
    struct hst_error *error;
    struct hst_aio *aio[STRIPE_DRIVES_MAX];
    struct hst_aio_file **files; /* [world · drives] */
    unsigned char *memory;
    uint64_t stride;
    uint32_t depth;
    struct slot slots[DEPTH_MOST];
    uint32_t *tiles; /* of ckpt->tiles: those that are visited */
    uint32_t tile_count;
    uint64_t extent, at;            /* of the extents, and in it: what is begun next */
    uint64_t begun, visited, parts; /* parts: all of them */
    uint64_t done_bytes, total_bytes;
};

/* ---- what is read ---- */

static uint32_t kinds_of(const struct ckpt_reading *reading)
{
    return (uint32_t)reading->weights + (uint32_t)reading->states;
}

static const struct layout *layout_of(const struct hst_ckpt *ckpt,
                                      const struct ckpt_reading *reading)
{
    return reading->layout ? reading->layout : &ckpt->layout;
}

/* The part of a tile that one unit has, in elements from the start of the unit's row. */
struct part_of_unit {
    uint64_t first, end, row;
};

/* Who reads may have cut the model in another way, so that a tile is of several of its units: the
 * next of them, from *unit on. */
static bool next_unit(const struct layout *layout, uint64_t first, uint64_t end, uint32_t *unit,
                      struct part_of_unit *part)
{
    for (; *unit < layout->unit_count; ++*unit) {
        const struct layout_unit *u = &layout->units[*unit];
        const uint64_t start = u->first_block * LAYOUT_UNIT_ALIGN;
        if (start >= end)
            return false;
        if (u->elements == 0)
            continue;
        const uint64_t from = first > start ? first : start;
        const uint64_t to = end < start + u->elements ? end : start + u->elements;
        *part = (struct part_of_unit){from - start, to - start, u->elements};
        ++*unit;
        return true;
    }
    return false;
}

static bool has_part_of(const struct hst_ckpt *ckpt, const struct ckpt_reading *reading,
                        uint32_t tile)
{
    const struct layout *layout = layout_of(ckpt, reading);
    const struct tile_range range = ckpt->tiles[tile].range;
    const uint64_t first = layout_first_element(&ckpt->layout, range);
    uint32_t unit = layout_unit_at(layout, first);
    struct part_of_unit part;
    while (next_unit(layout, first, first + range.elements, &unit, &part)) {
        const struct shard shard = shard_of(part.row, reading->share);
        if (part.first < shard.first + shard.elements && shard.first < part.end)
            return true;
    }
    return false;
}

static bool sees(const struct ckpt_shares *shares, uint32_t process, uint32_t rank)
{
    return shares->seen[(size_t)process * shares->world + rank];
}

uint32_t ckpt_reader_of_rank(const struct ckpt_shares *shares, uint32_t rank)
{
    uint32_t count = 0;
    for (uint32_t p = 0; p < shares->processes; p++)
        count += sees(shares, p, rank);
    uint32_t turn = count > 0 ? (rank + shares->replica) % count : 0;
    for (uint32_t p = 0; p < shares->processes; p++)
        if (sees(shares, p, rank) && turn-- == 0)
            return p;
    return UINT32_MAX;
}

/* This process visits the tile for itself. */
static bool wants(const struct hst_ckpt *ckpt, const struct ckpt_reading *reading, uint32_t tile)
{
    const struct ckpt_shares *shares = ckpt->shares;
    const struct ckpt_tile *at = &ckpt->tiles[tile];
    if (shares && reading->readers == CKPT_WRITER_ALL)
        return shares->process == shares->writer;
    if (shares && reading->readers == CKPT_EACH_ITS_FILES)
        return ckpt_reader_of_rank(shares, at->rank) == shares->process;
    return !(shares && shares->process >= reading->share.world) && has_part_of(ckpt, reading, tile);
}

uint64_t ckpt_reading_bytes(const struct hst_ckpt *ckpt, const struct ckpt_reading *reading)
{
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < ckpt->tile_count; t++) {
        if (!wants(ckpt, reading, t))
            continue;
        if (reading->weights && !ckpt->derived_weights)
            bytes += ckpt_extent(ckpt, t, EXTENT_WEIGHTS).entry.bytes;
        if (reading->states)
            bytes += ckpt_extent(ckpt, t, EXTENT_STATES).entry.bytes;
    }
    return bytes;
}

/* ---- what goes from one process to another ---- */

/* A process whose shard has any of the tile does not find it. */
static bool is_lacked(const struct hst_ckpt *ckpt, const struct ckpt_reading *reading,
                      const struct ckpt_tile *at)
{
    const struct layout *layout = layout_of(ckpt, reading);
    const uint32_t world = reading->share.world;
    const uint64_t begin = layout_first_element(&ckpt->layout, at->range);
    uint32_t unit = layout_unit_at(layout, begin);
    struct part_of_unit part;
    bool lacks = false;
    while (next_unit(layout, begin, begin + at->range.elements, &unit, &part)) {
        const uint64_t shard = shard_elements(part.row, world);
        const uint64_t last = (part.end - 1) / shard;
        for (uint64_t p = part.first / shard; p <= last && p < world; p++)
            lacks = lacks || !sees(ckpt->shares, (uint32_t)p, at->rank);
    }
    return lacks;
}

/* The process that reads a tile for all; UINT32_MAX: each that needs it reads it itself. */
static uint32_t reader_of(const struct hst_ckpt *ckpt, const struct ckpt_reading *reading,
                          uint32_t tile)
{
    const struct ckpt_shares *shares = ckpt->shares;
    const struct ckpt_tile *at = &ckpt->tiles[tile];
    if (!shares || reading->readers == CKPT_EACH_ITS_FILES)
        return UINT32_MAX;
    const bool lacks = reading->readers == CKPT_WRITER_ALL ? !sees(shares, shares->writer, at->rank)
                                                           : is_lacked(ckpt, reading, at);
    for (uint32_t p = 0; p < shares->processes && lacks; p++)
        if (sees(shares, p, at->rank))
            return p;
    return UINT32_MAX;
}

/* It has bytes, and is read elsewhere. */
static bool comes(const struct reader *r, uint32_t tile)
{
    const uint32_t reader = reader_of(r->ckpt, r->reading, tile);
    return reader != UINT32_MAX && reader != r->ckpt->shares->process;
}

/* Who has read it gives it to all others. One that is damaged is told by who has read it. */
static int pass_on(const struct reader *r, struct ckpt_part *part)
{
    const struct ckpt_shares *shares = r->ckpt->shares;
    const uint32_t reader = reader_of(r->ckpt, r->reading, part->extent.tile);
    const bool kept_back = part->error && !r->reading->damaged_come;
    if (reader == UINT32_MAX || kept_back || (part->extent.entry.flags & STORE_ZERO))
        return 0;
    return shares->take(shares->context, reader, part->bytes, part->size);
}

static bool is_visited(const struct reader *r, uint32_t tile)
{
    return wants(r->ckpt, r->reading, tile) || reader_of(r->ckpt, r->reading, tile) != UINT32_MAX;
}

static int choose_tiles(struct reader *r)
{
    const struct hst_ckpt *ckpt = r->ckpt;
    r->tiles = calloc(ckpt->tile_count, sizeof *r->tiles);
    for (uint32_t t = 0; t < ckpt->tile_count && r->tiles; t++)
        if (is_visited(r, t))
            r->tiles[r->tile_count++] = t;
    return r->tiles ? 0
                    : store_refuse(r->error, HST_E_BUDGET, -ENOMEM,
                                   "no memory for a table of tiles. Fix: end other programs");
}

/* The nth of those that are visited. */
static struct ckpt_extent nth_extent(const struct reader *r, uint64_t nth)
{
    const bool both = r->reading->weights && r->reading->states;
    const bool states = both ? nth % 2 == 1 : r->reading->states;
    return ckpt_extent(r->ckpt, r->tiles[both ? nth / 2 : nth],
                       states ? EXTENT_STATES : EXTENT_WEIGHTS);
}

static uint64_t extent_count(const struct reader *r)
{
    return (uint64_t)kinds_of(r->reading) * r->tile_count;
}

static uint64_t piece_of(const struct reader *r, uint64_t left_bytes)
{
    const uint64_t piece = r->reading->piece_bytes;
    return piece > 0 && piece < left_bytes ? piece : left_bytes;
}

/* And moves on to the one behind it. */
static struct ckpt_part next_part(struct reader *r, unsigned char *bytes)
{
    struct ckpt_part part = {.extent = nth_extent(r, r->extent), .bytes = bytes, .at = r->at};
    part.size = piece_of(r, part.extent.entry.bytes - r->at);
    r->at += part.size;
    if (r->at == part.extent.entry.bytes) {
        r->at = 0;
        r->extent++;
    }
    return part;
}

/* ---- files ---- */

/*
 * A directory that cannot be written to (mounted read-only, full) cannot be probed: its files are
 * then read through the page cache by a context that was probed elsewhere.
 */
static int open_context(struct reader *r, uint32_t d)
{
    struct hst_aio_config config = {
        .size = sizeof config, .queue_depth = DEPTH_MOST, .lock_timeout_ms = 1};
    config.backend = r->ckpt->io == HST_IO_URING     ? HST_AIO_URING
                     : r->ckpt->io == HST_IO_THREADS ? HST_AIO_THREADS
                                                     : HST_AIO_AUTO;
    int rc = hst_aio_open(&config, r->ckpt->paths[d], &r->aio[d], NULL);
    if (rc == 0 || r->ckpt->io != HST_IO_AUTO)
        return rc;
    config.backend = HST_AIO_THREADS;
    config.avoid = HST_AIO_AVOID_DIRECT;
    return hst_aio_open(&config, P_tmpdir, &r->aio[d], NULL);
}

static int open_files(struct reader *r)
{
    const struct hst_ckpt *ckpt = r->ckpt;
    char name[STORE_NAME_BYTES], path[STORE_PATH_BYTES];
    int rc = 0;
    for (uint32_t d = 0; d < ckpt->drives && rc == 0; d++) {
        rc = open_context(r, d);
        for (uint32_t rank = 0; rank < ckpt->world && rc == 0; rank++) {
            if (ckpt->looks[rank].fds[d] < 0)
                continue; /* another process has it */
            store_file_name(ckpt->looks[rank].rank, d, false, name);
            store_file_path(&ckpt->looks[rank].directories[d], name, path);
            rc = hst_aio_file_open(r->aio[d], path, HST_AIO_READONLY, 0,
                                   &r->files[rank * ckpt->drives + d]);
        }
        if (rc)
            store_refuse(r->error, rc == -EBUSY ? HST_E_STORE_BUSY : HST_E_READ, rc,
                         "the store's files in %s cannot be read: %s. Fix: check the directory",
                         ckpt->paths[d], strerror(-rc));
    }
    return rc;
}

static void close_files(struct reader *r)
{
    for (uint32_t d = 0; d < r->ckpt->drives; d++)
        hst_aio_close(&r->aio[d]); /* waits for what is in flight */
    for (uint32_t i = 0; r->files && i < r->ckpt->world * r->ckpt->drives; i++)
        hst_aio_file_close(&r->files[i]);
    free(r->files);
    if (r->memory)
        hst_aio_buffer_free(r->memory, r->depth * r->stride);
}

/* ---- the ring ---- */

static int no_memory(struct reader *r)
{
    char size[SIZE_TEXT_BYTES];
    return store_refuse(r->error, HST_E_BUDGET, -ENOMEM,
                        "no memory for %s of extents. Fix: end other programs",
                        size_text_up(r->depth * r->stride, size));
}

static int make_ring(struct reader *r)
{
    void *memory;
    for (uint64_t i = 0; i < extent_count(r); i++) {
        const uint64_t bytes = nth_extent(r, i).entry.bytes, piece = piece_of(r, bytes);
        r->stride = piece > r->stride ? piece : r->stride;
        r->parts += piece > 0 ? (bytes + piece - 1) / piece : 1;
        r->total_bytes += bytes;
    }
    const uint64_t fit = r->stride > 0 ? RING_BYTES / r->stride : 0;
    const uint32_t most = r->reading->depth ? r->reading->depth : DEPTH_MOST;
    r->depth = fit > DEPTH_MOST ? DEPTH_MOST : fit < DEPTH_LEAST ? DEPTH_LEAST : (uint32_t)fit;
    r->depth = r->depth > most ? most : r->depth;
    r->files = calloc((size_t)r->ckpt->world * r->ckpt->drives, sizeof(struct hst_aio_file *));
    if (!r->files || hst_aio_buffer_alloc(r->depth * r->stride, &memory))
        return no_memory(r);
    r->memory = memory;
    return 0;
}

static void complete(struct reader *r, const struct hst_aio_completion *completion)
{
    struct slot *slot = &r->slots[completion->user];
    slot->waiting = false;
    slot->part.error = completion->error;
    slot->part.bad_offset = completion->bad_offset;
    slot->part.bad_bytes = completion->bad_bytes;
}

static int fail_context(struct reader *r, uint32_t d, int rc)
{
    return store_refuse(r->error, HST_E_READ, rc,
                        "reading in %s broke down: %s. Fix: check the drive (dmesg, smartctl -a)",
                        r->ckpt->paths[d], strerror(-rc));
}

static int wait_for(struct reader *r, const struct slot *slot)
{
    struct hst_aio_completion done[DEPTH_MOST];
    const uint32_t d = slot->part.extent.entry.drive;
    while (slot->waiting) {
        const int n = hst_aio_reap(r->aio[d], done, DEPTH_MOST, 1, UINT64_MAX);
        if (n < 0)
            return fail_context(r, d, n);
        for (int i = 0; i < n; i++)
            complete(r, &done[i]);
    }
    return 0;
}

static int begin(struct reader *r, uint32_t place)
{
    struct slot *slot = &r->slots[place];
    slot->part = next_part(r, r->memory + place * r->stride);
    const struct store_entry *entry = &slot->part.extent.entry;
    const struct look *look = slot->part.extent.look;
    r->begun++;
    if (entry->flags & STORE_ZERO) {
        memset(slot->part.bytes, 0, slot->part.size);
        return 0;
    }
    if (comes(r, slot->part.extent.tile))
        return 0;
    const struct hst_aio_op op = {
        .kind = HST_AIO_READ,
        .file = r->files[(size_t)(look - r->ckpt->looks) * r->ckpt->drives + entry->drive],
        .offset = look_offset(look, entry) + slot->part.at,
        .buffer = slot->part.bytes,
        .bytes = slot->part.size,
        .user = place,
        .hashes = look_hashes(look, entry) + slot->part.at / STORE_BLOCK_BYTES,
    };
    const int rc = hst_aio_submit(r->aio[entry->drive], &op, 1); /* there is room for all slots */
    slot->waiting = rc == 1;
    return rc == 1 ? 0 : fail_context(r, entry->drive, rc < 0 ? rc : -EAGAIN);
}

static int watch(struct reader *r)
{
    const struct hst_ckpt_watch *w = r->reading->watch;
    if (!w || !w->progress || w->progress(w->context, r->done_bytes, r->total_bytes) == 0)
        return 0;
    return store_refuse(r->error, HST_E_READ, -ECANCELED, "stopped");
}

static int run(struct reader *r)
{
    int rc = 0;
    for (; r->visited < r->parts && rc == 0; r->visited++) {
        while (rc == 0 && r->begun < r->parts && r->begun < r->visited + r->depth)
            rc = begin(r, (uint32_t)(r->begun % r->depth));
        struct slot *slot = &r->slots[r->visited % r->depth];
        rc = rc ? rc : wait_for(r, slot);
        rc = rc ? rc : pass_on(r, &slot->part);
        /* what was read for others alone is told where it is damaged */
        if (rc == 0 && (slot->part.error || wants(r->ckpt, r->reading, slot->part.extent.tile)))
            rc = r->reading->visit(r->reading->context, &slot->part);
        r->done_bytes += rc ? 0 : slot->part.size;
        rc = rc ? rc : watch(r);
    }
    return rc;
}

static bool passes_on(const struct reader *r)
{
    return r->ckpt->shares && r->reading->readers != CKPT_EACH_ITS_FILES;
}

int ckpt_read(const struct hst_ckpt *ckpt, const struct ckpt_reading *reading,
              struct hst_error *error)
{
    struct reader r = {.ckpt = ckpt, .reading = reading, .error = error};
    struct ckpt_reading kinds = *reading;
    kinds.weights = reading->weights && !ckpt->derived_weights;
    r.reading = &kinds;
    if (!ckpt->held)
        return store_refuse(error, HST_E_VALUE, -EINVAL,
                            "the bytes of a store are read while it is held");
    int rc = choose_tiles(&r);
    if (rc == 0 && r.tile_count > 0) {
        rc = make_ring(&r);
        rc = rc ? rc : open_files(&r);
    }
    if (passes_on(&r)) /* who cannot begin would leave the others waiting for what it has */
        rc = ckpt_agree(ckpt, rc, error);
    rc = rc ? rc : run(&r);
    close_files(&r);
    free(r.tiles);
    return rc;
}

int ckpt_refuse_part(const struct ckpt_part *part, struct hst_error *error)
{
    const struct store_entry *entry = &part->extent.entry;
    char name[STORE_NAME_BYTES];
    store_file_name(part->extent.look->rank, entry->drive, false, name);
    return store_refuse(
        error, HST_E_STORE_DAMAGED, part->error,
        "the store's version is damaged: %s of tile %u, at offset %llu of %s/%s: %s. Fix: check "
        "the drives (dmesg, smartctl -a); hoistway ckpt verify tells what else is damaged",
        part->extent.kind == EXTENT_WEIGHTS ? "weights" : "optimizer states", part->extent.tile,
        (unsigned long long)(part->bad_bytes > 0 ? part->bad_offset
                                                 : look_offset(part->extent.look, entry)),
        part->extent.look->directories[entry->drive].path, name,
        part->error == -EBADMSG ? "its bytes are not those that were written"
                                : strerror(-part->error));
}
