/* SPDX-License-Identifier: Apache-2.0 */
/* Reads --place, and names classes and tiers: one table of words for parsing and printing. */
#include "plan/placement/placement.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const CLASS_NAMES[HST_CLASS_COUNT] = {"weights", "grads", "states",
                                                         "acts",    "carry", "buffers"};
static const char *const TIER_NAMES[HST_TIER_COUNT] = {"hbm", "dram", "nvme"};

const char *hst_class_name(enum hst_class c)
{
    return (unsigned)c < HST_CLASS_COUNT ? CLASS_NAMES[c] : "?";
}

const char *hst_tier_name(enum hst_tier t)
{
    return (unsigned)t < HST_TIER_COUNT ? TIER_NAMES[t] : "?";
}

static int name_find(const char *const *names, int count, const char *text, size_t length)
{
    for (int i = 0; i < count; i++)
        if (strlen(names[i]) == length && memcmp(names[i], text, length) == 0)
            return i;
    return -1;
}

static int parse_one(const char *item, size_t length, struct place_wish *wish, char *why,
                     size_t why_bytes)
{
    const char *equals = memchr(item, '=', length);
    size_t left = equals ? (size_t)(equals - item) : length;
    int c = name_find(CLASS_NAMES, HST_CLASS_BUFFERS, item, left);
    int t = equals ? name_find(TIER_NAMES, HST_TIER_COUNT, equals + 1, length - left - 1) : -1;
    if (c < 0 || t < 0) {
        snprintf(why, why_bytes,
                 "place \"%.*s\" is not CLASS=TIER (classes: weights grads states acts carry; "
                 "tiers: hbm dram nvme). Fix: --place states=nvme,acts=dram",
                 (int)(length < 60 ? length : 60), item);
        return -EINVAL;
    }
    if (wish->fixed[c]) {
        snprintf(why, why_bytes, "place names %s twice. Fix: leave one of them out",
                 CLASS_NAMES[c]);
        return -EINVAL;
    }
    wish->fixed[c] = true;
    wish->tier[c] = (enum hst_tier)t;
    return 0;
}

int place_parse(const char *text, struct place_wish *wish, char *why, size_t why_bytes)
{
    struct place_wish result = {0};
    while (*text) {
        size_t length = strcspn(text, ",");
        int rc = parse_one(text, length, &result, why, why_bytes);
        if (rc)
            return rc;
        text += length;
        if (*text == ',' && *++text == '\0') {
            snprintf(why, why_bytes, "place ends in a comma");
            return -EINVAL;
        }
    }
    *wish = result;
    return 0;
}
