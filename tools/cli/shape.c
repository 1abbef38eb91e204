/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which of the models known by name was meant. */
#include "cli/shape.h"

#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <hoistway/plan.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAMES 32u

/* "9B", "llama-9b-chat": how many parameters the name says. 0: none. */
static double params_named(const char *name)
{
    while (*name) {
        size_t length = strspn(name, "0123456789.");
        const char *unit = name + length;
        bool ends = *unit && !isalnum((unsigned char)unit[1]);
        double factor = strchr("Bb", *unit) ? 1e9 : strchr("Mm", *unit) ? 1e6 : 1e12;
        if (length && length < 16 && ends && strchr("BbMmTt", *unit))
            return strtod(name, NULL) * factor;
        name += length ? length : 1;
    }
    return 0;
}

/* The known model nearest in size, or else in spelling. */
static const char *nearest_model(const char *name, const struct hst_shape *shapes, size_t count)
{
    const char *names[MAX_NAMES], *nearest = NULL;
    double size = params_named(name), least = INFINITY;
    for (size_t i = 0; i < count && i < MAX_NAMES; i++) {
        double away = fabs(log((double)hst_shape_params(&shapes[i]) / size));
        names[i] = shapes[i].name;
        if (size > 0 && away < least) {
            least = away;
            nearest = shapes[i].name;
        }
    }
    nearest = nearest ? nearest : cli_nearest(name, names, count);
    return nearest ? nearest : "8B";
}

int cli_shape_unknown(const char *option, const char *name, struct hst_error *error)
{
    char known[200] = "";
    size_t count, n = 0;
    const struct hst_shape *shapes = hst_shapes(&count);
    for (size_t i = 0; i < count && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", shapes[i].name);
    return fail(error, FAIL_VALUE, -EINVAL,
                "%s '%.100s' is no file, no directory and no known model (%s). Fix: %s %s.", option,
                name, known, option, nearest_model(name, shapes, count));
}
