/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_CHILD_H
#define HOISTWAY_TOOLS_CLI_CHILD_H
/* Another program's words, for what this process cannot ask itself. */
#include <stdbool.h>
#include <stddef.h>

/**
 * It reads what a program writes to its output until it ends, in text[room], as much as fits; the
 * rest is not waited for. arguments: its name, looked for in PATH, what it is given, null. After
 * limit_ms it is ended, and what it has said is there. False: it could not be started.
 */
bool child_read(const char *const *arguments, unsigned limit_ms, char *text, size_t room);

#endif
