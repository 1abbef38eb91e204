/* SPDX-License-Identifier: Apache-2.0 */
/* Lays a row's pieces side by side: tokens and mask from the file, the rest from the pieces. */
#include "data/batch.h"
#include "base/fail.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct pack_piece *pack_row(const struct pack *pack, uint64_t row, size_t *count)
{
    uint64_t low = 0, high = pack->piece_count; /* the first piece of the row is in between */
    assert(row < pack->row_count);
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (pack->pieces[middle].row < row)
            low = middle + 1;
        else
            high = middle;
    }
    for (*count = 0; low + *count < pack->piece_count && pack->pieces[low + *count].row == row;)
        ++*count;
    return &pack->pieces[low];
}

/* tokens u32[count + 1], learned u8[count + 1]: scratch of the piece's tokens. */
static int read_piece(struct token_files files, const struct pack_piece *piece, uint64_t vocab,
                      void *buffer, uint32_t *tokens, uint8_t *learned,
                      const struct data_batch *batch, struct hst_error *error)
{
    const size_t count = (size_t)piece->count + 1;
    uint64_t first = piece->first;
    const struct token_file *file = token_files_find(files, &first);
    int rc = token_file_read(file, first, count, vocab, buffer, tokens, error);
    rc = rc ? rc : token_file_learned(file, first, count, learned, error);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < piece->count; i++) {
        const uint32_t column = piece->column + i;
        batch->inputs[column] = tokens[i];
        batch->targets[column] = learned[i + 1] ? tokens[i + 1] : DATA_NO_TARGET;
        batch->first[column] = piece->column;
        batch->position[column] = i;
    }
    return 0;
}

static void pad(const struct data_batch *batch, uint32_t column, uint32_t seq_len)
{
    for (; column < seq_len; column++) {
        batch->inputs[column] = 0;
        batch->targets[column] = DATA_NO_TARGET;
        batch->first[column] = column;
        batch->position[column] = 0;
    }
}

int data_row_read(struct token_files files, const struct pack *pack, uint64_t row, uint32_t seq_len,
                  uint64_t vocab, void *buffer, const struct data_batch *batch,
                  struct hst_error *error)
{
    size_t count;
    const struct pack_piece *pieces = pack_row(pack, row, &count);
    uint32_t *tokens = malloc(((size_t)seq_len + 1) * (sizeof *tokens + 1));
    int rc = 0;
    if (!tokens)
        return fail(error, FAIL_DATA_FILE, -ENOMEM, "%s: out of memory", files.files[0].path);
    uint8_t *learned = (uint8_t *)(tokens + seq_len + 1);
    for (size_t i = 0; i < count && !rc; i++)
        rc = read_piece(files, &pieces[i], vocab, buffer, tokens, learned, batch, error);
    if (!rc)
        pad(batch, pieces[count - 1].column + pieces[count - 1].count, seq_len);
    free(tokens);
    return rc;
}
