/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TESTS_TOY_STATES_H
#define HOISTWAY_TESTS_TOY_STATES_H
/* What the optimizer keeps, as bytes: two runs that claim to be the same have the same. */
#include "toy_client.h"

struct toy_states {
    unsigned char bytes[TOY_ELEMENTS * 16]; /* weights, master, m and v */
    size_t used;
};
/** Of every tile in turn, wherever it lives. Between steps, drained. */
int toy_states(struct hst_engine *engine, struct toy_states *states);

#endif
