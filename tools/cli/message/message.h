/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_MESSAGE_MESSAGE_H
#define HOISTWAY_TOOLS_CLI_MESSAGE_MESSAGE_H
/* This is what a tool tells on stderr: one line each, error[E402] …, warning[W104] …, note[I201]
   … */
#include "base/fail.h"

#include <hoistway/hoistway.h>
#include <stdio.h>

enum cli_exit {
    CLI_EXIT_OK = 0,
    CLI_EXIT_FAILURE = 1,
    CLI_EXIT_USAGE = 2,      /* usage or configuration; docs/errors.md lists the codes */
    CLI_EXIT_NOT_ENOUGH = 3, /* a verdict: it does not fit, or is not fast enough */
};

/** The exit code that stands for an error. Pure. */
enum cli_exit cli_exit_code(const struct hst_error *error);

/** Says of an error where a value that it names comes from, where that is not the command line. */
typedef void cli_origin_fn(const void *context, struct hst_error *error);
/** From now on cli_fail completes errors by it; null: by nothing. The context is borrowed. */
void cli_origin_of(cli_origin_fn *origin, const void *context);
/** Prints an error to stderr, of several ranks as voice_tells_end says; returns its exit code. */
int cli_fail(const struct hst_error *error);

/** The tools' own notes and warnings; the engine's bring their number along. Of several ranks the
 * tools' are rank 0's, as they are alike on all of them; the engine's are each rank's own. */
enum cli_code {
    CLI_RATES = 106,     /* rates measured before cannot be used */
    CLI_DISTURBED = 108, /* other work ran while rates were measured */
    CLI_WRITE = 107,     /* the log cannot be written any more */
    CLI_DEVICE = 201,    /* the device in use */
    CLI_ROOM = 301,      /* an export waits for room on its disk */
    CLI_NO_THREAD = 310, /* nothing shows what the program is at */
    CLI_VALUE = 402,     /* a value is not used as it was given */
    CLI_CONFIG = 405,    /* what of a DeepSpeed configuration has no effect, or is overruled */
    CLI_TENSOR = 415,    /* a tensor of the model is not used, not finite, or rounded */
    CLI_PASSES = 421,    /* the data is short: sequences come more than once */
    CLI_SMALL_IDS = 422, /* ids of the data are far below the vocabulary, or too short for it */
    CLI_PACKED = 423,    /* how documents became rows */
    CLI_EVALUATION = 424, /* what a run that goes on does not compare with */
    CLI_SAMPLES = 429,   /* what samples of a run cost, and that the last were not made */
    CLI_RANKS = 501,     /* how many train together, and how they are joined */
    CLI_EXPORT = 430,    /* weights are infinite in an export */
    CLI_STEPPED_BACK = 614, /* a version is not the newest, which is damaged */
    CLI_RESUME = 622,    /* where a run goes on, and with what else than before */
    CLI_SKIPPED = 701,   /* steps whose gradients were not finite were left out */
    CLI_LOSS = 702,      /* the loss has risen and stays up */
};
void cli_warn(enum cli_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_note(enum cli_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/**
 * A hst_log_fn: prints a line of the engine; "W104 text" becomes warning[W104] text. context: the
 * run's struct progress; where that is quiet, warnings alone.
 */
void cli_engine_log(void *context, enum hst_log_level level, const char *line);

#endif
