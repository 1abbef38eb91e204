/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_COMM_REPORT_H
#define HOISTWAY_ENGINE_COMM_REPORT_H
#include "base/report.h"
#include "comm/comm.h"

/** Records the comm's first failure, or else `native`, as the sticky error, which it returns: E504
 * of a rank that has gone or does not answer, else E507. step: that is under way; 0: none. */
int comm_report(struct comm *comm, struct report *report, uint64_t step, int native);
/** The code of a failure to open a comm: E504, E505 where device memory was to be joined, or E502.
 * Pure. */
enum hst_code comm_open_code(const struct comm_failure *failure, bool device);
/** Records that no comm could be opened, and why. device: its memory was to be joined too. */
int comm_report_open(const struct comm_failure *failure, bool device, struct report *report);

#endif
