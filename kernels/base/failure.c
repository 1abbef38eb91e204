/* SPDX-License-Identifier: Apache-2.0 */
#include "base/failure.h"

#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int dev_fail(struct hst_dev_failure *failure, int rc, enum hst_dev_why why, int native,
             const char *format, ...)
{
    *failure = (struct hst_dev_failure){.why = why, .native = native};
    va_list args;
    va_start(args, format);
    vsnprintf(failure->text, sizeof failure->text, format, args);
    va_end(args);
    return rc;
}

bool dev_own_folder(char folder[PATH_MAX])
{
    Dl_info info;
    struct link_map *map = NULL;
    if (!dladdr1((const void *)(uintptr_t)dev_own_folder, &info, (void **)&map, RTLD_DL_LINKMAP))
        return false;
    const char *path = map->l_name;
    if (!*path) /* the program itself, which knows only what it was called as */
        path = "/proc/self/exe";
    if (*path != '/' || !realpath(path, folder))
        return false;
    *strrchr(folder, '/') = '\0';
    return true;
}
