/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data that knows its documents or masks: what begins with a brace or a blank is read as JSONL of
 * ids, all else as a token file, of ours or LLMQ's. Whatever is accepted has documents that divide
 * its tokens, ids that are the same wherever reading begins, and documents that can be packed.
 */
#include "fuzz.h"

#include "base/fail.h"
#include "data/file/files.h"
#include "data/pack.h"

#include <ctype.h>
#include <unistd.h>

#define VOCAB 1000u

static void check_ids(const struct token_file *file)
{
    static char buffer[TOKEN_BUFFER_BYTES];
    struct hst_error error = {0};
    uint32_t *ids = malloc(file->count * sizeof *ids), again;
    MUST(ids);
    if (token_file_read(file, 0, file->count, VOCAB, buffer, ids, &error)) {
        must_be_told(&error, FAIL_DATA_TOKEN, FAIL_DATA_TOKEN);
        MUST(!file->rows); /* of which all were checked */
    } else {
        for (uint64_t i = 0; i < file->count && i < 100; i++) {
            MUST(ids[i] < VOCAB);
            MUST(token_file_read(file, i, 1, VOCAB, buffer, &again, &error) == 0);
            MUST(again == ids[i]);
        }
    }
    free(ids);
}

static void check_packed(const uint64_t *offsets, uint64_t count, uint64_t inputs)
{
    const struct pack_config config = {.seq_len = 5, .longer = PACK_LONG_SPLIT};
    struct pack pack;
    struct pack_fault fault;
    MUST(pack_documents(offsets, count, &config, &pack, &fault) == 0);
    MUST(pack.input_count == inputs && pack.lost_count == 0);
    for (uint64_t i = 0; i < pack.piece_count; i++) {
        const struct pack_piece *p = &pack.pieces[i];
        MUST(p->first >= offsets[p->document]);
        MUST(p->first + p->count < offsets[p->document + 1]);
        MUST(p->column + p->count <= config.seq_len && p->row < pack.row_count);
    }
    pack_free(&pack);
}

static void check_accepted(const struct token_file *file)
{
    const struct token_documents *d = &file->documents;
    const uint64_t count = d->count ? d->count : 1;
    uint64_t *offsets;
    struct hst_error error = {0};
    MUST(file->count > 0 && file->count <= file->size_bytes);
    MUST(token_file_offsets(file, &offsets, &error) == 0);
    MUST(offsets[0] == 0 && offsets[count] == file->count);
    for (uint64_t i = 0; i < d->count; i++)
        MUST(offsets[i + 1] >= offsets[i] + 2 && offsets[i + 1] - offsets[i] <= d->longest);
    if (file->tensors || file->rows || file->llmq) {
        MUST(d->target_count == file->count - count);
        MUST(d->hidden_count == 0 || (d->masked && d->hidden_count < d->target_count));
    }
    check_packed(offsets, count, file->count - count);
    check_ids(file);
    free(offsets);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    struct token_file file;
    struct hst_error error = {0};
    const bool rows = size > 0 && (data[0] == '{' || isspace(data[0]));
    int fd = file_in_memory(data, size, path);
    const struct data_config config = {.format = rows ? DATA_FORMAT_JSONL : DATA_FORMAT_TOKENS,
                                       .vocab = VOCAB};
    if (token_file_open(path, &config, &file, &error)) {
        must_be_told(&error, FAIL_DATA_FILE, FAIL_DATA_FORMAT);
    } else {
        check_accepted(&file);
        token_file_close(&file);
    }
    close(fd);
    return 0;
}
