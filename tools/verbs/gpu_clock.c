/* SPDX-License-Identifier: Apache-2.0 */
/* The library starts no program; a tool may, and the driver's own is what knows the clock. */
#include "verbs/gpu_clock.h"

#include "cli/child.h"

#include <stdio.h>
#include <string.h>

#define HZ_MOST 1e5 /* MHz: beyond it, it is no clock */

bool gpu_clock_parse(const char *text, struct gpu_clock *clock)
{
    double now, most;
    int end = 0;
    if (sscanf(text, "%lf , %lf%n", &now, &most, &end) != 2 || strspn(text + end, " \r\n") == 0 ||
        text[(size_t)end + strspn(text + end, " \r\n")])
        return false;
    if (!(now > 0 && now < HZ_MOST && most > 0 && most < HZ_MOST))
        return false;
    *clock = (struct gpu_clock){1e6 * now, 1e6 * most};
    return true;
}

bool gpu_clock_read(const char *pci, unsigned limit_ms, struct gpu_clock *clock)
{
    char text[256];
    const char *const arguments[] = {"nvidia-smi",
                                     "--query-gpu=clocks.sm,clocks.max.sm",
                                     "--format=csv,noheader,nounits",
                                     "-i",
                                     pci,
                                     NULL};
    return pci[0] && child_read(arguments, limit_ms, text, sizeof text) &&
           gpu_clock_parse(text, clock);
}
