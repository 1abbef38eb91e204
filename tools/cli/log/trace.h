/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_LOG_TRACE_H
#define HOISTWAY_TOOLS_CLI_LOG_TRACE_H
/*
 * --trace: what the engine's lanes did, in the JSON that Perfetto (ui.perfetto.dev) and
 * chrome://tracing read: one track for each lane, times in microseconds from the first event on.
 * All functions do nothing for a trace without a path.
 */
#include "base/fail.h"
#include "cli/log/json.h"

#include <hoistway/hoistway.h>

struct trace {
    const char *path; /* borrowed; null: no trace */
    struct json_writer json;
    uint32_t pid; /* of its tracks: traces of several ranks open together */
    double origin_s;
    bool begun;
};

/** As run_log_check. */
int trace_check(const char *path, struct hst_error *error);
/** Replaces an earlier trace, refuses anything else that is there. E107. */
int trace_open(struct trace *trace, const char *path, uint32_t pid, struct hst_error *error);
/** A hst_trace_fn; context is the struct trace. */
void trace_event(void *context, const struct hst_trace_event *event);
/** Ends the file. E107 where it could not be written whole: it is no JSON then. */
int trace_close(struct trace *trace, struct hst_error *error);

#endif
