/* SPDX-License-Identifier: Apache-2.0 */
/* Devices by name: what is a name, and what the plugin of that kind must do. */
#include "base/failure.h"
#include "host/host.h"
#include "plugin_load.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { KIND_LETTERS = HST_PLUGIN_KIND_LETTERS, INDEX_DIGITS = 4 };

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

/* ---- the plugin ------------------------------------------------------------------------------ */

static int open_plugin(const char *kind, const struct hst_dev_config *config, struct hst_dev **dev,
                       struct hst_dev_failure *failure)
{
    const struct hst_plugin_want want = {"hst_dev_plugin", sizeof(struct hst_dev_plugin),
                                         sizeof(struct hst_dev_ops)};
    const void *found = NULL;
    char path[PATH_MAX];
    int rc = dev_plugin_load(kind, &want, &found, path, failure);
    if (rc)
        return rc;
    const struct hst_dev_plugin *plugin = found;
    struct hst_dev *opened = NULL;
    if (!plugin->open)
        return dev_fail(failure, -ENODEV, HST_DEV_BROKEN_PLUGIN, 0,
                        "%.200s cannot be used: it has no function that opens a device", path);
    rc = plugin->open(config, &opened, failure);
    if (rc > 0 || (!rc && (!opened || !opened->ops || opened->ops->size != plugin->ops_size)))
        return dev_fail(failure, -ENODEV, HST_DEV_BROKEN_PLUGIN, rc,
                        "%.200s cannot be used: its open returned %d and no device", path, rc);
    if (rc && failure->why == HST_DEV_OK)
        return dev_fail(failure, rc, HST_DEV_BROKEN_PLUGIN, 0, "%.200s: %s, without a reason", path,
                        strerror(-rc));
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

static int open_named(const char *text, const struct hst_dev_config *config, struct hst_dev **dev,
                      struct hst_dev_failure *failure)
{
    struct name name;
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
    return open_plugin(name.kind, &indexed, dev, failure);
}

int hst_dev_open(const char *name, const struct hst_dev_config *config, struct hst_dev **dev,
                 struct hst_dev_failure *failure)
{
    struct hst_dev_failure story = {.why = HST_DEV_OK};
    int rc = open_named(name, config, dev, &story);
    if (!rc)
        story = (struct hst_dev_failure){.why = HST_DEV_OK};
    story.text[sizeof story.text - 1] = '\0';
    dev_make_one_line(story.text);
    if (failure)
        *failure = story;
    return rc;
}
