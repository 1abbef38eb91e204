# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes out of room for scratch beside a store."""
from rows import mutate

mutate(
    'engine/store/room.c', 'store/room',
    ("somebody's file is not taken for room",
     'if (found.error == 0)\n        return 0;\n    return store_refuse(error, HST_E_STORE_FORMAT',
     'return 0;\n    return store_refuse(error, HST_E_STORE_FORMAT'),
    ('a page that has not reached the drive is no stranger',
     'if (is_zero(page, STORE_PAGE_BYTES))'),
    ('room says whose it is', 'page_seal(page, 0, 0);', 'memset(page, 0, STORE_PAGE_BYTES);'),
    ('rates of other drives are none', ' || get_u32(page + DRIVES_AT) != drives', ''),
    ('room has reached the drive', 'rc = rc == 0 && fsync(fd) < 0 ? -errno : rc;', ''),
    ('what tells of room is beside it', 'const uint64_t bytes = STORE_ROOM_AT + room->bytes;',
     'const uint64_t bytes = room->bytes;'),
    ('room that is not wanted is left alone', 'if (rooms[d].bytes > 0)', 'if (1)'),
    ('where one drive has no room that of the others goes', 'if (rooms[d].made)'),
    ('a full drive has its own code', 'full               ? HST_E_DISK_SPACE',
     '0                  ? HST_E_DISK_SPACE'),
    ('a limit of file size is no damage', 'if (native == -EFBIG)'),
)
mutate(
    'engine/store/room.c', 'e2e/bad_stores',
    ('a page of room is one of few drives', 'drives == 0 || drives > STRIPE_DRIVES_MAX ||', ''),
    ('nothing is behind the rates', 'is_zero(page + end, STORE_PAGE_BYTES - end)', '1'),
)
mutate(
    'engine/session/store/store_dir.c', 'e2e/room',
    ('room is shared out as it was', ' || share_as_before(engine, in)', ''),
)
mutate(
    'engine/store/clear.c', 'store/room',
    ("room's magic is another one", 'name.room ? &PAGE_ROOM : &PAGE_HEADER', '&PAGE_HEADER'),
    ('room without a store is a leftover',
     'return faccessat(directories[0].fd, first, F_OK, AT_SYMLINK_NOFOLLOW) < 0;', 'return false;'),
)
mutate(
    'engine/store/files.c', 'store/room',
    ('a store that is not made leaves no room',
     '        if (!replaces)\n            (void)unlinkat(directories[d].fd, name, 0);\n'
     '        store_file', '        store_file'),
)
mutate(
    'engine/store/open.c', 'store/room',
    ('an open that fails lets go of room',
     'store_rooms_undo(config->rooms, store->directories, store->drives, store->number);\n'
     '        store_free(store);',
     'store_free(store);'),
    ('what was made for it is gone again', 'store_rooms_undo(config->rooms, store->directories, '
     'store->drives, store->number);', 'store_rooms_close(config->rooms, store->drives);'),
)
mutate(
    'engine/tier/scratch.c', 'engine/scratch',
    ('nothing is written before room', '.offset = scratch->file_at[at.drive] + at.offset',
     '.offset = at.offset'),
)
mutate(
    'engine/plan/placement/lay_out.c', 'engine/versions e2e/room',
    ('what tells of room is in the sum', 'p->nvme_bytes = sat_add(p->nvme_bytes, rest);\n    '
     '    *sum = sat_add(*sum, rest);\n    }\n}\n\n/* ---- the whole',
     '*sum = sat_add(*sum, rest);\n    }\n}\n\n/* ---- the whole'),
    ('without scratch there is no room', 'p->drive_bytes[d] > 0 ? in->store_room_fixed : 0',
     'in->store_room_fixed'),
)
mutate(
    'engine/session/budget.c', 'e2e/disks',
    ('room that is there is not taken twice', ' + store_dir_room_there(engine, d);', ';'),
)
