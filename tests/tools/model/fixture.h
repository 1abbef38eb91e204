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
    struct fixture_file *weights;
    struct data *data;
};

/** `name`: a folder of tests/golden. */
void fixture_open(const char *name, struct fixture *fixture);
void fixture_close(struct fixture *fixture);
/** A reader for hst_engine_load; its context is the fixture. */
int fixture_read(void *context, const struct hst_param_ref *param, uint64_t offset, float *dst,
                 size_t count);
#endif
