/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store for another number of ranks takes the place of the one that its bytes are from, in the
 * same directories. Its id follows from that one's and from the number of ranks. So whatever a kill
 * leaves of the two, it can be told which of them is the later one, and what is left over.
 */
#include "store/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

struct store_id store_moved_id(const struct store_id *uuid, uint32_t world)
{
    unsigned char text[sizeof uuid->bytes + sizeof world];
    memcpy(text, uuid->bytes, sizeof uuid->bytes);
    for (size_t i = 0; i < sizeof world; i++)
        text[sizeof uuid->bytes + i] = (unsigned char)(world >> 8 * i);
    return store_digest(text, sizeof text);
}

int store_first_look(const struct store_directory *directory, uint32_t rank, bool forming,
                     struct store_header *header, struct hst_error *error)
{
    char name[STORE_NAME_BYTES];
    unsigned bad_copies;
    store_file_name(rank, 0, forming, name);
    return store_file_look(directory, name, header, &bad_copies, error);
}

static bool is_of(const struct store_directory *directory, const char *name,
                  const struct store_id *uuid)
{
    struct store_header header;
    struct hst_error ignored;
    unsigned bad_copies;
    return store_file_look(directory, name, &header, &bad_copies, &ignored) == 0 &&
           store_id_equal(&header.uuid, uuid);
}

/* One of several processes that do this finds the name given already. */
int store_files_finish(const struct store_directory *directories, uint32_t drives, uint32_t rank,
                       const struct store_id *uuid, uint32_t *named, struct hst_error *error)
{
    char forming[STORE_NAME_BYTES], published[STORE_NAME_BYTES];
    *named = 0;
    for (uint32_t d = 0; d < drives; d++) {
        store_file_name(rank, d, true, forming);
        store_file_name(rank, d, false, published);
        if (!is_of(&directories[d], forming, uuid))
            continue;
        if (renameat(directories[d].fd, forming, directories[d].fd, published) < 0 &&
            errno != ENOENT)
            return store_refuse(error, HST_E_STORE_DIR, -errno,
                                "%s/%s cannot be named %s: %s. Fix: check the directory",
                                directories[d].path, forming, published, strerror(errno));
        ++*named;
        const int rc = store_directory_sync(&directories[d], error);
        if (rc)
            return rc;
    }
    return 0;
}

/* A lock that can be had is nobody's. */
static void discard(const struct store_directory *directory, const char *name)
{
    const int fd =
        openat(directory->fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        (void)unlinkat(directory->fd, name, 0);
    close(fd);
}

/* Drive 0's last: it is what the others are found by. */
void store_files_discard(const struct store_directory *directories, uint32_t drives, uint32_t rank,
                         const struct store_id *uuid, bool forming)
{
    char name[STORE_NAME_BYTES];
    for (uint32_t d = drives; d-- > 0;) {
        store_file_name(rank, d, forming, name);
        if (!is_of(&directories[d], name, uuid))
            continue;
        discard(&directories[d], name);
        store_room_name(rank, d, name);
        if (!forming)
            discard(&directories[d], name);
    }
}
