/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_AIO_FAULT_PLAN_H
#define HST_AIO_FAULT_PLAN_H
/* A plan of faults: its text, as described in aio.h, and which request it strikes how. */
#include "internal.h"

#pragma GCC visibility push(hidden)

enum { FAULT_RULES_MAX = 64 };

enum fault_what {
    FAULT_NONE,
    FAULT_ERROR,
    FAULT_SHORT,
    FAULT_TORN,
    FAULT_LATE,
    FAULT_REORDERED,
    FAULT_VANISH,
    FAULT_FLIP,
};

struct fault_rule {
    enum fault_what what;
    int error;          /* positive; 0: the default of `what` */
    bool chosen;        /* `amount` was given */
    bool half;          /* short=half */
    uint64_t amount;    /* bytes, ns, results or bit, by `what` */
    uint32_t kinds;     /* bit set of enum hst_aio_kind; 0: any */
    uint64_t nth, times, every, odds;
    uint64_t at, length_bytes; /* length 0: anywhere */
    uint64_t matched;   /* requests so far */
};

struct fault_plan {
    uint64_t seed;
    uint32_t rule_count;
    bool seeded;
    bool gone; /* a vanish has struck */
    int gone_error;
    struct fault_rule rules[FAULT_RULES_MAX];
};

/* It says what happens to one request. */
struct fault_strike {
    enum fault_what what;
    int error;       /* negative */
    uint64_t amount; /* short, torn: bytes that move; late: ns; reordered: results; flip: bit */
};

/* Errors: -EINVAL the text, -E2BIG too many rules; why[HST_AIO_REFUSAL_BYTES] says which word. */
int hst_aio_fault_parse(const char *text, struct fault_plan *plan, char *why);
/* Counts the request and says what happens to it; `grain_bytes` is what a tear is a multiple of. */
struct fault_strike hst_aio_fault_strike(struct fault_plan *plan, enum hst_aio_kind kind,
                                         uint64_t offset, uint64_t bytes, uint64_t grain_bytes);

#pragma GCC visibility pop
#endif
