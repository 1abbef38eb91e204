/* SPDX-License-Identifier: Apache-2.0 */
/* Decides in which words findings are told; the table and the page share them. */
#include "nvme_bench/report/report.h"

#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define TRAIN_TAKES 0.9 /* of what is free, unless it is told */

void nb_rate_text(double bytes_per_s, char dst[32])
{
    if (!(bytes_per_s >= 0))
        snprintf(dst, 32, "?");
    else if (bytes_per_s < 1e6)
        snprintf(dst, 32, "%.0f kB/s", bytes_per_s / 1e3);
    else if (bytes_per_s < 1e9)
        snprintf(dst, 32, "%.0f MB/s", bytes_per_s / 1e6);
    else
        snprintf(dst, 32, "%.2f GB/s", bytes_per_s / 1e9);
}

void nb_bytes_text(double bytes, char dst[32])
{
    if (bytes < 1e6)
        snprintf(dst, 32, "%.0f kB", bytes / 1e3);
    else if (bytes < 1e9)
        snprintf(dst, 32, "%.1f MB", bytes / 1e6);
    else if (bytes < 1e12)
        snprintf(dst, 32, "%.1f GB", bytes / 1e9);
    else
        snprintf(dst, 32, "%.1f TB", bytes / 1e12);
}

void nb_shape_text(const struct nb_shape *s, char dst[48])
{
    if (s->block_bytes % (1u << 20) == 0)
        snprintf(dst, 48, "%u MiB x %u x %u", s->block_bytes >> 20, s->depth, s->threads);
    else
        snprintf(dst, 48, "%u KiB x %u x %u", s->block_bytes >> 10, s->depth, s->threads);
}

static void add(char *dst, size_t dst_bytes, const char *format, const char *value)
{
    size_t n = strlen(dst);
    if (n < dst_bytes)
        snprintf(dst + n, dst_bytes - n, format, value);
}

void nb_drive_text(const struct nb_drive *d, char dst[NB_SENTENCE])
{
    char node[32];
    snprintf(dst, NB_SENTENCE, "%.100s", d->model[0] ? d->model : "model unknown");
    if (d->simulated)
        return;
    add(dst, NB_SENTENCE, ", device %.60s", d->device[0] ? d->device : "unknown");
    if (strchr(d->disks, ','))
        add(dst, NB_SENTENCE, " on %.100s", d->disks);
    add(dst, NB_SENTENCE, ", %.40s", d->file_system[0] ? d->file_system : "file system unknown");
    if (d->link[0]) {
        add(dst, NB_SENTENCE, ", link %.60s", d->link);
        add(dst, NB_SENTENCE, strcmp(d->link, d->link_most) ? " (can do %.60s)" : " (its most)",
            d->link_most);
    } else {
        add(dst, NB_SENTENCE, "%s", ", PCIe link unknown");
    }
    snprintf(node, sizeof node, "NUMA node %d", d->numa_node);
    add(dst, NB_SENTENCE, ", %s", d->numa_node >= 0 ? node : "NUMA node unknown");
    add(dst, NB_SENTENCE, ", %s", d->backend);
    add(dst, NB_SENTENCE, ", %s",
        d->in_memory ? "in RAM: not a drive's numbers"
        : d->direct  ? "O_DIRECT"
                     : "no O_DIRECT: the page cache's numbers");
}

void nb_sustained_text(const struct nb_sustained *s, char dst[NB_SENTENCE])
{
    char first[32], last[32], recovered[32], size[TEXT_BYTES];
    uint64_t written = s->window_bytes * s->windows;
    nb_rate_text(s->first, first);
    nb_rate_text(s->last, last);
    nb_rate_text(s->recovered, recovered);
    if (s->windows == 0)
        snprintf(dst, NB_SENTENCE, "too short a write to tell");
    else if (s->drop_bytes && !s->flat)
        snprintf(dst, NB_SENTENCE,
                 "%s for the first %s, then %s, but not steadily: noise, or a write cache of about "
                 "that size. After %.3g s of rest %s",
                 first, text_size(s->drop_bytes, size), last, s->idle_s, recovered);
    else if (s->drop_bytes)
        snprintf(dst, NB_SENTENCE,
                 "%s for the first %s, then %s: a write cache of about that size. After %.3g s of "
                 "rest %s",
                 first, text_size(s->drop_bytes, size), last, s->idle_s, recovered);
    else
        snprintf(dst, NB_SENTENCE,
                 "%s, no drop within %s%s: a larger write cache would not be seen (--sustain looks "
                 "further). After %.3g s of rest %s",
                 first, text_size(written, size), s->flat ? "" : " (not flat)", s->idle_s,
                 recovered);
}

