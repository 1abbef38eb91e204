/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_BASE_NOW_H
#define HOISTWAY_TOOLS_BASE_NOW_H
#include <time.h>

/** Seconds of CLOCK_MONOTONIC. Safe in handlers of signals, and in any thread. */
static inline double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
