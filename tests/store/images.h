/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_STORE_IMAGES_H
#define HST_TESTS_STORE_IMAGES_H
/* The files of a toy's store as bytes in memory: taken, put back, changed in between. */
#include "fake_aio.h"
#include "store/store_state.h"
#include "toy.h"

struct files {
    struct fake_image images[FAKE_FILES];
};

struct files files_read(const struct toy *toy);
struct files files_copy(const struct files *files);
void files_write(const struct toy *toy, const struct files *files);
void files_free(struct files *files);

/**
 * Opens the toy on the fake, makes a store of two versions and closes it in order. share, agreed:
 * of one of several ranks; SHARE_ALL and null: alone.
 */
struct files toy_base(struct toy *toy, struct share share, const struct store_agreed *agreed);
/** The end of a process: what it had opened is closed, and nothing is written. */
void toy_drop(struct store *store);

#endif
