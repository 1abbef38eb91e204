/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for NVIDIA's libraries. A folder that the user named comes first and is taken at its
 * word: a library there that does not load is an error, not a reason to take another one silently.
 * The system's loader is asked next, then the places where the toolkit and Python packages put
 * them. No program is started: a library must not do that.
 */
#include "library.h"
#include "base/folders.h"
#include "cuda/device/failure_text.h"
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Initialising these libraries once more in one process is slow, unloading them is not safe. */
enum { OPEN_FLAGS = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE };

/* These places follow the loader: a variable that names a folder (null: none), and a pattern. */
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

/* False where its variable names no folder. */
static bool pattern_of(const struct place *place, char pattern[PATH_MAX])
{
    const char *root = place->variable ? secure_getenv(place->variable) : "";
    if (!root || (place->variable && *root != '/') || strpbrk(root, "*?[\\"))
        return false;
    int written = snprintf(pattern, PATH_MAX, "%s%s", root, place->pattern);
    return written >= 0 && written < PATH_MAX;
}

/* The last match first: of cuda-13.0 and cuda-13.1 that is the newer one. */
static bool is_in_place(struct dev_search *search, const struct place *place)
{
    char pattern[PATH_MAX];
    glob_t folders;
    if (!pattern_of(place, pattern) || glob(pattern, 0, NULL, &folders) != 0)
        return false;
    bool found = false;
    for (size_t i = folders.gl_pathc; i-- > 0 && !found;)
        found = dev_search_in(search, "%s", folders.gl_pathv[i]);
    globfree(&folders);
    return found;
}

/* ---- another version ------------------------------------------------------------------------- */

/* It tells whether a file of the folder, or pattern, is the library but for its version. */
static bool has_unlike(const char *folder, const char *soname, char *text, size_t text_bytes)
{
    char pattern[PATH_MAX];
    glob_t files;
    const size_t stem = (size_t)(strrchr(soname, '.') - soname), whole = strlen(soname);
    int written = snprintf(pattern, sizeof pattern, "%s/%.*s.[0-9]*", folder, (int)stem, soname);
    if (written < 0 || (size_t)written >= sizeof pattern || glob(pattern, 0, NULL, &files) != 0)
        return false;
    bool found = false;
    for (size_t i = 0; i < files.gl_pathc && !found; i++) {
        const char *name = strrchr(files.gl_pathv[i], '/') + 1;
        found = strncmp(name, soname, whole) != 0 || (name[whole] && name[whole] != '.');
        if (found)
            snprintf(text, text_bytes, "%.200s (this build takes %s)", files.gl_pathv[i], soname);
    }
    globfree(&files);
    return found;
}

/* The folders of a variable; those that are patterns, or not absolute, are passed over. */
static bool list_has_unlike(const char *variable, const char *soname, char *text, size_t text_bytes)
{
    char folder[PATH_MAX];
    for (const char *rest = secure_getenv(variable); rest && *rest;) {
        const size_t length = strcspn(rest, ":");
        const bool usable = *rest == '/' && length < sizeof folder;
        snprintf(folder, sizeof folder, "%.*s", usable ? (int)length : 0, rest);
        if (usable && !strpbrk(folder, "*?[\\") && has_unlike(folder, soname, text, text_bytes))
            return true;
        rest += length + (rest[length] == ':');
    }
    return false;
}

void cuda_library_unlike(const char *soname, char *text, size_t text_bytes)
{
    static const char *const folders[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib64"};
    char folder[PATH_MAX];
    *text = '\0';
    bool found = list_has_unlike("HOISTWAY_CUDA_PATH", soname, text, text_bytes) ||
                 list_has_unlike("LD_LIBRARY_PATH", soname, text, text_bytes);
    for (size_t i = 0; i < sizeof places / sizeof *places && !found; i++)
        found = pattern_of(&places[i], folder) && has_unlike(folder, soname, text, text_bytes);
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !found; i++)
        found = has_unlike(folders[i], soname, text, text_bytes);
}

/* ---- the search ------------------------------------------------------------------------------ */

static void tell_absent(const char *soname, const char *folders, struct hst_dev_failure *failure)
{
    char unlike[300];
    const char *environment = secure_getenv("VIRTUAL_ENV");
    const char *conda = secure_getenv("CONDA_PREFIX");
    cuda_library_unlike(soname, unlike, sizeof unlike);
    if (*unlike) {
        cuda_failure_set(failure, HST_DEV_LIBRARY, 0, "%s was not found, but another version: %s",
                         soname, unlike);
        return;
    }
    cuda_failure_set(failure, HST_DEV_LIBRARY, 0,
                     "%s was not found: not in HOISTWAY_CUDA_PATH (\"%s\"), not by the system's "
                     "loader (LD_LIBRARY_PATH), not in /usr/local/cuda*/lib64 and "
                     "/usr/local/nvidia/lib64, not in the packages of VIRTUAL_ENV (\"%s\") and "
                     "CONDA_PREFIX (\"%s\")",
                     soname, folders ? folders : "", environment ? environment : "",
                     conda ? conda : "");
}

static bool is_in_variable(struct dev_search *search, const char *variable)
{
    const char *folders = secure_getenv(variable);
    return folders && dev_search_list(search, folders, false);
}

/* Behind the loader: it reads LD_LIBRARY_PATH when a program starts, and misses what is put into it
 * later. */
static bool is_elsewhere(struct dev_search *search)
{
    bool found = is_in_variable(search, "LD_LIBRARY_PATH");
    for (size_t i = 0; !found && i < sizeof places / sizeof *places; i++)
        found = is_in_place(search, &places[i]);
    return found;
}

void *cuda_library_open(const char *soname, bool *there, struct hst_dev_failure *failure)
{
    struct dev_search search = {.file = soname};
    bool found = is_in_variable(&search, "HOISTWAY_CUDA_PATH");
    void *library = found ? NULL : dlopen(soname, OPEN_FLAGS);
    found = found || library || is_elsewhere(&search);
    if (there)
        *there = found;
    if (library)
        return library;
    if (!found) {
        tell_absent(soname, secure_getenv("HOISTWAY_CUDA_PATH"), failure);
        return NULL;
    }
    library = dlopen(search.path, OPEN_FLAGS);
    if (!library)
        cuda_failure_set(failure, HST_DEV_LIBRARY, 0, "%s does not load: %s", soname, dlerror());
    return library;
}

const char *cuda_library_path(void *library)
{
    struct link_map *map;
    return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && *map->l_name ? map->l_name : "unknown";
}
