/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TESTS_TOY_RUN_H
#define HOISTWAY_TESTS_TOY_RUN_H
/* Whole runs of the toy client in a store directory of the program's. What goes wrong fails the
 * test. */
#include "toy_client.h"

#define TOY_STEPS 4

extern char toy_store[];
/** Set-up and tear-down of a group of tests: the latter fails where a run left something behind. */
int toy_make_store(void **state);
int toy_remove_store(void **state);

#define TOY_SMALL(...)                                                                             \
    hst_config(.store = toy_store, .durability = "none", .batch_tokens = 10,                       \
               .micro_batch_tokens = 4, __VA_ARGS__)
#define TOY_CONFIG(...) TOY_SMALL(.dram_bytes = 64u << 20, __VA_ARGS__)

struct hst_engine *toy_created(const struct hst_config *config);
void toy_must(struct hst_engine *engine, int rc);

struct toy_result {
    struct toy_saved weights;
    double norms[TOY_STEPS];
    struct hst_memory memory;
    struct hst_step_stats stats;    /* of the last step */
    uint64_t nvme_read, nvme_write; /* of all, the drain included */
    uint64_t h2d, d2h;              /* the same */
    double nvme_s, copy_s;          /* stalls of all steps */
};
/**
 * Two steps and a save in which anything may fail, unless `rc` says that something has; after that
 * nothing must go on. Destroys the engine. Returns the first code; *error: what it told.
 */
int toy_try(struct hst_engine *engine, int rc, struct toy_saved *saved, struct hst_error *error);

/** TOY_STEPS steps, a drain, a save. */
void toy_run(const struct hst_config *config, struct toy_result *result);

#endif