void nb_together_text(const struct nb_result *r, char dst[NB_SENTENCE])
{
    double shares[NB_MAX_DRIVES];
    char share[16];
    nb_shares_of(r, shares);
    snprintf(dst, NB_SENTENCE, "each in its best shape, bytes shared by rate");
    for (uint32_t d = 0; d < r->drive_count; d++) {
        snprintf(share, sizeof share, "%.1f %%", 100 * shares[d]);
        add(dst, NB_SENTENCE, d ? " + %s" : ": %s", share);
    }
}

static void wear_text(const struct nb_answer *a, char *dst, size_t dst_bytes)
{
    char steps[TEXT_BYTES], time[TEXT_BYTES];
    if (isnan(a->steps_to_wear))
        return;
    snprintf(dst, dst_bytes, " The rated endurance lasts for %s steps, %s of training.",
             text_count(a->steps_to_wear, steps), text_duration(a->days_to_wear * 86400, time));
}

/* 387,398 */
static void group_digits(uint64_t value, char dst[32])
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%" PRIu64, value);
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            dst[at++] = ',';
        dst[at++] = digits[i];
    }
    dst[at] = '\0';
}

/* "3 such drives", "2 sets of these 2 drives"; `none` where no number does. */
static void drives_text(const struct nb_answer *a, uint32_t drives, const char *none, char dst[64])
{
    const char *plural = drives > 1 ? "s" : "";
    if (drives == 0)
        snprintf(dst, 64, "%s", none);
    else if (a->set == 1)
        snprintf(dst, 64, "%" PRIu32 " such drive%s", drives, plural);
    else
        snprintf(dst, 64, "%" PRIu32 " set%s of these %" PRIu32 " drives", drives / a->set,
                 drives > a->set ? "s" : "", a->set);
}

/* It tells what would make it fit; or that it is a tight fit. */
static void space_text(const struct nb_answer *a, char *dst, size_t dst_bytes)
{
    char drives[64], each[32], size[TEXT_BYTES];
    double need = a->bound.nvme_space_bytes;
    if (a->fits) {
        if (need > TRAIN_TAKES * a->room_bytes)
            snprintf(dst, dst_bytes,
                     " It takes more than nine tenths of what is free: `hoistway train` needs "
                     "--nvme %s for it.",
                     text_typed_up((uint64_t)ceil(need), size));
        return;
    }
    drives_text(a, a->drives_to_fit, "", drives);
    snprintf(dst, dst_bytes, " To hold it: %s%s", drives, drives[0] ? ", or " : "");
    for (uint32_t d = 0; d < (a->set == 1 ? 1 : a->drives); d++) {
        double share = a->set == 1 ? a->most_share : a->shares[d];
        nb_bytes_text(share * need, each);
        add(dst, dst_bytes, d ? " + %s" : "%s", each);
    }
    add(dst, dst_bytes, " free on %s.", a->drives == 1 ? "it" : a->set == 1 ? "each" : "them");
}

/* It tells how the drives stand to the model, in a verb. */
static const char *verdict_verb(const struct nb_answer *a)
{
    static const char *const verbs[2][2][2] = {
        {{"neither feeds nor holds", "neither feed nor hold"}, {"does not feed", "do not feed"}},
        {{"feeds, but does not hold,", "feed, but do not hold,"}, {"feeds", "feed"}}};
    return verbs[a->feeds][a->fits][a->drives > 1];
}

void nb_verdict(const struct nb_answer *a, char headline[NB_SENTENCE], char advice[NB_SENTENCE])
{
    char tokens[64] = "no number of tokens per step", drives[64], missing[128] = "";
    char wear[160] = "", space[200] = "", count[32], now[32], need[32], lacks[32];
    group_digits(a->tokens_needed, count);
    group_digits(a->tokens, now);
    if (a->tokens_needed)
        snprintf(tokens, sizeof tokens, "%s tokens per step", count);
    drives_text(a, a->drives_needed, "no number of such drives", drives);
    wear_text(a, wear, sizeof wear);
    space_text(a, space, sizeof space);
    nb_bytes_text(a->bound.nvme_space_bytes, need);
    nb_bytes_text(a->missing_bytes, lacks);
    if (!a->fits)
        snprintf(missing, sizeof missing, "; it takes %s, of which %s find no room", need, lacks);
    snprintf(headline, NB_SENTENCE,
             "%s %s %s: at best %.1f %% of the GPU's speed (wanted %.1f %%)%s.",
             a->drives == 1 ? "This drive" : "These drives together", verdict_verb(a), a->model,
             100 * a->bound.efficiency, 100 * a->target, missing);
    snprintf(advice, NB_SENTENCE, "For %.1f %%: %s with what was measured, or %s at %s tokens.%s%s",
             100 * a->target, tokens, drives, now, space, wear);
}
