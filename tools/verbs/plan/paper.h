/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_PLAN_PAPER_H
#define HOISTWAY_TOOLS_VERBS_PLAN_PAPER_H
/* plan --paper: a table of a paper beside the same cells by its accounting and by ours. */
#include "base/fail.h"

#include <stdbool.h>
#include <stdio.h>

/** Prints the table of that name, as text or as one JSON object; of "list" the names of all,
 * as text. E402: there is none. */
int plan_paper_print(const char *name, bool json, FILE *out, struct hst_error *error);

#endif
