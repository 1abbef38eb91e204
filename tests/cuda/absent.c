/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked into a program, hides files from the search for libraries: those whose path holds what
 * HST_ABSENT says, wherever this machine has them. These calls are found before the C library's,
 * also by plugins.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool hidden(const char *path)
{
    const char *name = getenv("HST_ABSENT");
    return path && name && *name && strstr(path, name);
}

int access(const char *path, int mode)
{
    if (!hidden(path))
        return faccessat(AT_FDCWD, path, mode, 0);
    errno = ENOENT;
    return -1;
}

void *dlopen(const char *path, int flags)
{
    void *(*open)(const char *, int);
    *(void **)&open = dlsym(RTLD_NEXT, "dlopen");
    return hidden(path) ? NULL : open(path, flags);
}
