/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_EXPLAIN_H
#define HOISTWAY_TOOLS_VERBS_EXPLAIN_H
/* It has what docs/errors.md says of each code, embedded at build time (error_texts.py). */
#include <stddef.h>

struct error_text {
    int code;
    const char *what, *advice; /* what happened, what to do */
};

extern const struct error_text error_texts[]; /* by rising code */
extern const size_t error_text_count;

#endif
