/* SPDX-License-Identifier: Apache-2.0 */
/* A step has one name alone: what reads as its number and is written otherwise is none. */
#include "store/kept_name.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void kept_name(uint64_t step, char name[KEPT_NAME_BYTES])
{
    snprintf(name, KEPT_NAME_BYTES, "step-%" PRIu64, step);
}

void kept_forming_name(uint64_t step, char name[KEPT_NAME_BYTES])
{
    snprintf(name, KEPT_NAME_BYTES, "step-%" PRIu64 ".new", step);
}

bool kept_parse(const char *name, uint64_t *step)
{
    char same[KEPT_NAME_BYTES];
    if (sscanf(name, "step-%" SCNu64, step) != 1)
        return false;
    kept_name(*step, same);
    return strcmp(same, name) == 0;
}

bool kept_is_forming(const char *name)
{
    char same[KEPT_NAME_BYTES];
    uint64_t step;
    if (sscanf(name, "step-%" SCNu64, &step) != 1)
        return false;
    kept_forming_name(step, same);
    return strcmp(same, name) == 0;
}
