/* SPDX-License-Identifier: Apache-2.0 */
#include "base/report.h"

#include "base/message.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

void report_log(struct report *report, enum hst_log_level level, const char *format, ...)
{
    if (!report->log)
        return;
    char line[sizeof report->error.message];
    va_list args;
    va_start(args, format);
    message_write(line, sizeof line, format, args);
    va_end(args);
    report->log(report->log_context, level, line);
}

int report_fail(struct report *report, int code, int native, const char *format, ...)
{
    if (report->error.code)
        return report->error.native;
    va_list args;
    va_start(args, format);
    message_write(report->error.message, sizeof report->error.message, format, args);
    va_end(args);
    report->error.code = code;
    report->error.native = native;
    return native;
}

int report_fail_as(struct report *report, const struct hst_error *error)
{
    return report_fail(report, error->code, error->native, "%s", error->message);
}

int report_refuse(struct report *report, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    report_log(report, HST_LOG_WARNING, "call refused: %s", text);
    return -EINVAL;
}
