/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what an export may replace: nothing, an empty directory, or an earlier export of ours.
 * That is a directory with our marker, which lists each file and its size, and with no entry but
 * regular files that the marker lists with that size. A model directory made by anything else, and
 * one that somebody put a file into or changed, is refused. What is removed is only what was
 * recognised. The new directory takes the old one's name in one step of the kernel.
 */
#include "hf/export/export.h"

#include "base/fail.h"
#include "base/utf8.h"
#include "hf/json/input.h"
#include "hf/model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define MAX_MARKER_BYTES (1u << 20)

/* The size that the marker's text gives a file; false where it does not list it. */
static bool listed(const char *marker, const char *name, uint64_t *bytes)
{
    size_t n = strlen(name);
    for (const char *line = marker + strlen(TARGET_MARKER_TITLE); *line;) {
        char *rest;
        uint64_t value = strtoull(line, &rest, 10);
        const char *end = strchrnul(line, '\n');
        if (*rest == ' ' && (size_t)(end - rest) == n + 1 && memcmp(rest + 1, name, n) == 0) {
            *bytes = value;
            return true;
        }
        line = *end ? end + 1 : end;
    }
    return false;
}

static char *read_marker(int directory_fd)
{
    struct input input;
    char *text = NULL;
    if (input_open(directory_fd, TARGET_MARKER, &input))
        return NULL;
    int rc = input_read_all(&input, MAX_MARKER_BYTES, &text);
    input_close(&input);
    if (rc)
        return NULL;
    if (strncmp(text, TARGET_MARKER_TITLE, strlen(TARGET_MARKER_TITLE)) == 0)
        return text;
    free(text);
    return NULL;
}

/*
 * Calls visit for each entry until it returns false. Returns -errno, 0, or 1 where it was stopped.
 */
static int each_entry(int directory_fd,
                      bool (*visit)(void *context, int directory_fd, const char *name),
                      void *context)
{
    int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int rc = -errno;
        if (fd >= 0)
            close(fd);
        return rc;
    }
    int rc = 0;
    for (struct dirent *d; !rc && (errno = 0, d = readdir(dir));) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        rc = visit(context, directory_fd, d->d_name) ? 0 : 1;
    }
    if (!rc && errno)
        rc = -errno;
    closedir(dir);
    return rc;
}

