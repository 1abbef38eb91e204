/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_UPDATE_CHOICE_H
#define HOISTWAY_ENGINE_PLAN_UPDATE_CHOICE_H
/*
 * Which of two ways of updating the next step takes, from what steps took so far: each is tried for
 * a few steps, then the faster one is kept, and both are tried again from time to time. Measured
 * seconds have everything in them: rates, clipping that makes updates be made again, what else the
 * machine does. How often the norm clips is watched beside it: an optimistic update that is made
 * again writes its bytes to the drives twice, and a tenth more wear is the most it may cost. Pure.
 */
#include <stdbool.h>
#include <stdint.h>

/** Steps of one trial; the first after a change is not counted, it has the change in it. */
#define UPDATE_TRIAL_STEPS 5u
/** Steps after which both are tried again. */
#define UPDATE_TRIAL_EVERY 500u
/** Share of steps that clip from which on nothing is optimistic. */
#define UPDATE_CLIPS_MOST 0.1

struct update_choice {
    bool optimistic;   /* what the next step does */
    double best_s[2];  /* of the last trial: deferred, optimistic; 0: not tried yet */
    uint32_t in_trial; /* steps since it began; UPDATE_TRIAL_STEPS or more: none is on */
    uint64_t since;    /* steps since the last trial ended */
    double clips;      /* share of the last steps that clipped, a mean that forgets */
};

/** Begins with deferred steps: how often the norm clips is not known. */
void update_choice_init(struct update_choice *choice);
/** A step ended. clipped: its norm was greater than may be, or not finite. */
void update_choice_note(struct update_choice *choice, double seconds, bool clipped);

#endif
