/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_AIO_HANDLES_H
#define HST_TESTS_AIO_HANDLES_H
/* What cases of several programs begin and end with. After cmocka.h, whose assertions it uses. */
#include "hoistway/aio.h"

#include <dirent.h>

/* In a directory, without . and ..; -1: there is none. */
static inline int count_names(const char *path)
{
    int count = -2;
    DIR *dir = opendir(path);
    if (!dir)
        return -1;
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static inline struct hst_aio_file *new_scratch(struct hst_aio *aio, const char *directory)
{
    struct hst_aio_file *file = NULL;
    assert_int_equal(hst_aio_file_open(aio, directory, HST_AIO_SCRATCH, 4 << 20, &file), 0);
    return file;
}

static inline void *new_buffer(size_t bytes)
{
    void *buffer = NULL;
    assert_int_equal(hst_aio_buffer_alloc(bytes, &buffer), 0);
    return buffer;
}
#endif
