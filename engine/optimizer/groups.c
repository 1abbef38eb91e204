/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which numbers each group of tensors has: those of the configuration, but for what the
 * group says of its own. A number that would not be used is refused, not left out.
 */
#include "base/real.h"
#include "optimizer/optimizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_NUMBER 64

#define KEY(key, field)                                                                            \
    .name = (key), .type = HST_OPTION_REAL, .offset = offsetof(struct optimizer_group, field)
/* In the order in which a group's text has them. Ranges are those of the options alike. */
static const struct hst_option KEYS[] = {
    {KEY("lr", lr_factor), .least = 0, .greatest = 1e6},
    {KEY("beta1", beta1), .least = 0, .greatest = 1, .greatest_excluded = true},
    {KEY("beta2", beta2), .least = 0, .greatest = 1, .greatest_excluded = true},
    {KEY("momentum", momentum), .least = 0, .greatest = 1, .greatest_excluded = true},
    {KEY("eps", eps), .least = 1e-30, .greatest = 1},
    {KEY("decay", weight_decay), .least = 0, .greatest = 100},
};
enum { KEYS_COUNT = sizeof KEYS / sizeof *KEYS, LR = 0, DECAY = KEYS_COUNT - 1 };

/* One group as it is read. */
struct reading {
    const struct hst_config *config;
    struct optimizer_named_group group;
    bool said[KEYS_COUNT];
    char *why;
};

static bool refuse(const struct reading *r, const char *text, size_t bytes, const char *what)
{
    snprintf(r->why, HST_WHY_BYTES, "--group '%.*s': %s", bytes < 100 ? (int)bytes : 100, text,
             what);
    return false;
}

static int key_named(const char *name, size_t bytes)
{
    int i = 0;
    while (i < KEYS_COUNT &&
           (strlen(KEYS[i].name) != bytes || memcmp(KEYS[i].name, name, bytes) != 0))
        i++;
    return i;
}

/* "lr=0.1x", `bytes` long. */
static bool read_number(struct reading *r, const char *text, size_t bytes)
{
    const char *equals = memchr(text, '=', bytes);
    const int i = equals ? key_named(text, (size_t)(equals - text)) : KEYS_COUNT;
    char number[LONGEST_NUMBER + 1], why[HST_WHY_BYTES / 2];
    size_t length = equals ? bytes - (size_t)(equals + 1 - text) : 0;
    if (i == KEYS_COUNT)
        return refuse(r, text, bytes,
                      "no number of a group. Fix: lr=0.1x, beta1=, beta2=, momentum=, eps= or "
                      "decay= with a number");
    if (r->said[i])
        return refuse(r, text, bytes, "the group says it twice. Fix: leave one of them out");
    if (i != LR && !optimizer_has(r->config->optimizer, KEYS[i].offset))
        return refuse(r, text, bytes, "--optimizer has no such number. Fix: leave it out");
    if (i == LR && (length == 0 || text[bytes - 1] != 'x'))
        return refuse(r, text, bytes, "it is a factor of --lr. Fix: lr=0.1x");
    length -= i == LR;
    snprintf(number, sizeof number, "%.*s", length < sizeof number ? (int)length : LONGEST_NUMBER,
             equals + 1);
    if (length > LONGEST_NUMBER ||
        hst_option_parse(&KEYS[i], number, &r->group.numbers, why, sizeof why))
        return refuse(r, text, bytes, length > LONGEST_NUMBER ? "the number is too long" : why);
    r->said[i] = true;
    return true;
}

