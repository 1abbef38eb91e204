/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices by name. A plugin is code that runs in this process, so where it is looked for is short
 * and known: folders that the environment names, where this library lies, where libraries were
 * installed to. The first file of the right name is taken at its word: if it can not be used, that
 * is the answer, and no other one is taken silently in its place.
 */
#include "base/failure.h"
#include "base/folders.h"
#include "host/host.h"
#include <assert.h>
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

enum { KIND_LETTERS = 31, INDEX_DIGITS = 4 };

struct name {
    char kind[KIND_LETTERS + 1];
    bool has_index;
    unsigned index;
};

/* ---- names ----------------------------------------------------------------------------------- */

/* "cuda", "cuda:1": lower-case letters, and a number as one would write it. */
static bool parse_name(const char *text, struct name *name)
{
    size_t letters = strspn(text, "abcdefghijklmnopqrstuvwxyz");
    *name = (struct name){.has_index = text[letters] == ':'};
    if (!letters || letters > KIND_LETTERS || (text[letters] && !name->has_index))
        return false;
    memcpy(name->kind, text, letters);
    if (!name->has_index)
        return true;
    const char *number = text + letters + 1;
    size_t digits = strspn(number, "0123456789");
    if (!digits || digits > INDEX_DIGITS || number[digits] || (*number == '0' && digits > 1))
        return false;
    name->index = (unsigned)strtoul(number, NULL, 10);
    return true;
}

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

/* What is wrong with it; null where it can be used. Its size says which members it has. */
static const char *plugin_fault(const struct hst_dev_plugin *plugin, char text[160])
{
    if (plugin->size != sizeof *plugin)
        snprintf(text, 160, "hst_dev_plugin has %zu bytes, this library's %zu", plugin->size,
                 sizeof *plugin);
    else if (!plugin->version || strcmp(plugin->version, HST_VERSION) != 0)
        snprintf(text, 160, "it is of version %.60s, this library of %s",
                 plugin->version ? plugin->version : "(none)", HST_VERSION);
    else if (plugin->ops_size != sizeof(struct hst_dev_ops))
        snprintf(text, 160, "its table has %zu bytes, this library's %zu", plugin->ops_size,
                 sizeof(struct hst_dev_ops));
    else if (!plugin->open)
        snprintf(text, 160, "it has no function that opens a device");
    else
        return NULL;
    return text;
}

/* What would end or hang this process instead of failing: a file that is cut short is mapped beyond
 * its end (SIGBUS), and nobody writes to a FIFO. Null where there is nothing of the kind. */
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
static int load(const struct dev_search *search, const struct hst_dev_plugin **plugin,
                struct hst_dev_failure *failure)
{
    char text[160];
    const char *damage = file_fault(search->path);
    if (damage)
        return dev_fail(failure, -ENODEV, HST_DEV_BROKEN_PLUGIN, 0, "%.200s can not be used: %s",
                        search->path, damage);
    void *library = dlopen(search->path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return dev_fail(failure, -ENODEV, HST_DEV_BROKEN_PLUGIN, 0, "%.150s does not load: %s",
                        search->path, dlerror());
    const struct hst_dev_plugin *found = dlsym(library, "hst_dev_plugin");
    const char *fault = found ? plugin_fault(found, text) : "it exports no hst_dev_plugin";
    if (fault) {
        dev_fail(failure, -ENODEV, HST_DEV_BROKEN_PLUGIN, 0, "%.200s can not be used: %s",
                 search->path, fault);
        dlclose(library);
        return -ENODEV;
    }
    *plugin = found;
    return 0;
}

static int open_plugin(const struct dev_search *search, const struct hst_dev_config *config,
                       struct hst_dev **dev, struct hst_dev_failure *failure)
{
    const struct hst_dev_plugin *plugin = NULL;
    struct hst_dev *opened = NULL;
    int rc = load(search, &plugin, failure);
    if (rc)
        return rc;
    assert(plugin);
    rc = plugin->open(config, &opened, failure);
    if (rc > 0 || (!rc && (!opened || !opened->ops || opened->ops->size != plugin->ops_size)))
        return dev_fail(failure, -ENODEV, HST_DEV_BROKEN_PLUGIN, rc,
                        "%.200s can not be used: its open returned %d and no device", search->path,
                        rc);
    if (rc && failure->why == HST_DEV_OK)
        return dev_fail(failure, rc, HST_DEV_BROKEN_PLUGIN, 0, "%.200s: %s, without a reason",
                        search->path, strerror(-rc));
    if (!rc)
        *dev = opened;
    return rc;
}

static int open_host(const struct hst_dev_config *config, struct hst_dev **dev,
                     struct hst_dev_failure *failure)
{
    int rc = host_dev_open(config, host_math_usable()[0], dev, failure);
    if (rc == -EINVAL)
        return dev_fail(failure, rc, HST_DEV_NAME, 0, "the host is one device: no index %u",
                        config->index);
    if (rc && failure->why == HST_DEV_OK)
        return dev_fail(failure, rc, HST_DEV_MEMORY, 0, "no memory for the host device: %s",
                        strerror(-rc));
    return rc;
}

/* One line, whatever a path or a loader's message holds. */
static void make_one_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

static int open_named(const char *text, const struct hst_dev_config *config, struct hst_dev **dev,
                      struct hst_dev_failure *failure)
{
    struct name name;
    char file[sizeof "libhoistway-.so" + KIND_LETTERS];
    struct dev_search search = {.file = file};
    if (!text || !dev || !config || config->size != sizeof *config)
        return dev_fail(failure, -EINVAL, HST_DEV_NO_DEVICE, 0,
                        "no name, no place for the device, or "
                        "a configuration of another size");
    if (config->parallel && (!config->parallel->run || !config->parallel->width))
        return dev_fail(failure, -EINVAL, HST_DEV_NO_DEVICE, 0,
                        "threads without a function or number");
    if (!parse_name(text, &name))
        return dev_fail(
            failure, -EINVAL, HST_DEV_NAME, 0,
            "\"%.60s\" names no device: lower-case letters, and at most an index after a "
            "colon (\"host\", \"cuda\", \"cuda:1\")",
            text);
    struct hst_dev_config indexed = *config;
    if (name.has_index)
        indexed.index = name.index;
    if (strcmp(name.kind, "host") == 0)
        return open_host(&indexed, dev, failure);
    snprintf(file, sizeof file, "libhoistway-%s.so", name.kind);
    if (!find(&search))
        return dev_fail(failure, -ENODEV, HST_DEV_NO_PLUGIN, 0, "no %s in: %s", file,
                        search.places);
    return open_plugin(&search, &indexed, dev, failure);
}

int hst_dev_open(const char *name, const struct hst_dev_config *config, struct hst_dev **dev,
                 struct hst_dev_failure *failure)
{
    struct hst_dev_failure story = {.why = HST_DEV_OK};
    int rc = open_named(name, config, dev, &story);
    if (!rc)
        story = (struct hst_dev_failure){.why = HST_DEV_OK};
    story.text[sizeof story.text - 1] = '\0';
    make_one_line(story.text);
    if (failure)
        *failure = story;
    return rc;
}
