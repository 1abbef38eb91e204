/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides from the first ids of a token file whether it is what it was said to be. Raw tokens do
 * not tell their width; read with the wrong one, most of them are ids that the model has, and it
 * trains on noise without a word.
 */
#include "base/fail.h"
#include "data/file/files.h"

#include <errno.h>
#include <inttypes.h>

/* A file of fewer tokens says too little about their width. */
#define LEAST_TOKENS 16u

void token_look_add(struct token_look *look, const uint32_t *ids, size_t count, uint64_t vocab)
{
    const uint64_t upper_most = vocab > 0 ? (vocab - 1) >> 16 : 0; /* of ids of 32 bits */
    for (size_t i = 0; i < count; i++, look->count++) {
        look->largest = ids[i] > look->largest ? ids[i] : look->largest;
        look->beyond += ids[i] >= vocab;
        look->halves_beyond += (ids[i] & 0xffff) >= vocab || ids[i] >> 16 >= vocab;
        if (look->count % 2 == 0)
            look->lower_set += ids[i] != 0;
        else
            look->upper_beyond += ids[i] > upper_most;
    }
}

bool token_look_is_u32(const struct token_look *look)
{
    return look->count >= LEAST_TOKENS && look->upper_beyond == 0 &&
           look->lower_set > look->count / 4;
}

bool token_look_is_u16(const struct token_look *look)
{
    /* two ids in one are mostly beyond; a few that are come from another tokenizer */
    return look->count >= LEAST_TOKENS && look->beyond > look->count / 2 &&
           look->halves_beyond == 0;
}

int token_file_look(const struct token_file *file, uint64_t vocab, void *buffer,
                    struct token_look *look, struct hst_error *error)
{
    uint32_t ids[LOOK_PIECE];
    uint64_t left = TOKEN_LOOK_BYTES / file->width;
    left = left < file->count ? left : file->count;
    *look = (struct token_look){0};
    for (uint64_t first = 0; left > 0;) {
        size_t n = left < LOOK_PIECE ? (size_t)left : LOOK_PIECE;
        int rc = token_file_read(file, first, n, UINT64_MAX, buffer, ids, error);
        if (rc < 0)
            return rc;
        token_look_add(look, ids, n, vocab);
        first += n;
        left -= n;
    }
    if (file->raw && file->width == 2 && token_look_is_u32(look))
        return fail(error, FAIL_DATA_FORMAT, -EINVAL,
                    "%s: every second id of --token-dtype u16 is %s, as the upper halves of u32 "
                    "are. Fix: --token-dtype u32",
                    file->path, vocab > UINT64_C(1) << 16 ? "next to 0" : "0");
    if (file->raw && file->width == 4 && token_look_is_u16(look))
        return fail(error, FAIL_DATA_FORMAT, -EINVAL,
                    "%s: as --token-dtype u32 it has ids up to %" PRIu64
                    ", and the model has %" PRIu64 "; as u16 all of them fit. Fix: --token-dtype "
                    "u16",
                    file->path, look->largest, vocab);
    return 0;
}
