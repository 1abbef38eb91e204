/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which rows the documents of all files fill together. Every document has a target, or its
 * file was refused: only the pieces of one that is longer than a row can be without, and of those
 * alone the mask is read again.
 */
#include "data/packed.h"

#include "base/fail.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The documents of all files: tokens [offsets[i], offsets[i + 1]) each. */
struct documents {
    uint64_t *offsets; /* owned */
    uint64_t count, longest, inputs;
};

static uint64_t count_of(const struct token_file *file)
{
    return file->documents.count ? file->documents.count : 1;
}

bool data_is_packed(struct token_files files)
{
    for (size_t i = 0; i < files.count; i++)
        if (files.files[i].documents.count || files.files[i].documents.hidden_count)
            return true;
    return false;
}

enum pack_long data_long_default(struct token_files files)
{
    for (size_t i = 0; i < files.count; i++)
        if (files.files[i].documents.count && files.files[i].documents.masked)
            return PACK_LONG_REFUSE;
    return PACK_LONG_SPLIT;
}

/* ---- the documents ---- */

static int no_memory(const struct data_config *config, struct hst_error *error)
{
    return fail(error, FAIL_DATA_FILE, -ENOMEM, "%s: out of memory for its documents",
                config->files);
}

static int join_file(const struct token_file *file, uint64_t before, struct documents *d,
                     struct hst_error *error)
{
    uint64_t *offsets = NULL;
    int rc = token_file_offsets(file, &offsets, error);
    for (uint64_t i = 0; i < count_of(file) && !rc; i++) {
        const uint64_t tokens = offsets[i + 1] - offsets[i], inputs = tokens - (tokens > 0);
        d->offsets[d->count++] = before + offsets[i];
        d->inputs += inputs;
        d->longest = inputs > d->longest ? inputs : d->longest;
    }
    free(offsets);
    return rc;
}

static int join_files(struct token_files files, const struct data_config *config,
                      struct documents *d, struct hst_error *error)
{
    uint64_t count = 0, before = 0;
    int rc = 0;
    for (size_t i = 0; i < files.count; i++)
        count += count_of(&files.files[i]);
    *d = (struct documents){.offsets = malloc((count + 1) * sizeof *d->offsets)};
    if (!d->offsets)
        return no_memory(config, error);
    for (size_t i = 0; i < files.count && !rc; i++) {
        rc = join_file(&files.files[i], before, d, error);
        before += files.files[i].count;
    }
    d->offsets[d->count] = before;
    return rc;
}

/* ---- rows without a target ---- */

/* Whether a piece has one; *has is false before. learned u8[count + 1]: scratch. */
static int look_at_piece(struct token_files files, const struct pack_piece *piece, uint8_t *learned,
                         bool *has, struct hst_error *error)
{
    uint64_t first = piece->first;
    const struct token_file *file = token_files_find(files, &first);
    int rc = token_file_stopped(file);
    rc = rc ? rc : token_file_learned(file, first, (size_t)piece->count + 1, learned, error);
    for (uint32_t i = 1; i <= piece->count && !rc && !*has; i++)
        *has = learned[i];
    return rc;
}

static bool is_whole(const struct pack_piece *piece, const struct documents *d)
{
    const uint64_t first = d->offsets[piece->document], end = d->offsets[piece->document + 1];
    return piece->first == first && first + piece->count + 1 == end;
}

/* idle bool[row_count], and how many of them. */
static int find_idle(struct token_files files, const struct pack *pack, const struct documents *d,
                     uint8_t *learned, bool *idle, uint64_t *count, struct hst_error *error)
{
    memset(idle, true, pack->row_count * sizeof *idle);
    for (uint64_t i = 0; i < pack->piece_count; i++) {
        const struct pack_piece *piece = &pack->pieces[i];
        bool has = is_whole(piece, d);
        int rc = has || !idle[piece->row] ? 0 : look_at_piece(files, piece, learned, &has, error);
        if (rc)
            return rc;
        idle[piece->row] = idle[piece->row] && !has;
    }
    for (uint64_t row = 0; row < pack->row_count; row++)
        *count += idle[row];
    return 0;
}

