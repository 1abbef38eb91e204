/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This passes before the first step: the arena in host memory is page-locked, whole, where a GPU
 * copies from it; initial weights are read; weights and states are written where they live on
 * drives, and everything where versions are kept, as the first one. Each waits for the one before:
 * the arena is there before a tile is read, and a tile is read before it is written. Pure.
 */
#include "plan/search/start_up.h"

#include "base/size_text.h"

#include <stdio.h>
#include <string.h>

/* The bytes of what is not frozen are there twice. */
static uint64_t once(uint64_t bytes, uint64_t frozen, bool twice)
{
    return twice ? (bytes - frozen) / 2 + frozen : bytes;
}

static uint64_t frozen_in(const struct placement *p, enum hst_class class, enum hst_tier tier)
{
    return class == HST_CLASS_WEIGHTS ? p->frozen_bytes[tier] : 0;
}

static uint64_t in_memory(const struct placement *p, enum hst_class class, bool twice)
{
    return p->table[class][HST_TIER_HBM] +
           once(p->table[class][HST_TIER_DRAM], frozen_in(p, class, HST_TIER_DRAM), twice);
}

/* Each element once, whatever slots there are. */
static uint64_t on_drives(const struct placement_in *in, const struct placement *p,
                          enum hst_class class)
{
    bool derived = in->stored && in->derived_weights && class == HST_CLASS_WEIGHTS;
    bool twice = (in->stored || in->second_slots) && !derived;
    return once(p->table[class][HST_TIER_NVME], frozen_in(p, class, HST_TIER_NVME), twice);
}

struct start_bytes start_up_bytes(const struct placement_in *in, const struct placement *placement,
                                  uint64_t load_bytes, bool resumes)
{
    bool apart = in->compute_tier == HST_TIER_HBM, twice = in->second_slots;
    struct start_bytes bytes = {.locked = apart ? placement->dram_bytes : 0};
    if (resumes) {
        bytes.read = in_memory(placement, HST_CLASS_WEIGHTS, twice) +
                     in_memory(placement, HST_CLASS_STATES, twice);
        return bytes;
    }
    bytes.read = load_bytes;
    bytes.written =
        on_drives(in, placement, HST_CLASS_WEIGHTS) + on_drives(in, placement, HST_CLASS_STATES);
    return bytes;
}

/* The first reason stays. */
static double take(struct hst_start_up *s, const char *what, uint64_t bytes,
                   const struct hst_figure *figure)
{
    if (bytes == 0)
        return 0;
    if (figure->value > 0) {
        s->seconds += (double)bytes / figure->value;
        return (double)bytes / figure->value;
    }
    if (!s->why[0])
        snprintf(s->why, sizeof s->why, "%s is not counted, its rate is not known: %s", what,
                 figure->how[0] ? figure->how : "it was not measured");
    return 0;
}

void start_up_seconds(const struct start_bytes *bytes, const struct hst_rates *rates,
                      struct hst_start_up *start_up)
{
    static const struct hst_rates none;
    const struct hst_figure *f = rates ? rates->figures : none.figures;
    struct hst_start_up s = {
        .lock_bytes = bytes->locked, .read_bytes = bytes->read, .write_bytes = bytes->written};
    s.lock_s = take(&s, "page-locking", s.lock_bytes, &f[HST_RATE_LOCK]);
    s.read_s = take(&s, "reading", s.read_bytes, &f[HST_RATE_READ]);
    s.write_s = take(&s, "writing", s.write_bytes, &f[HST_RATE_WRITE]);
    *start_up = s;
}

enum { SECONDS_BYTES = 16 };

/* "57", "5.5", "1370": whole seconds where three digits do not hold them. */
static const char *seconds_text(double seconds, char text[SECONDS_BYTES])
{
    bool many = seconds >= 999.5 && seconds < 1e9; /* beyond it, a rate is nonsense */
    snprintf(text, SECONDS_BYTES, many ? "%.0f" : "%.3g", seconds);
    return text;
}

const char *hst_start_up_text(const struct hst_start_up *start_up,
                              char text[HST_START_UP_TEXT_BYTES])
{
    const struct {
        const char *what;
        uint64_t bytes;
        double seconds;
    } parts[] = {{"page-locking", start_up->lock_bytes, start_up->lock_s},
                 {"reading", start_up->read_bytes, start_up->read_s},
                 {"writing", start_up->write_bytes, start_up->write_s}};
    char size[SIZE_TEXT_BYTES], seconds[SECONDS_BYTES];
    size_t room = HST_START_UP_TEXT_BYTES, used = 0;
    const char *before = ": ";
    used = (size_t)snprintf(text, room, "starting takes %s s",
                            seconds_text(start_up->seconds, seconds));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].seconds <= 0)
            continue;
        used += (size_t)snprintf(text + used, room - used, "%s%s %s %s s", before, parts[i].what,
                                 size_text(parts[i].bytes, size),
                                 seconds_text(parts[i].seconds, seconds));
        before = ", ";
    }
    if (start_up->why[0])
        snprintf(text + used, room - used, "; %s", start_up->why);
    return text;
}
