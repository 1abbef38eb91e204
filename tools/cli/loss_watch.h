/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_LOSS_WATCH_H
#define HOISTWAY_TOOLS_CLI_LOSS_WATCH_H
/* This header tells whether a run's loss has risen and stayed up, which a user who looks at it
   hours later should have been told. */
#include <stdbool.h>
#include <stdint.h>

#define LOSS_WATCH_NATS  2.0
#define LOSS_WATCH_STEPS 20u

struct loss_watch {
    bool begun;
    double first; /* the first finite loss of the run, and its step */
    uint64_t first_step;
    uint32_t above; /* steps in a row with a loss that far above it, or that is no number */
    bool told;
};

/**
 * Takes the loss of the next step, in nats. True once in the life of a watch, which begins all
 * zero: when the last LOSS_WATCH_STEPS losses were all more than LOSS_WATCH_NATS above the first.
 * Pure but for *watch.
 */
bool loss_watch_step(struct loss_watch *watch, uint64_t step, double loss);

#endif
