/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TESTS_FUZZ_FUZZ_H
#define HOISTWAY_TESTS_FUZZ_FUZZ_H
/*
 * A target hands bytes to a reader of hostile files, and checks what it made of them. The same
 * source is linked with libFuzzer, which looks for bytes, and with replay.c, which has known ones.
 */
#include <hoistway/hoistway.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** One input. Returns 0; what is wrong ends the process. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** What must hold. Not assert(), which a build may leave out. */
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/** The bytes and a NUL in a block of their own size, so that a read beyond it is seen. */
static inline char *exact_copy(const void *bytes, size_t size)
{
    char *copy = malloc(size + 1);
    MUST(copy);
    if (size)
        memcpy(copy, bytes, size);
    copy[size] = '\0';
    return copy;
}

/** A refusal: its code, and one line that says something and moves no cursor. */
static inline void must_be_told(const struct hst_error *error, int least, int greatest)
{
    size_t length = strnlen(error->message, sizeof error->message);
    MUST(error->code >= least && error->code <= greatest && error->native < 0);
    MUST(length > 0 && length < sizeof error->message);
    for (size_t i = 0; i < length; i++)
        MUST((unsigned char)error->message[i] >= 0x20 && error->message[i] != 0x7f);
}

/**
 * A file in memory with these bytes, and its name in path. The descriptor, which the caller closes.
 */
int file_in_memory(const void *bytes, size_t size, char path[64]);

#endif
