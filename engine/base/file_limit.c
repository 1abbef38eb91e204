/* SPDX-License-Identifier: Apache-2.0 */
/* "File too large" is a limit of the process or of the file system: which, and what helps. */
#include "base/file_limit.h"

#include "base/size_text.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>

const char *file_limit(uint64_t bytes, char text[FILE_LIMIT_BYTES])
{
    struct rlimit limit;
    char need[SIZE_TEXT_BYTES], most[SIZE_TEXT_BYTES];
    const bool limited = getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes;
    size_text_up(bytes, need);
    if (limited)
        snprintf(text, FILE_LIMIT_BYTES,
                 "a file of %s is needed, and ulimit -f allows files of %s. Fix: ulimit -f "
                 "unlimited",
                 need, size_text(limit.rlim_cur, most));
    else
        snprintf(text, FILE_LIMIT_BYTES,
                 "the file system takes no file of %s. Fix: a directory on ext4 or xfs, or more "
                 "directories",
                 need);
    return text;
}
