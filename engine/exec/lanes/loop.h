/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_LANES_LOOP_H
#define HOISTWAY_ENGINE_EXEC_LANES_LOOP_H
/* The executor's one loop. All return the sticky error. */
#include "exec/executor.h"

typedef bool loop_end(struct executor *exec);

/** Runs what may run until `end` holds. */
int loop_until(struct executor *exec, loop_end *end);
/** Runs until all that is left waits for the client. */
int loop_to_rest(struct executor *exec);
/** An end: every node of every opened step window is done. */
bool loop_is_idle(struct executor *exec);
/** One round without waiting, after something was given to the device. */
int loop_start(struct executor *exec);
/** Stalls are counted from here on. */
void loop_forget_stalls(struct executor *exec);

#endif
