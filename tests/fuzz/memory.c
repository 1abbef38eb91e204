/* SPDX-License-Identifier: Apache-2.0 */
/* Readers that take a path get a regular file that no drive sees. */
#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

int file_in_memory(const void *bytes, size_t size, char path[64])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    MUST(fd >= 0);
    for (size_t done = 0; done < size;) {
        ssize_t n = pwrite(fd, (const char *)bytes + done, size - done, (off_t)done);
        MUST(n > 0);
        done += (size_t)n;
    }
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}