static int open_directory(int parent_fd, const char *name)
{
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

struct scan {
    const char *marker;
    const char *below;  /* the directory that is looked at, "" or HF_TEMPLATES "/" */
    char stranger[300]; /* the first entry that is not ours */
};

static bool is_ours(const struct scan *scan, int directory_fd, const char *name)
{
    char path[300];
    struct stat st;
    uint64_t bytes;
    if (fstatat(directory_fd, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
        return false;
    if (strcmp(name, TARGET_MARKER) == 0 && !*scan->below)
        return true;
    snprintf(path, sizeof path, "%s%s", scan->below, name);
    return scan->marker && listed(scan->marker, path, &bytes) && bytes == (uint64_t)st.st_size;
}

/* Visits the entries of the directory of templates. False where that is not what it is. */
static bool each_template(const struct scan *above, int directory_fd, const char *name,
                          bool (*visit)(void *context, int directory_fd, const char *name),
                          struct scan *scan)
{
    *scan = (struct scan){.marker = above->marker, .below = HF_TEMPLATES "/"};
    if (*above->below || strcmp(name, HF_TEMPLATES) != 0)
        return false;
    int fd = open_directory(directory_fd, name);
    int rc = fd < 0 ? fd : each_entry(fd, visit, scan);
    if (fd >= 0)
        close(fd);
    return rc == 0;
}

static bool scan_entry(void *context, int directory_fd, const char *name)
{
    struct scan *scan = context, below = {.marker = NULL};
    if (is_ours(scan, directory_fd, name) ||
        (scan->marker && each_template(scan, directory_fd, name, scan_entry, &below)))
        return true;
    snprintf(scan->stranger, sizeof scan->stranger, "%s%s", scan->below,
             below.stranger[0] ? below.stranger : name);
    return false;
}

static bool remove_entry(void *context, int directory_fd, const char *name)
{
    const struct scan *scan = context;
    struct scan below;
    /* The marker goes last: a removal that is interrupted leaves something recognisable. */
    if (strcmp(name, TARGET_MARKER) != 0 && is_ours(scan, directory_fd, name))
        unlinkat(directory_fd, name, 0);
    else if (each_template(scan, directory_fd, name, remove_entry, &below))
        unlinkat(directory_fd, name, AT_REMOVEDIR);
    return true;
}

/*
 * Removes our files from a directory that was recognised, and the directory if nothing else is in
 * it.
 */
static void remove_export(int parent_fd, const char *name)
{
    int fd = open_directory(parent_fd, name);
    if (fd < 0)
        return;
    struct scan scan = {.marker = read_marker(fd), .below = ""};
    char *marker = (char *)scan.marker;
    if (marker) {
        each_entry(fd, remove_entry, &scan);
        unlinkat(fd, TARGET_MARKER, 0);
    }
    free(marker);
    close(fd);
    unlinkat(parent_fd, name, AT_REMOVEDIR);
}

int target_check(const struct target *t, struct hst_error *error)
{
    int fd = open_directory(t->parent_fd, t->name);
    if (fd == -ENOENT)
        return 0;
    if (fd < 0)
        return fail(error, FAIL_EXPORT, fd,
                    "%s/%s: is there, but is not a directory that can be replaced: %s", t->parent,
                    t->name, strerrordesc_np(-fd));
    struct scan scan = {.marker = read_marker(fd), .below = ""};
    int rc = each_entry(fd, scan_entry, &scan);
    free((char *)scan.marker);
    close(fd);
    if (rc < 0)
        return fail(error, FAIL_EXPORT, rc, "%s/%s: cannot be read: %s", t->parent, t->name,
                    strerrordesc_np(-rc));
    if (rc > 0)
        return fail(
            error, FAIL_EXPORT, -EEXIST,
            "%s/%s: holds %s, which no earlier export wrote, or which was changed "
            "since; nothing was removed. Fix: give another --export, or remove this one yourself",
            t->parent, t->name, scan.stranger);
    return 0;
}

static int split(const char *directory, struct target *t)
{
    size_t n = strlen(directory);
    while (n > 1 && directory[n - 1] == '/')
        n--;
    const char *slash = memrchr(directory, '/', n);
    const char *name = slash ? slash + 1 : directory;
    size_t name_bytes = n - (size_t)(name - directory),
           parent_bytes = slash ? (size_t)(slash - directory) : 0;
    if (name_bytes > 200 || parent_bytes + 2 > sizeof t->parent)
        return -ENAMETOOLONG; /* 55 left for the temporary name */
    if (!utf8_all_shown(directory, n))
        return -EILSEQ; /* a newline would end the line that tells where the model is */
    memcpy(t->name, name, name_bytes);
    if (slash)
        memcpy(t->parent, directory, parent_bytes ? parent_bytes : 1);
    else
        strcpy(t->parent, ".");
    return input_name_is_plain(t->name) ? 0 : -EINVAL;
}

int target_locate(const char *directory, struct target *target, struct hst_error *error)
{
    struct target t = {.parent_fd = -1, .temp_fd = -1};
    int rc = split(directory, &t);
    if (rc)
        return fail(error, FAIL_EXPORT, rc, "%s: %s. Fix: name a directory to be created",
                    directory,
                    rc == -EINVAL   ? "is no directory that can be replaced"
                    : rc == -EILSEQ ? "the name has characters that a terminal does not show"
                                    : "the name is too long");
    t.parent_fd = open(t.parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (t.parent_fd < 0) {
        rc = -errno;
        return fail(error, FAIL_EXPORT, rc,
                    "%s: the directory to export to cannot be created in %s: %s", directory,
                    t.parent, strerrordesc_np(-rc));
    }
    *target = t;
    return 0;
}

int target_open(const char *directory, struct target *target, struct hst_error *error)
{
    int rc = target_locate(directory, target, error);
    if (!rc && (rc = target_check(target, error)))
        target_close(target);
    return rc;
}

int target_create_temp(struct target *t, struct hst_error *error)
{
    int rc = -EEXIST;
    for (int i = 0; i < 100 && rc == -EEXIST; i++) {
        snprintf(t->temp, sizeof t->temp, ".%.200s.tmp-%d-%d", t->name, (int)getpid(), i);
        rc = mkdirat(t->parent_fd, t->temp, 0700) ? -errno : 0;
    }
    if (!rc) {
        t->temp_fd = open_directory(t->parent_fd, t->temp);
        if (t->temp_fd >= 0) {
            flock(t->temp_fd, LOCK_EX | LOCK_NB); /* see remove_orphan */
            return 0;
        }
        rc = t->temp_fd;
        unlinkat(t->parent_fd, t->temp, AT_REMOVEDIR);
    }
    t->temp[0] = '\0';
    return fail(
        error, rc == -ENOSPC ? FAIL_DISK_SPACE : FAIL_EXPORT, rc,
        "%s: cannot create a directory in it: %s. The export is written beside %s and renamed",
        t->parent, strerrordesc_np(-rc), t->name);
}

/* ---- what killed exports left ---- */

/* ".NAME.tmp-PID-N" of this target, where no process has that number. */
static bool is_orphan(const struct target *t, const char *entry)
{
    char prefix[256], again[300];
    int pid, number, n = snprintf(prefix, sizeof prefix, ".%.200s.tmp-", t->name);
    if (strncmp(entry, prefix, (size_t)n) != 0 || sscanf(entry + n, "%d-%d", &pid, &number) != 2)
        return false;
    snprintf(again, sizeof again, "%s%d-%d", prefix, pid, number);
    return strcmp(again, entry) == 0 && pid > 0 && number >= 0 && kill(pid, 0) && errno == ESRCH;
}

static bool remove_template(void *context, int directory_fd, const char *name)
{
    struct stat st;
    (void)context;
    if (hf_template_is_known(name) && !fstatat(directory_fd, name, &st, AT_SYMLINK_NOFOLLOW) &&
        S_ISREG(st.st_mode))
        unlinkat(directory_fd, name, 0);
    return true;
}

/* The names alone: a killed export may not have come to its marker. */
static bool remove_part(void *context, int directory_fd, const char *name)
{
    struct stat st;
    const char *dot = strrchr(name, '.');
    struct scan below, above = {.below = ""};
    if (each_template(&above, directory_fd, name, remove_template, &below))
        unlinkat(directory_fd, name, AT_REMOVEDIR);
    bool ours = hf_extra_is_known(name) || strcmp(name, "config.json") == 0 ||
                strcmp(name, TARGET_MARKER) == 0 ||
                strcmp(name, "model.safetensors.index.json") == 0 ||
                (strncmp(name, "model", 5) == 0 && dot && strcmp(dot, ".safetensors") == 0);
    (void)context;
    if (ours && !fstatat(directory_fd, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode))
        unlinkat(directory_fd, name, 0);
    return true;
}

static bool remove_orphan(void *context, int parent_fd, const char *entry)
{
    struct stat st;
    int fd = is_orphan(context, entry) ? open_directory(parent_fd, entry) : -1;
    if (fd < 0)
        return true;
    /* The lock tells of a process in another container, whose number says nothing here. */
    if (!fstat(fd, &st) && st.st_uid == geteuid() && !flock(fd, LOCK_EX | LOCK_NB)) {
        each_entry(fd, remove_part, NULL);
        unlinkat(parent_fd, entry, AT_REMOVEDIR);
    }
    close(fd);
    return true;
}

void target_remove_orphans(struct target *t)
{
    each_entry(t->parent_fd, remove_orphan, t);
}

void target_remove_temp(struct target *t)
{
    if (t->temp_fd < 0)
        return;
    each_entry(t->temp_fd, remove_part, NULL);
    unlinkat(t->parent_fd, t->temp, AT_REMOVEDIR);
}

/* ---- into place ---- */

int target_sync_templates(const struct target *t, struct hst_error *error)
{
    int fd = open_directory(t->temp_fd, HF_TEMPLATES);
    if (fd == -ENOENT)
        return 0;
    int rc = fd < 0 ? fd : fsync(fd) ? -errno : 0;
    if (fd >= 0)
        close(fd);
    return rc ? fail(error, rc == -ENOSPC || rc == -EDQUOT ? FAIL_DISK_SPACE : FAIL_WRITE, rc,
                     "%s/%s: %s cannot be synced: %s", t->parent, t->name, HF_TEMPLATES,
                     strerrordesc_np(-rc))
              : 0;
}

/*
 * Puts the temporary directory in the place of an earlier export; afterwards that one has the
 * temporary name.
 */
static int exchange(const struct target *t)
{
    if (!renameat2(t->parent_fd, t->temp, t->parent_fd, t->name, RENAME_EXCHANGE))
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    /*
     * A file system without exchange (NFS): two steps, between which the old export has the hidden
     * name.
     */
    char old[256];
    snprintf(old, sizeof old, ".%.200s.old-%d", t->name, (int)getpid());
    if (renameat(t->parent_fd, t->name, t->parent_fd, old))
        return -errno;
    if (renameat(t->parent_fd, t->temp, t->parent_fd, t->name)) {
        int rc = -errno;
        renameat(t->parent_fd, old, t->parent_fd, t->name);
        return rc;
    }
    return renameat(t->parent_fd, old, t->parent_fd, t->temp) ? -errno : 0;
}

static int move_into_place(const struct target *t, bool *exchanged, struct hst_error *error)
{
    int rc = target_check(t, error);
    if (rc)
        return rc;
    /* A directory is renamed only onto nothing or onto an empty one: that never removes a file. */
    if (renameat(t->parent_fd, t->temp, t->parent_fd, t->name) == 0)
        return 0;
    rc = -errno;
    *exchanged = rc == -ENOTEMPTY || rc == -EEXIST;
    if (*exchanged)
        rc = exchange(t);
    if (rc)
        fail(error, FAIL_EXPORT, rc, "%s/%s: cannot be replaced: %s", t->parent, t->name,
             strerrordesc_np(-rc));
    return rc;
}

/* The place matters more than the reason, which is cut where a message is too long. */
static void keep_finished(struct target *t, struct hst_error *error)
{
    char name[256], told[sizeof error->message];
    snprintf(name, sizeof name, ".%.200s.finished-%d", t->name, (int)getpid());
    if (!renameat2(t->parent_fd, t->temp, t->parent_fd, name, RENAME_NOREPLACE))
        memcpy(t->temp, name, sizeof name);
    if (!error)
        return;
    snprintf(told, sizeof told, ". The finished export is in %.220s/%s", t->parent, t->temp);
    size_t room = sizeof error->message - 1 - strlen(told);
    snprintf(error->message + strnlen(error->message, room), strlen(told) + 1, "%s", told);
}

int target_replace(struct target *t, struct hst_error *error)
{
    bool exchanged = false;
    int rc = move_into_place(t, &exchanged, error);
    if (rc) {
        keep_finished(t, error);
        return rc;
    }
    if (fsync(t->parent_fd)) {
        rc = -errno;
        bool full = rc == -ENOSPC || rc == -EDQUOT;
        return fail(error, full ? FAIL_DISK_SPACE : FAIL_WRITE, rc, "%s: cannot be synced: %s",
                    t->parent, strerrordesc_np(-rc));
    }
    if (exchanged)
        remove_export(t->parent_fd, t->temp);
    return 0;
}

void target_close(struct target *t)
{
    if (t->temp_fd >= 0)
        close(t->temp_fd);
    if (t->parent_fd >= 0)
        close(t->parent_fd);
    t->temp_fd = t->parent_fd = -1;
}
