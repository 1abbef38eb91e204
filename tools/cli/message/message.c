/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides how things are told to the user: one line each on stderr, with a code that docs/errors.md
 * explains, and which exit code an error becomes.
 */
#include "cli/message/message.h"

#include "cli/message/activity.h"
#include "cli/message/progress.h"
#include "cli/message/say.h"
#include "cli/message/voice.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

enum cli_exit cli_exit_code(const struct hst_error *error)
{
    switch (error->code) {
    case FAIL_BUDGET: /* an unfit plan is a matter of configuration */
    case FAIL_USAGE:
    case FAIL_VALUE:
    case FAIL_MISSING:
    case FAIL_DS_FILE:
    case FAIL_DS_KEY:
    case FAIL_MACHINE:
    case FAIL_CONFIG_VALUE:
    case FAIL_ARCHITECTURE:
    case FAIL_PYTHON:
    case FAIL_RANKS:
    case HST_E_RANKS_DIFFER:
    case HST_E_HOST_MATH:
    case HST_E_STORE_OTHER: /* resume with other options, or without saying so */
    case HST_E_STORE_TAKEN:
        return CLI_EXIT_USAGE;
    default:
        return CLI_EXIT_FAILURE;
    }
}

/* Through fail(), so that a file name with a newline cannot forge a line of ours. */
static void print_line(const char *kind, char letter, int code, const char *text)
{
    struct hst_error line;
    const char *subject = letter == 'E' ? NULL : voice_subject(); /* an error has its own */
    fail(&line, (enum fail_code)code, 0, "%.150s%s%s", subject ? subject : "", subject ? ": " : "",
         text);
    activity_hold();
    if (code)
        say("%s%s[%c%03d] %s\n", voice_prefix(), kind, letter, code, line.message);
    else
        say("%s%s: %s\n", voice_prefix(), kind, line.message);
    activity_release();
}

/* What is refused late, and of a file, is refused by whoever has never seen that. */
static struct {
    cli_origin_fn *fn;
    const void *context;
} origin;

void cli_origin_of(cli_origin_fn *fn, const void *context)
{
    origin.fn = fn;
    origin.context = context;
}

int cli_fail(const struct hst_error *error)
{
    struct hst_error told = *error;
    activity_end();
    (void)say_flush(stdout); /* it fails already */
    if (origin.fn)
        origin.fn(origin.context, &told);
    if (voice_tells_end())
        print_line("error", 'E', told.code, told.message);
    return cli_exit_code(error);
}

static void print_format(const char *kind, char letter, enum cli_code code, const char *format,
                         va_list args)
{
    char text[512];
    if (voice_is_other()) /* it is about inputs and outputs, of which rank 0 tells */
        return;
    vsnprintf(text, sizeof text, format, args);
    print_line(kind, letter, (int)code, text);
}

void cli_warn(enum cli_code code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_format("warning", 'W', code, format, args);
    va_end(args);
}

void cli_note(enum cli_code code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_format("note", 'I', code, format, args);
    va_end(args);
}

/* 'W104 text': the code of a line that starts so, and where its text starts; else 0. */
static int leading_code(const char *line, const char **text)
{
    const unsigned char *c = (const unsigned char *)line;
    *text = line;
    if ((c[0] != 'W' && c[0] != 'I') || !isdigit(c[1]) || !isdigit(c[2]) || !isdigit(c[3]) ||
        c[4] != ' ')
        return 0;
    *text = line + 5;
    return (c[1] - '0') * 100 + (c[2] - '0') * 10 + (c[3] - '0');
}

void cli_engine_log(void *context, enum hst_log_level level, const char *line)
{
    const struct progress *progress = context;
    const char *text;
    int code = leading_code(line, &text);
    bool warning = level == HST_LOG_WARNING, note = level == HST_LOG_INFO && !progress->quiet;
    if (warning)
        print_line("warning", 'W', code, text);
    else if (note)
        print_line("note", 'I', code, text);
}
