/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TESTS_HARNESS_H
#define HOISTWAY_TESTS_HARNESS_H
/* A model in an engine, loaded and ready for steps; what must work is asserted. */
#include "fake_engine.h"
#include "model/llama.h"

struct harness {
    struct llama *model;
    struct hst_engine *engine;
};

/** What fake_engine_slices is given by harness_open. */
extern uint64_t harness_slice_rows;

void harness_open(struct harness *h, const struct llama_config *model, const struct llama_run *run,
                  const struct hst_config *engine, const struct hst_reader *reader);
void harness_close(struct harness *h);
/** A configuration without clipping and decay. */
struct hst_config harness_engine(const struct llama_run *run, enum hst_precision precision);
/** The host device and a stream of it, without an engine. Returns the first error. */
int harness_device(struct hst_dev **dev, struct hst_stream **stream);
#endif
