/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file decides what follows from the result of a request. It is pure, without a clock or a
 * queue, so every rule can be tried with results that no drive gives on demand.
 *
 * A piece walks over its range in requests of at most request_bytes. A transfer that stopped inside
 * an aligned block goes on from that block's start, as O_DIRECT needs. EAGAIN makes requests
 * smaller once; a media error of a read halves them until the first block that cannot be read
 * stands alone, and then looks how far the damage goes: block by block up to HST_AIO_BAD_BYTES_MAX,
 * because a drive takes seconds over each of them.
 */
#include "internal.h"

#include <assert.h>
#include <errno.h>

static void set_request(struct piece *piece, uint32_t left_bytes)
{
    piece->bytes = left_bytes < piece->request_bytes ? left_bytes : piece->request_bytes;
    piece->rest_bytes = left_bytes - piece->bytes;
}

/* The next request begins `bytes` further on. */
static void step(struct piece *piece, uint32_t bytes)
{
    piece->buffer += bytes;
    piece->offset += bytes;
    piece->retries = 0;
    set_request(piece, piece->bytes - bytes + piece->rest_bytes);
}

static void shrink(struct piece *piece, uint32_t request_bytes)
{
    piece->request_bytes = request_bytes;
    piece->retries = 0;
    set_request(piece, piece->bytes + piece->rest_bytes);
}

static enum verdict fail(struct piece *piece, int error)
{
    piece->error = error;
    if (piece->bad_bytes == 0) {
        piece->bad_offset = piece->offset;
        piece->bad_bytes = piece->bytes;
    }
    return PIECE_FAILED;
}

static bool is_media_error(int error)
{
    return error == -EIO || error == -EREMOTEIO || error == -EILSEQ;
}

static enum verdict judge_bad_read(struct piece *piece, int error)
{
    if (piece->media_retries < HST_AIO_READ_RETRIES_MAX) {
        piece->media_retries++;
        return PIECE_AGAIN;
    }
    if (piece->bytes > HST_AIO_ALIGN_BYTES) {
        const uint32_t blocks = piece->bytes / HST_AIO_ALIGN_BYTES;
        shrink(piece, (blocks + 1) / 2 * HST_AIO_ALIGN_BYTES);
        return PIECE_AGAIN;
    }
    if (piece->bad_bytes == 0)
        piece->bad_offset = piece->offset;
    piece->bad_bytes += piece->bytes;
    step(piece, piece->bytes);
    if (piece->bytes > 0 && piece->bad_bytes < HST_AIO_BAD_BYTES_MAX)
        return PIECE_AGAIN;
    piece->bad_bytes += piece->bytes + piece->rest_bytes;
    return fail(piece, error);
}

static enum verdict judge_error(struct piece *piece, uint64_t *pause_ns)
{
    const int error = piece->result == -ENODATA ? -EIO : piece->result;
    if (error == -EINTR && piece->retries < HST_AIO_RETRIES_MAX) {
        piece->retries++;
        return PIECE_AGAIN;
    }
    if (error == -EAGAIN && piece->retries < HST_AIO_RETRIES_MAX) {
        *pause_ns = (uint64_t)HST_AIO_PAUSE_NS << piece->retries++;
        return PIECE_LATER;
    }
    if (error == -EAGAIN && piece->bytes > HST_AIO_SMALL_BYTES) {
        shrink(piece, HST_AIO_SMALL_BYTES);
        return PIECE_AGAIN;
    }
    if (is_media_error(error) && piece->kind == HST_AIO_READ)
        return judge_bad_read(piece, error);
    if (is_media_error(error) && piece->kind == HST_AIO_WRITE &&
        piece->media_retries < HST_AIO_WRITE_RETRIES_MAX) {
        piece->media_retries++;
        return PIECE_AGAIN;
    }
    return fail(piece, error);
}

enum verdict hst_aio_piece_judge(struct piece *piece, uint32_t *moved_bytes, uint64_t *pause_ns)
{
    *moved_bytes = 0;
    if (piece->result < 0)
        return judge_error(piece, pause_ns);
    const uint32_t result_bytes = (uint32_t)piece->result;
    assert(result_bytes <= piece->bytes);
    const bool whole = result_bytes == piece->bytes;
    *moved_bytes = result_bytes - result_bytes % HST_AIO_ALIGN_BYTES;
    if (whole && piece->bad_bytes > 0)
        return fail(piece, -EIO); /* the first good block behind the bad ones */
    if (whole && piece->rest_bytes == 0)
        return PIECE_FINISHED;
    if (*moved_bytes > 0) {
        step(piece, *moved_bytes);
        return PIECE_AGAIN;
    }
    if (result_bytes > 0 && piece->retries < HST_AIO_RETRIES_MAX) {
        piece->retries++;
        return PIECE_AGAIN;
    }
    return fail(piece, piece->kind == HST_AIO_READ ? -ENODATA : -ENOSPC);
}
