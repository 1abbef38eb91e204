/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hoistway explain: what a code in a message means and what to do, without a network. The texts are
 * those of docs/errors.md.
 */
#include "verbs/explain.h"

#include "cli/message/message.h"
#include "cli/options/options.h"
#include "cli/options/verb.h"
#include "verbs/verbs.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS 78

/* Words of a text in lines that begin with `indent` blanks, but for the first, which has begun. */
static void print_wrapped(const char *text, int indent)
{
    int column = indent;
    while (*text) {
        int length = (int)strcspn(text, " ");
        if (column > indent && column + 1 + length > COLUMNS) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            putchar(' ');
            column++;
        }
        printf("%.*s", length, text);
        column += length;
        text += length;
        text += strspn(text, " ");
    }
    putchar('\n');
}

/* "E410", "error[E410]", "w105" or "410"; 0: no such thing. */
static int read_code(const char *text)
{
    const char *at = strchr(text, '[');
    at = at ? at + 1 : text;
    at += strchr("EWIewi", *at) && *at;
    if (!isdigit((unsigned char)at[0]) || !isdigit((unsigned char)at[1]) ||
        !isdigit((unsigned char)at[2]) || (at[3] && strcmp(at + 3, "]") != 0))
        return 0;
    return (at[0] - '0') * 100 + (at[1] - '0') * 10 + (at[2] - '0');
}

static const struct error_text *find(int code)
{
    for (size_t i = 0; i < error_text_count; i++)
        if (error_texts[i].code == code)
            return &error_texts[i];
    return NULL;
}

/* The code nearest to a number that no message has. */
static int nearest(int code)
{
    int found = error_texts[0].code;
    for (size_t i = 1; i < error_text_count; i++)
        if (abs(error_texts[i].code - code) < abs(found - code))
            found = error_texts[i].code;
    return found;
}

static void print_list(void)
{
    for (size_t i = 0; i < error_text_count; i++) {
        printf("E%03d  ", error_texts[i].code);
        print_wrapped(error_texts[i].what, 6);
    }
}

static int explain(const char *text, struct hst_error *error)
{
    const int code = read_code(text);
    const struct error_text *found = find(code);
    if (!found && code)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "'%.60s' is no code of a message, the nearest is E%03d. Fix: 'hoistway explain "
                    "E%03d', or 'hoistway explain' alone, which lists them.",
                    text, nearest(code), nearest(code));
    if (!found)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "'%.60s' is no code of a message, want one like E410. Fix: 'hoistway explain' "
                    "alone lists them.",
                    text);
    printf("E%03d: ", found->code);
    print_wrapped(found->what, 6);
    printf("Fix:  ");
    print_wrapped(found->advice, 6);
    return 0;
}

int verb_explain(int argc, char **argv)
{
    struct cli_operands codes = {.argument = "[CODE...]"};
    const struct cli_verb verb = {
        .name = "explain",
        .about = "Says what the code of a message means, and what to do; without a code: of all.\n"
                 "E, W and I (error, warning, note) with one number are one entry.",
        .operands = &codes,
    };
    struct hst_error error = {0};
    int code;
    if (!cli_ready(&verb, argc, argv, &code))
        return code;
    int native = 0;
    if (codes.count == 0)
        print_list();
    for (size_t i = 0; i < codes.count && !native; i++)
        native = explain(codes.values[i], &error);
    return native ? cli_fail(&error) : CLI_EXIT_OK;
}
