/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_VIEWS_STRIPS_H
#define HOISTWAY_TOOLS_VIEWS_STRIPS_H
/* A figure of a page: rows of pieces along one scale, as SVG. Errors are the stream's. */
#include <stdio.h>

/** keys: names of the colors, null-terminated, at most 6; null: none are told. */
void strips_begin(FILE *file, const char *title, unsigned rows, const char *const *keys);
/** A row's name on the left, and what stands behind it on the right. */
void strips_name(FILE *file, unsigned row, const char *name, const char *note);
/** A piece between two shares of the width, with a color from 0 on; opacity 0 to 1. */
void strips_piece(FILE *file, unsigned row, unsigned color, double from, double to,
                  double opacity);
void strips_end(FILE *file);

#endif
