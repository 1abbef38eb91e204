/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_PLAN_PAGE_H
#define HOISTWAY_TOOLS_VERBS_PLAN_PAGE_H
/* --html: a plan as one page, with all that it needs in itself. Null paths are fine. */
#include "base/fail.h"
#include "verbs/plan/plan.h"

/** As run_log_check. E107. */
int plan_page_check(const char *path, struct hst_error *error);
/** Replaces an earlier one. E107; E302 without memory. */
int plan_page_write(const struct plan *p, const char *path, struct hst_error *error);

#endif
