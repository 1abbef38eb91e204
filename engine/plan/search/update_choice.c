/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/search/update_choice.h"

/* The mean of how often the norm clips forgets half of it in some 20 steps. */
#define FORGETS (1.0 / 32)

void update_choice_init(struct update_choice *choice)
{
    *choice = (struct update_choice){0};
}

static bool clips_too_often(const struct update_choice *c)
{
    return c->clips > UPDATE_CLIPS_MOST;
}

static void change_to(struct update_choice *c, bool optimistic)
{
    c->optimistic = optimistic;
    c->in_trial = 0;
    c->best_s[optimistic] = 0;
}

/* The trial is over: the other one has its turn, or the faster one of both is kept. */
static void end_trial(struct update_choice *c)
{
    bool both = c->best_s[0] > 0 && c->best_s[1] > 0;
    if (!both && !clips_too_often(c)) {
        change_to(c, !c->optimistic);
        return;
    }
    c->optimistic = both && c->best_s[1] < c->best_s[0] && !clips_too_often(c);
    c->since = 0;
}

void update_choice_note(struct update_choice *c, double seconds, bool clipped)
{
    c->clips += FORGETS * ((clipped ? 1 : 0) - c->clips);
    if (c->optimistic && clips_too_often(c)) {
        c->optimistic = false;
        c->best_s[1] = 0;
        c->in_trial = UPDATE_TRIAL_STEPS;
        c->since = 0;
    }
    if (c->in_trial < UPDATE_TRIAL_STEPS) {
        double *best = &c->best_s[c->optimistic];
        if (c->in_trial > 0 && (*best == 0 || seconds < *best))
            *best = seconds;
        if (++c->in_trial == UPDATE_TRIAL_STEPS)
            end_trial(c);
        return;
    }
    if (++c->since >= UPDATE_TRIAL_EVERY && !clips_too_often(c)) {
        c->best_s[0] = c->best_s[1] = 0;
        change_to(c, c->optimistic);
    }
}
