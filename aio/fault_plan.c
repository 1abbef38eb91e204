/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every rule counts the requests that match it, whether or not an earlier rule strikes: a rule can
 * be added without moving the others. Random choices come from the seed in the order of requests.
 */
#include "fault_plan.h"

#include <errno.h>
#include <string.h>

static const struct {
    const char *name;
    int error;
} error_names[] = {
    {"EIO", EIO},         {"ENOSPC", ENOSPC},         {"EAGAIN", EAGAIN},
    {"EINTR", EINTR},     {"ENODEV", ENODEV},         {"ENXIO", ENXIO},
    {"EINVAL", EINVAL},   {"EDQUOT", EDQUOT},         {"EFBIG", EFBIG},
    {"EROFS", EROFS},     {"EREMOTEIO", EREMOTEIO},   {"EILSEQ", EILSEQ},
    {"ENODATA", ENODATA}, {"EOPNOTSUPP", EOPNOTSUPP}, {"ETIMEDOUT", ETIMEDOUT},
    {"ENOMEM", ENOMEM},   {"EFAULT", EFAULT},         {"EBADF", EBADF},
    {"EBADMSG", EBADMSG}, {"ECANCELED", ECANCELED},   {"EBUSY", EBUSY},
};

static int parse_error(const struct hst_aio_word *word, int *error)
{
    uint64_t number;
    for (size_t i = 0; i < sizeof error_names / sizeof *error_names; i++)
        if (hst_aio_text_is(word->value, word->value_length, error_names[i].name)) {
            *error = error_names[i].error;
            return 0;
        }
    int rc = hst_aio_text_count(word->value, word->value_length, &number);
    if (rc < 0 || number == 0 || number > 4095)
        return -EINVAL;
    *error = (int)number;
    return 0;
}

static int parse_kinds(const struct hst_aio_word *word, uint32_t *kinds)
{
    static const char *const names[] = {"any", "read", "write", "sync"};
    for (uint32_t i = 0; i < 4; i++)
        if (hst_aio_text_is(word->value, word->value_length, names[i])) {
            *kinds = i == 0 ? 0 : 1u << i; /* enum hst_aio_kind begins with 1, in this order */
            return 0;
        }
    return -EINVAL;
}

/* "nth", "times", … of a rule; -ENOENT: not one of them. */
static int parse_which(const struct hst_aio_word *word, struct fault_rule *rule)
{
    const struct {
        const char *key;
        uint64_t *value;
        bool bytes;
    } fields[] = {
        {"nth", &rule->nth, false},     {"times", &rule->times, false},
        {"every", &rule->every, false}, {"odds", &rule->odds, false},
        {"at", &rule->at, true},        {"len", &rule->length_bytes, true},
    };
    if (hst_aio_text_is(word->key, word->key_length, "op"))
        return word->value ? parse_kinds(word, &rule->kinds) : -EINVAL;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (!hst_aio_text_is(word->key, word->key_length, fields[i].key))
            continue;
        if (!word->value)
            return -EINVAL;
        if (fields[i].value == &rule->times &&
            hst_aio_text_is(word->value, word->value_length, "all")) {
            rule->times = UINT64_MAX;
            return 0;
        }
        int rc = (fields[i].bytes ? hst_aio_text_bytes : hst_aio_text_count)(
            word->value, word->value_length, fields[i].value);
        return rc < 0 || (*fields[i].value == 0 && fields[i].value != &rule->at) ? -EINVAL : 0;
    }
    return -ENOENT;
}

static int parse_what(const struct hst_aio_word *word, struct fault_rule *rule)
{
    static const struct {
        const char *key;
        enum fault_what what;
        enum { NEVER, MAYBE, ALWAYS } value;
        int (*parse)(const char *text, size_t length, uint64_t *value);
    } kinds[] = {
        {"short", FAULT_SHORT, ALWAYS, hst_aio_text_bytes},
        {"torn", FAULT_TORN, MAYBE, hst_aio_text_bytes},
        {"late", FAULT_LATE, ALWAYS, hst_aio_text_time},
        {"reordered", FAULT_REORDERED, MAYBE, hst_aio_text_count},
        {"vanish", FAULT_VANISH, NEVER, NULL},
        {"flip", FAULT_FLIP, MAYBE, hst_aio_text_count},
    };
    if (hst_aio_text_is(word->key, word->key_length, "err")) {
        if (rule->what == FAULT_NONE)
            rule->what = FAULT_ERROR;
        else if (rule->what != FAULT_TORN && rule->what != FAULT_VANISH)
            return -EINVAL;
        return word->value && rule->error == 0 ? parse_error(word, &rule->error) : -EINVAL;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!hst_aio_text_is(word->key, word->key_length, kinds[i].key))
            continue;
        const bool tells_error = kinds[i].what == FAULT_TORN || kinds[i].what == FAULT_VANISH;
        if (rule->what != FAULT_NONE && !(rule->what == FAULT_ERROR && tells_error))
            return -EINVAL;
        if (word->value ? kinds[i].value == NEVER : kinds[i].value == ALWAYS)
            return -EINVAL;
        rule->what = kinds[i].what;
        rule->chosen = word->value != NULL;
        rule->half =
            rule->what == FAULT_SHORT && hst_aio_text_is(word->value, word->value_length, "half");
        if (!word->value || rule->half)
            return 0;
        return kinds[i].parse(word->value, word->value_length, &rule->amount);
    }
    return -EINVAL;
}

