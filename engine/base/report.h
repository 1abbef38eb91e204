/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_BASE_REPORT_H
#define HOISTWAY_ENGINE_BASE_REPORT_H
/*
 * An engine remembers and tells here what went wrong. The first fatal error stays; a caller's
 * mistakes are only logged. Thread-safety: of one thread, the engine's.
 */
#include <hoistway/hoistway.h>

struct report {
    struct hst_error error; /* sticky where code != 0 */
    hst_log_fn *log;        /* null: nobody listens */
    void *log_context;
};

void report_log(struct report *report, enum hst_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Records the first fatal error. Returns the native code of the one that is recorded. */
int report_fail(struct report *report, int code, int native, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/** It records what another part of the engine said that it failed with. */
int report_fail_as(struct report *report, const struct hst_error *error);
/** A caller's mistake: not sticky, said in the log. Returns -EINVAL. */
int report_refuse(struct report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
