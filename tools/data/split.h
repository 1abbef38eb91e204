/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_DATA_SPLIT_H
#define HOISTWAY_TOOLS_DATA_SPLIT_H
/*
 * Which tokens of a row of files are evaluated on, and which are trained on: whole documents by a
 * draw from the seed and their number, of a file without documents the last sequences. It follows
 * from these arguments alone, so that each start of a run has the same. Pure, but for memory.
 */
#include "data/data.h"

/* Tokens of the whole row that belong together, one run behind another. */
struct data_runs {
    struct data_run {
        uint64_t from; /* of the whole row */
        uint64_t at;   /* of what is chosen */
    } *runs;
    size_t count, capacity;
    uint64_t tokens;
};

struct data_split {
    double share; /* that is evaluated on, below 1; 0: data is not split, all of it is chosen */
    enum data_side side;
    uint64_t seed, seq_len; /* seq_len: not looked at where share is 0 */
    uint64_t documents; /* before the one that comes next */
    uint64_t from;      /* the next token of the whole row */
};

/* Tokens [from, from + count) of the whole row; 0: none. */
struct data_part {
    uint64_t from, count;
};

/** This is what a configuration says, at the first token. */
struct data_split data_split_of(const struct data_config *config);
/** True where the document of this number is evaluated on. */
bool data_split_draw(uint64_t seed, double share, uint64_t document);
/** This much of a document of so many tokens is on split->side: all or none. Steps behind it. */
struct data_part data_split_document(struct data_split *split, uint64_t count);
/** The same of a file that knows no documents. Of the last sequences the first input is also the
 * last target of those that are trained on. */
struct data_part data_split_rows(struct data_split *split, uint64_t count);

/** Adds a part, which lies behind those before. -ENOMEM. */
int data_runs_add(struct data_runs *runs, const struct data_part *part);
/** The run that token `at` of the chosen ones is in; at < runs->tokens. */
size_t data_runs_find(const struct data_runs *runs, uint64_t at);
/** This is where that token is in the whole row. */
uint64_t data_runs_place(const struct data_runs *runs, uint64_t at);
/** It tells how many chosen tokens follow one another from `at` on, which lies in that run. */
uint64_t data_runs_left(const struct data_runs *runs, size_t run, uint64_t at);
void data_runs_free(struct data_runs *runs);
#endif
