/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a copy under a name that nobody opens, syncs it, and renames it: drive 0's directory last,
 * by which it is found. Removes in the other order. Several ranks take each of these steps when all
 * are through with the one before: what one of them cannot do, none does.
 */
#include "ckpt/keep_copy.h"

#include "base/clock.h"
#include "base/size_text.h"
#include "ckpt/ckpt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define KEPT_MOST 1024u /* copies that are looked at */

static bool is_full(int native)
{
    return native == -ENOSPC || native == -EDQUOT;
}

/* ---- ranks ---- */

enum outcome { GOOD = 0, FULL, BAD };

static bool is_first(const struct copying *c)
{
    const struct keep_ranks *ranks = c->keep->config.ranks;
    return !ranks || ranks->rank == 0;
}

/* It tells how it went on all ranks: what is worse than a full drive is no matter of room. The
   first rank that has the worst tells it. */
static int alike(struct copying *c, int rc)
{
    const struct keep_ranks *ranks = c->keep->config.ranks;
    const enum outcome own = rc == 0 ? GOOD : is_full(rc) ? FULL : BAD;
    uint32_t most, first;
    if (!ranks)
        return rc;
    c->broken = c->broken ? c->broken : ranks->most(ranks->context, own, &most, &first);
    if (c->broken)
        return c->broken;
    if (most != GOOD && first != ranks->rank) {
        c->keep->done.by_other = true;
        *c->error = (struct hst_error){0};
    }
    return most == GOOD ? 0 : most == FULL ? -ENOSPC : -EIO;
}

/* Rank 0's word is that of all. */
static void take_first(struct copying *c, void *bytes, size_t size)
{
    const struct keep_ranks *ranks = c->keep->config.ranks;
    if (ranks && !c->broken)
        c->broken = ranks->take_first(ranks->context, bytes, size);
}

/* A rank that has whole versions goes by what it has itself: none is taken from it because another
   has lost its own. */
static bool goes_alone(const struct copying *c)
{
    return !c->keep->config.ranks || c->keep->config.replicas;
}

/* It tells whether it is so on one of them. */
static bool is_of_any(struct copying *c, bool own)
{
    const struct keep_ranks *ranks = c->keep->config.ranks;
    uint32_t most = own, first;
    if (ranks && !c->broken)
        c->broken = ranks->most(ranks->context, own, &most, &first);
    return most;
}

/* ---- names ---- */

