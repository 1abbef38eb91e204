/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs documents, for check_pack.py.
 *
 *   pack_pieces T split|cut|drop|refuse on|off SEED < LENGTHS
 *
 * LENGTHS are the tokens of each document. Prints what is told of all, then one line for each
 * piece; of a document that is refused its number and inputs, and exits 3.
 */
#include "data/pack.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DOCUMENTS 1000000u

static uint64_t offsets[MOST_DOCUMENTS + 1];

static uint64_t read_lengths(void)
{
    uint64_t count = 0, tokens;
    while (count < MOST_DOCUMENTS && scanf("%" SCNu64, &tokens) == 1) {
        offsets[count + 1] = offsets[count] + tokens;
        count++;
    }
    return count;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"split", "cut", "drop", "refuse"};
    struct pack_config config = {0};
    struct pack pack;
    struct pack_fault fault;
    if (argc != 5)
        return 2;
    for (int i = 0; i < 4; i++)
        if (strcmp(argv[2], names[i]) == 0)
            config.longer = (enum pack_long)(PACK_LONG_SPLIT + i);
    config.seq_len = (uint32_t)strtoul(argv[1], NULL, 10);
    config.apart = strcmp(argv[3], "off") == 0;
    config.seed = strtoull(argv[4], NULL, 10);
    const int rc = pack_documents(offsets, read_lengths(), &config, &pack, &fault);
    if (rc == -E2BIG)
        return printf("%" PRIu64 " %" PRIu64 "\n", fault.document, fault.input_count), 3;
    if (rc)
        return 1;
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", pack.row_count, pack.input_count,
           pack.long_count, pack.lost_count);
    for (uint64_t i = 0; i < pack.piece_count; i++) {
        const struct pack_piece *p = &pack.pieces[i];
        printf("%" PRIu32 " %" PRIu64 " %" PRIu32 " %" PRIu32 " %" PRIu32 "\n", p->document,
               p->first, p->row, p->column, p->count);
    }
    pack_free(&pack);
    return 0;
}
