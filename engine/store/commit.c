/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commit, a state machine that never waits: each step is begun when all of the one before has
 * completed without error. An error anywhere ends it, and nothing that the last version consists of
 * has been touched.
 */
#include "store/store_state.h"

#include <errno.h>
#include <string.h>

bool store_may_write(const struct store *store, enum extent_kind kind, uint32_t index)
{
    /* All extents alike. One that the commit leaves alone could be spared, but its hashes are kept
       where the manifest is written from, and no update comes before the commit has returned. */
    (void)kind;
    (void)index;
    if (STORE_LEAVE_OUT == LEAVE_GATE && store->commit > COMMIT_MANIFEST)
        return store->error.code == 0;
    return store->commit == COMMIT_NONE && store->error.code == 0;
}

enum store_commit_state store_commit_state(const struct store *store)
{
    return store->commit == COMMIT_NONE || store->commit == COMMIT_FAILED ? STORE_COMMIT_NONE
           : store->commit == COMMIT_PREPARED                             ? STORE_COMMIT_PREPARED
                                                                          : STORE_COMMIT_UNDERWAY;
}

/* The slot that the committed version's manifest is not in. */
static uint32_t free_manifest_slot(const struct store *store)
{
    return store->version == STORE_NO_VERSION ? 0 : 1 - store->superblock.cur.slot;
}

int store_commit_begin(struct store *store, const struct store_cursor *cursor)
{
    if (store->error.code)
        return store->error.native;
    if (store->commit != COMMIT_NONE)
        return -EBUSY;
    if (cursor->opaque_bytes > STORE_CURSOR_MAX)
        return -EINVAL;
    struct store_superblock *next = &store->next;
    const bool first = store->version == STORE_NO_VERSION;
    *next = store->superblock;
    next->seq = first ? 0 : next->seq + 1;
    next->state = STORE_OPEN;
    next->incarnation = store->incarnation;
    next->prev = first ? (struct store_ref){.version = STORE_NO_VERSION} : next->cur;
    next->cur = (struct store_ref){
        .version = store->version + 1,
        .step = cursor->step,
        .slot = free_manifest_slot(store),
        .commit_id = store_commit_id(&next->prev.commit_id, &store->incarnation, store->version + 1,
                                     cursor->step),
    };
    const struct store_manifest manifest = {
        .uuid = store->headers[0].uuid,
        .commit_id = next->cur.commit_id,
        .incarnation = store->incarnation,
        .rank = store->rank,
        .world = store->world,
        .version = next->cur.version,
        .cursor = *cursor,
    };
    next->cur.bytes = store_manifest_encode(&manifest, &store->headers[0], store->manifest);
    store->commit = COMMIT_WRITES;
    commit_advance(store);
    return store->error.code ? store->error.native : 0;
}

static void add_manifest(struct store *store)
{
    struct store_ref *cur = &store->next.cur;
    cur->digest = store_digest(store->manifest, cur->bytes);
    for (unsigned copy = 0; copy < 2; copy++)
        own_add(store, 0, HST_AIO_WRITE, store_manifest_at(&store->headers[0], cur->slot, copy),
                store->manifest, cur->bytes);
}

static void add_superblock(struct store *store)
{
    const struct store_superblock *next = &store->next;
    for (unsigned copy = 0; copy < 2; copy++) {
        store_superblock_encode(next, copy, store->pages[copy]);
        own_add(store, 0, HST_AIO_WRITE,
                store_superblock_at(&store->headers[0], next->seq & 1, copy), store->pages[copy],
                STORE_PAGE_BYTES);
    }
}

static void add_syncs(struct store *store, uint32_t drives)
{
    for (uint32_t d = 0; d < drives; d++)
        own_add(store, d, HST_AIO_SYNC, 0, NULL, 0);
}

/* Puts together the transfers of the step that is reached. */
static void begin_step(struct store *store)
{
    own_begin(store);
    switch (store->commit) {
    case COMMIT_MANIFEST:
        add_manifest(store);
        break;
    case COMMIT_SYNC:
        if (STORE_LEAVE_OUT != LEAVE_DATA_SYNC)
            add_syncs(store, store->drives);
        break;
    case COMMIT_SUPERBLOCK:
        store->next.written_bytes =
            store->written_before_bytes + store->extents.counters.written_bytes;
        add_superblock(store);
        break;
    case COMMIT_SUPERBLOCK_SYNC:
        if (STORE_LEAVE_OUT != LEAVE_SUPERBLOCK_SYNC)
            add_syncs(store, 1);
        break;
    default:
        break;
    }
}

void commit_advance(struct store *store)
{
    static const char *const WHAT[] = {
        [COMMIT_MANIFEST] = "writing a manifest",
        [COMMIT_SYNC] = "syncing a version",
        [COMMIT_SUPERBLOCK] = "writing a superblock",
        [COMMIT_SUPERBLOCK_SYNC] = "syncing a superblock",
    };
    if (store->commit == COMMIT_WRITES && store->writes == 0) {
        store->commit = COMMIT_MANIFEST;
        begin_step(store);
    }
    while (store->commit >= COMMIT_MANIFEST && store->commit <= COMMIT_SUPERBLOCK_SYNC) {
        if (!own_advance(store))
            return;
        int rc = own_result(store);
        if (rc) {
            store_fail(store, rc, WHAT[store->commit]);
            return;
        }
        store->commit++;
        begin_step(store);
    }
}

int store_commit_end(struct store *store)
{
    if (store->error.code)
        return store->error.native;
    if (store->commit != COMMIT_PREPARED)
        return -EINVAL;
    if (!store->published) {
        int rc = store_files_publish(store->directories, store->drives, store->number,
                                     store->replaces, &store->error);
        if (rc)
            return rc;
        store->published = true;
    }
    store->superblock = store->next;
    store->version = store->superblock.cur.version;
    store->commit = COMMIT_NONE;
    store_note_committed(store);
    return 0;
}

int commit_superblock(struct store *store, const struct store_superblock *superblock)
{
    store->next = *superblock;
    own_begin(store);
    add_superblock(store);
    int rc = own_wait(store);
    rc = rc ? rc : own_result(store);
    if (rc)
        return rc;
    own_begin(store);
    add_syncs(store, 1);
    rc = own_wait(store);
    rc = rc ? rc : own_result(store);
    if (rc == 0)
        store->superblock = *superblock;
    return rc;
}
