/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which of the models known by name was meant. */
#include "cli/options/shape.h"

#include "cli/options/options.h"

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

/* The known models next to that size, one smaller and one larger. */
static void near_in_size(double size, const struct hst_shape *shapes, size_t count,
                         const char *near[2])
{
    double below = 0, above = INFINITY;
    for (size_t i = 0; i < count; i++) {
        double params = (double)hst_shape_params(&shapes[i]);
        if (params <= size && params > below) {
            below = params;
            near[0] = shapes[i].name;
        } else if (params > size && params < above) {
            above = params;
            near[1] = shapes[i].name;
        }
    }
}

static const char *near_in_spelling(const char *name, const struct hst_shape *shapes, size_t count)
{
    const char *names[MAX_NAMES];
    for (size_t i = 0; i < count && i < MAX_NAMES; i++)
        names[i] = shapes[i].name;
    return cli_nearest(name, names, count < MAX_NAMES ? count : MAX_NAMES);
}

/* Another model is not what was asked for: what is near is told, and never the fix. */
int cli_shape_unknown(const char *option, const char *name, const char *cache,
                      struct hst_error *error)
{
    if (cache)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "%s '%.100s' is no file and no directory, and the Hugging Face cache '%.200s' "
                    "has no model of that name. Fix: download it there, or set HF_HOME to where it "
                    "is.",
                    option, name, cache);
    char known[200] = "", told[64] = "";
    const char *near[2] = {NULL, NULL};
    size_t count, n = 0;
    const struct hst_shape *shapes = hst_shapes(&count);
    const double size = params_named(name);
    for (size_t i = 0; i < count && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", shapes[i].name);
    if (size > 0)
        near_in_size(size, shapes, count, near);
    else
        near[0] = near_in_spelling(name, shapes, count);
    if (near[0] || near[1])
        snprintf(told, sizeof told, "; near it: %s%s%s", near[0] ? near[0] : "",
                 near[0] && near[1] ? ", " : "", near[1] ? near[1] : "");
    return fail(error, FAIL_VALUE, -EINVAL,
                "%s '%.100s' is no file, no directory and no known model (%s%s). Fix: the "
                "directory with the model's config.json, or one of these names.",
                option, name, known, told);
}
