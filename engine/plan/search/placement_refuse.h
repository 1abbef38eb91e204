/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_SEARCH_PLACEMENT_REFUSE_H
#define HOISTWAY_ENGINE_PLAN_SEARCH_PLACEMENT_REFUSE_H
/* A placement that does not fit says this; *p is the smallest one. Pure. */
#include "plan/placement/placement.h"

/** It is beyond the budget of HBM or of DRAM. Returns -ENOSPC. */
int placement_refuse_memory(const struct placement_in *in, const struct placement *p, char *why,
                            size_t why_bytes);
/** It is beyond that of the drives, or of one of them. Returns -EDQUOT. */
int placement_refuse_nvme(const struct placement_in *in, const struct placement *p, char *why,
                          size_t why_bytes);
/** Each drive holds no more than it may (else *full is the first that does not), nor do all
 * together. */
bool placement_drives_fit(const struct placement_in *in, const struct placement *p, uint32_t *full);

#endif
