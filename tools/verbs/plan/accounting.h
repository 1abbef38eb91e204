/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_PLAN_ACCOUNTING_H
#define HOISTWAY_TOOLS_VERBS_PLAN_ACCOUNTING_H
/* plan --accounting paper: a plan's model by the bytes of ZeRO's papers, beside those of a run
   here. */
#include "cli/log/json.h"
#include "verbs/plan/plan.h"

#include <hoistway/plan.h>

enum plan_accounting { PLAN_ACCOUNTING_OURS = 0, PLAN_ACCOUNTING_PAPER };

/** ZeRO's bytes of a parameter, arXiv:1910.02054, section 3.1: 2 + 2 + 12. */
extern const struct hst_param_bytes paper_zero;
/** ZeRO-Infinity's, arXiv:2104.07857, section 3: gradients in fp32 beside them, 20 in all. */
extern const struct hst_param_bytes paper_infinity;

/** Bytes of so many parameters that a rank of `ranks` holds at a stage of ZeRO, 0 to 3: each
 * shards one more class, states, gradients, weights. Pure. */
double paper_held_bytes(unsigned stage, double params, double ranks,
                        const struct hst_param_bytes *bytes);

/** The lines. Nothing where p->accounting is ours. */
void plan_print_accounting(const struct plan *p, FILE *out);
/** The key `accounting`; null where it is ours. */
void plan_put_accounting(struct json_writer *json, const struct plan *p);

#endif
