/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_DATA_H
#define HOISTWAY_TOOLS_DATA_H
/*
 * Training data: one or several files as one long row of token ids, cut into sequences, in a fixed
 * order. Sequence i holds tokens [i·T, i·T+T], the first T as inputs and the last T as targets;
 * there are ⌊(tokens − 1)/T⌋. Step s takes the next batch/T of them, wrapping around; shuffled: in
 * a seeded permutation of each pass, computed from the position (a bijection, no table).
 *
 * Files that know documents, or whose mask leaves targets out, are not cut: their documents are
 * packed into rows of T inputs, once and for all passes, and a sequence is such a row.
 */
#include "data/pack.h"

#include <hoistway/hoistway.h>
#include <signal.h>

enum data_format {
    DATA_FORMAT_AUTO = 0 /* by the name: .txt, .bin, .safetensors, .jsonl */,
    DATA_FORMAT_BYTES = 1, /* each byte is a token */
    DATA_FORMAT_TOKENS = 2,
    DATA_FORMAT_JSONL = 3 /* rows of token ids, one document each */
};
enum data_order { DATA_SHUFFLED = 0, DATA_SEQUENTIAL = 1 };
enum data_pack { DATA_PACK_ON = 1, DATA_PACK_OFF = 2 /* one document a row */ };
/* Data that is split has these sides. */
enum data_side { DATA_TRAINED = 0, DATA_EVALUATED = 1 };
enum token_dtype { TOKEN_DTYPE_NONE = 0 /* llm.c header required */, TOKEN_U16 = 1, TOKEN_U32 = 2 };

struct data_config {
    const char *files; /* FILE[,FILE] */
    enum data_format format;
    enum token_dtype token_dtype;
    enum data_order order;
    uint64_t seed;
    uint64_t seq_len;      /* T, tokens */
    double split;          /* what is evaluated on: split.h; 0: data is not split */
    enum data_side side;   /* what of it this is */
    const char *option;    /* that names the files, for messages; null: --data */
    bool may_shorten;      /* data that has less is one sequence of all its tokens but the last */
    uint64_t vocab;        /* ids must be below */
    enum data_pack pack;   /* 0: on */
    enum pack_long longer; /* 0: data_long_default */
    /* the file that says how the model's ids come about, for messages; null: there is none */
    const char *tokenizer;
    const char *model; /* the directory whose tokenizer token files have to have; null: any */
    const volatile sig_atomic_t *stopped; /* other than 0 ends data_open; or null */
};
struct data;

#define DATA_NO_TARGET HST_NO_TARGET /* an id that no vocabulary has */

/*
 * It holds what rows of T columns are to a model, one after another: u32 each. Behind the last
 * piece of a row is padding: inputs are 0, each one sees itself alone, and none has a target. Every
 * row has a target.
 */
struct data_batch {
    uint32_t *inputs;
    uint32_t *targets;  /* DATA_NO_TARGET: nothing is learned there */
    uint32_t *first;    /* column: an input sees those of its row from this one to itself */
    uint32_t *position; /* of an input in its own document, from 0 */
};

/* It says how documents became rows. */
struct data_packing {
    bool apart; /* one document a row */
    enum pack_long longer;
    uint64_t document_count, row_count;
    uint64_t token_count; /* of the documents */
    uint64_t input_count; /* of the rows: padding has none */
    double pair_count;    /* pairs of a row's columns that see each other, of all rows */
    uint64_t long_count;  /* documents of more than T inputs */
    uint64_t lost_count;  /* inputs of those that were cut or dropped */
    uint64_t idle_count;  /* rows without a target, left out of the others */
};

/** Data is told from other data by these: sizes and sampled parts of its files, not their names. */
struct data_identity {
    uint64_t in_order;     /* of the files one after another */
    uint64_t in_any_order; /* of the same files in whatever order */
};

/**
 * Opens and checks all files (regular files only, sizes, magic, at least one sequence). E402, E420
 * to E423 (E421: a split that leaves nothing on this side), E106; -ECANCELED, *error untouched,
 * where config->stopped ended it.
 */
int data_open(const struct data_config *config, struct data **data, struct hst_error *error);
void data_close(struct data **data);
/** They count the side that was opened. */
uint64_t data_token_count(const struct data *data);
uint64_t data_sequence_count(const struct data *data);
/** T: that of the configuration, or what data that is shorter has. */
uint64_t data_seq_len(const struct data *data);
/** The largest id in the first MiB of each token file; UINT64_MAX where the data is bytes. */
uint64_t data_largest_id(const struct data *data);
/** It tells what became of documents; null where data has none and no mask: it was cut. */
const struct data_packing *data_packing(const struct data *data);
/** True where there is data, and it is packed. */
static inline bool data_holds_documents(const struct data *data)
{
    return data && data_packing(data);
}
/** It tells whether a token file has ids of 16 bits, which name no more than 65,536. */
bool data_has_u16(const struct data *data);
/** It tells what the files were when they were opened. */
struct data_identity data_identity(const struct data *data);
/** Reads the first `most` prompts that its files have: file/prompts.h. */
struct prompts;
int data_prompts(const struct data *data, uint64_t most, struct prompts *prompts,
                 struct hst_error *error);
/** The sequence at position `index` of the endless order: index / sequences is the pass. Pure. */
uint64_t data_order_sequence(const struct data *data, uint64_t index);
/**
 * Reads `count` sequences at positions [index, index + count): u32[count·T] of each of the batch's.
 * first and position are left as they are where data_packing is null. Every id is checked against
 * the vocabulary: E422 names file and offset.
 */
int data_read(struct data *data, uint64_t index, size_t count, const struct data_batch *batch,
              struct hst_error *error);
#endif
