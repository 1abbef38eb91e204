/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins data files into one row of tokens and cuts it into sequences, or, where they know documents
 * or masks, lets packed.c make rows of them, which are the sequences then. What a position of the
 * endless order means is pure arithmetic on the number of sequences; only the tokens of the
 * sequences asked for are read.
 */
#include "data/data.h"

#include "base/fail.h"
#include "data/batch.h"
#include "data/file/files.h"
#include "data/file/prompts.h"
#include "data/order.h"
#include "data/packed.h"
#include "data/split.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILES 512u /* each stays open: half of the usual limit of descriptors */

/* So much of each file is looked at before training: data made with another tokenizer shows at
 * once, and a corpus of terabytes still opens in no time. All ids are checked again when a batch
 * reads them. */
#define CHECKED_AT_OPEN_BYTES (UINT64_C(256) << 20)

struct data {
    enum data_order order;
    uint64_t seed, seq_len, vocab;
    uint64_t token_count, sequence_count;
    uint64_t largest_id; /* of those that were looked at */
    void *buffer;        /* TOKEN_BUFFER_BYTES */
    struct data_identity identity;
    struct pack pack;      /* pieces are null where files are cut */
    struct data_runs runs; /* then: what of the files is this side's */
    struct data_packing packing;
    const char *option;
    size_t file_count;
    struct token_file files[MAX_FILES];
};

static int add_file(struct data *data, const char *path, const struct data_config *config,
                    struct hst_error *error)
{
    if (data->file_count == MAX_FILES)
        return fail(error, FAIL_VALUE, -EINVAL, "%s names more than %u files. Fix: join some",
                    data->option, MAX_FILES);
    struct token_file *file = &data->files[data->file_count];
    int rc = token_file_open(path, config, file, error);
    if (rc < 0)
        return rc;
    data->file_count++;
    const bool bytes = file->format == DATA_FORMAT_BYTES;
    if (bytes != (data->files[0].format == DATA_FORMAT_BYTES))
        return fail(error, FAIL_DATA_FORMAT, -EINVAL,
                    "%s and %s: bytes and token files cannot be joined. Fix: give %s "
                    "files of one kind",
                    data->files[0].path, path, data->option);
    if (bytes && config->vocab < 256)
        return fail(error, FAIL_DATA_TOKEN, -EDOM,
                    "%s: bytes need a vocabulary of at least 256, the model has %" PRIu64, path,
                    config->vocab);
    if (__builtin_add_overflow(data->token_count, file->count, &data->token_count))
        return fail(error, FAIL_DATA_FORMAT, -EOVERFLOW, "%s: too many tokens", path);
    if (!bytes) {
        struct token_look look;
        rc = token_file_look(file, config->vocab, data->buffer, &look, error);
        if (rc < 0)
            return rc;
        data->largest_id = look.largest > data->largest_id ? look.largest : data->largest_id;
    }
    uint64_t identity = 0;
    rc = token_file_check(file, CHECKED_AT_OPEN_BYTES, config->vocab, data->buffer, error);
    rc = rc ? rc : token_file_identity(file, data->buffer, &identity, error);
    if (rc == 0)
        data_identity_add(&data->identity, identity);
    return rc;
}

static int add_files(struct data *data, const struct data_config *config, struct hst_error *error)
{
    char *names = strdup(config->files);
    if (!names)
        return fail(error, FAIL_DATA_FILE, -ENOMEM, "%s: out of memory", data->option);
    int rc = 0;
    char *rest = names;
    while (rc == 0 && rest) {
        const char *path = strsep(&rest, ",");
        if (*path)
            rc = add_file(data, path, config, error);
        else
            rc = fail(error, FAIL_VALUE, -EINVAL, "%s %s: an empty file name. Fix: remove a comma",
                      data->option, config->files);
    }
    free(names);
    return rc;
}

static int check_config(const struct data_config *config, struct hst_error *error)
{
    if (!config->files)
        return fail(error, FAIL_MISSING, -EINVAL,
                    "--data is missing. Fix: name a file to train on");
    if (config->seq_len == 0 || config->seq_len > UINT32_MAX)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--seq-len %" PRIu64 " is out of range. Fix: 1 to 4294967295", config->seq_len);
    if (config->vocab == 0)
        return fail(error, FAIL_VALUE, -EINVAL, "the vocabulary of the model is empty");
    return 0;
}