/* As it would be typed, its numbers in their order. */
static bool write_text(struct reading *r)
{
    char *text = r->group.text, real[REAL_TEXT_BYTES];
    int n = snprintf(text, HST_GROUP_BYTES, "%s", r->group.glob);
    for (int i = 0, count = 0; i < KEYS_COUNT && n < (int)HST_GROUP_BYTES; i++) {
        double x;
        memcpy(&x, (const char *)&r->group.numbers + KEYS[i].offset, sizeof x);
        if (r->said[i])
            n += snprintf(text + n, HST_GROUP_BYTES - (size_t)n, "%c%s=%s%s", count++ ? ',' : ':',
                          KEYS[i].name, real_text(x, real), i == LR ? "x" : "");
    }
    return n < (int)HST_GROUP_BYTES;
}

/* A name that a shell, or a list of groups, would cut is no name of a tensor. */
static bool is_glob(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] <= ' ' || text[i] == '\'' || text[i] == 0x7f)
            return false;
    return bytes > 0;
}

/* "*.bias:lr=0.1x,decay=0", `bytes` long. A glob may have colons: numbers have none. */
static bool read_group(struct reading *r, const char *text, size_t bytes)
{
    const char *colon = memrchr(text, ':', bytes), *end = text + bytes;
    const size_t glob = colon ? (size_t)(colon - text) : 0;
    if (!is_glob(text, glob))
        return refuse(r, text, bytes,
                      "no names and numbers of a group. Fix: --group 'GLOB:lr=0.1x,decay=0'");
    if (glob >= sizeof r->group.glob)
        return refuse(r, text, bytes, "its glob has more than 95 characters. Fix: a shorter one");
    memcpy(r->group.glob, text, glob);
    for (const char *at = colon + 1; at <= end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end;
        if (!read_number(r, at, (size_t)(stop - at)))
            return false;
        at = stop + 1;
    }
    r->group.numbers.decays_all = r->said[DECAY];
    return write_text(r) ||
           refuse(r, text, bytes, "it has more than 127 characters. Fix: a shorter glob");
}

static int by_text(const void *a, const void *b)
{
    const struct optimizer_named_group *one = a, *other = b;
    return strcmp(one->text, other->text);
}

/* In the order of their texts: the order in which they were given decides nothing. */
bool optimizer_groups_read(const struct hst_config *config, struct optimizer_groups *groups,
                           char why[HST_WHY_BYTES])
{
    *groups = (struct optimizer_groups){.count = 1};
    groups->list[0].numbers = optimizer_group_of(config);
    for (uint32_t g = 0; g < HST_GROUPS_MOST && config->group[g]; g++)
        for (const char *at = config->group[g], *end; at; at = *end ? end + 1 : NULL) {
            struct reading r = {.config = config, .why = why, .group = groups->list[0]};
            end = at + strcspn(at, ";");
            if (groups->count == OPTIMIZER_GROUPS)
                return refuse(&r, at, (size_t)(end - at), "more than 8 groups. Fix: fewer");
            if (!read_group(&r, at, (size_t)(end - at)))
                return false;
            groups->list[groups->count++] = r.group;
        }
    qsort(&groups->list[1], groups->count - 1, sizeof *groups->list, by_text);
    return true;
}

void optimizer_groups_say(const struct optimizer_groups *groups, struct hst_config *config)
{
    for (uint32_t g = 0; g < HST_GROUPS_MOST; g++)
        config->group[g] = g + 1 < groups->count ? groups->list[g + 1].text : NULL;
}

int optimizer_coefs_init(const struct optimizer *optimizer, const struct optimizer_groups *groups,
                         const struct optimizer_step *step, struct optimizer_coefs *coefs)
{
    struct optimizer_coefs all = {0};
    for (uint32_t g = 0; g < groups->count; g++) {
        struct optimizer_group group = groups->list[g].numbers;
        struct optimizer_step own = *step;
        own.lr *= group.lr_factor;
        int rc = optimizer->coef(&group, &own, &all.groups[g][true]);
        if (!group.decays_all)
            group.weight_decay = 0;
        rc = rc ? rc : optimizer->coef(&group, &own, &all.groups[g][false]);
        if (rc)
            return rc;
    }
    *coefs = all;
    return 0;
}
