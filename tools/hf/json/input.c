/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A name from a hostile file must not reach anything outside the model's directory, a FIFO or a
 * device. So the kernel resolves it beneath the directory; where it cannot (before 5.6, or
 * forbidden), no link is followed.
 */
#include "hf/json/input.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
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

/* -ENOSYS where the kernel has no such call, or may not make it. */
static int resolve_beneath(int directory_fd, const char *path)
{
    struct open_how how = {.flags = OPEN_FLAGS, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    long fd = syscall(SYS_openat2, directory_fd, path, &how, sizeof how);
    if (fd < 0)
        return errno == EPERM ? -ENOSYS : -errno;
    return (int)fd;
}

static int open_beneath(int directory_fd, const char *name)
{
    int fd = resolve_beneath(directory_fd, name);
    if (fd == -ENOSYS) {
        fd = openat(directory_fd, name, OPEN_FLAGS | O_NOFOLLOW);
        if (fd < 0 && errno == ELOOP)
            return -EXDEV;
        return fd < 0 ? -errno : fd;
    }
    return fd;
}

/* The link's text is all that is trusted: it names a blob, or nothing. */
static int open_blob_by_text(int cache_fd, const char *path)
{
    char blobs[64] = "", text[512];
    for (const char *at = path; (at = strchr(at, '/')) && strlen(blobs) < 32; at++)
        strcat(blobs, "../");
    strcat(blobs, "blobs/");
    const size_t n = strlen(blobs);
    ssize_t got = readlinkat(cache_fd, path, text, sizeof text - 1);
    if (got < 0)
        return -errno;
    text[got] = '\0';
    if (strncmp(text, blobs, n) != 0 || !input_name_is_plain(text + n))
        return -EXDEV;
    int folder = openat(cache_fd, "blobs", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return -errno;
    int fd = openat(folder, text + n, OPEN_FLAGS | O_NOFOLLOW);
    int rc = fd >= 0 ? fd : errno == ELOOP ? -EXDEV : -errno;
    close(folder);
    return rc;
}

/* It knows what `git clone` leaves of a large file that git-lfs did not fetch: 1, 0, or -errno. */
static int is_lfs_pointer(const struct input *input)
{
    static const char title[] = "version https://git-lfs.github.com/spec/v1\n";
    char text[sizeof title];
    const size_t n = sizeof title - 1;
    if (input->size_bytes < n || input->size_bytes > 1024)
        return 0;
    int rc = input_read(input, 0, text, n);
    return rc ? rc : memcmp(text, title, n) == 0;
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
    struct input taken = {.fd = fd, .size_bytes = (uint64_t)st.st_size, .changed = st.st_mtim};
    rc = is_lfs_pointer(&taken);
    if (rc) {
        close(fd);
        return rc < 0 ? rc : -EREMOTE;
    }
    *input = taken;
    return 0;
}

int input_open(int directory_fd, const char *name, struct input *input)
{
    return input_name_is_plain(name) ? take(open_beneath(directory_fd, name), input) : -EINVAL;
}

int input_open_blob(int cache_fd, const char *directory, const char *name, struct input *input)
{
    char path[900];
    if (!input_name_is_plain(name) ||
        snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path)
        return -EINVAL;
    int fd = resolve_beneath(cache_fd, path);
    return take(fd == -ENOSYS ? open_blob_by_text(cache_fd, path) : fd, input);
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
        return "a symbolic link that leaves the directory is not followed, but for those of a "
               "snapshot in a Hugging Face cache into its own models--ORG--NAME. Fix: copy the "
               "model with cp -rL DIRECTORY NEW_DIRECTORY and use the copy";
    case -EREMOTE:
        return "a git-lfs pointer in place of the file, which git has not fetched. Fix: git lfs "
               "pull in that directory";
    case -EACCES:
        return "no permission to read it. Fix: chmod u+r it, as its owner";
    case -EMFILE:
        return "too many open files. Fix: raise the limit with ulimit -n";
    case -EIO:
        return "it cannot be read: input/output error";
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
