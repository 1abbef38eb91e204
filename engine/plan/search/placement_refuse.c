/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A placement that does not fit says what it needs, what there is, and what helps. --dram and
 * --nvme are those of a node, of which a rank plans with its part: figures are the node's.
 */
#include "plan/search/placement_refuse.h"

#include "base/saturate.h"
#include "base/size_text.h"
#include "plan/search/placement_search.h"

#include <errno.h>
#include <stdio.h>

/* It tells whether what depends on the batch is a good part of the need: worth naming only then. */
static bool batch_weighs(const struct placement *p)
{
    enum hst_tier tier = p->compute_tier;
    uint64_t batch = sat_add(p->table[HST_CLASS_ACTS][tier],
                             sat_add(p->table[HST_CLASS_HIDDEN][tier], p->work_bytes));
    return batch > (tier == HST_TIER_HBM ? p->hbm_bytes : p->dram_bytes) / 4;
}

/* The smallest needs more HBM than its budget. The host's precision is fp32 where none is given,
 * which needs more than a GPU's. Where the card itself has less than that, another
 * budget is no help. */
static void refuse_hbm(const struct placement_in *in, const struct placement *p, char *why,
                       size_t why_bytes)
{
    const struct place_wish *wish = &in->wish;
    char need[SIZE_TEXT_BYTES], budget[SIZE_TEXT_BYTES], most[SIZE_TEXT_BYTES];
    bool small = in->hbm_most && p->hbm_bytes > in->hbm_most;
    bool acts = wish->fixed[HST_CLASS_ACTS] && wish->tier[HST_CLASS_ACTS] == HST_TIER_HBM;
    snprintf(why, why_bytes,
             "no placement fits: the smallest needs %s of HBM, the budget is %s%s%s. "
             "Fix: %s%s%s%s%strain on the host (--device host%s)%s",
             size_text_up(p->hbm_bytes, need), size_text(in->hbm_budget, budget),
             small ? ", and the GPU has no more than " : "",
             small ? size_text(in->hbm_most, most) : "", small ? "" : "raise --hbm, or ",
             placement_may_be_offloaded(in) ? ""
                                            : "leave weights, grads and states out of --place, or ",
             small && acts ? "leave acts out of --place, or " : "",
             batch_weighs(p) ? "lower --batch-tokens or --grain, or " : "",
             p->device_tiles.count > 0 ? "lower --gpu-update, or " : "",
             in->optimizer->precision == HST_PRECISION_BF16   ? " --precision bf16"
             : in->optimizer->precision == HST_PRECISION_FP16 ? " --precision fp16"
                                                              : "",
             small ? ", or take a GPU with more memory" : "");
}

/* A wish keeps something in DRAM that a drive could have. */
static bool wished_in_dram(const struct placement_in *in)
{
    static const enum hst_class classes[] = {HST_CLASS_WEIGHTS, HST_CLASS_GRADS, HST_CLASS_STATES,
                                             HST_CLASS_ACTS};
    bool any = false;
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        any |= in->wish.fixed[classes[i]] && in->wish.tier[classes[i]] == HST_TIER_DRAM;
    return any && in->has_nvme;
}

/* Budgets are given for all ranks of a node. */
static uint64_t of_node(const struct placement_in *in, uint64_t bytes)
{
    return in->sharers > 1 ? sat_times(bytes, in->sharers) : bytes;
}

#define WHOSE_BYTES 48u
static const char *whose(const struct placement_in *in, char text[WHOSE_BYTES])
{
    text[0] = '\0';
    if (in->sharers > 1)
        snprintf(text, WHOSE_BYTES, " for the node's %u ranks", in->sharers);
    return text;
}

/* Another budget is no help where the machine has less memory free than it needs. */
int placement_refuse_memory(const struct placement_in *in, const struct placement *p, char *why,
                            size_t why_bytes)
{
    const char *batch = batch_weighs(p) ? ", or lower --batch-tokens or --grain" : "";
    char need[SIZE_TEXT_BYTES], nvme[SIZE_TEXT_BYTES], budget[SIZE_TEXT_BYTES];
    char most[SIZE_TEXT_BYTES], *rest = size_text(of_node(in, in->dram_most), most);
    char ranks[WHOSE_BYTES];
    bool small = in->dram_most && p->dram_bytes > in->dram_most;
    if (p->hbm_bytes > in->hbm_budget)
        refuse_hbm(in, p, why, why_bytes);
    else
        snprintf(why, why_bytes,
                 "no placement fits: the smallest needs %s of DRAM (and %s of NVMe)%s, the budget "
                 "is %s%s%s%s. Fix: %s%s%s%s",
                 size_text_up(of_node(in, p->dram_bytes), need),
                 size_text_up(of_node(in, p->nvme_bytes), nvme), whose(in, ranks),
                 size_text(of_node(in, in->dram_budget), budget), small ? ", and only " : "",
                 small ? rest : "",
                 small ? " are free (least of free memory, cgroup limit, and RLIMIT_AS less "
                         "what threads need)"
                       : "",
                 small ? "take a machine with more memory or raise the limit that is least"
                       : "raise --dram",
                 small && wished_in_dram(in) ? ", take dram out of --place" : "",
                 in->has_nvme ? "" : ", give a --store", batch);
    return -ENOSPC;
}

bool placement_drives_fit(const struct placement_in *in, const struct placement *p, uint32_t *full)
{
    for (*full = 0; *full < in->drive_count; ++*full)
        if (sat_add(p->drive_bytes[*full], p->store_bytes[*full]) > in->drive_budgets[*full])
            return false;
    return p->nvme_bytes <= in->nvme_budget;
}

int placement_refuse_nvme(const struct placement_in *in, const struct placement *p, char *why,
                          size_t why_bytes)
{
    uint32_t full;
    char need[SIZE_TEXT_BYTES], budget[SIZE_TEXT_BYTES], ranks[WHOSE_BYTES];
    char least[WHOSE_BYTES] = "";
    bool in_dram = !in->dram_most ||
                   sat_add(p->dram_bytes, p->nvme_bytes) <= sat_add(in->dram_most, in->nvme_budget);
    if (!placement_drives_fit(in, p, &full) && full < in->drive_count && in->drive_count > 1) {
        snprintf(why, why_bytes,
                 "directory %u of --store needs %s for its share of the tiles, %s can be had "
                 "there. Fix: free space there, or leave that directory out",
                 full + 1, size_text_up(sat_add(p->drive_bytes[full], p->store_bytes[full]), need),
                 size_text(in->drive_budgets[full], budget));
        return -EDQUOT;
    }
    if (in->scarcest)
        snprintf(least, sizeof least, " (rank %u has the least)", in->scarcest - 1);
    snprintf(why, why_bytes,
             "the store needs %s of NVMe for what does not fit in DRAM%s%s, its budget is %s%s. "
             "Fix: free space or raise --nvme, %sor give another --store",
             size_text_up(of_node(in, p->nvme_bytes), need),
             in->stored         ? " and for two versions of it all"
             : in->second_slots ? " and for a second slot of its weights and states"
                                : "",
             whose(in, ranks), size_text(of_node(in, in->nvme_budget), budget), least,
             in->stored         ? "--durability none, "
             : in->second_slots ? "take --update deferred, "
             : in_dram          ? "raise --dram, "
                                : "");
    return -EDQUOT;
}
