/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VIEWS_FRAME_H
#define HOISTWAY_TOOLS_VIEWS_FRAME_H
/* All pages of hoistway have this alike: head, style, text that others gave, how one is replaced.
 * There is no script, and nothing is asked for from elsewhere. Errors are the stream's. */
#include <stdio.h>

/** begin: a doctype and what else tells this kind of page from others; title may be anybody's. */
void frame_begin(FILE *file, const char *begin, const char *title, const char *heading);
void frame_end(FILE *file);
/** A name that others gave: it cannot become a part of the page, or steer a terminal: what
 * is not to be shown becomes \x1b and the like. */
void frame_text(FILE *file, const char *name);
#define FRAME_ROW_BYTES 1024u
/** A row of a table of two columns; what is longer than FRAME_ROW_BYTES is cut. */
__attribute__((format(printf, 3, 4))) void frame_row(FILE *file, const char *name,
                                                     const char *format, ...);
/** Writes text in place of what is there, and only then cuts: a kill leaves no file that is empty.
 * Returns 0 or -1 with errno. */
int frame_replace(FILE *file, const char *text, size_t bytes);

#endif
