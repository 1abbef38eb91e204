/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line of a store that says which data it was trained on: two hashes, of which the second does
 * not depend on the order of the files. A store that was begun before the program wrote it has
 * none, and goes on without the comparison.
 */
#include "verbs/train/run.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define WORD  "data "
#define SPLIT "eval-split "

size_t train_data_line(const struct data *data, char *text, size_t bytes)
{
    const struct data_identity is = data_identity(data);
    return (size_t)snprintf(text, bytes, WORD "%016" PRIx64 " %016" PRIx64 "\n", is.in_order,
                            is.in_any_order);
}

const char *train_long_name(enum pack_long longer)
{
    static const char *const names[] = {
        [PACK_LONG_SPLIT] = "split",
        [PACK_LONG_CUT] = "cut",
        [PACK_LONG_DROP] = "drop",
        [PACK_LONG_REFUSE] = "refuse",
    };
    return names[longer];
}

/* --long has decided nothing where no document was long. */
size_t train_packing_lines(const struct data *data, char *text, size_t bytes)
{
    const struct data_packing *p = data_packing(data);
    if (!p)
        return 0;
    size_t n = (size_t)snprintf(text, bytes, "pack %s\nrows %" PRIu64 "\n", p->apart ? "off" : "on",
                                p->row_count);
    if (p->long_count)
        n += (size_t)snprintf(text + n, bytes - n, "long %s\n", train_long_name(p->longer));
    return n;
}

size_t train_split_line(double share, char *text, size_t bytes)
{
    return share > 0 ? (size_t)snprintf(text, bytes, SPLIT "%.15g\n", share) : 0;
}

bool train_is_split_line(const char *line)
{
    return strncmp(line, SPLIT, strlen(SPLIT)) == 0;
}

void train_split_failed(struct train_line was, struct train_line is, struct hst_error *error)
{
    fail(
        error, (enum fail_code)HST_E_STORE_OTHER, -EINVAL,
        "the store was trained with '%.*s', this run %s%.*s%s: it trains on other parts of --data. "
        "Fix: --%.*s, or --allow-config-change to go on with this.",
        was.length, was.line, is.length ? "has '" : "splits nothing", is.length, is.line,
        is.length ? "'" : "", was.length, was.line);
}

bool train_is_data_line(const char *line)
{
    return strncmp(line, WORD, strlen(WORD)) == 0;
}

bool train_data_order_alone(struct train_line was, struct train_line is)
{
    const size_t any = strlen(WORD) + 16; /* where the second hash begins, with its blank */
    return was.length == is.length && (size_t)was.length > any &&
           memcmp(was.line + any, is.line + any, (size_t)was.length - any) == 0;
}

void train_data_failed(struct train_line was, struct train_line is, const char *files,
                       struct hst_error *error)
{
    const bool order = train_data_order_alone(was, is);
    fail(error, (enum fail_code)HST_E_STORE_OTHER, -EINVAL,
         "the store was trained on %s --data %.150s%s. Fix: %s, or --allow-config-change to go on "
         "with this.",
         order ? "the files of" : "other data than", files,
         order ? " in another order"
               : ", which has as many tokens (the sizes of its files or the "
                 "bytes in them differ)",
         order ? "the order of that run" : "the --data of that run");
}
