/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_COMM_REPORT_H
#define HOISTWAY_ENGINE_COMM_REPORT_H
#include "base/report.h"
#include "comm/comm.h"

/** Records the comm's first failure, or else `native`, as the sticky error, which it returns. step:
 * that is under way; 0: none. */
int comm_report(struct comm *comm, struct report *report, uint64_t step, int native);
/** The same where no comm could be opened. device: its memory was to be joined too. */
int comm_report_open(const struct comm_failure *failure, bool device, struct report *report);

#endif
