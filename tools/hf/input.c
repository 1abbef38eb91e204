/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A name from a hostile file must not reach anything outside the model's directory, a FIFO or a
 * device. So the kernel resolves it beneath the directory; where it cannot (before 5.6, or
 * forbidden), no link is followed.
 */
#include "hf/input.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* O_NONBLOCK: opening a FIFO must not wait for its writer. */
#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

bool input_name_is_plain(const char *name)
{
    size_t n = strlen(name);
    return n && n <= 255 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
           !strpbrk(name, "/\\");
}

static int open_beneath(int directory_fd, const char *name)
{
    struct open_how how = {.flags = OPEN_FLAGS, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    long fd = syscall(SYS_openat2, directory_fd, name, &how, sizeof how);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
        fd = openat(directory_fd, name, OPEN_FLAGS | O_NOFOLLOW);
        if (fd < 0 && errno == ELOOP)
            return -EXDEV;
    }
    return fd < 0 ? -errno : (int)fd;
}

/* Takes the descriptor, or the errno that was got in its place. */
static int take(int fd, struct input *input)
{
    struct stat st;
    if (fd < 0)
        return fd;
    int rc = fstat(fd, &st) ? -errno : S_ISREG(st.st_mode) ? 0 : -EINVAL;
    if (rc) {
        close(fd);
        return rc;
    }
    *input = (struct input){.fd = fd, .size_bytes = (uint64_t)st.st_size, .changed = st.st_mtim};
    return 0;
}

int input_open(int directory_fd, const char *name, struct input *input)
{
    return input_name_is_plain(name) ? take(open_beneath(directory_fd, name), input) : -EINVAL;
}

int input_open_path(const char *path, struct input *input)
{
    int fd = open(path, OPEN_FLAGS);
    return take(fd < 0 ? -errno : fd, input);
}

void input_close(struct input *input)
{
    if (input->fd >= 0)
        close(input->fd);
    input->fd = -1;
}

const char *input_why(int native)
{
    switch (native) {
    case -ENOENT:
        return "there is no such file";
    case -EINVAL:
        return "not a regular file";
    case -EXDEV:
    case -ELOOP:
        return "a symbolic link that leaves the directory is not followed. Snapshots in a Hugging "
               "Face cache are such links. Fix: copy the model with cp -rL SNAPSHOT NEW_DIRECTORY "
               "and use "
               "the copy";
    case -EACCES:
        return "no permission to read it";
    case -EMFILE:
        return "too many open files. Fix: raise the limit with ulimit -n";
    case -ENODATA:
        return "the file became shorter while it was read";
    default:
        return strerrordesc_np(-native) ? strerrordesc_np(-native) : "it cannot be opened";
    }
}

int input_read(const struct input *input, uint64_t offset, void *dst, size_t bytes)
{
    char *at = dst;
    while (bytes) {
        size_t part = bytes < 1u << 30 ? bytes : 1u << 30;
        ssize_t n = pread(input->fd, at, part, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            return -ENODATA;
        at += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

int input_read_all(const struct input *input, uint64_t max_bytes, char **text)
{
    if (input->size_bytes > max_bytes)
        return -EFBIG;
    char *all = malloc(input->size_bytes + 1);
    if (!all)
        return -ENOMEM;
    int rc = input_read(input, 0, all, input->size_bytes);
    if (rc) {
        free(all);
        return rc;
    }
    all[input->size_bytes] = '\0';
    *text = all;
    return 0;
}

bool input_unchanged(const struct input *input)
{
    struct stat st;
    return fstat(input->fd, &st) == 0 && (uint64_t)st.st_size == input->size_bytes &&
           st.st_mtim.tv_sec == input->changed.tv_sec &&
           st.st_mtim.tv_nsec == input->changed.tv_nsec;
}
