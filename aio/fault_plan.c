/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every rule counts the requests that match it, whether or not an earlier rule strikes: a rule can
 * be added without moving the others. Random choices come from the seed in the order of requests.
 */
#include "fault_plan.h"

#include <assert.h>
#include <errno.h>

enum { ERROR_MAX = 4095 }; /* the kernel's */

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

static int parse_error(const struct hst_aio_word *word, struct fault_rule *rule, char *why)
{
    uint64_t number = 0;
    for (size_t i = 0; word->value && i < sizeof error_names / sizeof *error_names; i++)
        if (hst_aio_text_is(word->value, word->value_length, error_names[i].name))
            number = (uint64_t)error_names[i].error;
    if (word->value && number == 0 &&
        hst_aio_text_count(word->value, word->value_length, &number) < 0)
        number = 0;
    if (number == 0 || number > ERROR_MAX)
        return hst_aio_text_refuse(why, word, "must be the name of an error, or its number");
    if (rule->what == FAULT_NONE)
        rule->what = FAULT_ERROR;
    else if (rule->what != FAULT_TORN && rule->what != FAULT_VANISH)
        return hst_aio_text_refuse(why, word, "does not go with what stands before it");
    rule->error = (int)number;
    return 0;
}

static int parse_kinds(const struct hst_aio_word *word, struct fault_rule *rule, char *why)
{
    static const char *const names[] = {"any", "read", "write", "sync"};
    for (uint32_t i = 0; word->value && i < 4; i++)
        if (hst_aio_text_is(word->value, word->value_length, names[i])) {
            rule->kinds = i == 0 ? 0 : 1u << i; /* enum hst_aio_kind begins with 1, in this order */
            return 0;
        }
    return hst_aio_text_refuse(why, word, "must be read, write, sync or any");
}

/* "short", "late", …: at most one in a rule, beside it err= where that has one. */
static int parse_what(const struct hst_aio_word *word, enum fault_what what,
                      struct fault_rule *rule, char *why)
{
    const bool tells_error = what == FAULT_TORN || what == FAULT_VANISH;
    if (rule->what != FAULT_NONE && !(rule->what == FAULT_ERROR && tells_error))
        return hst_aio_text_refuse(why, word, "does not go with what stands before it");
    rule->what = what;
    rule->chosen = word->value != NULL;
    const struct hst_aio_field amount = {
        &rule->amount,
        what == FAULT_LATE        ? HST_AIO_FIELD_TIME
        : what == FAULT_REORDERED ? HST_AIO_FIELD_COUNT
        : what == FAULT_FLIP      ? HST_AIO_FIELD_NUMBER
                                  : HST_AIO_FIELD_OFFSET,
    };
    rule->half = what == FAULT_SHORT && rule->chosen &&
                 hst_aio_text_is(word->value, word->value_length, "half");
    if (what == FAULT_VANISH && rule->chosen)
        return hst_aio_text_refuse(why, word, "takes no value");
    if (rule->half || (!rule->chosen && what != FAULT_SHORT && what != FAULT_LATE))
        return 0;
    return hst_aio_text_field(word, &amount, why);
}

/* The words of a rule; from "short" on in the order of enum fault_what. */
enum word { NTH, TIMES, EVERY, ODDS, AT, LEN, SEED, OP, ERR, SHORT, WORDS = SHORT + 6 };
static const char *const words[] = {"nth",  "times", "every",     "odds",   "at",
                                    "len",  "seed",  "op",        "err",    "short",
                                    "torn", "late",  "reordered", "vanish", "flip"};
static_assert(sizeof words / sizeof *words == WORDS &&
                  FAULT_FLIP - FAULT_SHORT == WORDS - 1 - SHORT,
              "every word has a meaning");

static int parse_word(const struct hst_aio_word *word, struct fault_plan *plan,
                      struct fault_rule *rule, uint32_t *seen, char *why)
{
    const struct hst_aio_field numbers[] = {
        [NTH] = {&rule->nth, HST_AIO_FIELD_COUNT},
        [TIMES] = {&rule->times, HST_AIO_FIELD_COUNT},
        [EVERY] = {&rule->every, HST_AIO_FIELD_COUNT},
        [ODDS] = {&rule->odds, HST_AIO_FIELD_COUNT},
        [AT] = {&rule->at, HST_AIO_FIELD_OFFSET},
        [LEN] = {&rule->length_bytes, HST_AIO_FIELD_BYTES},
        [SEED] = {&plan->seed, HST_AIO_FIELD_NUMBER},
    };
    uint32_t i = 0;
    while (i < WORDS && !hst_aio_text_is(word->key, word->key_length, words[i]))
        i++;
    if (i == WORDS)
        return hst_aio_text_refuse(why, word, "is no word of a plan");
    int rc = hst_aio_text_once(seen, i, word, why);
    if (rc < 0)
        return rc;
    if (i == OP)
        return parse_kinds(word, rule, why);
    if (i == ERR)
        return parse_error(word, rule, why);
    if (i >= SHORT)
        return parse_what(word, (enum fault_what)(FAULT_SHORT + (i - SHORT)), rule, why);
    if (i == TIMES && word->value && hst_aio_text_is(word->value, word->value_length, "all")) {
        rule->times = UINT64_MAX;
        return 0;
    }
    return hst_aio_text_field(word, &numbers[i], why);
}

static int parse_rule(const char **text, struct fault_plan *plan, char *why)
{
    struct fault_rule rule = {.nth = 1, .times = 1, .every = 1, .odds = 1};
    struct hst_aio_word word;
    uint32_t seen = 0;
    while (hst_aio_text_next(text, ";", &word)) {
        int rc = parse_word(&word, plan, &rule, &seen, why);
        if (rc < 0)
            return rc;
    }
    if (seen == 0)
        return 0; /* nothing between two semicolons */
    if (seen == 1u << SEED) {
        if (plan->seeded)
            return hst_aio_text_refuse(why, NULL, "seed= is given twice");
        plan->seeded = true;
        return 0;
    }
    if (seen & 1u << SEED)
        return hst_aio_text_refuse(why, NULL, "seed= is a rule of its own, between semicolons");
    if (rule.what == FAULT_NONE)
        return hst_aio_text_refuse(why, NULL, "a rule does not say what happens");
    if (rule.at > 0 && rule.length_bytes == 0)
        return hst_aio_text_refuse(why, NULL, "at= needs len=");
    if (plan->rule_count == FAULT_RULES_MAX) {
        hst_aio_text_refuse(why, NULL, "more than 64 rules");
        return -E2BIG;
    }
    plan->rules[plan->rule_count++] = rule;
    return 0;
}

int hst_aio_fault_parse(const char *text, struct fault_plan *plan, char *why)
{
    *plan = (struct fault_plan){.seed = 1};
    for (;;) {
        int rc = parse_rule(&text, plan, why);
        if (rc < 0)
            return rc;
        if (*text == '\0')
            return 0;
        text++; /* the semicolon */
    }
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
    return rule->odds == 1 || hst_aio_random(&plan->seed) % rule->odds == 0;
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
            strike.amount = hst_aio_random(&plan->seed) % (bytes + 1);
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
            strike.amount = hst_aio_random(&plan->seed);
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
