/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plugins: where one is looked for, and which can be used. A plugin is code that runs in this
 * process, so where it is looked for is short and known: folders that the environment names, where
 * this library lies, where libraries were installed to. The first file of the right name is taken
 * at its word: if it cannot be used, that is the answer, and no other one is taken silently in its
 * place.
 */
#include "plugin_load.h"
#include "base/failure.h"
#include "base/folders.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the search ------------------------------------------------------------------------------ */

static bool is_in_environment(struct dev_search *search)
{
    const char *folders = secure_getenv("HOISTWAY_PLUGIN_PATH");
    if (!folders || !*folders) {
        dev_search_tell(search, "HOISTWAY_PLUGIN_PATH (not set)");
        return false;
    }
    dev_search_tell(search, "HOISTWAY_PLUGIN_PATH (");
    if (dev_search_list(search, folders, true))
        return true;
    dev_search_tell(search, ")");
    return false;
}

static bool is_beside(struct dev_search *search)
{
    char folder[PATH_MAX];
    if (!dev_own_folder(folder)) {
        dev_search_tell(search, ", beside this library (its place is not known)");
        return false;
    }
    dev_search_tell(search, ", beside this library (%.120s)", folder);
    return dev_search_in(search, "%s", folder);
}

static bool find(struct dev_search *search)
{
    if (is_in_environment(search) || is_beside(search))
        return true;
    dev_search_tell(search, ", %.100s", HST_LIBDIR);
    return *HST_LIBDIR == '/' && dev_search_in(search, "%s", HST_LIBDIR);
}

/* ---- the plugin ------------------------------------------------------------------------------ */

/* This is what is wrong with it; null where it can be used. Its size says which members it has. */
static const char *plugin_fault(const struct hst_plugin_head *plugin,
                                const struct hst_plugin_want *want, char text[160])
{
    if (plugin->size != want->size)
        snprintf(text, 160, "%.40s has %zu bytes, this library's %zu", want->symbol, plugin->size,
                 want->size);
    else if (!plugin->version || strcmp(plugin->version, HST_VERSION) != 0)
        snprintf(text, 160, "it is of version %.60s, this library of %s",
                 plugin->version ? plugin->version : "(none)", HST_VERSION);
    else if (plugin->ops_size != want->ops_size)
        snprintf(text, 160, "its table has %zu bytes, this library's %zu", plugin->ops_size,
                 want->ops_size);
    else
        return NULL;
    return text;
}

/* Some files would end or hang this process instead of failing: a file that is cut short is
 * mapped beyond its end (SIGBUS), and nobody writes to a FIFO. Null where there is nothing of the
 * kind. */
static const char *file_fault(const char *path)
{
    struct stat status;
    ElfW(Ehdr) header;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return NULL; /* the loader says why */
    bool regular = fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
    ssize_t got = regular ? pread(fd, &header, sizeof header, 0) : 0;
    close(fd);
    if (!regular)
        return "it is not a regular file";
    if (got != (ssize_t)sizeof header || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        return NULL; /* no library: the loader says so */
    /* the table of sections is what linkers write last */
    uint64_t end = header.e_shoff + (uint64_t)header.e_shnum * header.e_shentsize;
    return end > (uint64_t)status.st_size ? "it is cut short: a copy that did not finish?" : NULL;
}

/* A plugin that is used stays loaded: its devices, and what it opened itself, hold its code. */
static int load(const struct dev_search *search, const struct hst_plugin_want *want,
                const void **plugin, struct hst_dev_failure *failure)
{
    char text[160], lacks[80];
    const char *damage = file_fault(search->path);
    if (damage)
        return dev_fail(failure, -ENODEV, HST_DEV_BROKEN_PLUGIN, 0, "%.200s cannot be used: %s",
                        search->path, damage);
    void *library = dlopen(search->path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return dev_fail(failure, -ENODEV, HST_DEV_BROKEN_PLUGIN, 0, "%.150s does not load: %s",
                        search->path, dlerror());
    const struct hst_plugin_head *found = dlsym(library, want->symbol);
    snprintf(lacks, sizeof lacks, "it exports no %.40s", want->symbol);
    const char *fault = found ? plugin_fault(found, want, text) : lacks;
    if (fault) {
        dev_fail(failure, -ENODEV, HST_DEV_BROKEN_PLUGIN, 0, "%.200s cannot be used: %s",
                 search->path, fault);
        dlclose(library);
        return -ENODEV;
    }
    *plugin = found;
    return 0;
}

/* ---- both ------------------------------------------------------------------------------------ */

int dev_plugin_load(const char *kind, const struct hst_plugin_want *want, const void **plugin,
                    char path[PATH_MAX], struct hst_dev_failure *failure)
{
    char file[sizeof "libhoistway-.so" + HST_PLUGIN_KIND_LETTERS];
    struct dev_search search = {.file = file};
    snprintf(file, sizeof file, "libhoistway-%.*s.so", (int)HST_PLUGIN_KIND_LETTERS, kind);
    if (!find(&search))
        return dev_fail(failure, -ENODEV, HST_DEV_NO_PLUGIN, 0, "no %s in: %s", file,
                        search.places);
    memcpy(path, search.path, PATH_MAX);
    return load(&search, want, plugin, failure);
}

/* One line, whatever a path or a loader's message holds. */
void dev_make_one_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

int hst_plugin_load(const char *kind, const struct hst_plugin_want *want, const void **plugin,
                    struct hst_dev_failure *failure)
{
    char path[PATH_MAX];
    struct hst_dev_failure story = {.why = HST_DEV_OK};
    int rc = dev_plugin_load(kind, want, plugin, path, &story);
    if (!rc)
        story = (struct hst_dev_failure){.why = HST_DEV_OK};
    dev_make_one_line(story.text);
    *failure = story;
    return rc;
}
