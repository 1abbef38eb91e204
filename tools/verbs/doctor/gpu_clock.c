/* SPDX-License-Identifier: Apache-2.0 */
/* The library starts no program; a tool may, and the driver's own is what knows the clock. */
#include "verbs/doctor/gpu_clock.h"

#include "cli/child.h"

#include <stdio.h>
#include <stdlib.h>
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

void gpu_clock_reasons(const char *said, char *text, size_t text_bytes)
{
    /* nvml.h, nvmlClocksEventReason*; 1 is that nothing runs, 10 and 100 are of displays and boards
     * that keep step with others */
    static const struct {
        unsigned long long bit;
        const char *name;
    } reasons[] = {{0x02, "clocks that were set for applications"},
                   {0x04, "the limit of power"},
                   {0x08, "the board's own slowdown"},
                   {0x20, "heat"},
                   {0x40, "heat, by the board"},
                   {0x80, "the power supply's brake"}};
    char *end;
    unsigned long long bits = strtoull(said, &end, 16);
    size_t used = 0;
    *text = '\0';
    if (end == said || strspn(end, " \r\n") != strlen(end))
        return;
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons && used < text_bytes; i++)
        if (bits & reasons[i].bit)
            used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", used ? ", " : "",
                                     reasons[i].name);
}

static bool ask(const char *pci, const char *query, unsigned limit_ms, char *text, size_t room)
{
    const char *const arguments[] = {"nvidia-smi", query, "--format=csv,noheader,nounits",
                                     "-i",         pci,   NULL};
    return pci[0] && child_read(arguments, limit_ms, text, room);
}

bool gpu_clock_read(const char *pci, unsigned limit_ms, struct gpu_clock *clock)
{
    char text[256];
    return ask(pci, "--query-gpu=clocks.sm,clocks.max.sm", limit_ms, text, sizeof text) &&
           gpu_clock_parse(text, clock);
}

void gpu_clock_reasons_read(const char *pci, unsigned limit_ms, char *text, size_t text_bytes)
{
    char said[256];
    *text = '\0';
    if (ask(pci, "--query-gpu=clocks_throttle_reasons.active", limit_ms, said, sizeof said))
        gpu_clock_reasons(said, text, text_bytes);
}
