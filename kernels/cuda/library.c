/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for NVIDIA's libraries. A folder that the user named comes first and is taken at its
 * word: a library there that does not load is an error, not a reason to take another one silently.
 */
#include "library.h"
#include "cuda.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SYSTEM_FOLDER "/usr/local/cuda/lib64"

/* Initialising these libraries once more in one process is slow, unloading them is not safe. */
enum { OPEN_FLAGS = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE };

enum found { ABSENT, PRESENT };

/* Writes *library where the file is there; null then means that it does not load. */
static enum found try_folder(const char *folder, size_t length, const char *soname, void **library)
{
    char path[PATH_MAX];
    int written = snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, soname);
    if (written < 0 || (size_t)written >= sizeof path || access(path, F_OK) != 0)
        return ABSENT;
    *library = dlopen(path, OPEN_FLAGS);
    return PRESENT;
}

static enum found try_environment(const char *folders, const char *soname, void **library)
{
    for (const char *folder = folders; folder && *folder;) {
        size_t length = strcspn(folder, ":");
        if (*folder == '/' && length < PATH_MAX &&
            try_folder(folder, length, soname, library) == PRESENT)
            return PRESENT;
        folder += length + (folder[length] == ':');
    }
    return ABSENT;
}

void *cuda_library_open(const char *soname, struct hst_dev_failure *failure)
{
    const char *folders = secure_getenv("HOISTWAY_CUDA_PATH");
    void *library = NULL;
    if (try_environment(folders, soname, &library) == ABSENT) {
        library = dlopen(soname, OPEN_FLAGS);
        if (!library &&
            try_folder(SYSTEM_FOLDER, strlen(SYSTEM_FOLDER), soname, &library) == ABSENT) {
            cuda_failure_set(failure, HST_DEV_LIBRARY, 0,
                             "%s was not found: not in HOISTWAY_CUDA_PATH (\"%s\"), not by the "
                             "system's loader (%s), not in " SYSTEM_FOLDER,
                             soname, folders ? folders : "", dlerror());
            return NULL;
        }
    }
    if (!library)
        cuda_failure_set(failure, HST_DEV_LIBRARY, 0, "%s does not load: %s", soname, dlerror());
    return library;
}
