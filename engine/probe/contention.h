/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_CONTENTION_H
#define HOISTWAY_ENGINE_CONTENTION_H
/* What else the processors did while a probe measured: contention.c counts it, and decides whether
   rates that were measured beside it are those of the machine. */
#include <stdbool.h>
#include <stddef.h>

/** Seconds of all threads or processors together. */
struct contention {
    double passed_s;     /* by the clock */
    double ran_s;        /* that this process was on processors */
    double waited_s;     /* that its threads were ready to run, and others had the processors */
    double others_s;     /* that other processes, or other virtual machines, had its processors */
    unsigned processors; /* that this process may use; 0: not known, and nor is what others had */
};

/** What has been counted since the machine or the process began; what cannot be read is 0. */
struct contention contention_now(void);
/** It is what was counted between two moments. Pure. */
struct contention contention_between(const struct contention *begin, const struct contention *end);

/**
 * It tells whether rates that were measured so may be too low, and why: words before "while they
 * were measured"; else "". worked: by threads that compute all the time. Pure.
 */
bool contention_disturbs(const struct contention *c, bool worked, char *why, size_t why_bytes);

#endif
