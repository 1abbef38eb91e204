/* SPDX-License-Identifier: Apache-2.0 */
/* A store is looked at without being opened: see look.h. */
#include "store/look.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define TIMES      3   /* a commit may go on while it is looked */
#define HOLD_TRIES 100 /* of 10 ms */

static int refuse_damaged(const struct look *look, int native, const char *what,
                          struct hst_error *error)
{
    return store_refuse(error, HST_E_STORE_DAMAGED, native,
                        "the store in %s has no %s of rank %u that is whole. Fix: check the drives "
                        "(dmesg, smartctl -a); start anew in another --store, from an export",
                        look->directories[0].path, what, look->rank);
}

static int read_exactly(int fd, void *dst, uint64_t bytes, uint64_t offset)
{
    for (char *at = dst; bytes > 0;) {
        const ssize_t got = pread(fd, at, bytes < 1u << 30 ? bytes : 1u << 30, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -ENODATA;
        at += got;
        offset += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return 0;
}

static int open_file(struct look *look, uint32_t d, bool hold, struct hst_error *error)
{
    char name[STORE_NAME_BYTES];
    const struct store_set set = {.directories = look->directories,
                                  .drives = look->drives,
                                  .number = look->rank,
                                  .forming = look->forming};
    store_set_name(&set, d, name);
    look->fds[d] = openat(look->directories[d].fd, name,
                          O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (look->fds[d] < 0)
        return store_refuse(error, HST_E_READ, -errno, "%s/%s cannot be opened: %s. Fix: check it",
                            look->directories[d].path, name, strerror(errno));
    bool locked = flock(look->fds[d], LOCK_SH | LOCK_NB) == 0;
    /* a killed process holds its lock until its last requests are done */
    for (int i = 0; hold && !locked && errno == EWOULDBLOCK && i < HOLD_TRIES; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        locked = flock(look->fds[d], LOCK_SH | LOCK_NB) == 0;
    }
    look->in_use = look->in_use || (!locked && errno == EWOULDBLOCK);
    if (locked && !hold)
        flock(look->fds[d], LOCK_UN);
    if (locked || !hold)
        return 0;
    return store_refuse(error, HST_E_STORE_BUSY, -EBUSY,
                        "%s/%s is in use by another process. Fix: wait for that run to end (fuser "
                        "tells which it is)",
                        look->directories[d].path, name);
}

/* It tells how many of two copies are bad while the other one is not. */
static uint32_t bad_of(const struct store_flaw *flaw)
{
    return (flaw[0].error != 0) != (flaw[1].error != 0);
}

static int read_superblocks(struct look *look, struct hst_error *error)
{
    struct store_superblocks all;
    unsigned char page[STORE_PAGE_BYTES];
    bool trusted;
    uint32_t bad = 0;
    for (unsigned slot = 0; slot < 2; slot++) {
        for (unsigned copy = 0; copy < 2; copy++) {
            struct store_flaw *flaw = &all.flaw[slot][copy];
            const uint64_t at = store_superblock_at(&look->headers[0], slot, copy);
            const int rc = read_exactly(look->fds[0], page, sizeof page, at);
            *flaw = rc ? (struct store_flaw){rc, "it cannot be read"}
                       : store_superblock_decode(page, slot, copy, &look->headers[0],
                                                 &all.read[slot][copy]);
        }
        bad += bad_of(all.flaw[slot]);
    }
    if (!store_choose_superblock(&all, &look->newest, &trusted))
        return refuse_damaged(look, -EBADMSG, "superblock", error);
    look->damaged_copies += bad;
    look->clean = !store_must_verify(&look->newest, trusted, look->newest.cur.version);
    return 0;
}

/* Into look->manifest, from the first copy that is good. *bad_copies: those that are not. */
static int read_manifest(struct look *look, const struct store_ref *ref, uint32_t *bad_copies)
{
    struct store_flaw flaw[2];
    free(look->manifest);
    look->ref.version = STORE_NO_VERSION;
    look->manifest = malloc(ref->bytes);
    if (!look->manifest)
        return -ENOMEM;
    for (unsigned copy = 2; copy-- > 0;) { /* the first one last: it stays */
        const uint64_t at = store_manifest_at(&look->headers[0], ref->slot, copy);
        const int rc = read_exactly(look->fds[0], look->manifest, ref->bytes, at);
        flaw[copy] = rc ? (struct store_flaw){rc, "it cannot be read"}
                        : store_manifest_decode(look->manifest, ref, look->headers, &look->about);
    }
    if (flaw[0].error && flaw[1].error == 0) {
        const uint64_t at = store_manifest_at(&look->headers[0], ref->slot, 1);
        const int rc = read_exactly(look->fds[0], look->manifest, ref->bytes, at);
        flaw[1].error =
            rc ? rc : store_manifest_decode(look->manifest, ref, look->headers, &look->about).error;
    }
    if (flaw[0].error && flaw[1].error)
        return -EBADMSG;
    *bad_copies = bad_of(flaw);
    look->ref = *ref;
    return 0;
}

/* Superblock and manifests at one moment: where a commit has gone on between, once more. */
static int find(struct look *look, struct hst_error *error)
{
    int rc = -EBADMSG;
    for (int i = 0; i < TIMES && look->candidates.count == 0; i++) {
        const uint32_t before = look->damaged_copies;
        uint32_t bad = 0;
        rc = read_superblocks(look, error);
        if (rc)
            return rc;
        const struct store_ref *refs[2] = {&look->newest.prev, &look->newest.cur};
        for (int r = 0; r < 2; r++) {
            rc =
                refs[r]->version == STORE_NO_VERSION ? -ENOENT : read_manifest(look, refs[r], &bad);
            if (rc == -ENOMEM)
                return store_refuse(error, HST_E_BUDGET, rc,
                                    "no memory for the store's tables. Fix: end other programs");
            if (rc == 0)
                look->candidates.list[look->candidates.count++] =
                    (struct store_candidate){refs[r]->version, refs[r]->step, refs[r]->commit_id};
            look->candidates.newest_damaged = rc != 0; /* the newest is the last of the two */
            look->candidates.damaged_step = refs[r]->step;
        }
        look->damaged_copies += bad; /* of the newest */
        if (look->candidates.count == 0)
            look->damaged_copies = before;
    }
    return look->candidates.count > 0 ? 0 : refuse_damaged(look, -EBADMSG, "manifest", error);
}

int look_open(const struct store_directory *directories, uint32_t drives, uint32_t rank, bool hold,
              struct look *look, struct hst_error *error)
{
    return look_open_set(
        &(struct store_set){.directories = directories, .drives = drives, .number = rank}, hold,
        look, error);
}

int look_open_set(const struct store_set *set, bool hold, struct look *look,
                  struct hst_error *error)
{
    unsigned bad_copies[STRIPE_DRIVES_MAX];
    *look = (struct look){.directories = set->directories,
                          .rank = set->number,
                          .drives = set->drives,
                          .forming = set->forming};
    for (uint32_t d = 0; d < STRIPE_DRIVES_MAX; d++)
        look->fds[d] = -1;
    int rc = store_files_look(set, look->headers, bad_copies, error);
    for (uint32_t d = 0; d < set->drives && rc == 0; d++) {
        look->damaged_copies += bad_copies[d] > 0;
        rc = open_file(look, d, hold, error);
    }
    return rc ? rc : find(look, error);
}

int look_load(struct look *look, const struct store_candidate *wanted, struct hst_error *error)
{
    const struct store_ref *ref =
        wanted->version == look->newest.cur.version ? &look->newest.cur : &look->newest.prev;
    uint32_t ignored;
    if (look->ref.version == wanted->version)
        return 0;
    const int rc = read_manifest(look, ref, &ignored);
    return rc ? refuse_damaged(look, rc, "manifest", error) : 0;
}

void look_close(struct look *look)
{
    for (uint32_t d = 0; d < look->drives; d++)
        if (look->fds[d] >= 0)
            close(look->fds[d]);
    free(look->manifest);
    *look = (struct look){.rank = look->rank};
}

uint64_t look_offset(const struct look *look, const struct store_entry *entry)
{
    return entry->offset + entry->slot * look->headers[entry->drive].slot_bytes;
}

uint64_t *look_hashes(const struct look *look, const struct store_entry *entry)
{
    uint64_t *hashes =
        (uint64_t *)(void *)(look->manifest + store_hashes_at(look->headers[0].extents));
    return hashes + entry->first_block;
}
