/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rates measured before, in files that only this user can have written. A figure from the cache
 * decides where bytes go, so nothing in it is believed that was not wholly and lately written here,
 * on this machine, about the same question; everything else is measured again.
 */
#include "probe/cache.h"

#include "base/clock.h"
#include "probe/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define HEADER      "hoistway cache 7\n"
#define FILE_BYTES  (sizeof HEADER + IDENTITY_BYTES + HST_RATES_TEXT_BYTES)
#define DISTURBED_S 600.0
#define SLOTS       65536u /* a plan asks for eight: of 256, two of them were often one */

#define RATES_TITLE "hoistway rates " /* what hst_rates_format begins with */

struct cache {
    int folder; /* -1: nothing is cached */
    char path[PATH_MAX], name[16];
    struct identity identity;
    char *note;
    size_t note_bytes;
};

static void note(struct cache *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The first one stays. */
static void note(struct cache *c, const char *format, ...)
{
    va_list args;
    if (c->note[0])
        return;
    va_start(args, format);
    vsnprintf(c->note, c->note_bytes, format, args);
    va_end(args);
}

const char *cache_distrust(const struct stat *status, mode_t kind, uid_t user)
{
    if ((status->st_mode & S_IFMT) != kind)
        return kind == S_IFDIR ? "it is not a folder" : "it is not a file";
    if (status->st_uid != user)
        return "it belongs to another user";
    return status->st_mode & (S_IWGRP | S_IWOTH) ? "others may write to it" : NULL;
}

/* ---- the folder ---- */

/* It tells where caches are by default; false: nowhere. What leads there is made as the XDG rules
 * say. */
static bool default_folder(char *path, bool make)
{
    const char *base = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    int n = -1;
    if (base && base[0] == '/')
        n = snprintf(path, PATH_MAX, "%s", base);
    else if (home && home[0] == '/')
        n = snprintf(path, PATH_MAX, "%s/.cache", home);
    if (n < 0 || n + (int)sizeof "/hoistway" > PATH_MAX)
        return false;
    if (make)
        (void)mkdir(path, 0700);
    memcpy(path + n, "/hoistway", sizeof "/hoistway");
    return true;
}

static void open_folder(struct cache *c, const char *folder, bool make)
{
    struct stat status;
    if (folder ? snprintf(c->path, sizeof c->path, "%s", folder) >= (int)sizeof c->path
               : !default_folder(c->path, make))
        return;
    if (make)
        (void)mkdir(c->path, 0700);
    c->folder = open(c->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const char *why = c->folder < 0 || fstat(c->folder, &status)
                          ? strerror(errno)
                          : cache_distrust(&status, S_IFDIR, geteuid());
    if (!why || (c->folder < 0 && !make && errno == ENOENT))
        return;
    note(c, "the cache %.90s is not used: %s", c->path, why);
    if (c->folder >= 0)
        close(c->folder);
    c->folder = -1;
}

/* One file per slot: more machines and models than slots take each other's. */
static void name_file(struct cache *c)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < c->identity.used; i++)
        hash = (hash ^ (unsigned char)c->identity.text[i]) * 16777619u;
    snprintf(c->name, sizeof c->name, "rates-%04x", (hash ^ hash >> 16) % SLOTS);
}

/* ---- reading ---- */

