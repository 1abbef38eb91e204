/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TESTS_CKPT_RUN_H
#define HOISTWAY_TESTS_CKPT_RUN_H
/* Stores that a small run leaves, for tests of what reads them: 44 tiles in five units. */
#include "ckpt/ckpt.h"
#include "toy_run.h"

enum { STEPS = 3, TILES = 44 };

extern char root[];                             /* the directory that all stores are in */
extern struct toy_saved oracle, masters, found; /* what a run saved; what a store gave */
extern struct hst_error error;

#define OF_RUN(...)                                                                                \
    hst_config(.batch_tokens = 10, .micro_batch_tokens = 4, .dram_bytes = 64u << 20, .threads = 2, \
               .tile_elements = 8192, __VA_ARGS__)

int make_root(void **state);
int remove_root(void **state);
void empty_root(void);
/** Fails the test with *error where rc is not 0. */
void must(int rc);
/** "ROOT/a,ROOT/b" of "a,b"; good until the next call. */
const char *in_root(const char *names);
/** Leaves a store; *saved, and `masters`: what the engine saves at its end. */
void train(enum hst_precision precision, const char *store, int steps, struct toy_saved *saved);
struct hst_ckpt *opened_at(const char *names, uint64_t step);
struct hst_ckpt *opened(const char *names);
int take(void *context, const struct hst_param_ref *param, uint64_t offset, const void *src,
         size_t count, enum hst_dtype dtype);
/** The weights are those of `oracle`, the masters `masters`. Closes the handle. */
void check_weights_of(struct hst_ckpt *ckpt, enum hst_precision precision);
void check_weights(const char *names, enum hst_precision precision);
/** Of the hashes in all manifests, in the order of the model. */
uint64_t digest_of(const char *names);
void reshard(const char *from, uint32_t world, const char *to);

#endif
