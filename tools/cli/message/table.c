/* SPDX-License-Identifier: Apache-2.0 */
/* Writes what lives on which floor, as planned. */
#include "cli/message/table.h"

#include "base/text.h"

#include <inttypes.h>

static bool shown(const struct hst_memory *memory, int tier)
{
    return memory->budget[tier] > 0 || memory->total[tier] > 0;
}

static void print_cells(const struct hst_memory *memory, const char *name, const uint64_t *bytes,
                        FILE *out)
{
    char size[TEXT_BYTES];
    fprintf(out, "%-10s", name);
    for (int t = 0; t < HST_TIER_COUNT; t++)
        if (shown(memory, t))
            fprintf(out, "%12s", bytes[t] ? text_size(bytes[t], size) : "-");
    fprintf(out, "\n");
}

/* A GPU is one rank's alone. */
static void print_node(const struct hst_memory *memory, const char *name, const uint64_t *bytes,
                       uint32_t locals, FILE *out)
{
    uint64_t all[HST_TIER_COUNT] = {0};
    for (int t = 0; t < HST_TIER_COUNT; t++)
        all[t] = t == HST_TIER_HBM ? 0 : bytes[t] * locals;
    print_cells(memory, name, all, out);
}

void table_print(const struct hst_memory *memory, uint32_t locals, FILE *out)
{
    char count[TEXT_BYTES], node[32];
    fprintf(out, "%-10s", "");
    for (int t = 0; t < HST_TIER_COUNT; t++)
        if (shown(memory, t))
            fprintf(out, "%12s", hst_tier_name((enum hst_tier)t));
    fprintf(out, "\n");
    for (int c = 0; c < HST_CLASS_COUNT; c++)
        print_cells(memory, hst_class_name((enum hst_class)c), memory->bytes[c], out);
    print_cells(memory, "total", memory->total, out);
    print_cells(memory, "budget", memory->budget, out);
    if (locals > 1) {
        snprintf(node, sizeof node, "node of %" PRIu32, locals);
        print_node(memory, node, memory->total, locals, out);
        print_node(memory, "its budget", memory->budget, locals, out);
    }
    fprintf(out, "%s parameters in tiles of %" PRIu64 " elements, %" PRIu32 " thread%s, I/O %s\n",
            text_count((double)memory->parameters, count), memory->tile_elements, memory->threads,
            text_s(memory->threads), memory->io);
}

static void print_frozen(const struct hst_frozen *frozen, FILE *out)
{
    char parameters[TEXT_BYTES];
    if (frozen->params == 0)
        return;
    fprintf(out, "frozen: %" PRIu32 " tensor%s, %s parameters in %" PRIu32 " unit%s",
            frozen->params, text_s(frozen->params),
            text_count((double)frozen->elements, parameters), frozen->units, text_s(frozen->units));
    if (frozen->resting_units > 0)
        fprintf(out, ", the first %" PRIu32 " without a backward", frozen->resting_units);
    fprintf(out, "\n");
}

void table_print_groups(const struct hst_group *groups, uint32_t count,
                        const struct hst_frozen *frozen, FILE *out)
{
    char parameters[TEXT_BYTES];
    for (uint32_t i = 0; i < count; i++)
        fprintf(out, "group '%s': %" PRIu32 " tensor%s, %s parameters\n", groups[i].text,
                groups[i].params, text_s(groups[i].params),
                text_count((double)groups[i].elements, parameters));
    print_frozen(frozen, out);
}