static bool is_there(const struct store_directory *directory, const char *name)
{
    return faccessat(directory->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A directory of ours with the files that are in it, of whichever rank. */
static void remove_directory(const struct copying *c, uint32_t d, const char *name)
{
    struct store_name file;
    const int fd =
        openat(c->directories[d].fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *names = fd < 0 ? NULL : fdopendir(fd);
    for (const struct dirent *e; names && (e = readdir(names)) != NULL;)
        if (store_name_parse(e->d_name, &file))
            (void)unlinkat(fd, e->d_name, 0);
    if (names)
        closedir(names);
    else if (fd >= 0)
        close(fd);
    (void)unlinkat(c->directories[d].fd, name, AT_REMOVEDIR);
}

/* It removes what was not finished; on later drives, what the first does not have. */
static void remove_leftovers(const struct copying *c)
{
    for (uint32_t d = 0; d < c->keep->config.drives; d++) {
        const int fd = openat(c->directories[d].fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *names = fd < 0 ? NULL : fdopendir(fd);
        uint64_t step;
        for (const struct dirent *e; names && (e = readdir(names)) != NULL;)
            if (kept_is_forming(e->d_name) ||
                (d > 0 && kept_parse(e->d_name, &step) && !is_there(&c->directories[0], e->d_name)))
                remove_directory(c, d, e->d_name);
        if (names)
            closedir(names);
        else if (fd >= 0)
            close(fd);
    }
}

static void remove_copy(const struct copying *c, uint64_t step)
{
    char name[KEPT_NAME_BYTES], forming[KEPT_NAME_BYTES];
    kept_name(step, name);
    kept_forming_name(step, forming);
    (void)renameat(c->directories[0].fd, name, c->directories[0].fd, forming);
    (void)fsync(c->directories[0].fd);
    remove_directory(c, 0, forming);
    for (uint32_t d = 1; d < c->keep->config.drives; d++)
        remove_directory(c, d, name);
}

/* Others, where rank 0 has none of it any more, may take theirs away. */
static void remove_copies(struct copying *c, const uint64_t *steps, size_t count)
{
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < count && is_first(c) == (turn == 0) && !c->broken; i++)
            remove_copy(c, steps[i]);
        (void)alike(c, 0);
    }
}

/* These versions are kept. */
struct kept {
    uint64_t count, steps[KEPT_MOST];
};

static void find_kept(struct copying *c, struct kept *kept)
{
    kept->count = hst_ckpt_kept(c->directories[0].path, kept->steps, KEPT_MOST);
    if (!goes_alone(c))
        take_first(c, kept, sizeof *kept);
}

static bool is_kept(struct copying *c, uint64_t step)
{
    char name[KEPT_NAME_BYTES];
    kept_name(step, name);
    bool there = is_there(&c->directories[0], name);
    if (!goes_alone(c))
        take_first(c, &there, sizeof there);
    return there;
}

/* Steps behind the one that is copied come first: they are of a run that somebody has gone back
   from. */
static void by_age(const struct kept *kept, size_t count, uint64_t step, uint64_t *steps)
{
    size_t before = 0;
    while (before < count && kept->steps[before] <= step)
        before++;
    for (size_t i = 0; i < count; i++)
        steps[i] = kept->steps[(before + i) % count];
}

/* The oldest, until so many are left. False: there are no more than that. */
static bool remove_oldest(struct copying *c, size_t left)
{
    struct kept kept = {0};
    uint64_t steps[KEPT_MOST];
    find_kept(c, &kept);
    const size_t most = kept.count < KEPT_MOST ? kept.count : KEPT_MOST;
    const size_t gone = kept.count > left ? kept.count - left : 0;
    by_age(&kept, most, c->keep->done.step, steps);
    remove_copies(c, steps, gone < most ? gone : most);
    return is_of_any(c, gone > 0);
}

static bool has_step(const struct kept *kept, uint64_t step)
{
    bool found = false;
    for (size_t i = 0; i < kept->count && i < KEPT_MOST; i++)
        found = found || kept->steps[i] == step;
    return found;
}

/* It reads the header of this rank's file of a copy, on the first drive. */
static int read_header(struct copying *c, const char *name, struct store_header *header)
{
    char path[STORE_PATH_BYTES];
    struct store_directory directory = {.fd = -1};
    struct hst_error ignored = {0};
    snprintf(path, sizeof path, "%s/%s", c->directories[0].path, name);
    int rc = store_directory_open(path, &directory, &ignored);
    rc = rc ? rc : store_first_look(&directory, c->look.rank, false, header, &ignored);
    store_directory_close(&directory);
    return rc;
}

/* One that a replica has made before is more than a part, though these ranks are none. */
static bool is_whole(struct copying *c, uint64_t step)
{
    char name[KEPT_NAME_BYTES];
    struct store_header header;
    kept_name(step, name);
    return read_header(c, name, &header) == 0 && header.world == 1;
}

/* It removes what a crash has left: parts of copies, of which rank 0 has none. Then no rank is in
 * another's way. */
static int tidy(struct copying *c)
{
    struct kept first = {0}, own;
    if (!goes_alone(c)) {
        find_kept(c, &first);
        own.count = hst_ckpt_kept(c->directories[0].path, own.steps, KEPT_MOST);
        for (size_t i = 0; i < own.count && own.count <= KEPT_MOST && !c->broken; i++)
            if (!has_step(&first, own.steps[i]) && !is_whole(c, own.steps[i]))
                remove_copy(c, own.steps[i]);
    }
    remove_leftovers(c);
    return alike(c, 0);
}

/* ---- files ---- */

static int make_file(struct copying *c, uint32_t d, const char *forming)
{
    char file[STORE_NAME_BYTES], path[KEPT_NAME_BYTES + STORE_NAME_BYTES];
    const int at = c->directories[d].fd;
    store_file_name(c->look.rank, d, false, file);
    snprintf(path, sizeof path, "%s/%s", forming, file);
    /* another rank's directory is this one's, too */
    if (mkdirat(at, forming, 0700) < 0 && !(errno == EEXIST && c->keep->config.ranks))
        return keep_refuse(c, d, -errno, "making a copy's directory");
    c->to[d] = openat(at, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (c->to[d] < 0 || ftruncate(c->to[d], (off_t)store_file_bytes(&c->look.headers[d])) < 0)
        return keep_refuse(c, d, -errno, "making a copy's file");
    return 0;
}

/* No bytes are needed where they are shared: the first extent tells. */
static int check_space(struct copying *c)
{
    uint64_t needed[STRIPE_DRIVES_MAX] = {0};
    struct statvfs fs;
    for (uint32_t i = 0; i < c->look.headers[0].extents; i++) {
        struct store_entry entry;
        store_entry_get(c->look.manifest, i, &entry);
        if (!keep_has_bytes(&entry))
            continue;
        const uint64_t offset = look_offset(&c->look, &entry);
        const struct file_clone_range range = {c->look.fds[entry.drive], offset, entry.bytes,
                                               offset};
        if (needed[entry.drive] == 0)
            c->clone[entry.drive] = ioctl(c->to[entry.drive], FICLONERANGE, &range) == 0;
        needed[entry.drive] += entry.bytes;
    }
    for (uint32_t d = 0; d < c->keep->config.drives; d++) {
        if (c->clone[d] || fstatvfs(c->to[d], &fs) < 0)
            continue;
        const uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
        char left[SIZE_TEXT_BYTES], need[SIZE_TEXT_BYTES];
        needed[d] *= c->keep->config.sharers[d]; /* whose files are as large */
        if (free_bytes < needed[d] + KEEP_PART_BYTES)
            return store_refuse(c->error, HST_E_DISK_SPACE, -ENOSPC,
                                "%s has %s free, and a copy of the version needs %s there. Fix: "
                                "free space there, or %s",
                                c->directories[d].path, size_text(free_bytes, left),
                                size_text_up(needed[d], need), c->keep->config.fewer);
    }
    return 0;
}

static int sync_files(struct copying *c)
{
    for (uint32_t d = 0; d < c->keep->config.drives; d++)
        if (fsync(c->to[d]) < 0)
            return keep_refuse(c, d, -errno, "finishing a copy");
    return 0;
}

/* The first one of ranks that share a directory gives it its name. */
static bool name_directory(const struct copying *c, int at, const char *forming, const char *name)
{
    return renameat(at, forming, at, name) == 0 ||
           (errno == ENOENT && c->keep->config.ranks && faccessat(at, name, F_OK, 0) == 0);
}

/* From then on it is kept, of one rank. */
static int publish(struct copying *c, const char *forming, const char *name)
{
    for (uint32_t d = c->keep->config.drives; d-- > 0;) {
        const int at = c->directories[d].fd;
        int inside = openat(at, forming, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (inside < 0 && errno == ENOENT) /* it has its name */
            inside = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        const bool good = inside >= 0 && fsync(inside) == 0 &&
                          name_directory(c, at, forming, name) && fsync(at) == 0;
        const int native = -errno;
        if (inside >= 0)
            close(inside);
        if (!good)
            return keep_refuse(c, d, native, "finishing a copy");
        (void)posix_fadvise(c->to[d], 0, 0, POSIX_FADV_DONTNEED);
    }
    return 0;
}

static int publish_in_turn(struct copying *c, const char *forming, const char *name)
{
    const bool last = c->keep->config.ranks && is_first(c);
    const int rc = alike(c, last || c->has ? 0 : publish(c, forming, name));
    return rc || !c->keep->config.ranks ? rc
                                        : alike(c, last && !c->has ? publish(c, forming, name) : 0);
}

/* ---- the whole ---- */

static int open_all(struct copying *c)
{
    const struct keep_config *config = &c->keep->config;
    int rc = 0;
    for (uint32_t d = 0; d < config->drives && rc == 0; d++)
        rc = store_directory_open(config->paths[d], &c->directories[d], c->error);
    const uint32_t rank = config->ranks ? config->ranks->rank : 0;
    rc = rc ? rc : look_open(c->directories, config->drives, rank, false, &c->look, c->error);
    const uint64_t version = rc ? 0 : c->look.newest.cur.version;
    const struct store_candidate last = {.version = version};
    rc = rc ? rc : look_load(&c->look, &last, c->error);
    if (rc == 0 && c->look.ref.step != c->keep->done.step)
        rc = store_refuse(c->error, HST_E_STORE_MIXED, -EINVAL,
                          "the store's last version is of step %llu",
                          (unsigned long long)c->look.ref.step);
    c->part = malloc(KEEP_PART_BYTES);
    if (rc == 0 && !c->part)
        rc = store_refuse(c->error, HST_E_BUDGET, -ENOMEM, "no memory for a copy");
    return rc;
}

static void close_files(struct copying *c)
{
    for (uint32_t d = 0; d < c->keep->config.drives; d++) {
        if (c->to[d] >= 0)
            close(c->to[d]);
        c->to[d] = -1;
    }
}

static void close_all(struct copying *c)
{
    close_files(c);
    for (uint32_t d = 0; d < c->keep->config.drives; d++)
        store_directory_close(&c->directories[d]);
    look_close(&c->look);
    free(c->part);
}

static int make_files(struct copying *c, const char *forming)
{
    int rc = 0;
    if (c->has)
        return 0;
    for (uint32_t d = 0; d < c->keep->config.drives && rc == 0; d++)
        rc = make_file(c, d, forming);
    return rc ? rc : check_space(c);
}

/* A second time, where what would go anyway was in the way. */
static int make_files_again(struct copying *c, const char *forming)
{
    close_files(c);
    remove_leftovers(c);
    *c->error = (struct hst_error){0};
    c->keep->done.by_other = false;
    const int rc = alike(c, 0);
    return rc ? rc : alike(c, make_files(c, forming));
}

/* True where there was one that makes room. */
static bool remove_others(struct copying *c, size_t left)
{
    const struct keep *keep = c->keep;
    if (keep->config.count > 0)
        return remove_oldest(c, left);
    if (keep->instead_of == HST_NO_VERSION || keep->instead_of == keep->done.step)
        return false;
    const bool there = is_kept(c, keep->instead_of);
    remove_copies(c, &keep->instead_of, there);
    return is_of_any(c, there);
}

static int make_bytes(struct copying *c)
{
    if (c->has)
        return 0;
    int rc = keep_copy_extents(c);
    rc = rc ? rc : keep_write_tables(c);
    return rc ? rc : sync_files(c);
}

/* Whether it is of this store: else of one of other ranks, of which this one was made. */
static bool is_own(struct copying *c, const char *name)
{
    struct store_header header;
    const int rc = read_header(c, name, &header);
    bool own = rc == 0 && store_id_equal(&header.uuid, &c->look.headers[0].uuid);
    if (c->keep->config.replicas && rc == -ENOENT) /* only others have one in this directory */
        own = true;
    if (!goes_alone(c))
        take_first(c, &own, sizeof own);
    return own;
}

/* One that is there already is of the run before: the same bytes. Ranks take all steps together,
   also where only some make one. */
static int make_copy(struct copying *c)
{
    char name[KEPT_NAME_BYTES], forming[KEPT_NAME_BYTES];
    const uint32_t count = c->keep->config.count;
    int rc = alike(c, open_all(c));
    if (rc)
        return rc;
    kept_name(c->keep->done.step, name);
    kept_forming_name(c->keep->done.step, forming);
    rc = tidy(c);
    if (rc == 0) {
        const bool there = is_kept(c, c->keep->done.step);
        c->has = there && is_own(c, name);
        remove_copies(c, &c->keep->done.step, there && !c->has);
        rc = alike(c, make_files(c, forming));
        if (is_full(rc) && remove_others(c, count - 1 + c->has))
            rc = make_files_again(c, forming);
        rc = rc ? rc : alike(c, make_bytes(c));
        rc = rc ? rc : publish_in_turn(c, forming, name);
    }
    if (rc)
        remove_leftovers(c);
    else
        (void)remove_others(c, count);
    return rc;
}

/* Returns why ranks cannot ask each other any more, or 0. */
static int make(struct keep *keep)
{
    struct copying c = {.keep = keep, .error = &keep->done.error};
    const double begin_s = clock_seconds();
    for (uint32_t d = 0; d < STRIPE_DRIVES_MAX; d++) {
        c.directories[d].fd = c.to[d] = c.look.fds[d] = -1;
        c.clone[d] = true;
    }
    (void)make_copy(&c);
    close_all(&c);
    keep->done.seconds = clock_seconds() - begin_s;
    return c.broken;
}

static void *keep_main(void *context)
{
    struct keep *keep = context;
    (void)make(keep);
    atomic_store(&keep->finished, true);
    return NULL;
}

int keep_open(const struct keep_config *config, struct keep **out)
{
    struct keep *keep = calloc(1, sizeof *keep);
    if (!keep)
        return -ENOMEM;
    keep->config = *config;
    *out = keep;
    return 0;
}

int keep_begin(struct keep *keep, uint64_t step, uint64_t instead_of)
{
    keep->instead_of = instead_of;
    keep->done = (struct keep_done){.step = step, .shared = true};
    atomic_store(&keep->finished, false);
    const int rc = -pthread_create(&keep->thread, NULL, keep_main, keep);
    keep->begun = rc == 0;
    if (rc == 0)
        pthread_setname_np(keep->thread, "hst-keep");
    return rc;
}

int keep_together(struct keep *keep, uint64_t step, uint64_t instead_of, struct keep_done *done)
{
    keep->instead_of = instead_of;
    keep->done = (struct keep_done){.step = step, .shared = true};
    const int rc = make(keep);
    *done = keep->done;
    return rc;
}

bool keep_is_copying(const struct keep *keep)
{
    return keep->begun && !atomic_load(&keep->finished);
}

bool keep_ended(struct keep *keep, bool wait, struct keep_done *done)
{
    if (!keep->begun || (!wait && !atomic_load(&keep->finished)))
        return false;
    pthread_join(keep->thread, NULL);
    keep->begun = false;
    *done = keep->done;
    return true;
}

void keep_close(struct keep **keep)
{
    struct keep_done ignored;
    if (!*keep)
        return;
    atomic_store(&(*keep)->stop, true);
    (void)keep_ended(*keep, true, &ignored);
    free(*keep);
    *keep = NULL;
}
