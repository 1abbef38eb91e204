/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_DATA_H
#define HOISTWAY_TOOLS_DATA_H
/*
 * Training data: one or several files as one long row of token ids, cut into sequences, in a fixed
 * order. Sequence i holds tokens [i·T, i·T+T], the first T as inputs and the last T as targets;
 * there are ⌊(tokens − 1)/T⌋. Step s takes the next batch/T of them, wrapping around; shuffled: in
 * a seeded permutation of each pass, computed from the position (a bijection, no table).
 */
#include <hoistway/hoistway.h>
#include <signal.h>

enum data_format {
    DATA_FORMAT_AUTO = 0 /* by the name: .txt, .bin, .safetensors, .jsonl */,
    DATA_FORMAT_BYTES = 1, /* each byte is a token */
    DATA_FORMAT_TOKENS = 2,
    DATA_FORMAT_JSONL = 3 /* rows of token ids, one document each */
};
enum data_order { DATA_SHUFFLED = 0, DATA_SEQUENTIAL = 1 };
enum token_dtype { TOKEN_DTYPE_NONE = 0 /* llm.c header required */, TOKEN_U16 = 1, TOKEN_U32 = 2 };

struct data_config {
    const char *files; /* FILE[,FILE] */
    enum data_format format;
    enum token_dtype token_dtype;
    enum data_order order;
    uint64_t seed;
    uint64_t seq_len; /* T, tokens */
    bool may_shorten; /* data that has less is one sequence of all its tokens but the last */
    uint64_t vocab;   /* ids must be below */
    /* the file that says how the model's ids come about, for messages; null: there is none */
    const char *tokenizer;
    const volatile sig_atomic_t *stopped; /* other than 0 ends data_open; or null */
};
struct data;

/** What data is told from other data by: sizes and sampled parts of its files, not their names. */
struct data_identity {
    uint64_t in_order;     /* of the files one after another */
    uint64_t in_any_order; /* of the same files in whatever order */
};

/**
 * Opens and checks all files (regular files only, sizes, magic, at least one sequence). E420 to
 * E423, E106; -ECANCELED, *error untouched, where config->stopped ended it.
 */
int data_open(const struct data_config *config, struct data **data, struct hst_error *error);
void data_close(struct data **data);
uint64_t data_token_count(const struct data *data);
uint64_t data_sequence_count(const struct data *data);
/** T: that of the configuration, or what data that is shorter has. */
uint64_t data_seq_len(const struct data *data);
/** The largest id in the first MiB of each token file; UINT64_MAX where the data is bytes. */
uint64_t data_largest_id(const struct data *data);
/** How many documents the files say that they have; they are one row of tokens all the same. */
uint64_t data_document_count(const struct data *data);
/** Whether a token file has ids of 16 bits, which name no more than 65,536. */
bool data_has_u16(const struct data *data);
/** What the files were when they were opened. */
struct data_identity data_identity(const struct data *data);
/** The sequence at position `index` of the endless order: index / sequences is the pass. Pure. */
uint64_t data_order_sequence(const struct data *data, uint64_t index);
/**
 * Reads `count` sequences at positions [index, index + count): inputs and targets u32[count·T]
 * each. Every id is checked against the vocabulary: E422 names file and offset.
 */
int data_read(struct data *data, uint64_t index, size_t count, uint32_t *inputs, uint32_t *targets,
              struct hst_error *error);
#endif
