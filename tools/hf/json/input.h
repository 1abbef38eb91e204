/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_HF_JSON_INPUT_H
#define HOISTWAY_TOOLS_HF_JSON_INPUT_H
/* Opens and reads files whose contents, and often names, are not trusted. */
#include "base/fail.h"

#include <sys/stat.h>

/** A regular file of a directory: what stat said when it was opened. */
struct input {
    int fd;
    uint64_t size_bytes;
    struct timespec changed; /* last modification */
};

/** True for one plain file name: not empty, ".", "..", without slashes, at most 255 bytes. */
bool input_name_is_plain(const char *name);
/**
 * Opens a regular file by its plain name; symbolic links are followed only inside the directory.
 * Returns a negative errno: -ENOENT, -EXDEV a link that leaves the directory, -EINVAL not a regular
 * file, -EREMOTE what git-lfs leaves in a file's place, and others.
 */
int input_open(int directory_fd, const char *name, struct input *input);
/**
 * Opens `directory`/NAME, beneath cache_fd: a link of a snapshot that leads to a blob. Where the
 * kernel cannot resolve it beneath, it must lead by as many ".." as there are directories to
 * blobs/HASH, "../../blobs/HASH" of "snapshots/REVISION". -EXDEV where it leads out.
 */
int input_open_blob(int cache_fd, const char *directory, const char *name, struct input *input);
/** The same of a path that the user gave: links are followed. */
int input_open_path(const char *path, struct input *input);
void input_close(struct input *input);
/** Why input_open failed, and what to do about it. Static text. */
const char *input_why(int native);
/** Reads exactly `bytes` at `offset`. -ENODATA where the file is shorter. */
int input_read(const struct input *input, uint64_t offset, void *dst, size_t bytes);
/** The whole file, followed by a NUL; at most max_bytes (-EFBIG). The caller frees it. */
int input_read_all(const struct input *input, uint64_t max_bytes, char **text);
/** True if size and modification time are still what they were. */
bool input_unchanged(const struct input *input);
#endif
