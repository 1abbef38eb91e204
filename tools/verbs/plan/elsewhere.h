/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_PLAN_ELSEWHERE_H
#define HOISTWAY_TOOLS_VERBS_PLAN_ELSEWHERE_H
/* Plans for machines that are not this one: --machine and --rates. */
#include "verbs/plan/asked.h"

/**
 * Reads --machine, and fills what the command line left open. *done: its list was printed. E402
 * where the machine has not what is asked for, E406 of the file.
 */
int plan_take_elsewhere(struct plan_options *options, bool *done, struct hst_error *error);
/** Rates that are not known become the machine's. Pure. */
void plan_merge_rates(const struct machine *machine, struct hst_rates *rates);

#endif
