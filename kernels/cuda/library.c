/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for NVIDIA's libraries. A folder that the user named comes first and is taken at its
 * word: a library there that does not load is an error, not a reason to take another one silently.
 * The system's loader is asked next, then the places where the toolkit and Python packages put
 * them. No program is started: a library must not do that.
 */
#include "library.h"
#include "cuda.h"
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Initialising these libraries once more in one process is slow, unloading them is not safe. */
enum { OPEN_FLAGS = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE };

enum found { ABSENT, PRESENT };

/* Where to look behind the loader: a variable that names a folder (null: none), and a pattern. */
static const struct place {
    const char *variable, *pattern;
} places[] = {
    {NULL, "/usr/local/cuda/lib64"},
    {NULL, "/usr/local/cuda-*/lib64"},
    {NULL, "/usr/local/nvidia/lib64"}, /* what container images use */
    {"VIRTUAL_ENV", "/lib/python3*/site-packages/nvidia/*/lib"},
    {"CONDA_PREFIX", "/lib"},
    {"CONDA_PREFIX", "/lib/python3*/site-packages/nvidia/*/lib"},
};

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

/* The folders of a list with colons between them; those that are not absolute are passed over. */
static enum found try_list(const char *folders, const char *soname, void **library)
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

/* The last match first: of cuda-13.0 and cuda-13.1 that is the newer one. */
static enum found try_place(const struct place *place, const char *soname, void **library)
{
    char pattern[PATH_MAX];
    glob_t folders;
    const char *root = place->variable ? secure_getenv(place->variable) : "";
    if (!root || (place->variable && *root != '/') || strpbrk(root, "*?[\\"))
        return ABSENT;
    int written = snprintf(pattern, sizeof pattern, "%s%s", root, place->pattern);
    if (written < 0 || (size_t)written >= sizeof pattern || glob(pattern, 0, NULL, &folders) != 0)
        return ABSENT;
    enum found found = ABSENT;
    for (size_t i = folders.gl_pathc; i-- > 0 && found == ABSENT;)
        found = try_folder(folders.gl_pathv[i], strlen(folders.gl_pathv[i]), soname, library);
    globfree(&folders);
    return found;
}

static void tell_absent(const char *soname, const char *folders, struct hst_dev_failure *failure)
{
    const char *environment = secure_getenv("VIRTUAL_ENV");
    const char *conda = secure_getenv("CONDA_PREFIX");
    cuda_failure_set(failure, HST_DEV_LIBRARY, 0,
                     "%s was not found: not in HOISTWAY_CUDA_PATH (\"%s\"), not by the system's "
                     "loader (LD_LIBRARY_PATH), not in /usr/local/cuda*/lib64 and "
                     "/usr/local/nvidia/lib64, not in the packages of VIRTUAL_ENV (\"%s\") and "
                     "CONDA_PREFIX (\"%s\")",
                     soname, folders ? folders : "", environment ? environment : "",
                     conda ? conda : "");
}

void *cuda_library_open(const char *soname, struct hst_dev_failure *failure)
{
    const char *folders = secure_getenv("HOISTWAY_CUDA_PATH");
    void *library = NULL;
    enum found found = try_list(folders, soname, &library);
    if (found == ABSENT) {
        library = dlopen(soname, OPEN_FLAGS);
        found = library ? PRESENT : ABSENT;
    }
    /* The loader reads the variable when a program starts, and misses what is put into it later. */
    if (found == ABSENT)
        found = try_list(secure_getenv("LD_LIBRARY_PATH"), soname, &library);
    for (size_t i = 0; found == ABSENT && i < sizeof places / sizeof *places; i++)
        found = try_place(&places[i], soname, &library);
    if (found == ABSENT)
        tell_absent(soname, folders, failure);
    else if (!library)
        cuda_failure_set(failure, HST_DEV_LIBRARY, 0, "%s does not load: %s", soname, dlerror());
    return library;
}

const char *cuda_library_path(void *library)
{
    struct link_map *map;
    return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && *map->l_name ? map->l_name : "unknown";
}
