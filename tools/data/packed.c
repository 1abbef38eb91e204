/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which rows the documents of all files fill together. Every document has a target, or its
 * file was refused: only the pieces of one that is longer than a row can be without, and of those
 * alone the mask is read again.
 */
#include "data/packed.h"

#include "base/fail.h"
#include "data/split.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The documents of all files, or those of one side: tokens [offsets[i], offsets[i + 1]) each of
 * those that are chosen. */
struct documents {
    uint64_t *offsets;     /* owned */
    struct data_runs runs; /* where the chosen tokens are in the files; owned */
    uint64_t count, inputs;
    uint64_t longest, all; /* of both sides */
    bool has_part;         /* one is a part of its file, and may be without a target */
    bool has_rows;         /* a file knows no documents */
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

static int join_document(const struct data_part *part, struct documents *d)
{
    const uint64_t inputs = part->count - (part->count > 0);
    if (part->count == 0)
        return 0;
    d->offsets[d->count++] = d->runs.tokens;
    d->inputs += inputs;
    return data_runs_add(&d->runs, part);
}

static int join_file(const struct token_file *file, struct data_split *split, struct documents *d,
                     struct hst_error *error)
{
    const bool whole = file->documents.count > 0;
    d->has_rows = d->has_rows || !whole;
    uint64_t *offsets = NULL;
    int rc = token_file_offsets(file, &offsets, error);
    if (rc)
        return rc;
    for (uint64_t i = 0; i < count_of(file) && !rc; i++) {
        const uint64_t tokens = offsets[i + 1] - offsets[i], inputs = tokens - (tokens > 0);
        const struct data_part part =
            whole ? data_split_document(split, tokens) : data_split_rows(split, tokens);
        d->longest = inputs > d->longest ? inputs : d->longest;
        d->has_part = d->has_part || (part.count > 0 && part.count < tokens);
        rc = join_document(&part, d);
    }
    free(offsets);
    return rc ? fail(error, FAIL_DATA_FILE, rc, "%s: out of memory", file->path) : 0;
}

static int join_files(struct token_files files, const struct data_config *config,
                      struct documents *d, struct hst_error *error)
{
    struct data_split split = data_split_of(config);
    uint64_t count = 0;
    int rc = 0;
    for (size_t i = 0; i < files.count; i++)
        count += count_of(&files.files[i]);
    *d = (struct documents){.offsets = malloc((count + 1) * sizeof *d->offsets), .all = count};
    if (!d->offsets)
        return no_memory(config, error);
    for (size_t i = 0; i < files.count && !rc; i++)
        rc = join_file(&files.files[i], &split, d, error);
    d->offsets[d->count] = d->runs.tokens;
    return rc;
}

static int check_side(const struct data_config *config, const struct documents *d,
                      struct hst_error *error)
{
    const bool evaluated = config->side == DATA_EVALUATED;
    if (d->count > 0)
        return 0;
    return fail(error, FAIL_DATA_SHORT, -ENODATA,
                "--eval-split %g of %s leaves none of %" PRIu64
                " document%s to %s. Fix: a %s --eval-split, or more documents",
                config->split, config->files, d->all, d->all == 1 ? "" : "s",
                evaluated ? "evaluate on" : "train on", evaluated ? "larger" : "smaller");
}

/* ---- rows without a target ---- */

/* It tells whether a piece has one; *has is false before. learned u8[count + 1]: scratch. */
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
    const uint64_t *offset = &d->offsets[piece->document];
    return !d->has_part && piece->count + UINT64_C(1) == offset[1] - offset[0];
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
static int too_long(struct token_files files, const struct documents *d,
                    const struct pack_fault *fault, uint64_t seq_len, struct hst_error *error)
{
    uint64_t first = data_runs_place(&d->runs, d->offsets[fault->document]), document = 0;
    const struct token_file *file = token_files_find(files, &first);
    uint64_t *offsets = NULL;
    const int rc = token_file_offsets(file, &offsets, error);
    if (rc)
        return rc;
    while (document + 1 < count_of(file) && offsets[document + 1] <= first)
        document++;
    free(offsets);
    return fail(error, FAIL_VALUE, -E2BIG,
                "%.250s: document %" PRIu64 " has %" PRIu64 " inputs, more than --seq-len %" PRIu64
                ". Fix: --long split, cut or drop, or a larger --seq-len.",
                file->path, document, fault->input_count, seq_len);
}

/* From the chosen tokens to those of the files. */
static void place(struct pack *pack, const struct data_runs *runs)
{
    for (uint64_t i = 0; i < pack->piece_count; i++)
        pack->pieces[i].first = data_runs_place(runs, pack->pieces[i].first);
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
        return too_long(files, d, &fault, seq_len, error);
    if (rc == -EOVERFLOW)
        return fail(error, FAIL_VALUE, rc,
                    "%s: %" PRIu64 " documents are too many to be packed. Fix: fewer of them, or a "
                    "larger --seq-len",
                    config->files, d->count);
    if (rc)
        return no_memory(config, error);
    place(pack, &d->runs);
    return 0;
}

/* Each input of a piece sees those before it and itself; each of padding itself. */
static double count_pairs(const struct pack *pack, uint64_t seq_len)
{
    double pairs = (double)pack->row_count * (double)seq_len - (double)pack->input_count;
    for (uint64_t i = 0; i < pack->piece_count; i++)
        pairs += (double)pack->pieces[i].count * ((double)pack->pieces[i].count + 1) / 2;
    return pairs;
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
    rc = rc ? rc : check_side(config, &d, error);
    /* both sides of a split have one length of rows */
    const uint64_t most = packing->apart || d.longest > d.inputs ? d.longest : d.inputs;
    const bool moves_cut = config->split > 0 && d.has_rows; /* it is at a multiple of that */
    if (!rc && config->may_shorten && !moves_cut && most > 0 && most < *seq_len)
        *seq_len = most;
    packing->document_count = d.count;
    packing->token_count = d.runs.tokens;
    rc = rc ? rc : pack_all(files, config, *seq_len, &d, pack, packing, error);
    rc = rc ? rc : leave_out_idle(files, config, *seq_len, &d, pack, packing, error);
    rc = rc ? rc : check_rest(config, *seq_len, pack, packing, error);
    free(d.offsets);
    data_runs_free(&d.runs);
    if (rc) {
        pack_free(pack);
        return rc;
    }
    packing->row_count = pack->row_count;
    packing->input_count = pack->input_count;
    packing->pair_count = count_pairs(pack, *seq_len);
    packing->long_count = pack->long_count;
    packing->lost_count = pack->lost_count;
    return 0;
}
