/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a verb's help from its option tables: what is not in a table is not an option, so help
 * cannot lie.
 */
#include "cli/options/options.h"

#include <string.h>

#define HELP_COLUMN 28

/* "fp32|bf16" for a choice, else the name of the value. */
static size_t format_argument(const struct hst_option *o, char *dst, size_t dst_bytes)
{
    size_t n = (size_t)snprintf(dst, dst_bytes, "--%s", o->name);
    if (o->type == HST_OPTION_FLAG)
        return n;
    if (o->type != HST_OPTION_CHOICE)
        return n + (size_t)snprintf(dst + n, dst_bytes - n, " %s", o->argument);
    for (size_t i = 0; o->choices[i] && n < dst_bytes; i++)
        n += (size_t)snprintf(dst + n, dst_bytes - n, "%s%s", i ? "|" : " ", o->choices[i]);
    return n;
}

static void print_option(const struct cli_verb *verb, const struct hst_option *o, FILE *out)
{
    char left[128];
    size_t n = format_argument(o, left, sizeof left);
    if (n > HELP_COLUMN - 1)
        fprintf(out, "  %s\n  %*s", left, HELP_COLUMN, "");
    else
        fprintf(out, "  %-*s", HELP_COLUMN, left);
    fprintf(out, "%s", o->help);
    const char *required = cli_required(verb, o->name);
    if (required && strchr(required, '|'))
        fprintf(out, " (required: one of %s)", required);
    else if (required)
        fprintf(out, " (required)");
    else if (o->default_text)
        fprintf(out, " (%s)", o->default_text);
    fprintf(out, "\n");
}

static void print_group(const struct cli_verb *verb, const char *group, FILE *out)
{
    fprintf(out, "\n%s:\n", group);
    for (size_t s = 0; s < verb->set_count; s++)
        for (size_t i = 0; i < verb->sets[s].count; i++)
            if (strcmp(verb->sets[s].options[i].group, group) == 0)
                print_option(verb, &verb->sets[s].options[i], out);
}

static bool takes_sizes(const struct cli_verb *verb)
{
    for (size_t s = 0; s < verb->set_count; s++)
        for (size_t i = 0; i < verb->sets[s].count; i++)
            if (verb->sets[s].options[i].type == HST_OPTION_SIZE ||
                verb->sets[s].options[i].type == HST_OPTION_COUNT)
                return true;
    return false;
}

/* " --model DIR"; of options that are alternatives " --steps|--epochs X". */
static void print_required(const struct cli_verb *verb, const struct hst_option *o, FILE *out)
{
    const char *entry = cli_required(verb, o->name);
    if (!entry)
        return;
    const size_t length = strlen(o->name);
    const bool first = strncmp(entry, o->name, length) == 0;
    const bool last = strcmp(entry + strlen(entry) - length, o->name) == 0;
    fprintf(out, "%s--%s", first ? " " : "|", o->name);
    if (last)
        fprintf(out, " %s", o->argument);
}

static void print_usage(const struct cli_verb *verb, FILE *out)
{
    char command[64];
    fprintf(out, "usage: %s", cli_command(verb, command));
    if (verb->operands)
        fprintf(out, " %s", verb->operands->argument);
    for (size_t s = 0; s < verb->set_count; s++)
        for (size_t i = 0; i < verb->sets[s].count; i++)
            print_required(verb, &verb->sets[s].options[i], out);
    fprintf(out, "%s\n\n%s\n", verb->set_count ? " [options]" : "", verb->about);
}

void cli_help(const struct cli_verb *verb, FILE *out)
{
    const char *groups[CLI_MAX_OPTIONS];
    size_t group_count = 0;
    print_usage(verb, out);
    for (size_t s = 0; s < verb->set_count; s++) {
        for (size_t i = 0; i < verb->sets[s].count; i++) {
            const char *group = verb->sets[s].options[i].group;
            size_t g = 0;
            while (g < group_count && strcmp(groups[g], group) != 0)
                g++;
            if (g == group_count && group_count < CLI_MAX_OPTIONS)
                groups[group_count++] = group;
        }
    }
    for (size_t g = 0; g < group_count; g++)
        print_group(verb, groups[g], out);
    if (takes_sizes(verb))
        fprintf(out, "\nSizes: 4K, 1M, 2GiB, 5e8; K, M, G, T are powers of 1024. Defaults are in "
                     "parentheses.\n");
    if (verb->see)
        fprintf(out, "%s\n", verb->see);
}
