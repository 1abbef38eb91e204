/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file finds where a Python environment keeps NVIDIA's libraries. On a rented machine they are
 * often there and nowhere else. The engine's library starts no program, so its search cannot ask;
 * doctor asks, and prints what to export.
 */
#include "cli/child.h"
#include "verbs/doctor/doctor.h"

#include <string.h>

/* Entries that are not absolute are left out: the working directory is no place for libraries. */
static const char PROGRAM[] =
    "import glob,os,sys;print(':'.join(sorted({os.path.dirname(f) for p in sys.path "
    "if os.path.isabs(p) for f in glob.glob(os.path.join(p,'nvidia/*/lib/lib*.so*'))})))";

bool doctor_python_folders(const char *python, unsigned limit_ms, char *text, size_t room)
{
    const char *const arguments[] = {python, "-c", PROGRAM, NULL};
    (void)child_read(arguments, limit_ms, text, room);
    const size_t line = strcspn(text, "\n");
    const bool whole = text[line] == '\n' && line > 0; /* what was cut short is no list */
    text[whole ? line : 0] = '\0';
    return whole;
}
