/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides when two rows of data files are the same data: each file by its size and by parts spread
 * over it, so that a corpus of terabytes is told from another one by some hundred KiB of reads.
 * Names do not count, as files are renamed and moved.
 *
 * The numbers stand in stores: a changed constant makes all data other data.
 */
#include "base/fail.h"
#include "data/file/files.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <xxhash.h>

#define PART_BYTES UINT64_C(4096)
#define PARTS      UINT64_C(64)

/* It returns where part `i` begins in a file that is larger than all parts: the first one at its
   beginning, the last one at its end. */
static uint64_t part_at(uint64_t size_bytes, uint64_t i)
{
    const uint64_t last = size_bytes - PART_BYTES;
    return last / (PARTS - 1) * i + last % (PARTS - 1) * i / (PARTS - 1);
}

/* A small file has all bytes in one part. */
static uint64_t part_count(uint64_t size_bytes)
{
    return size_bytes <= PARTS * PART_BYTES ? 1 : PARTS;
}

/* All parts are asked for before the first is waited for: a drive across a network is waited for
   once. Nothing around them is read, and the page cache keeps what it holds. */
static void ask_for_parts(const struct token_file *file, uint64_t parts)
{
    (void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM);
    for (uint64_t i = 0; parts > 1 && i < parts; i++)
        (void)posix_fadvise(file->fd, (off_t)part_at(file->size_bytes, i), (off_t)PART_BYTES,
                            POSIX_FADV_WILLNEED);
}

static int hash_range(const struct token_file *file, uint64_t at, uint64_t bytes, void *buffer,
                      XXH3_state_t *state, struct hst_error *error)
{
    while (bytes > 0) {
        const size_t n = bytes < TOKEN_BUFFER_BYTES ? (size_t)bytes : TOKEN_BUFFER_BYTES;
        int rc = token_file_stopped(file);
        rc = rc ? rc : token_file_bytes(file, buffer, n, at, error);
        if (rc)
            return rc;
        XXH3_64bits_update(state, buffer, n);
        at += n;
        bytes -= n;
    }
    return 0;
}

static int hash_parts(const struct token_file *file, void *buffer, XXH3_state_t *state,
                      struct hst_error *error)
{
    const uint64_t parts = part_count(file->size_bytes), size = htole64(file->size_bytes);
    int rc = 0;
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, &size, sizeof size);
    ask_for_parts(file, parts);
    if (parts == 1)
        rc = hash_range(file, 0, file->size_bytes, buffer, state, error);
    for (uint64_t i = 0; parts > 1 && i < parts && !rc; i++)
        rc = hash_range(file, part_at(file->size_bytes, i), PART_BYTES, buffer, state, error);
    (void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_NORMAL);
    return rc;
}

int token_file_identity(const struct token_file *file, void *buffer, uint64_t *identity,
                        struct hst_error *error)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return fail(error, FAIL_DATA_FILE, -ENOMEM, "%s: out of memory", file->path);
    int rc = hash_parts(file, buffer, state, error);
    if (rc == 0)
        *identity = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return rc;
}

void data_identity_add(struct data_identity *identity, uint64_t file)
{
    const uint64_t row[] = {htole64(identity->in_order), htole64(file)};
    identity->in_order = XXH3_64bits(row, sizeof row);
    identity->in_any_order += file; /* of a file that comes twice, twice */
}
