/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of several drives, and of several ranks, may be on one file system: it holds all. */
#include "ckpt/reshard_room.h"

#include "base/size_text.h"

#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>

int reshard_places_look(char *const *paths, uint32_t count, struct reshard_places *places,
                        struct hst_error *error)
{
    struct stat st;
    for (uint32_t d = 0; d < count; d++) {
        if (stat(paths[d], &st))
            return store_refuse(error, HST_E_STORE_DIR, -errno,
                                "the directory %s cannot be looked at: %s. Fix: another --out",
                                paths[d], strerror(errno));
        places->file_systems[places->count++] = st.st_dev;
    }
    return 0;
}

uint64_t reshard_room_needed(const struct reshard_room *room, uint32_t directory)
{
    const struct reshard_places *own = &room->all[room->process];
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < room->processes; p++)
        for (uint32_t d = 0; d < room->all[p].count && room->all[p].node == own->node; d++)
            if (room->all[p].file_systems[d] == own->file_systems[directory])
                bytes += room->drive_bytes;
    return bytes;
}

int reshard_room_check(const struct reshard_room *room, struct hst_error *error)
{
    struct statvfs fs;
    for (uint32_t d = 0; d < room->all[room->process].count; d++) {
        const uint64_t needed = reshard_room_needed(room, d);
        char left[SIZE_TEXT_BYTES], need[SIZE_TEXT_BYTES];
        const bool known = statvfs(room->paths[d], &fs) == 0;
        const uint64_t free_bytes = known ? (uint64_t)fs.f_bavail * fs.f_frsize : UINT64_MAX;
        if (free_bytes < needed)
            return store_refuse(error, HST_E_DISK_SPACE, -ENOSPC,
                                "%s has %s free, and the new store needs %s there. Fix: free space "
                                "there, or another --out",
                                room->paths[d], size_text(free_bytes, left),
                                size_text_up(needed, need));
    }
    return 0;
}