static int leave_out_idle(struct token_files files, const struct data_config *config,
                          uint64_t seq_len, const struct documents *d, struct pack *pack,
                          struct data_packing *packing, struct hst_error *error)
{
    uint8_t *learned = malloc((size_t)seq_len + 1);
    bool *idle = malloc(pack->row_count + 1);
    int rc = learned && idle ? find_idle(files, pack, d, learned, idle, &packing->idle_count, error)
                             : no_memory(config, error);
    if (!rc)
        pack_leave_out(pack, idle);
    free(learned);
    free(idle);
    return rc;
}

/* ---- rows ---- */

/* Names the document by its own file. */
static int too_long(struct token_files files, const struct pack_fault *fault, uint64_t seq_len,
                    struct hst_error *error)
{
    const struct token_file *file = files.files;
    uint64_t document = fault->document;
    for (; document >= count_of(file); file++)
        document -= count_of(file);
    return fail(error, FAIL_VALUE, -E2BIG,
                "%.250s: document %" PRIu64 " has %" PRIu64 " inputs, more than --seq-len %" PRIu64
                ". Fix: --long split, cut or drop, or a larger --seq-len.",
                file->path, document, fault->input_count, seq_len);
}

static int pack_all(struct token_files files, const struct data_config *config, uint64_t seq_len,
                    const struct documents *d, struct pack *pack, struct data_packing *packing,
                    struct hst_error *error)
{
    const struct pack_config how = {
        .seed = config->seed,
        .seq_len = (uint32_t)seq_len,
        .longer = packing->longer,
        .apart = packing->apart,
    };
    struct pack_fault fault;
    if (seq_len > PACK_MOST_SEQ_LEN)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--seq-len %" PRIu64 ": documents are packed into rows of at most %u. Fix: a "
                    "smaller one",
                    seq_len, PACK_MOST_SEQ_LEN);
    const int rc = pack_documents(d->offsets, d->count, &how, pack, &fault);
    if (rc == -E2BIG)
        return too_long(files, &fault, seq_len, error);
    if (rc == -EOVERFLOW)
        return fail(error, FAIL_VALUE, rc,
                    "%s: %" PRIu64 " documents are too many to be packed. Fix: fewer of them, or a "
                    "larger --seq-len",
                    config->files, d->count);
    return rc ? no_memory(config, error) : 0;
}

static int check_rest(const struct data_config *config, uint64_t seq_len, const struct pack *pack,
                      const struct data_packing *packing, struct hst_error *error)
{
    if (pack->row_count)
        return 0;
    return fail(error, FAIL_DATA_SHORT, -ENODATA,
                "%s: there is nothing to learn: all %" PRIu64 " document%s longer than --seq-len "
                "%" PRIu64 ", and %s. Fix: --long split, or a larger --seq-len",
                config->files, packing->document_count,
                packing->document_count == 1 ? " is" : "s are", seq_len,
                packing->longer == PACK_LONG_DROP ? "dropped" : "cut before their first target");
}

int data_pack_files(struct token_files files, const struct data_config *config, uint64_t *seq_len,
                    struct pack *pack, struct data_packing *packing, struct hst_error *error)
{
    struct documents d;
    *packing = (struct data_packing){
        .apart = config->pack == DATA_PACK_OFF,
        .longer = config->longer ? config->longer : data_long_default(files),
    };
    *pack = (struct pack){0};
    int rc = join_files(files, config, &d, error);
    const uint64_t most = packing->apart ? d.longest : d.inputs;
    if (!rc && config->may_shorten && most > 0 && most < *seq_len)
        *seq_len = most;
    packing->document_count = d.count;
    rc = rc ? rc : pack_all(files, config, *seq_len, &d, pack, packing, error);
    rc = rc ? rc : leave_out_idle(files, config, *seq_len, &d, pack, packing, error);
    rc = rc ? rc : check_rest(config, *seq_len, pack, packing, error);
    free(d.offsets);
    if (rc) {
        pack_free(pack);
        return rc;
    }
    packing->row_count = pack->row_count;
    packing->input_count = pack->input_count;
    packing->long_count = pack->long_count;
    packing->lost_count = pack->lost_count;
    return 0;
}
