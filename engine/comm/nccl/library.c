/* SPDX-License-Identifier: Apache-2.0 */
/* The door to libnccl.so.2: it is looked for where the CUDA device looks for NVIDIA's libraries. */
#include "comm/nccl/nccl_comm.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>

#define SONAME "libnccl.so.2"

static const char *path_of(const struct nccl_library *library)
{
    struct link_map *map;
    return dlinfo(library->handle, RTLD_DI_LINKMAP, &map) == 0 && *map->l_name ? map->l_name
                                                                               : SONAME;
}

/* False with *failure written where the library lacks it. */
static bool find(struct nccl_library *library, void **function, const char *name,
                 struct comm_failure *failure)
{
    *function = dlsym(library->handle, name);
    if (*function)
        return true;
    comm_fail(failure, -ENODEV, COMM_NOBODY, "%.200s has no %s: it is cut, or no NCCL",
              path_of(library), name);
    return false;
}

static int find_functions(struct nccl_library *library, struct comm_failure *failure)
{
#define FIND(type, name)                                                                           \
    if (!find(library, (void **)&library->name, #name, failure))                                   \
        return -ENODEV;
    NCCL_FUNCTIONS(FIND)
#undef FIND
    return 0;
}

static int find_later_functions(struct nccl_library *library, struct comm_failure *failure)
{
#define FIND(type, name, since)                                                                    \
    if (library->version >= (since) && !find(library, (void **)&library->name, #name, failure))    \
        return -ENODEV;
    NCCL_LATER_FUNCTIONS(FIND)
#undef FIND
    return 0;
}

void nccl_version_text(int version, char text[NCCL_VERSION_BYTES])
{
    snprintf(text, NCCL_VERSION_BYTES, "%d.%d.%d", version / 10000, version / 100 % 100,
             version % 100);
}

int nccl_library_open(struct nccl *n)
{
    struct nccl_library *library = &n->library;
    struct comm_failure *failure = &n->failure;
    struct hst_dev_failure story;
    char have[NCCL_VERSION_BYTES], least[NCCL_VERSION_BYTES];
    *library = (struct nccl_library){.handle = n->config.library(SONAME, &story)};
    if (!library->handle)
        return comm_fail(failure, -ENODEV, COMM_NOBODY, "%s", story.text);
    int rc = find_functions(library, failure);
    if (!rc && library->ncclGetVersion(&library->version) != NCCL_SUCCESS)
        rc = comm_fail(failure, -ENODEV, COMM_NOBODY, "%.200s does not tell its version",
                       path_of(library));
    if (!rc && library->version < NCCL_VERSION_LEAST) {
        nccl_version_text(library->version, have);
        nccl_version_text(NCCL_VERSION_LEAST, least);
        rc = comm_fail(failure, -ENODEV, COMM_NOBODY, "%.200s is NCCL %s, of which %s is the least",
                       path_of(library), have, least);
    }
    rc = rc ? rc : find_later_functions(library, failure);
    if (rc)
        nccl_library_close(library);
    return rc;
}

void nccl_library_close(struct nccl_library *library)
{
    if (library->handle)
        dlclose(library->handle);
    library->handle = NULL;
}
