/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how pages look, and that none asks for anything from elsewhere. */
#include "views/frame.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char style[] =
    "<style>\n"
    ":root{color-scheme:light dark}\n"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:760px;margin:2em auto;padding:0 1em}\n"
    "h1{font-size:1.3em}th{text-align:left;font-weight:normal;opacity:.7;padding-right:1.5em;"
    "vertical-align:top}td{overflow-wrap:anywhere}\n"
    "figure{margin:1.5em 0}figcaption span{margin-left:1em;white-space:nowrap;font-size:.85em}\n"
    "svg{width:100%;height:auto}svg text{font-size:11px;fill:currentColor;opacity:.75}\n"
    ".grid{stroke:currentColor;opacity:.15}\n"
    ".line{fill:none;stroke-width:1.6;stroke-linecap:round;stroke-linejoin:round}\n"
    ".c0{stroke:#3b7dd8}.c1{stroke:#e07b39}.c2{stroke:#2a9d6f}.c3{stroke:#c8455b}"
    ".c4{stroke:#8e63ce}.c5{stroke:#8a8f98}circle{fill:none;stroke-width:1.6}\n"
    ".k0{color:#3b7dd8}.k1{color:#e07b39}.k2{color:#2a9d6f}.k3{color:#c8455b}"
    ".k4{color:#8e63ce}.k5{color:#8a8f98}\n"
    "</style>\n";

/* A name that others gave cannot become a part of the page, or steer a terminal. */
void frame_text(FILE *file, const char *name)
{
    for (size_t left = strlen(name), taken; left; name += taken, left -= taken) {
        const size_t shown = utf8_shown(name, left);
        taken = shown ? shown : 1;
        if (shown == 0)
            fprintf(file, "\\x%02x", (unsigned char)*name);
        else if (strchr("<>&\"'", *name))
            fprintf(file, "&#%d;", *name);
        else
            fwrite(name, 1, shown, file);
    }
}

void frame_row(FILE *file, const char *name, const char *format, ...)
{
    char text[FRAME_ROW_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(file, "<tr><th>%s</th><td>", name);
    frame_text(file, text);
    fputs("</td></tr>\n", file);
}

void frame_begin(FILE *file, const char *begin, const char *title, const char *heading)
{
    fprintf(file,
            "%s\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
            "style-src 'unsafe-inline'\">\n"
            "<meta name=\"viewport\" content=\"width=device-width\">\n<title>",
            begin);
    frame_text(file, title);
    fputs(" - hoistway</title>\n", file);
    fputs(style, file);
    fprintf(file, "</head><body>\n<h1>%s</h1>\n", heading);
}

void frame_end(FILE *file)
{
    fputs("</body></html>\n", file);
}

int frame_replace(FILE *file, const char *text, size_t bytes)
{
    struct stat st;
    const bool regular = fstat(fileno(file), &st) == 0 && S_ISREG(st.st_mode);
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = regular ? pwrite(fileno(file), text + done, bytes - done, (off_t)done)
                                  : write(fileno(file), text + done, bytes - done);
        if (n < 0 && errno != EINTR)
            return -1;
        done += n > 0 ? (size_t)n : 0;
    }
    return regular ? ftruncate(fileno(file), (off_t)bytes) : 0;
}
