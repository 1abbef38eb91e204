/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exact_sum RANKS: adds up doubles for exact.py. Reads lines of doubles in hexadecimal; each line
 * is dealt out to so many sums, which are then added as ranks add theirs. Prints a sum per line.
 */
#include "comm/exact.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MOST = 16 };

int main(int argc, char **argv)
{
    const int ranks = argc == 2 ? atoi(argv[1]) : 0;
    char *line = NULL;
    size_t room = 0;
    if (ranks < 1 || ranks > RANKS_MOST)
        return 2;
    while (getline(&line, &room, stdin) > 0) {
        static struct exact_sum sums[RANKS_MOST];
        struct exact_sum all = {0};
        int turn = 0;
        memset(sums, 0, sizeof sums);
        for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n"))
            exact_add(&sums[turn++ % ranks], strtod(word, NULL));
        for (int r = 0; r < ranks; r++) {
            exact_settle(&sums[r]);
            for (int i = 0; i < EXACT_NUMBERS; i++)
                all.number[i] += sums[r].number[i];
        }
        printf("%a\n", exact_value(&all));
    }
    free(line);
    return 0;
}
