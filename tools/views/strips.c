/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how rows of pieces look. */
#include "views/strips.h"

#define WIDTH  720.0
#define LEFT   80.0
#define RIGHT  150.0
#define ROW    22.0
#define PIECE  14.0
#define INSIDE (WIDTH - LEFT - RIGHT)

void strips_begin(FILE *file, const char *title, unsigned rows, const char *const *keys)
{
    fprintf(file, "<figure><figcaption>%s", title);
    for (unsigned i = 0; keys && keys[i]; i++)
        fprintf(file, " <span class=\"k%u\">&#9644; %s</span>", i, keys[i]);
    fprintf(file, "</figcaption>\n<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">\n",
            WIDTH, ROW * rows, title);
}

void strips_name(FILE *file, unsigned row, const char *name, const char *note)
{
    const double y = ROW * row + PIECE;
    fprintf(file, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">%s</text>", LEFT - 6, y, name);
    fprintf(file, "<text x=\"%.0f\" y=\"%.0f\">%s</text>\n", WIDTH - RIGHT + 6, y, note);
}

void strips_piece(FILE *file, unsigned row, unsigned color, double from, double to, double opacity)
{
    fprintf(file,
            "<rect class=\"k%u\" fill=\"currentColor\" fill-opacity=\"%.2g\" x=\"%.1f\" "
            "y=\"%.0f\" width=\"%.1f\" height=\"%.0f\"/>\n",
            color, opacity, LEFT + INSIDE * from, ROW * row + 2, INSIDE * (to - from), PIECE);
}

void strips_end(FILE *file)
{
    fputs("</svg></figure>\n", file);
}
