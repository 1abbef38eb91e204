/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which name a mistyped one was meant to be: the one with the fewest edits, if they are
 * few.
 */
#include "cli/options.h"

#include <string.h>

#define LONGEST_NAME 48u

static size_t least(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Levenshtein distance by one row; both at most LONGEST_NAME long. */
static size_t distance(const char *a, const char *b)
{
    size_t row[LONGEST_NAME + 1];
    size_t b_length = strlen(b);
    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b_length; j++) {
            size_t above = row[j + 1];
            row[j + 1] = least(above + 1, row[j] + 1, diagonal + (a[i] != b[j]));
            diagonal = above;
        }
    }
    return row[b_length];
}

const char *cli_nearest(const char *name, const char *const *candidates, size_t count)
{
    const char *nearest = NULL;
    size_t length = strlen(name);
    if (length > LONGEST_NAME)
        return NULL;
    /* More than half of the letters wrong is another word, not a slip. */
    size_t fewest = length / 2 + 1;
    for (size_t i = 0; i < count; i++) {
        if (strlen(candidates[i]) > LONGEST_NAME)
            continue;
        size_t d = distance(name, candidates[i]);
        if (d < fewest) {
            fewest = d;
            nearest = candidates[i];
        }
    }
    return nearest;
}