static int parse_rule(const char **text, struct fault_plan *plan)
{
    struct fault_rule rule = {.nth = 1, .times = 1, .every = 1, .odds = 1};
    struct hst_aio_word word;
    bool seed = false, other = false;
    while (hst_aio_text_next(text, ";", &word)) {
        if (hst_aio_text_is(word.key, word.key_length, "seed")) {
            if (!word.value || hst_aio_text_count(word.value, word.value_length, &plan->seed) < 0)
                return -EINVAL;
            seed = true;
            continue;
        }
        other = true;
        int rc = parse_which(&word, &rule);
        if (rc == -ENOENT)
            rc = parse_what(&word, &rule);
        if (rc < 0)
            return -EINVAL;
    }
    if (!other)
        return 0; /* nothing between two semicolons, or the seed */
    if (seed || rule.what == FAULT_NONE || (rule.at > 0 && rule.length_bytes == 0))
        return -EINVAL;
    if (plan->rule_count == FAULT_RULES_MAX)
        return -E2BIG;
    plan->rules[plan->rule_count++] = rule;
    return 0;
}

int hst_aio_fault_parse(const char *text, struct fault_plan *plan)
{
    *plan = (struct fault_plan){.seed = 1};
    for (;;) {
        int rc = parse_rule(&text, plan);
        if (rc < 0)
            return rc;
        if (*text == '\0')
            return 0;
        text++; /* the semicolon */
    }
}

static uint64_t next_random(struct fault_plan *plan)
{
    uint64_t z = plan->seed += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static bool is_due(struct fault_plan *plan, struct fault_rule *rule, enum hst_aio_kind kind,
                   uint64_t offset, uint64_t bytes)
{
    if (rule->kinds != 0 && !(rule->kinds & 1u << kind))
        return false;
    if (rule->length_bytes > 0 &&
        (kind == HST_AIO_SYNC || offset >= rule->at + rule->length_bytes ||
         offset + bytes <= rule->at))
        return false;
    const uint64_t number = ++rule->matched;
    if (number < rule->nth || (number - rule->nth) % rule->every != 0 ||
        (number - rule->nth) / rule->every >= rule->times)
        return false;
    return rule->odds == 1 || next_random(plan) % rule->odds == 0;
}

static struct fault_strike strike_with(struct fault_plan *plan, const struct fault_rule *rule,
                                       enum hst_aio_kind kind, uint64_t bytes, uint64_t grain_bytes)
{
    struct fault_strike strike = {
        .what = rule->what, .error = -rule->error, .amount = rule->amount};
    switch (rule->what) {
    case FAULT_SHORT:
        if (rule->half)
            strike.amount = bytes / 2;
        if (strike.amount >= bytes) /* of a sync too */
            strike.what = FAULT_NONE;
        break;
    case FAULT_TORN:
        strike.error = rule->error ? -rule->error : -EIO;
        if (!rule->chosen)
            strike.amount = next_random(plan) % (bytes + 1);
        if (strike.amount > bytes)
            strike.amount = bytes;
        strike.amount = kind == HST_AIO_WRITE ? strike.amount / grain_bytes * grain_bytes : 0;
        break;
    case FAULT_REORDERED:
        if (!rule->chosen)
            strike.amount = 3;
        break;
    case FAULT_VANISH:
        plan->gone = true;
        plan->gone_error = rule->error ? -rule->error : -ENODEV;
        strike.error = plan->gone_error;
        break;
    case FAULT_FLIP:
        if (!rule->chosen)
            strike.amount = next_random(plan);
        break;
    default:
        break;
    }
    return strike;
}

struct fault_strike hst_aio_fault_strike(struct fault_plan *plan, enum hst_aio_kind kind,
                                         uint64_t offset, uint64_t bytes, uint64_t grain_bytes)
{
    struct fault_rule *first = NULL;
    for (uint32_t i = 0; i < plan->rule_count; i++) {
        struct fault_rule *rule = &plan->rules[i];
        if (is_due(plan, rule, kind, offset, bytes) && !first)
            first = rule;
    }
    if (plan->gone)
        return (struct fault_strike){.what = FAULT_VANISH, .error = plan->gone_error};
    return first ? strike_with(plan, first, kind, bytes, grain_bytes) : (struct fault_strike){0};
}
