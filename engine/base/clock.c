/* SPDX-License-Identifier: Apache-2.0 */
/* The one clock of the engine: monotonic, so that a changed wall clock does not change what is
 * measured. */
#include "base/clock.h"

#include <time.h>

double clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
