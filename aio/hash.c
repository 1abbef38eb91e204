/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes of what is moved, one per MiB: computed over the caller's buffer, before a write is
 * submitted and after a read has completed, so that everything between two buffers is covered.
 */
#include "internal.h"

#if defined __x86_64__ && defined __has_include
#if __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h> /* AVX2 and AVX-512 where the machine has them */
#endif
#endif
#include <xxhash.h>

static uint64_t hash_block(const struct job *job, uint64_t first)
{
    const uint64_t left_bytes = job->op.bytes - first;
    return XXH3_64bits((const char *)job->op.buffer + first,
                       left_bytes < HST_AIO_HASH_BYTES ? left_bytes : HST_AIO_HASH_BYTES);
}

void hst_aio_hash_fill(struct job *job, uint64_t end_bytes)
{
    for (; job->hashed_bytes < end_bytes; job->hashed_bytes += HST_AIO_HASH_BYTES)
        job->op.hashes[job->hashed_bytes / HST_AIO_HASH_BYTES] = hash_block(job, job->hashed_bytes);
}

void hst_aio_hash_compare(struct job *job, uint64_t first, uint64_t bytes)
{
    for (uint64_t at = first; at < first + bytes && at < job->mismatch; at += HST_AIO_HASH_BYTES)
        if (hash_block(job, at) != job->op.hashes[at / HST_AIO_HASH_BYTES])
            job->mismatch = at;
}
