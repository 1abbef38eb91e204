/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which directories of --store are a rank's: {rank}, {local} and {node} in their names are
 * its numbers. So drives that one node alone has, or that its ranks share out, are named by one
 * command line for all ranks.
 */
#include "session/engine_state.h"
#include "store/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_BYTES = 12 }; /* of a number in place of a word, and more than its braces */

/* Measures what stands in braces at `at`, with them; 0: nothing, as in a directory's name. */
static size_t word_length(const char *at)
{
    if (*at != '{')
        return 0;
    const size_t length = 1 + strcspn(at + 1, "{},/");
    return at[length] == '}' ? length + 1 : 0;
}

static bool number_of(const char *at, size_t length, const struct hst_store_place *place,
                      uint32_t *number)
{
    const struct {
        const char *word;
        uint32_t number;
    } words[] = {{"{rank}", place->rank}, {"{local}", place->local}, {"{node}", place->node}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strlen(words[i].word) == length && memcmp(at, words[i].word, length) == 0) {
            *number = words[i].number;
            return true;
        }
    return false;
}

/* dst[n ..] ← the text, where there is room; n is what it would take. */
static void put(char *dst, size_t dst_bytes, size_t *n, const char *text, size_t length)
{
    if (dst && *n + length < dst_bytes)
        memcpy(dst + *n, text, length);
    *n += length;
}

int hst_store_words(const char *store, const struct hst_store_place *place, char *dst,
                    size_t dst_bytes, struct hst_error *error)
{
    struct hst_error ignored;
    size_t n = 0;
    int words = 0;
    error = error ? error : &ignored;
    for (const char *at = store; *at;) {
        const size_t length = word_length(at);
        char digits[WORD_BYTES];
        uint32_t number;
        if (length == 0) {
            put(dst, dst_bytes, &n, at++, 1);
            continue;
        }
        if (!number_of(at, length, place, &number))
            return store_refuse(error, HST_E_VALUE, -EINVAL,
                                "--store has %.*s, and words in braces are {rank}, {local} and "
                                "{node}: a rank's number in the world, in its node, and the "
                                "node's. Fix: one of these, or a directory without braces",
                                length < 60 ? (int)length : 60, at);
        snprintf(digits, sizeof digits, "%u", number);
        put(dst, dst_bytes, &n, digits, strlen(digits));
        at += length;
        words++;
    }
    if (dst && n >= dst_bytes)
        return store_refuse(error, HST_E_VALUE, -ENAMETOOLONG,
                            "--store has %zu characters, more than %zu. Fix: shorter directories",
                            n, dst_bytes - 1);
    if (dst)
        dst[n] = '\0';
    return words;
}

int store_words_fill(struct hst_engine *engine)
{
    const struct comm_info *ranks = &engine->ranks;
    const struct hst_store_place place = {ranks->rank, ranks->local, ranks->node};
    struct hst_error error = {0};
    if (!engine->store)
        return 0;
    const int words = hst_store_words(engine->store, &place, NULL, 0, &error);
    if (words <= 0)
        return words ? report_fail_as(&engine->report, &error) : 0;
    const size_t bytes = strlen(engine->store) + (size_t)words * WORD_BYTES + 1;
    char *filled = malloc(bytes);
    if (!filled)
        return report_fail(&engine->report, HST_E_STORE_DIR, -ENOMEM, "out of memory");
    (void)hst_store_words(engine->store, &place, filled, bytes, &error); /* it is long enough */
    free(engine->store);
    engine->config.store = engine->store = filled;
    return 0;
}

const char *hst_engine_store(const struct hst_engine *engine)
{
    return engine->config.store;
}