/* It says what to do about an error, where its message does not. */
static int add_fix(struct hst_error *error, int native)
{
    static const char *const fixes[] = {
        [FAIL_READ] =
            "leave the data alone while it is in use, see dmesg for its drive, start again",
        [FAIL_DATA_FILE] = "name a file that can be read",
        [FAIL_DATA_SHORT] = "use more data",
        [FAIL_DATA_TOKEN] = "make the data with this model's own tokenizer",
        [FAIL_DATA_FORMAT] = "make the file again, or see --data-format and --token-dtype",
    };
    size_t code = error && native ? (size_t)error->code : 0;
    if (native == -ENOMEM)
        fail_fix(error, "end other programs");
    else if (code < sizeof fixes / sizeof fixes[0] && fixes[code])
        fail_fix(error, fixes[code]);
    return native;
}

/* This is the part of the files' tokens that is this side's. */
static int choose(struct data *d, const struct data_config *config, struct hst_error *error)
{
    struct data_split split = data_split_of(config);
    int rc = 0;
    for (size_t i = 0; i < d->file_count && !rc; i++) {
        const struct data_part part = data_split_rows(&split, d->files[i].count);
        rc = data_runs_add(&d->runs, &part);
    }
    const uint64_t all = d->token_count;
    const bool evaluated = config->side == DATA_EVALUATED;
    const uint64_t least = config->seq_len + 1; /* a shorter one would move the cut */
    d->token_count = d->runs.tokens;
    if (rc)
        return fail(error, FAIL_DATA_FILE, rc, "%s: out of memory", d->option);
    if (config->split <= 0 || d->token_count >= least)
        return 0;
    return fail(error, FAIL_DATA_SHORT, -ENODATA,
                "--eval-split %g of %s leaves %" PRIu64 " of %" PRIu64
                " tokens to %s, and a sequence of --seq-len %" PRIu64 " needs %" PRIu64
                ". Fix: a %s --eval-split, more data, or a smaller --seq-len",
                config->split, config->files, d->token_count, all,
                evaluated ? "evaluate on" : "train on", config->seq_len, config->seq_len + 1,
                evaluated ? "larger" : "smaller");
}

/* All tokens as one row of them. */
static int cut(struct data *d, const struct data_config *config, struct hst_error *error)
{
    const bool longer = config->longer && config->longer != PACK_LONG_SPLIT;
    if (config->side == DATA_TRAINED && (longer || config->pack == DATA_PACK_OFF))
        return fail(error, FAIL_VALUE, -EINVAL,
                    "%s has neither documents nor a mask: it is one row of tokens, and --%s is "
                    "about documents. Fix: leave it out",
                    config->files, longer ? "long" : "pack");
    const int rc = choose(d, config, error);
    if (rc)
        return rc;
    if (config->may_shorten && d->token_count > 1 && d->token_count <= d->seq_len)
        d->seq_len = d->token_count - 1;
    d->sequence_count = (d->token_count - 1) / d->seq_len;
    if (d->sequence_count == 0)
        return fail(error, FAIL_DATA_SHORT, -ENODATA,
                    "%s: %" PRIu64 " tokens, fewer than one sequence of --seq-len %" PRIu64
                    " and its last target (%" PRIu64 "). Fix: use more data or a smaller --seq-len",
                    config->files, d->token_count, d->seq_len, d->seq_len + 1);
    return 0;
}

static struct token_files files_of(const struct data *d)
{
    return (struct token_files){d->files, d->file_count};
}

static int make_sequences(struct data *d, const struct data_config *config, struct hst_error *error)
{
    if (!data_is_packed(files_of(d)))
        return cut(d, config, error);
    int rc = data_pack_files(files_of(d), config, &d->seq_len, &d->pack, &d->packing, error);
    d->sequence_count = d->pack.row_count;
    d->token_count = d->packing.token_count;
    return rc;
}

static int open_files(const struct data_config *config, struct data **data, struct hst_error *error)
{
    int rc = check_config(config, error);
    if (rc < 0)
        return rc;
    struct data *d = calloc(1, sizeof *d);
    if (d)
        d->buffer = malloc(TOKEN_BUFFER_BYTES);
    if (!d || !d->buffer) {
        data_close(&d);
        return fail(error, FAIL_DATA_FILE, -ENOMEM, "the data: out of memory");
    }
    d->order = config->order;
    d->seed = config->seed;
    d->seq_len = config->seq_len;
    d->vocab = config->vocab;
    d->option = config->option ? config->option : "--data";
    rc = add_files(d, config, error);
    rc = rc ? rc : make_sequences(d, config, error);
    if (rc < 0) {
        data_close(&d);
        return rc;
    }
    *data = d;
    return 0;
}

int data_open(const struct data_config *config, struct data **data, struct hst_error *error)
{
    return add_fix(error, open_files(config, data, error));
}

