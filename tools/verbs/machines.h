/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_MACHINES_H
#define HOISTWAY_TOOLS_VERBS_MACHINES_H
/* Machines by name or file: those of docs/machines are in the program. */
#include "base/fail.h"
#include "cli/machine_text.h"

#include <stdio.h>

struct machine_text {
    const char *name, *text;
};
/** Written by machine_texts.py, by rising name. */
extern const struct machine_text machine_texts[];
extern const size_t machine_text_count;

/** The machine that the program runs on: no file has it. */
#define MACHINE_HERE "here"

/** Reads a file's text; where: its name, for messages. E406, with line and column. */
int machine_of_text(const char *where, const char *text, size_t bytes, struct machine *machine,
                    struct hst_error *error);
/** option: "--machine", for messages. A known name before a file. E406. */
int machine_find(const char *option, const char *name, struct machine *machine,
                 struct hst_error *error);
/** One line for each, with what it has. */
void machines_print(FILE *out);

#endif
