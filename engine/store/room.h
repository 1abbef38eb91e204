/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_STORE_ROOM_H
#define HOISTWAY_ENGINE_STORE_ROOM_H
/*
 * Room for scratch, which is in no version: one file on each drive beside the store's own, taken
 * when the store is made and kept with it, so that a disk which fills up ends no resume. It never
 * gets smaller. What is in it means nothing to the next run, but for its first page:
 *
 *   magic .. checksum (32 B, as of any page) | drives u32 | 0 u32 | rate f64 of each drive | zeros
 *
 * These are the rates by which extents were shared out: by others the next run, which may find the
 * disks full, would want more of one drive than it has there. All of it is in one sector.
 */
#include "store/files.h"
#include "store/store.h"

#define STORE_ROOM_AT STORE_PAGE_BYTES /* where scratch begins */

/**
 * Makes or lengthens the files of those drives that need any, and opens them, locked. What was
 * taken is there after a crash. rooms: [drives]; null: none is needed. rates: [drives], of this
 * run; null: not known. After an error none is open,
 * and those that were made are gone; one that was lengthened stays so.
 *
 * Errors, with *error filled: -ENOSPC, -EDQUOT, -EFBIG; -EBUSY in use; -EPERM, -ELOOP others can
 * change it; -EINVAL, -ENOTSUP no room of a store, or of another format; the system's.
 */
int store_rooms_open(struct store_room *rooms, const struct store_directory *directories,
                     uint32_t drives, uint32_t rank, const double *rates, struct hst_error *error);
/**
 * Reads the rates that a drive's room was last opened with, where it is room of so many drives.
 * Changes nothing. Returns whether there are any.
 */
bool store_room_rates(const char *directory, uint32_t rank, uint32_t drive, uint32_t drives,
                      double *rates);
/**
 * After store_rooms_open, of an open that then fails: those that were made are gone again, and none
 * is open. Accepts null, and rooms that are not open.
 */
void store_rooms_undo(struct store_room *rooms, const struct store_directory *directories,
                      uint32_t drives, uint32_t rank);
/** Accepts null, and rooms that are not open. */
void store_rooms_close(struct store_room *rooms, uint32_t drives);

#endif
