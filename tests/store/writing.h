/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_STORE_WRITING_H
#define HST_TESTS_STORE_WRITING_H
/* Writes of one version of a toy, in any order; those that the gate does not let through are for
   later. */
#include "toy.h"

struct writing {
    uint64_t version;
    bool wanted[TOY_EXTENTS], begun[TOY_EXTENTS];
    struct transfer transfers[TOY_EXTENTS];
};

/** Draws which extents; the others are as in the version before. */
void writing_plan(struct writing *w, struct toy *toy, uint64_t version, uint64_t *random);
/** Begins what may be begun now. Returns whether all is. */
bool writing_go_on(struct writing *w, struct toy *toy, struct store *store);

#endif
