/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_TOOLS_DATA_FOLDER_H
#define TESTS_TOOLS_DATA_FOLDER_H
/* A folder of a test program's own, in which its cases run, and files in it. */
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char directory[] = "/tmp/hoistway-data-XXXXXX";

static inline int set_up(void **state)
{
    (void)state;
    return mkdtemp(directory) && chdir(directory) == 0 ? 0 : -1;
}

static inline int tear_down(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", directory);
    return chdir("/") == 0 ? system(command) : -1;
}

static inline void write_file(const char *name, const void *bytes, size_t size)
{
    FILE *f = fopen(name, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

#endif
