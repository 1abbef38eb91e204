/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded, it makes a rank that has to take a directory away the last to end. */
#include <fcntl.h>
#include <unistd.h>

__attribute__((visibility("default"))) int rmdir(const char *path)
{
    usleep(500000);
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}
