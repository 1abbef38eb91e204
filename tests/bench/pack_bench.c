/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packing of documents whose lengths are log-normal, several times: rows, fill and seconds
 * of the processor, which one thread takes.
 *
 *   pack_bench [DOCUMENTS [T [ROUNDS]]]     10,000,000 of them, 4,096, 5
 */
#include "data/pack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MEAN_TOKENS 600.0
#define SIGMA       0.9 /* of the logarithm */
#define ROUNDS_MOST 99u

static uint64_t state = 88172645463325252u; /* xorshift64 (Marsaglia 2003) */

static double uniform(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)((state >> 11) + 1) * 0x1p-53;
}

static uint64_t draw_tokens(void)
{
    const double normal = sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
    const double tokens = exp(log(MEAN_TOKENS) - SIGMA * SIGMA / 2 + SIGMA * normal);
    return tokens < 2 ? 2 : (uint64_t)tokens;
}

static double used_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static uint64_t argument(int argc, char **argv, int i, uint64_t or_else)
{
    return i < argc ? strtoull(argv[i], NULL, 10) : or_else;
}

int main(int argc, char **argv)
{
    const uint64_t documents = argument(argc, argv, 1, 10000000);
    const uint64_t seq_len = argument(argc, argv, 2, 4096);
    uint64_t rounds = argument(argc, argv, 3, 5);
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MOST ? ROUNDS_MOST : rounds;
    uint64_t *offsets = malloc((documents + 1) * sizeof *offsets);
    if (!offsets || seq_len > PACK_MOST_SEQ_LEN)
        return fprintf(stderr, "pack_bench: no memory, or T is too large\n"), 2;
    offsets[0] = 0;
    for (uint64_t i = 0; i < documents; i++)
        offsets[i + 1] = offsets[i] + draw_tokens();
    double seconds[ROUNDS_MOST], fill = 0;
    uint64_t rows = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        const struct pack_config config = {
            .seed = round, .seq_len = (uint32_t)seq_len, .longer = PACK_LONG_SPLIT};
        struct pack pack;
        struct pack_fault fault;
        const double begin = used_s();
        if (pack_documents(offsets, documents, &config, &pack, &fault))
            return fprintf(stderr, "pack_bench: the documents could not be packed\n"), 1;
        seconds[round] = used_s() - begin;
        rows = pack.row_count;
        fill = (double)pack.input_count / ((double)pack.row_count * (double)seq_len);
        pack_free(&pack);
    }
    qsort(seconds, rounds, sizeof *seconds, compare);
    printf("%llu documents of %.1f tokens on average, rows of %llu: %llu rows, fill %.5f, median "
           "%.2f s (%.2f to %.2f) of one processor, %llu seeds\n",
           (unsigned long long)documents, (double)offsets[documents] / (double)documents,
           (unsigned long long)seq_len, (unsigned long long)rows, fill, seconds[rounds / 2],
           seconds[0], seconds[rounds - 1], (unsigned long long)rounds);
    free(offsets);
    return 0;
}
