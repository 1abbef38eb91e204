/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_PLAN_ANSWER_H
#define HOISTWAY_TOOLS_VERBS_PLAN_ANSWER_H
/* The end of a plan: what would help, how many days it takes, how long drives last. */
#include "cli/log/json.h"
#include "verbs/plan/plan.h"

/** Some rate was measured on no such machine. Pure. */
bool plan_assumes(const struct plan *p);
/** Tokens a second; 0: no step is predicted. Pure. */
double plan_speed(const struct plan *p);
/** Days of p's tokens; 0: it is not known how many, or how long a step takes. Pure. */
double plan_days(const struct plan *p);
/** Tokens that are to be trained on: those that were given, of the steps, of a pass over the data;
 * 0: not known. Pure. */
uint64_t plan_tokens(const struct plan *p);
/** Bytes that all drives of a node are written in a day of steps; 0: none, or not known. Pure. */
double plan_written_a_day(const struct plan *p);
/** Years until they have been written what they are rated for; 0: not known. Pure. */
double plan_years(const struct plan *p);

#define PLAN_LASTS_BYTES 32u
/** "7.3 days", "2.4 years", of plan_years. Returns text. */
const char *plan_lasts_text(const struct plan *p, char text[PLAN_LASTS_BYTES]);

#define PLAN_HELP_BYTES 160u
/** "twice the DRAM (--dram 256G): 3.1 s a step, 1.40 times as fast". Returns text. */
const char *plan_help_text(const struct plan_help *help, char text[PLAN_HELP_BYTES]);

/** What is said where plan_lacks_nics. */
#define PLAN_LACKS_NICS                                                                            \
    "what one more NIC brings is not known: the machine's file does not say how many nodes have "  \
    "(nics)"

/** The lines; nothing of a plan that is not predicted. */
void plan_print_answer(const struct plan *p, FILE *out);
/** The keys; of a plan that is not predicted they are null. */
void plan_put_answer(struct json_writer *json, const struct plan *p);

#endif