/* All of it, as text; -EFBIG: longer than any that was written here. */
static int read_all(int file, char *text, size_t room)
{
    size_t used = 0;
    for (;;) {
        ssize_t n = read(file, text + used, room - 1 - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        used += (size_t)n;
        text[used] = '\0';
        if (n == 0)
            return memchr(text, '\0', used) ? -EBADMSG : 0;
        if (used == room - 1)
            return -EFBIG;
    }
}

/* Opens without waiting (it may be a pipe) and without following. -1: not there, or a note. */
static int open_file(struct cache *c)
{
    struct stat status;
    int file = openat(c->folder, c->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) {
        if (errno != ENOENT)
            note(c, "the cache %.90s/%s is not used: %s", c->path, c->name,
                 errno == ELOOP ? "it is a link" : strerror(errno));
        return -1;
    }
    const char *why =
        fstat(file, &status) ? strerror(errno) : cache_distrust(&status, S_IFREG, geteuid());
    if (!why)
        return file;
    note(c, "the cache %.90s/%s is not used: %s", c->path, c->name, why);
    close(file);
    return -1;
}

enum verdict { IS_OURS, IS_OTHERS, IS_DAMAGED, IS_UNKNOWN };

/* Nothing is told where another question has left its answer here, whole: this one is measured. */
static enum verdict judge(const struct cache *c, const char *text, struct hst_rates *rates)
{
    const char *begin = text + strlen(HEADER);
    if (strncmp(text, HEADER, strlen(HEADER)) != 0)
        return IS_UNKNOWN;
    if (strncmp(begin, c->identity.text, c->identity.used) == 0)
        return hst_rates_parse(begin + c->identity.used, rates) ? IS_DAMAGED : IS_OURS;
    const char *figures = strstr(begin, "\n" RATES_TITLE);
    return figures && hst_rates_parse(figures + 1, rates) == 0 ? IS_OTHERS : IS_DAMAGED;
}

static bool look_up(struct cache *c, double max_age_s, char *text, struct hst_rates *rates)
{
    int file = open_file(c);
    if (file < 0)
        return false;
    int rc = read_all(file, text, FILE_BYTES);
    close(file);
    const enum verdict verdict = rc ? IS_DAMAGED : judge(c, text, rates);
    const char *why = verdict == IS_DAMAGED   ? "it is damaged"
                      : verdict == IS_UNKNOWN ? "it is damaged, or of another version"
                                              : NULL;
    uint64_t now_ms = clock_wall_ms();
    if (verdict == IS_OURS && rates->taken_ms > now_ms)
        why = "it is dated in the future";
    if (why)
        note(c, "the cache %.90s/%s is not used: %s", c->path, c->name, why);
    if (verdict != IS_OURS || why)
        return false;
    const double most_s = rates->disturbed[0] && max_age_s > DISTURBED_S ? DISTURBED_S : max_age_s;
    return (double)(now_ms - rates->taken_ms) * 1e-3 <= most_s;
}

/* ---- writing ---- */

static int write_all(int file, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(file, text, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        text += n;
        bytes -= (size_t)n;
    }
    return 0;
}

/* Beside, then renamed: a reader finds the old file or the new one. Beyond RLIMIT_FSIZE a write
   would not only fail, but send a signal that ends the process. */
static int replace(const struct cache *c, const char *text, size_t bytes)
{
    char beside[48];
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
        return -EFBIG;
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    snprintf(beside, sizeof beside, "%s.%ld", c->name, (long)gettid());
    (void)unlinkat(c->folder, beside, 0); /* of a killed process that had this number */
    int file = openat(c->folder, beside, flags, 0600);
    if (file < 0)
        return -errno;
    int rc = write_all(file, text, bytes);
    if (close(file) && !rc)
        rc = -errno;
    if (!rc && renameat(c->folder, beside, c->folder, c->name))
        rc = -errno;
    if (rc)
        (void)unlinkat(c->folder, beside, 0);
    return rc;
}

static void keep(struct cache *c, const struct hst_rates *rates, char *text)
{
    size_t used = (size_t)snprintf(text, FILE_BYTES, HEADER "%s", c->identity.text);
    int n = hst_rates_format(rates, text + used, FILE_BYTES - used);
    int rc = n < 0 ? n : replace(c, text, used + (size_t)n);
    if (rc)
        note(c, "the cache %.90s/%s cannot be written: %s", c->path, c->name, strerror(-rc));
}

/* A figure that is missing may be there in a moment: then it is asked again. What there was no
   handle for will stay missing. */
static bool whole(const struct hst_probe *probe, const struct hst_rates *rates)
{
    bool copies = probe->dev && !(hst_dev_flags(probe->dev) & HST_DEV_HOST_MEMORY);
    for (int r = 0; r < HST_RATE_COUNT; r++) {
        bool drive = r >= HST_RATE_READ && r <= HST_RATE_MIXED_BUSY;
        bool copy = r >= HST_RATE_H2D && r < HST_RATE_READ;
        bool half = r == HST_RATE_HALF_FP32 || r == HST_RATE_HALF_BF16;
        bool possible = drive                   ? probe->drive_count > 0
                        : half                  ? copies && !probe->parallel
                        : copy                  ? copies
                        : r == HST_RATE_COMPUTE ? probe->gemm_count > 0
                                                : true;
        if (possible && rates->figures[r].how[0] && rates->figures[r].value <= 0)
            return false;
    }
    return true;
}

/* Rates that nothing disturbed stay, instead of those that something did, as long as plans trust
 * them. What is older serves nobody, and would make each plan measure anew. */
static bool has_better(struct cache *c, const struct hst_rates *rates, char *text)
{
    struct hst_rates kept;
    return rates->disturbed[0] && look_up(c, HST_RATES_BETTER_S, text, &kept) && !kept.disturbed[0];
}

static int get(const struct hst_probe *probe, const char *folder, double max_age_s, bool measure,
               struct hst_rates *rates)
{
    char said[sizeof rates->note] = "";
    struct cache c = {.folder = -1, .note = said, .note_bytes = sizeof said};
    if (!rates || probe_check(probe) || !(max_age_s >= 0))
        return -EINVAL;
    identity_of(probe, &c.identity);
    name_file(&c);
    if (!c.identity.cut)
        open_folder(&c, folder, measure);
    char *text = c.folder >= 0 ? malloc(FILE_BYTES) : NULL;
    struct hst_rates seen;
    bool found = text && max_age_s > 0 && look_up(&c, max_age_s, text, &seen);
    int rc = found ? 0 : measure ? hst_probe(probe, &seen) : -ENOENT;
    if (!found && !rc && text && whole(probe, &seen) && !has_better(&c, &seen, text))
        keep(&c, &seen, text);
    if (rc == 0) {
        *rates = seen;
        rates->cached = found;
        memcpy(rates->note, said, sizeof said);
    }
    free(text);
    if (c.folder >= 0)
        close(c.folder);
    return rc;
}

int hst_rates_get(const struct hst_probe *probe, const char *folder, double max_age_s,
                  struct hst_rates *rates)
{
    return get(probe, folder, max_age_s, true, rates);
}

int hst_rates_find(const struct hst_probe *probe, const char *folder, double max_age_s,
                   struct hst_rates *rates)
{
    return get(probe, folder, max_age_s, false, rates);
}
