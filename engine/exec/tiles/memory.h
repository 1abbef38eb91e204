/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_MEMORY_H
#define HOISTWAY_ENGINE_EXEC_MEMORY_H
/* Between steps: all that a version needs of memory, to the store at once or from it. */
#include "exec/executor.h"

enum memory_move {
    MEMORY_LOADED,  /* to the store, for its first version */
    MEMORY_TRAINED, /* to the store, for a later one: of what is frozen it has all */
    MEMORY_RESUMED, /* from the store */
};
static inline enum memory_move memory_to_store(bool first)
{
    return first ? MEMORY_LOADED : MEMORY_TRAINED;
}
/**
 * Weights (where they do not follow from the states) and states of every tile at home in memory, in
 * RAM or a GPU's. From the store, hst_config.progress is told how far that is. Returns the first
 * error (sticky); nothing moves any more then.
 */
int memory_move(struct executor *exec, enum memory_move move);

#endif