void data_close(struct data **data)
{
    struct data *d = *data;
    if (!d)
        return;
    for (size_t i = 0; i < d->file_count; i++)
        token_file_close(&d->files[i]);
    pack_free(&d->pack);
    data_runs_free(&d->runs);
    free(d->buffer);
    free(d);
    *data = NULL;
}

uint64_t data_token_count(const struct data *data)
{
    return data->token_count;
}

uint64_t data_sequence_count(const struct data *data)
{
    return data->sequence_count;
}

uint64_t data_seq_len(const struct data *data)
{
    return data->seq_len;
}

uint64_t data_largest_id(const struct data *data)
{
    return data->files[0].format == DATA_FORMAT_BYTES ? UINT64_MAX : data->largest_id;
}

const struct data_packing *data_packing(const struct data *data)
{
    return data->pack.pieces ? &data->packing : NULL;
}

bool data_has_u16(const struct data *data)
{
    for (size_t i = 0; i < data->file_count; i++)
        if (data->files[i].format == DATA_FORMAT_TOKENS && data->files[i].width == 2)
            return true;
    return false;
}

struct data_identity data_identity(const struct data *data)
{
    return data->identity;
}

int data_prompts(const struct data *data, uint64_t most, struct prompts *prompts,
                 struct hst_error *error)
{
    return add_fix(error, prompts_read(files_of(data), data->vocab, most, prompts, error));
}

uint64_t data_order_sequence(const struct data *data, uint64_t index)
{
    uint64_t n = data->sequence_count;
    if (data->order == DATA_SEQUENTIAL)
        return index % n;
    return data_order_permute(data->seed, index / n, n, index % n);
}

/* Tokens [first, first + count) of the whole row, across files. */
static int read_whole(struct data *data, uint64_t first, size_t count, uint32_t *ids,
                      struct hst_error *error)
{
    for (size_t i = 0; count > 0; i++) {
        const struct token_file *file = &data->files[i];
        if (first >= file->count) {
            first -= file->count;
            continue;
        }
        uint64_t left = file->count - first;
        size_t n = count < left ? count : (size_t)left;
        int rc = token_file_read(file, first, n, data->vocab, data->buffer, ids, error);
        if (rc < 0)
            return rc;
        first = 0;
        ids += n;
        count -= n;
    }
    return 0;
}

/* The same of the side that this is. */
static int read_row(struct data *data, uint64_t first, size_t count, uint32_t *ids,
                    struct hst_error *error)
{
    for (size_t run = data_runs_find(&data->runs, first); count > 0; run++) {
        const uint64_t left = data_runs_left(&data->runs, run, first);
        const size_t n = count < left ? count : (size_t)left;
        const struct data_run *from = &data->runs.runs[run];
        int rc = read_whole(data, from->from + (first - from->at), n, ids, error);
        if (rc < 0)
            return rc;
        first += n;
        ids += n;
        count -= n;
    }
    return 0;
}

/* One of the sequences that tokens are cut into. */
static int read_sequence(struct data *data, uint64_t sequence, const struct data_batch *batch,
                         struct hst_error *error)
{
    const size_t length = (size_t)data->seq_len;
    int rc = read_row(data, sequence * length, 1, batch->inputs, error);
    rc = rc ? rc : read_row(data, sequence * length + 1, length, batch->targets, error);
    if (!rc)
        memcpy(batch->inputs + 1, batch->targets, (length - 1) * sizeof *batch->inputs);
    return rc;
}

static struct data_batch batch_at(const struct data *data, const struct data_batch *batch, size_t i)
{
    const size_t column = i * (size_t)data->seq_len;
    if (!data->pack.pieces)
        return (struct data_batch){batch->inputs + column, batch->targets + column, NULL, NULL};
    return (struct data_batch){batch->inputs + column, batch->targets + column,
                               batch->first + column, batch->position + column};
}

int data_read(struct data *data, uint64_t index, size_t count, const struct data_batch *batch,
              struct hst_error *error)
{
    if (index > UINT64_MAX - count)
        return fail(error, FAIL_VALUE, -EOVERFLOW, "position %" PRIu64 " of the data is too far",
                    index);
    for (size_t i = 0; i < count; i++) {
        const uint64_t sequence = data_order_sequence(data, index + i);
        const struct data_batch at = batch_at(data, batch, i);
        int rc = data->pack.pieces
                     ? data_row_read(files_of(data), &data->pack, sequence, (uint32_t)data->seq_len,
                                     data->vocab, data->buffer, &at, error)
                     : read_sequence(data, sequence, &at, error);
        if (rc < 0)
            return add_fix(error, rc);
    }
    return 0;
}
