/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_LOG_OUTPUT_H
#define HOISTWAY_TOOLS_CLI_LOG_OUTPUT_H
/* Files that a run writes beside its model: an earlier one of the same kind is replaced, nothing
 * else that is there. */
#include "base/fail.h"

#include <stdio.h>

struct output_kind {
    const char *noun;   /* "log" */
    const char *owner;  /* of what it is: "a plan"; null: "a run" */
    const char *option; /* "--log" */
    const char *begin;  /* what every file of this kind begins with, and other files do not */
    size_t begin_bytes; /* of it, at most 64; 0: up to its NUL */
    bool makes_parents; /* the directories that it lies in are made where they are missing */
};

/**
 * Refuses a path that cannot be written, and what is there unless it is empty or of this kind (so
 * that data and models are safe) and no other run has it open; writes nothing. A null path is fine.
 * E107.
 */
int output_check(const struct output_kind *kind, const char *path, struct hst_error *error);
/** Opens it empty, with the same refusals; until it is closed it is locked against other runs. */
int output_open(const struct output_kind *kind, const char *path, FILE **file,
                struct hst_error *error);
/** Opens it likewise, to be read and gone on with; empty where there is none. */
int output_reopen(const struct output_kind *kind, const char *path, FILE **file,
                  struct hst_error *error);
/** True: the directories above the path are there, or can be made; else errno says why not. */
bool output_parents_possible(const char *path);
/** Makes the directories above the path that are missing. Returns 0, or -1 with errno. */
int output_make_parents(const char *path);
/** errno says why the path cannot be written. Returns it, negative, with *error (E107). */
int output_unwritable(const struct output_kind *kind, const char *path, struct hst_error *error);

#endif
