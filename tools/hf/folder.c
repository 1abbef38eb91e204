/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot of Hugging Face's cache holds links to ../../blobs/HASH. They leave the directory, but
 * not the folder of that model, models--ORG--NAME; nothing outside of that folder is followed.
 */
#include "hf/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Cuts the last part off a path; returns it. */
static char *cut(char *path)
{
    char *slash = strrchr(path, '/');
    if (!slash)
        return NULL;
    *slash = '\0';
    return slash + 1;
}

/* Opens models--ORG--NAME, where the directory is a snapshot of it. What fails is no snapshot. */
static void open_cache(const char *path, struct folder *folder)
{
    char *whole = realpath(path, NULL);
    char *revision = whole ? cut(whole) : NULL;
    char *snapshots = revision ? cut(whole) : NULL;
    const char *name = snapshots ? strrchr(whole, '/') : NULL;
    if (name && strcmp(snapshots, "snapshots") == 0 && strncmp(name, "/models--", 9) == 0 &&
        strlen(revision) <= 255) {
        snprintf(folder->snapshot, sizeof folder->snapshot, "snapshots/%s", revision);
        folder->cache_fd = open(whole, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    free(whole);
}

int folder_open(const char *path, struct folder *folder)
{
    *folder = FOLDER_NONE;
    folder->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->fd < 0)
        return -errno;
    open_cache(path, folder);
    return 0;
}

void folder_close(struct folder *folder)
{
    if (folder->fd >= 0)
        close(folder->fd);
    if (folder->cache_fd >= 0)
        close(folder->cache_fd);
    *folder = FOLDER_NONE;
}

static int input_at(const struct folder *folder, int fd, const char *directory, const char *name,
                    struct input *input)
{
    int rc = input_open(fd, name, input);
    if (rc != -EXDEV || folder->cache_fd < 0)
        return rc;
    return input_open_blob(folder->cache_fd, directory, name, input);
}

int folder_input(const struct folder *folder, const char *name, struct input *input)
{
    const char *slash = strchr(name, '/');
    char below[256], directory[600];
    if (!slash)
        return input_at(folder, folder->fd, folder->snapshot, name, input);
    if (snprintf(below, sizeof below, "%.*s", (int)(slash - name), name) >= (int)sizeof below ||
        !input_name_is_plain(below))
        return -EINVAL;
    snprintf(directory, sizeof directory, "%s/%s", folder->snapshot, below);
    int fd = openat(folder->fd, below, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int rc = input_at(folder, fd, directory, slash + 1, input);
    close(fd);
    return rc;
}

/* ---- names of the hub ---- */

/* "Org/Name": one slash, and such letters as the hub allows. */
static bool is_hub_name(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t org = strspn(name, letters);
    if (!org || name[org] != '/' || name[0] == '.' || strlen(name) > 200)
        return false;
    const char *rest = name + org + 1;
    return *rest && *rest != '.' && !rest[strspn(rest, letters)];
}

/* It tells where the cache of models is; to be freed. Null where nothing says it. */
static char *hub_directory(void)
{
    static const struct {
        const char *variable, *below;
    } places[] = {
        {"HF_HUB_CACHE", ""},
        {"HUGGINGFACE_HUB_CACHE", ""},
        {"HF_HOME", "/hub"},
        {"XDG_CACHE_HOME", "/huggingface/hub"},
        {"HOME", "/.cache/huggingface/hub"},
    };
    char *path;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *value = getenv(places[i].variable);
        if (value && *value)
            return asprintf(&path, "%s%s", value, places[i].below) < 0 ? NULL : path;
    }
    return NULL;
}

/* It reads what refs/main names; false where it names nothing that could be a revision. */
static bool read_revision(const char *model, char revision[72])
{
    char *path, *text = NULL;
    struct input input;
    if (asprintf(&path, "%s/refs/main", model) < 0)
        return false;
    int rc = input_open_path(path, &input);
    free(path);
    if (rc)
        return false;
    rc = input_read_all(&input, 71, &text);
    input_close(&input);
    if (rc)
        return false;
    text[strcspn(text, " \t\r\n")] = '\0';
    snprintf(revision, 72, "%s", text);
    free(text);
    return input_name_is_plain(revision);
}

char *folder_cache_of(const char *name)
{
    return is_hub_name(name) ? hub_directory() : NULL;
}

char *folder_cached(const char *name)
{
    char *hub = folder_cache_of(name);
    char *model = NULL, *snapshot = NULL, revision[72];
    const int org = (int)strcspn(name, "/");
    if (hub && asprintf(&model, "%s/models--%.*s--%s", hub, org, name, name + org + 1) < 0)
        model = NULL;
    if (model && read_revision(model, revision) &&
        asprintf(&snapshot, "%s/snapshots/%s", model, revision) < 0)
        snapshot = NULL;
    free(hub);
    free(model);
    return snapshot;
}

char *folder_find(const char *path)
{
    char *cached = access(path, F_OK) == 0 ? NULL : folder_cached(path);
    return cached ? cached : strdup(path);
}

bool folder_is_there(const char *path)
{
    char *cached = access(path, F_OK) == 0 ? NULL : folder_cached(path);
    const bool there = cached ? access(cached, F_OK) == 0 : access(path, F_OK) == 0;
    free(cached);
    return there;
}
