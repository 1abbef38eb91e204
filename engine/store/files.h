/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_STORE_FILES_H
#define HOISTWAY_ENGINE_STORE_FILES_H
/*
 * The directories and names of a store's files, and who may touch them:
 *
 *   DIRECTORY[d]/r00000.d<d>.blk       rank 0, drive d; 0600 in a directory that is 0700
 *   DIRECTORY[d]/r00000.d<d>.blk.new   while no version is committed
 *   DIRECTORY[d]/r00000.d<d>.scratch   room for what is in no version (room.h), where there is any
 *   DIRECTORY[d]/reshard.unfinished    while `ckpt reshard` makes the files of all ranks
 *
 * Everything is named relative to directories that are open and whose owner and mode were checked,
 * so that nobody else can change what a name means. All functions fill *error where they fail.
 */
#include "store/format.h"

#include <hoistway/hoistway.h>

#include <dirent.h>
#include <sys/stat.h>

#define STORE_NAME_BYTES 32u
#define STORE_PATH_BYTES 64u

struct store_directory {
    const char *path; /* as the user named it, for messages; borrowed */
    int fd;
};

/** Records what happened; returns `native`. */
int store_refuse(struct hst_error *error, int code, int native, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/** Random. Errors: -EIO the sandbox gives no numbers. */
int store_draw_id(struct store_id *id, struct hst_error *error);

/**
 * A directory of this user's that nobody else can enter, or one that is empty: that is as it was
 * until it is taken. Errors: -EPERM another's directory, or one that others can enter; -EEXIST one
 * of these that holds no file of a store; -ENOTDIR,
 * -ELOOP a link, also with a slash behind it; open(2)'s.
 */
int store_directory_open(const char *path, struct store_directory *directory,
                         struct hst_error *error);
/** Makes it its owner's alone (0700), before a new store's files are in it. Errors: fchmod(2)'s. */
int store_directory_take(const struct store_directory *directory, struct hst_error *error);
/** Accepts a closed one. */
void store_directory_close(struct store_directory *directory);
int store_directory_sync(const struct store_directory *directory, struct hst_error *error);

/** Refuses one that is not empty and holds no file of a store. Errors: -EEXIST; the system's. */
int store_directory_holds_other(const struct store_directory *directory, struct hst_error *error);
/** Nothing is in it, but for lost+found. Errors: -EEXIST, the first that is; the system's. */
int store_directory_is_empty(const struct store_directory *directory, struct hst_error *error);
/** To be closed with closedir; null: *error says why. */
DIR *store_directory_list(const struct store_directory *directory, struct hst_error *error);
bool store_name_is_nothing(const char *name); /* ".", "..", lost+found */

/** The mark of that (unfinished.c). */
#define STORE_UNFINISHED "reshard.unfinished"
/**
 * Between begin and end a directory is part of a store of which some ranks may be missing: until
 * rank 0's file is there, check refuses it. Errors: -EEXIST a mark that is not this call's; the
 * system's.
 */
int store_unfinished_check(const struct store_directory *directories, uint32_t drives,
                           struct hst_error *error);
int store_unfinished_begin(const struct store_directory *directory, struct hst_error *error);
void store_unfinished_end(const struct store_directory *directory);

void store_file_name(uint32_t rank, uint32_t drive, bool forming, char name[STORE_NAME_BYTES]);
void store_room_name(uint32_t rank, uint32_t drive, char name[STORE_NAME_BYTES]);
#define STORE_LOCK_TIMEOUT_MS 30000u /* also what a context of <hoistway/aio.h> waits by itself */
#define STORE_QUIET_MS        1000u  /* until it is told that a file is waited for */
/** Waits until nobody has the file, or so long; keeps nothing. Whether nobody has, or it cannot be
 * seen. */
bool store_file_wait(const struct store_directory *directory, const char *name,
                     uint32_t timeout_ms);
/** Waits for a lock for so long. -EBUSY; flock(2)'s. */
int store_lock_wait(int fd, int kind, uint32_t timeout_ms);

struct store_name {
    uint32_t rank, drive;
    bool forming, room;
};
/** It tells whether store_file_name or store_room_name makes the name, and which. */
bool store_name_parse(const char *text, struct store_name *name);
/** The least rank whose first file is published in a directory; UINT32_MAX: none is. */
uint32_t store_rank_there(const char *directory);
/** It tells whether a directory holds the file of a drive that another one is named for, or is not
 * named at all, and which. */
bool store_file_astray(const struct store_directory *directories, uint32_t drives, uint32_t rank,
                       uint32_t *directory, uint32_t *drive);
/** Bytes that this file of a store takes in the directory already; 0 where it cannot be seen. */
uint64_t store_bytes_there(const char *directory, uint32_t rank, uint32_t drive);
/** The same of one that is being made, or whose making was killed. */
uint64_t store_bytes_forming(const char *directory, uint32_t rank, uint32_t drive);
/** Likewise of its room. */
uint64_t store_room_there(const char *directory, uint32_t rank, uint32_t drive);
/** Elements of a whole tile of the store in the directory; 0 where none can be read. */
uint32_t store_tile_elements_there(const char *directory, uint32_t rank);
/** A path for hst_aio_file_open, good while the directory is open. */
void store_file_path(const struct store_directory *directory, const char *name,
                     char path[STORE_PATH_BYTES]);

/** Refuses what has the name of a file and is none, without opening it. -EPERM, -ELOOP; -ENOENT,
 * *error untouched. */
int store_file_check_kind(const struct store_directory *directory, const char *name,
                          struct hst_error *error);
/**
 * Opens a file for reading, where it is one of this user's alone. Errors: -ENOENT, *error
 * untouched; -EPERM, -ELOOP it is not; open(2)'s.
 */
int store_file_open_own(const struct store_directory *directory, const char *name,
                        struct stat *status, struct hst_error *error);
/**
 * Looks at a file before it is opened for writing; changes nothing. *bad_copies: bit 0, 1: copies
 * of the header that are damaged. Returns -ENOENT, *error untouched, where there is none.
 * Errors: -EPERM, -ELOOP not ours alone; -ENOTSUP, -EINVAL, -EBADMSG as the header says; -ENODATA
 * shorter or longer than its header says.
 */
int store_file_look(const struct store_directory *directory, const char *name,
                    struct store_header *header, unsigned *bad_copies, struct hst_error *error);

/* The files of one rank. */
struct store_set {
    const struct store_directory *directories; /* [drives] */
    uint32_t drives;
    uint32_t number;      /* in their names */
    uint32_t rank, world; /* that they say; world 0: what fits the number, or is a replica's */
    bool forming; /* files under the names that they have before their first version, where such
                     are there */
};
/** The name of a file of the set. */
void store_set_name(const struct store_set *set, uint32_t drive, char name[STORE_NAME_BYTES]);
/**
 * Looks at all files of a rank, and whether they belong together. headers, bad_copies: [drives].
 * Errors: -ENOENT the first is not there: no version was ever committed (-EEXIST, that of a reshard
 * that did not end); store_file_look's; -EINVAL
 * another store's, rank's or drive's, or one is missing.
 */
int store_files_look(const struct store_set *set, struct store_header *headers,
                     unsigned *bad_copies, struct hst_error *error);

/* A run knows this of a store before it looks into its directories. */
enum store_expected {
    STORE_BEGINS,  /* a committed version is refused */
    STORE_IF_ANY,  /* it goes on where there is one, and begins where there is none */
    STORE_GOES_ON, /* some rank finds one, so copies are of it whose files are elsewhere */
};
/**
 * It tells what a run would refuse of the names in these directories, before it makes or locks
 * anything: a store's file that is none, and, where there is no committed one, all that
 * store_directories_clear refuses. A directory that is not there yet has fd -1.
 * Errors: those of store_file_look, store_directories_clear and store_unfinished_check.
 */
int store_directories_check(const struct store_directory *directories, uint32_t drives,
                            uint32_t rank, enum store_expected expected,
                            struct hst_error *error);
/**
 * Makes sure that a store can be created in these directories: refuses names that are not a
 * store's, and any committed store; removes what an earlier creation left. What is in use is waited
 * for, for so long. Errors: -EEXIST, -EBUSY, system's.
 */
struct store_config;
int store_directories_clear(const struct store_directory *directories, uint32_t drives,
                            uint32_t rank, const struct store_config *config,
                            struct hst_error *error);
/**
 * Gives the files their names, drive 0's last: from then on there is a committed version. replaces:
 * another store's files have these names and lose them, drive 0's first: from then on the version
 * here is the one that holds, and what a kill leaves without a name gets it later (moved.c).
 */
int store_files_publish(const struct store_directory *directories, uint32_t drives, uint32_t rank,
                        bool replaces, struct hst_error *error);
/** Removes the files of this creation, unless the last of them has got its name. replaces: those
 * alone that have no names. */
void store_files_remove(const struct store_directory *directories, uint32_t drives, uint32_t rank,
                        bool replaces);

/* ---- moved.c: a store that takes another's place --------------------------------------------- */

/** The id of the store that takes this one's place for so many ranks. Pure. */
struct store_id store_moved_id(const struct store_id *uuid, uint32_t world);
/** Looks at a rank's first file under its name, or the one that it has before. As store_file_look.
 */
int store_first_look(const struct store_directory *directory, uint32_t rank, bool forming,
                     struct store_header *header, struct hst_error *error);
/** Files of this store that have not got their names get them: its first version was voted for.
 * *named: how many there were. Errors: the system's. */
int store_files_finish(const struct store_directory *directories, uint32_t drives, uint32_t rank,
                       const struct store_id *uuid, uint32_t *named, struct hst_error *error);
/** Removes a rank's files of this store, under their names or those before, and its room where no
 * other store has the name. What is in use stays. */
void store_files_discard(const struct store_directory *directories, uint32_t drives, uint32_t rank,
                         const struct store_id *uuid, bool forming);

#endif
