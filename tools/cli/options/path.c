/* SPDX-License-Identifier: Apache-2.0 */
/* Decides where a path leads, also one that will be made. */
#include "cli/options/path.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The real path of what is there, or will be there in a directory that is. */
static bool real_path(const char *path, char real[PATH_MAX])
{
    char head[PATH_MAX], tail[PATH_MAX];
    if (realpath(path, real))
        return true;
    if (snprintf(head, sizeof head, "%s", path) >= PATH_MAX || !realpath(dirname(head), real))
        return false;
    snprintf(tail, sizeof tail, "%s", path);
    size_t n = strcmp(real, "/") == 0 ? 0 : strlen(real);
    return (size_t)snprintf(real + n, PATH_MAX - n, "/%s", basename(tail)) < PATH_MAX - n;
}

bool path_is_in(const char *path, const char *directory)
{
    char inner[PATH_MAX], outer[PATH_MAX];
    if (!real_path(path, inner) || !real_path(directory, outer))
        return false;
    size_t n = strlen(outer);
    return strncmp(inner, outer, n) == 0 && (inner[n] == '/' || inner[n] == '\0');
}
