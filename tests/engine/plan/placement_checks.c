/* SPDX-License-Identifier: Apache-2.0 */
#include "placement_checks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

uint64_t named_budget(const char *why)
{
    static const struct hst_option size = {
        .name = "size", .type = HST_OPTION_SIZE, .least = 0, .greatest = 0x1p62};
    const char *named = strstr(why, "smallest needs ");
    char number[16], unit[8], text[24], wrong[400];
    uint64_t bytes = 0;
    if (!named || sscanf(named, "smallest needs %15s %7s", number, unit) != 2)
        return 0;
    snprintf(text, sizeof text, "%s%s", number, unit);
    return hst_option_parse(&size, text, &bytes, wrong, sizeof wrong) ? 0 : bytes;
}

struct layout model(uint32_t tile_elements)
{
    struct layout layout = {0};
    char why[256], names[3][32];
    for (uint32_t u = 0; u < UNITS; u++) {
        struct hst_param_desc params[2] = {0};
        snprintf(names[0], sizeof names[0], "unit.%u", u);
        snprintf(names[1], sizeof names[1], "unit.%u.norm", u);
        snprintf(names[2], sizeof names[2], "unit.%u.weight", u);
        params[0] = (struct hst_param_desc){.name = names[1], .dim_count = 1, .dims = {64}};
        params[1] =
            (struct hst_param_desc){.name = names[2], .dim_count = 2, .dims = {100 + 30 * u, 200}};
        if (u == UNITS - 1) {
            params[1].dims[0] = 100;
            params[1].alias_of = "unit.0.weight";
        }
        struct hst_unit_desc desc = {.name = names[0],
                                     .params = params,
                                     .param_count = 2,
                                     .act_bytes_per_token = u == 0 ? 0 : 256,
                                     .work_bytes = 5000 * u};
        assert_int_equal(layout_add(&layout, &desc, why, sizeof why), 0);
    }
    assert_int_equal(layout_seal(&layout, tile_elements, SHARE_ALL), 0);
    return layout;
}

struct layout model_of_rows(const uint32_t *rows, uint32_t units, uint32_t tile_elements)
{
    struct layout layout = {0};
    char why[256], name[2][16];
    for (uint32_t u = 0; u < units; u++) {
        snprintf(name[0], sizeof name[0], "u%u", u);
        snprintf(name[1], sizeof name[1], "u%u.w", u);
        struct hst_param_desc param = {.name = name[1], .dim_count = 2, .dims = {rows[u], 4096}};
        struct hst_unit_desc desc = {
            .name = name[0], .params = &param, .param_count = 1, .act_bytes_per_token = 256};
        assert_int_equal(layout_add(&layout, &desc, why, sizeof why), 0);
    }
    assert_int_equal(layout_seal(&layout, tile_elements, SHARE_ALL), 0);
    return layout;
}

struct placement_in inputs(const struct layout *layout, const char *place)
{
    struct placement_in in = {
        .layout = layout,
        .optimizer = optimizer_find(HST_OPTIMIZER_ADAMW, HST_PRECISION_FP32, HST_STATE_FP32),
        .has_nvme = true,
        .compute_tier = HST_TIER_DRAM,
        .dram_budget = 1u << 30,
        .nvme_budget = 1u << 30,
        .batch_tokens = 100,
        .micro_batch_tokens = 32,
        .hidden_bytes_per_token = 256,
        .client_device_bytes = 5000,
        .client_host_bytes = 3000,
        .deferred = true,
    };
    char why[256];
    if (place)
        assert_int_equal(place_parse(place, &in.wish, why, sizeof why), 0);
    return in;
}

struct span {
    uint64_t start, end;
};

