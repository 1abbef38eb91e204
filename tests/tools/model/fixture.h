/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TESTS_FIXTURE_H
#define HOISTWAY_TESTS_FIXTURE_H
/*
 * Reads the golden directories of tests/golden. They are ours and well-formed: anything odd fails
 * the test. (tools/hf reads model directories for users; these tests stay independent of it.)
 */
#include "data/data.h"
#include "model/llama.h"

struct fixture_step {
    double loss, grad_norm;
};

struct fixture {
    struct llama_config model;
    struct llama_run run;
    struct hst_config engine; /* lr apart; device fp32 */
    double lr;
    size_t step_count;
    struct fixture_step *steps;
    /* Lengths of each sequence's documents, as far as there are some: the rest is padding. */
    size_t document_count, documents[8];
    char learned[64]; /* whether the token at place i of the file is: the digit i mod length */
    struct fixture_file *weights;
    struct data *data;
    uint32_t *batch; /* inputs, targets, first, position */
};

/** `name`: a folder of tests/golden. */
void fixture_open(const char *name, struct fixture *fixture);
void fixture_close(struct fixture *fixture);
/** The batch of a step, 0 being the first. Borrowed until the next. */
struct llama_batch fixture_batch(struct fixture *fixture, size_t step);
/** A reader for hst_engine_load; its context is the fixture. */
int fixture_read(void *context, const struct hst_param_ref *param, uint64_t offset, float *dst,
                 size_t count);
#endif
