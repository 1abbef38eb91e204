/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VERBS_DEMO_TEXT_H
#define HOISTWAY_TOOLS_VERBS_DEMO_TEXT_H
/* The text that the demo learns: the project's LICENSE, embedded so that an installed program has
   it too. */
#include <stddef.h>

extern const unsigned char demo_text[];
extern const size_t demo_text_bytes;

#endif