static int by_start(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

/* Bytes from an extent to its second slot; 0: it has one. */
static uint64_t second(const struct placement *p, enum extent_kind kind, uint32_t index,
                       struct address at)
{
    if (at.tier == HST_TIER_NVME)
        return placement_second(p, kind, index, at.drive);
    bool dram = at.tier == HST_TIER_DRAM && (kind == EXTENT_WEIGHTS || kind == EXTENT_STATES);
    return dram ? placement_second_in_dram(p, kind, index) : 0;
}

/* The extents of one tier (and drive), but for checkpoints in memory, which are not cut. */
static size_t tier_extents(const struct placement_in *in, const struct placement *p,
                           enum hst_tier tier, uint32_t drive, struct span *spans)
{
    size_t n = 0;
    for (int kind = 0; kind < EXTENT_KIND_COUNT; kind++)
        for (uint32_t i = 0; i < placement_extents(p, (enum extent_kind)kind); i++) {
            uint64_t bytes;
            struct address at = placement_extent(p, (enum extent_kind)kind, i, &bytes);
            /* on a device they take turns at one place: see device_buffers */
            bool homeless = kind == EXTENT_GRADS && tier != HST_TIER_DRAM && !in->deferred;
            assert_int_equal(bytes % 4096, 0);
            if (at.tier != tier || (tier == HST_TIER_NVME && at.drive != drive) || homeless)
                continue;
            spans[n++] = (struct span){at.offset, at.offset + bytes};
            uint64_t other = at.offset + second(p, (enum extent_kind)kind, i, at);
            if (other > at.offset)
                spans[n++] = (struct span){other, other + bytes};
        }
    return n;
}

static struct span ring_span(struct buffer_pool buffer_pool)
{
    return (struct span){buffer_pool.at, buffer_pool.at + buffer_pool.count * buffer_pool.bytes};
}

/* What is in DRAM beside homes. */
static size_t host_buffers(const struct placement_in *in, const struct placement *p,
                           struct span *spans)
{
    size_t n = 0;
    for (int size = 0; size < UNIT_SIZES; size++) {
        spans[n++] = ring_span(p->reservations[size]);
        spans[n++] = ring_span(p->grad_buffers[size]);
    }
    spans[n++] = ring_span(p->slots);
    spans[n++] = ring_span(p->act_buffers);
    spans[n++] = (struct span){p->client_host, p->client_host + in->client_host_bytes};
    spans[n++] =
        (struct span){p->host_partials, p->host_partials + in->layout->elements / 4096 * 8};
    if (in->compute_tier == HST_TIER_HBM)
        spans[n++] =
            (struct span){p->load_values, p->load_values + 4 * layout_largest_tile(in->layout)};
    return n;
}

/* What is where the device computes, beside homes. */
static size_t device_buffers(const struct placement_in *in, const struct placement *p,
                             struct span *spans)
{
    size_t n = 0;
    struct span turns = {0};
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        uint64_t at = p->units[u].grads.offset,
                 end = at + in->layout->units[u].elements * optimizer_weight_bytes(in->optimizer);
        if (!in->deferred && placement_is_resident(p, u))
            turns = (struct span){at, end > turns.end ? end : turns.end};
    }
    spans[n++] = turns;
    uint64_t hidden = p->micro_count * placement_micro_stride(in, in->hidden_bytes_per_token);
    spans[n++] = (struct span){p->hidden, p->hidden + hidden};
    spans[n++] = (struct span){p->hidden_grad, p->hidden_grad + hidden};
    spans[n++] = (struct span){p->accumulator, p->accumulator + 4};
    spans[n++] = (struct span){p->tied, p->tied + in->layout->tied_elements * 4};
    spans[n++] = (struct span){p->work, p->work + p->work_bytes};
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        const struct layout_unit *unit = &in->layout->units[u];
        uint64_t at = p->norm_partials + 8 * unit->first_block;
        if (placement_is_resident(p, u))
            spans[n++] = (struct span){at, at + unit->elements / 4096 * 8};
    }
    for (uint32_t u = 0; u < in->layout->unit_count; u++)
        if (p->units[u].saved != PLACEMENT_NO_ADDRESS)
            spans[n++] =
                (struct span){p->units[u].saved, p->units[u].saved + placement_saved_bytes(p, u)};
    spans[n++] = (struct span){p->client_device, p->client_device + in->client_device_bytes};
    for (int size = 0; size < UNIT_SIZES; size++) {
        spans[n++] = ring_span(p->device_weights[size]);
        spans[n++] = ring_span(p->device_grads[size]);
    }
    spans[n++] = ring_span(p->device_acts);
    return n;
}

/* What is recomputed has a place until its backward, one for each place in a segment. */
static size_t recomputed_acts(const struct placement_in *in, const struct placement *p,
                              struct span *spans)
{
    size_t n = 0;
    for (uint32_t u = 0; u < in->layout->unit_count; u++) {
        uint64_t at = p->units[u].acts.offset, bytes = in->layout->units[u].act_bytes_per_token;
        bool known = !p->units[u].recomputed || at == p->hidden;
        for (size_t i = 0; i < n; i++)
            known = known || spans[i].start == at;
        if (!known)
            spans[n++] = (struct span){at, at + p->micro_count * placement_micro_stride(in, bytes)};
    }
    return n;
}

void check_addresses(const struct placement_in *in, const struct placement *p, enum hst_tier tier)
{
    static struct span spans[4096];
    size_t n = tier_extents(in, p, tier, 0, spans);
    if (tier == HST_TIER_DRAM)
        n += host_buffers(in, p, spans + n);
    if (tier == in->compute_tier)
        n += device_buffers(in, p, spans + n);
    if (tier == in->compute_tier)
        n += recomputed_acts(in, p, spans + n);
    for (uint32_t u = 0; tier != HST_TIER_NVME && u < in->layout->unit_count; u++) {
        const struct unit_placement *home = &p->units[u];
        if (home->acts.tier == tier && home->acts.offset != PLACEMENT_NO_ADDRESS)
            spans[n++] = (struct span){home->acts.offset, home->acts.offset + home->act_bytes};
    }
    qsort(spans, n, sizeof spans[0], by_start);
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) {
        if (spans[i].start == spans[i].end)
            continue;
        assert_true(spans[i].start >= end);
        end = spans[i].end;
    }
    assert_true(end <= (tier == HST_TIER_HBM    ? p->hbm_bytes
                        : tier == HST_TIER_DRAM ? p->dram_bytes
                                                : p->nvme_bytes));
}

void check_drives(const struct placement_in *in, const struct placement *p)
{
    uint64_t total = 0;
    for (uint32_t d = 0; d < in->drive_count; d++) {
        static struct span spans[4096];
        size_t n = tier_extents(in, p, HST_TIER_NVME, d, spans);
        qsort(spans, n, sizeof spans[0], by_start);
        uint64_t end = 0;
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(spans[i].start, end); /* no gaps either */
            end = spans[i].end;
        }
        assert_int_equal(end, p->drive_bytes[d]);
        total += end;
    }
    assert_int_equal(total, p->nvme_bytes);
}

void check_table(const struct placement *p)
{
    uint64_t hbm = 0, dram = 0, nvme = 0;
    for (int c = 0; c < HST_CLASS_COUNT; c++) {
        hbm += p->table[c][HST_TIER_HBM];
        dram += p->table[c][HST_TIER_DRAM];
        nvme += p->table[c][HST_TIER_NVME];
    }
    assert_int_equal(hbm, p->hbm_bytes);
    assert_int_equal(dram, p->dram_bytes);
    assert_int_equal(nvme, p->nvme_bytes);
}
