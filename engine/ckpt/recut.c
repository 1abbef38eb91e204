/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of one cut as tiles of another: see recut.h. */
#include "ckpt/recut.h"

#include "plan/placement/record.h"

#include <errno.h>
#include <string.h>

static uint64_t extent_bytes(const struct recut *c, enum extent_kind kind, uint64_t elements)
{
    return kind == EXTENT_WEIGHTS ? elements * optimizer_weight_bytes(c->optimizer)
                                  : record_layout(c->optimizer, elements).bytes;
}

int recut_open(struct recut *c, const struct layout *layout, const struct layout *from,
               const struct optimizer *optimizer, struct extents *extents)
{
    void *memory;
    *c = (struct recut){.layout = layout, .from = from, .optimizer = optimizer, .extents = extents};
    const uint32_t largest = layout_largest_tile(layout);
    uint64_t sizes[STORE_KINDS];
    for (uint32_t kind = 0; kind < STORE_KINDS; kind++) {
        sizes[kind] = extent_bytes(c, (enum extent_kind)kind, largest);
        c->memory_bytes += 2 * sizes[kind];
    }
    if (c->memory_bytes == 0) /* the rank has nothing */
        return 0;
    if (hst_aio_buffer_alloc(c->memory_bytes, &memory))
        return -ENOMEM;
    unsigned char *at = c->memory = memory;
    for (uint32_t kind = 0; kind < STORE_KINDS; kind++)
        for (unsigned i = 0; i < 2; i++, at += sizes[kind])
            c->lanes[kind].bytes[i] = at;
    return 0;
}

/* ---- elements ---- */

/* A range whose offset is counted over all rows: the same however the units are cut. */
static struct tile_range counted_over_all(const struct layout *layout, struct tile_range range)
{
    range.offset = layout_first_element(layout, range);
    return range;
}

/* Elements that both have, counted over all rows. */
struct common {
    uint64_t first, count;
};

static struct common common_of(struct tile_range a, struct tile_range b)
{
    const uint64_t first = a.offset > b.offset ? a.offset : b.offset;
    const uint64_t a_end = a.offset + a.elements, b_end = b.offset + b.elements;
    const uint64_t end = a_end < b_end ? a_end : b_end;
    return (struct common){.first = first, .count = end > first ? end - first : 0};
}

static void copy_states(const struct optimizer *optimizer, struct tile_range to_range,
                        unsigned char *to, struct tile_range from_range, const unsigned char *from,
                        struct common common)
{
    const struct record a = record_layout(optimizer, to_range.elements);
    const struct record b = record_layout(optimizer, from_range.elements);
    const uint64_t to_first = common.first - to_range.offset;
    const uint64_t from_first = common.first - from_range.offset;
    for (uint32_t i = 0; i < optimizer->state_count; i++)
        memcpy(to + a.at[i] + optimizer_array_bytes(optimizer, i, to_first),
               from + b.at[i] + optimizer_array_bytes(optimizer, i, from_first),
               optimizer_array_bytes(optimizer, i, common.count));
}

static void copy_weights(const struct optimizer *optimizer, struct tile_range to_range,
                         unsigned char *to, struct tile_range from_range, const unsigned char *from,
                         struct common common)
{
    const uint64_t bytes = optimizer_weight_bytes(optimizer);
    memcpy(to + (common.first - to_range.offset) * bytes,
           from + (common.first - from_range.offset) * bytes, common.count * bytes);
}

/* ---- tiles ---- */

/* Zeroes what lies between the arrays of a record, too: record_zero_gaps. */
static int begin_tile(struct recut *c, enum extent_kind kind, struct tile_range tile)
{
    struct recut_lane *lane = &c->lanes[kind];
    const int rc = extents_wait(c->extents, &lane->write[lane->at]);
    if (rc == 0)
        memset(lane->bytes[lane->at], 0, extent_bytes(c, kind, tile.elements));
    lane->holds_bytes = false;
    return rc;
}

static int end_tile(struct recut *c, enum extent_kind kind)
{
    struct recut_lane *lane = &c->lanes[kind];
    const unsigned at = lane->at;
    const uint32_t index = lane->next++;
    lane->elements = 0;
    if (!lane->holds_bytes)
        return 0;
    lane->at ^= 1;
    return extents_write(c->extents, kind, index, lane->bytes[at], &lane->write[at]);
}

int recut_take(struct recut *c, enum extent_kind kind, struct tile_range range,
               const unsigned char *bytes, bool zero)
{
    struct recut_lane *lane = &c->lanes[kind];
    range = counted_over_all(c->from, range);
    while (lane->next < c->layout->tile_count) {
        const struct tile_range tile =
            counted_over_all(c->layout, layout_tile(c->layout, lane->next));
        if (kind == EXTENT_STATES && c->layout->units[tile.unit].frozen) {
            lane->next++; /* it has none */
            continue;
        }
        const struct common common = common_of(tile, range);
        if (common.count == 0)
            return 0;
        int rc = lane->elements == 0 ? begin_tile(c, kind, tile) : 0;
        if (rc)
            return rc;
        unsigned char *to = lane->bytes[lane->at];
        if (kind == EXTENT_WEIGHTS)
            copy_weights(c->optimizer, tile, to, range, bytes, common);
        else
            copy_states(c->optimizer, tile, to, range, bytes, common);
        lane->holds_bytes = lane->holds_bytes || !zero;
        lane->elements += common.count;
        if (lane->elements < tile.elements)
            return 0;
        rc = end_tile(c, kind);
        if (rc)
            return rc;
    }
    return 0;
}

int recut_close(struct recut *c)
{
    int rc = 0;
    for (uint32_t kind = 0; kind < STORE_KINDS; kind++)
        for (unsigned i = 0; i < 2; i++) {
            const int late = extents_wait(c->extents, &c->lanes[kind].write[i]);
            rc = rc ? rc : late;
        }
    if (c->memory)
        hst_aio_buffer_free(c->memory, c->memory_bytes);
    c->memory = NULL;
    return rc;
}
