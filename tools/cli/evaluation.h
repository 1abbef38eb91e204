/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_EVALUATION_H
#define HOISTWAY_TOOLS_CLI_EVALUATION_H
/* When a run evaluates, and which of its versions is the best one. Pure. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct evaluation_times {
    uint64_t steps;                     /* of the run */
    uint64_t every;                     /* steps; 0: after each pass over the data */
    uint64_t sequences, step_sequences; /* of the data that is trained on, and of a step */
};

/** True where behind this step: before the first one (0), behind the last one, and as is said. */
bool evaluation_due(const struct evaluation_times *times, uint64_t step);
/** How many of the steps from `first` to the last one that is true of. */
uint64_t evaluation_count(const struct evaluation_times *times, uint64_t first);

struct evaluation_best {
    uint64_t step; /* 0: none, whose version nothing has trained */
    double loss;
    uint64_t waited; /* evaluations since, none of which was better */
};

/** True where the version of this step is the best so far, which a loss that is not finite never
 * is. That of step 0 is told and not compared. */
bool evaluation_take(struct evaluation_best *best, uint64_t step, double loss);

/* A line of a cursor: "best STEP LOSS WAITED DATA DUE". It is written when a step begins. */
#define EVALUATION_WORD "best "
struct evaluation_line {
    struct evaluation_best best; /* as it is before that step */
    uint64_t data;               /* what it was evaluated on */
    bool due;                    /* an evaluation follows that step, which the line has not */
};
/** Returns its bytes, as snprintf does. */
int evaluation_write(const struct evaluation_line *line, char *text, size_t bytes);
/** From a cursor's text. False, *line untouched: there is none. */
bool evaluation_read(const char *cursor, struct evaluation_line *line);

#endif
