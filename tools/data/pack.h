/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_DATA_PACK_H
#define HOISTWAY_TOOLS_DATA_PACK_H
/*
 * Which documents stand in which row, so that rows of T inputs are nearly full. A document of L
 * tokens has L − 1 inputs: its last token is a target alone, its first one nobody's. Pure.
 */
#include <stdbool.h>
#include <stdint.h>

#define PACK_WINDOW       65536u     /* documents that are packed with one another */
#define PACK_MOST_SEQ_LEN (1u << 20) /* T */

/* It says what becomes of a document of more than T inputs. */
enum pack_long {
    PACK_LONG_SPLIT = 1, /* pieces of T inputs, the last one shorter */
    PACK_LONG_CUT,       /* its first T inputs */
    PACK_LONG_DROP,
    PACK_LONG_REFUSE
};

struct pack_config {
    uint64_t seed;
    uint32_t seq_len; /* T, 1 to PACK_MOST_SEQ_LEN */
    enum pack_long longer;
    bool apart; /* no row has two pieces */
};

/* Inputs are the tokens [first, first + count), targets those one further. */
struct pack_piece {
    uint64_t first; /* token, counted from the first of all documents */
    uint32_t document, row, column, count;
};

struct pack {
    struct pack_piece *pieces; /* by row, then by column */
    uint64_t piece_count, row_count;
    uint64_t input_count; /* of all pieces */
    uint64_t long_count;  /* documents of more than T inputs */
    uint64_t lost_count;  /* inputs of those that were cut or dropped */
};

/* The document that was refused: its number and inputs. */
struct pack_fault {
    uint64_t document, input_count;
};

/**
 * Packs `document_count` documents, tokens [offsets[i], offsets[i + 1]) each; offsets rise. They
 * are taken in an order that follows from the seed, PACK_WINDOW at a time; of those the longest
 * goes first into the row with the least room that is enough for it, or into a new one.
 *
 * offsets   u64[document_count + 1]
 * pack      to be freed with pack_free; a function of the arguments alone
 * fault     filled where the result is -E2BIG
 *
 * Errors: -EINVAL (seq_len), -E2BIG (PACK_LONG_REFUSE, and a document is longer), -EOVERFLOW (2^32
 * documents or pieces), -ENOMEM. Cost: 24 bytes a piece.
 * Source: Johnson 1974, doi:10.1137/0203025 (best fit decreasing).
 */
int pack_documents(const uint64_t *offsets, uint64_t document_count,
                   const struct pack_config *config, struct pack *pack, struct pack_fault *fault);
/** Leaves rows out: bool out[row_count]. The others keep their order; row_count, piece_count and
 * input_count are theirs. */
void pack_leave_out(struct pack *pack, const bool *out);
void pack_free(struct pack *pack);
#endif
