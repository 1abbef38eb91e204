/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_PASSAGES_H
#define HOISTWAY_ENGINE_EXEC_PASSAGES_H
/* This is what was given to the device: a ring for each of its lanes, in the order of its ends. All
 * return the device's error, which is not recorded. */
#include "exec/executor.h"

/** Events for the lanes whose nodes end in order. */
int passages_open(struct executor *exec);
void passages_close(struct executor *exec);

/**
 * Marks where the lane's stream is through with a node that was started, whose work was enqueued
 * there; there must be room for one more.
 */
int passages_add(struct executor *exec, enum lane lane, struct hst_stream *stream,
                 struct passage passage);
/** The lane's oldest, of at least one. */
const struct passage *passages_oldest(const struct executor *exec, enum lane lane);
/** It has passed, and leaves the ring. */
void passages_drop(struct executor *exec, enum lane lane);

#endif
