/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the name that a glob without a tensor may have meant. */
#include "session/names.h"

#include <string.h>

#define LONGEST_NAME 255u

/* It counts the edits that make a name fit the glob, of which a '*' fits anything. */
static unsigned distance(const char *glob, const char *name)
{
    unsigned row[LONGEST_NAME + 1];
    const size_t length = strlen(name);
    for (unsigned j = 0; j <= length; j++)
        row[j] = j;
    for (; *glob; glob++) {
        unsigned before = row[0]; /* of the glob without this character, and j - 1 of the name */
        row[0] += *glob != '*';
        for (size_t j = 1; j <= length; j++) {
            const unsigned kept = row[j], fits = *glob == '?' || *glob == name[j - 1];
            const unsigned cost = *glob != '*', more = row[j - 1] + cost, less = kept + cost;
            unsigned least = more < less ? more : less;
            least = cost && before + !fits < least ? before + !fits : least;
            row[j] = least;
            before = kept;
        }
    }
    return row[length];
}

/* The longest part of the glob between its wildcards stands in the name. */
static bool has_part(const char *glob, const char *name)
{
    const char *part = glob;
    size_t longest = 0;
    for (const char *at = glob; *at;) {
        const size_t bytes = strcspn(at, "*?[");
        part = bytes > longest ? at : part;
        longest = bytes > longest ? bytes : longest;
        at += bytes + (at[bytes] != '\0');
    }
    return longest > 0 && memmem(name, strlen(name), part, longest);
}

const char *names_nearest(const struct layout *layout, const char *glob)
{
    const char *found = "none";
    unsigned least = UINT32_MAX;
    for (uint32_t i = 0; i < layout->param_count; i++) {
        const char *name = layout->params[i].name;
        unsigned edits =
            strlen(name) > LONGEST_NAME ? UINT32_MAX - LONGEST_NAME : distance(glob, name);
        edits += has_part(glob, name) ? 0 : LONGEST_NAME;
        if (edits < least) {
            least = edits;
            found = name;
        }
    }
    return found;
}
