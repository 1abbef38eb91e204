/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_MESSAGE_SAY_H
#define HOISTWAY_TOOLS_CLI_MESSAGE_SAY_H
/*
 * Writes to who may not read: a pipe, a terminal that is held up. As long as nobody has asked the
 * program to end, a write waits for as long as it takes, and nothing is lost. After say_hurry all
 * writes together wait for a second; what does not fit by then is dropped, so that nobody who does
 * not read keeps a run from its end.
 *
 * Thread-safety: all from any thread.
 */
#include <stddef.h>
#include <stdio.h>

#define SAY_BYTES 4096u /* of one text; PIPE_BUF: no other writer's bytes come between */

/** Writes a text to stderr, in one piece. It is cut after SAY_BYTES. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/**
 * fflush(file). Returns 0 or a negative errno, which stands in errno too; -EAGAIN: what was in the
 * buffer is dropped, as above.
 */
int say_flush(FILE *file);

/** From now on no write waits for long. For handlers of signals. */
void say_hurry(void);

/** Writes to stderr where that takes it at once. For handlers of signals that end the process. */
void say_at_once(const char *text, size_t bytes);

#endif
