/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the table of docs/deepspeed.md. */
#include "cli/config/ds_keys.h"

#include <stdio.h>

/* A list of aliases, in backticks each. */
static void print_aliases(const char *list)
{
    for (const char *at = list; at && *at; at++) {
        if (at == list || at[-1] == '|')
            printf(", `");
        if (*at == '|' || !at[1])
            printf("%.*s`", *at == '|' ? 0 : 1, at);
        else
            putchar(*at);
    }
}

/* A bar would end the cell. */
static void print_harmless(const char *list)
{
    printf(" (not refused: ");
    for (const char *at = list; *at; at++)
        if (*at == '|')
            printf(" or ");
        else
            putchar(*at);
    printf(")");
}

int main(void)
{
    printf("| key | type | absent | \"auto\" | verdict | what becomes of it |\n");
    printf("|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < ds_key_count; i++) {
        const struct ds_key *k = &ds_keys[i];
        printf("| `%s`", k->path);
        print_aliases(k->aliases);
        printf("%s | %s | %s | %s | %s | %s", k->older ? " (older)" : "", ds_type_name(k->type),
               k->absent ? k->absent[0] ? k->absent : "\"\"" : "", k->automatic ? k->automatic : "",
               ds_verdict_name(k->verdict), k->words);
        if (k->verdict == DS_REFUSED && k->harmless)
            print_harmless(k->harmless);
        printf(" |\n");
    }
    return 0;
}
