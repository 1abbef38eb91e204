/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One bit anywhere in the files is inverted. An open finds the newest version or the one before,
 * whole, or refuses, or a read of what it found fails; no byte is ever given that was not written.
 *
 *     rot FLIPS [SEED]      so many bits at random
 *     rot every             each bit of a header, of a superblock, and of both copies of the newest
 */
#include "images.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct toy toy;

enum result { SAME, BEFORE, READ_REFUSED, OPEN_REFUSED, WRONG, RESULTS };

/* Of the newest version, 3. */
static enum result open_and_read(struct hst_error *error)
{
    struct store *store;
    struct store_found found;
    int rc = store_open(&toy.config, &store, &found, error);
    if (rc)
        return error->code && (rc == -EBADMSG || rc == -EINVAL || rc == -ENOTSUP) ? OPEN_REFUSED
                                                                                  : WRONG;
    enum result result = found.version == 3 ? SAME : found.version == 2 ? BEFORE : WRONG;
    if ((result == BEFORE) != (found.stepped_back || (found.superblock_damaged && result != SAME)))
        result = WRONG;
    for (uint32_t i = 0; i < TOY_EXTENTS && result != WRONG; i++) {
        struct transfer transfer;
        rc = extents_read(store_extents(store), toy_kind(i), i % TOY_TILES, toy.read, &transfer);
        rc = rc ? rc : extents_wait(store_extents(store), &transfer);
        if (rc == -EBADMSG && found.clean)
            result = READ_REFUSED;
        else if (rc || !toy_holds(&toy, i, toy.stamps[found.version][i], toy.read))
            result = WRONG;
    }
    toy_drop(store);
    return result;
}

static unsigned long counts[RESULTS];

static enum result judge(struct files *files, uint64_t seed, const char *what, uint64_t at)
{
    struct hst_error error = {0};
    files_write(&toy, files);
    files_free(files);
    fake_seed(seed);
    const enum result result = open_and_read(&error);
    counts[result]++;
    if (result == WRONG)
        printf("seed %llu: a bit at %llu%s is not noticed, or not told as it should be: %s\n",
               (unsigned long long)seed, (unsigned long long)at, what, error.message);
    return result;
}

static void flip_some(const struct files states[2], unsigned long flips, uint64_t seed)
{
    for (unsigned long i = 0; i < flips && counts[WRONG] == 0; i++, seed++) {
        uint64_t random = seed;
        struct files files = files_copy(&states[i % 2]);
        struct fake_image *image = &files.images[toy_below(&random, FAKE_FILES)];
        /* as often in metadata, which is at the ends, as anywhere */
        const uint64_t limit = toy_below(&random, 2) ? image->count : image->count / 6;
        uint64_t at = toy_below(&random, limit);
        at = toy_below(&random, 2) ? at : image->count - 1 - at;
        image->bytes[at] ^= (unsigned char)(1 << toy_below(&random, 8));
        judge(&files, seed, "", at);
    }
}

/* Each bit of a page of drive 0's file, in its other copy too where that is given. */
static void flip_page(const struct files *state, uint64_t at, uint64_t copy_at)
{
    for (uint64_t bit = 0; bit < 8 * STORE_PAGE_BYTES && counts[WRONG] == 0; bit++) {
        struct files files = files_copy(state);
        unsigned char *bytes = files.images[0].bytes, mask = (unsigned char)(1 << bit % 8);
        bytes[at + bit / 8] ^= mask;
        if (copy_at > 0)
            bytes[copy_at + bit / 8] ^= mask;
        const enum result result = judge(&files, bit, copy_at ? " of both copies" : "", at);
        if (copy_at == 0 && result != SAME) {
            printf("bit %llu of the page at %llu: its other copy is not taken\n",
                   (unsigned long long)bit, (unsigned long long)at);
            counts[WRONG]++;
        }
    }
}

static void flip_every(const struct files states[2])
{
    struct store_header header;
    if (store_header_decode(states[0].images[0].bytes, 0, &header).error)
        abort();
    for (int i = 0; i < 2; i++) { /* killed; closed */
        unsigned newest = 0;
        struct store_superblock s[2];
        for (unsigned slot = 0; slot < 2; slot++)
            if (store_superblock_decode(states[i].images[0].bytes +
                                            store_superblock_at(&header, slot, 0),
                                        slot, 0, &header, &s[slot])
                    .error)
                abort();
        newest = s[1].seq > s[0].seq;
        const uint64_t at = store_superblock_at(&header, newest, 0);
        if (i == 0)
            flip_page(&states[i], 0, 0);
        else
            flip_page(&states[i], at, 0);
        flip_page(&states[i], at, store_superblock_at(&header, newest, 1));
    }
}

int main(int argc, char **argv)
{
    const bool every = argc > 1 && strcmp(argv[1], "every") == 0;
    const unsigned long flips = argc > 1 && !every ? strtoul(argv[1], NULL, 0) : 300;
    const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    struct files first = toy_base(&toy, SHARE_ALL, NULL), states[2];
    struct store *store;
    struct store_found found;
    struct hst_error error = {0};
    if (store_open(&toy.config, &store, &found, &error) || toy_commit_all(&toy, store, 2) ||
        toy_commit_all(&toy, store, 3))
        abort();
    states[0] = files_read(&toy); /* as a kill leaves it */
    store_close(&store);
    states[1] = files_read(&toy);
    if (every)
        flip_every(states);
    else
        flip_some(states, flips, seed);
    files_free(&first);
    files_free(&states[0]);
    files_free(&states[1]);
    toy_close(&toy);
    printf("the same %lu, the version before %lu, reads refused %lu, opens refused %lu\n",
           counts[SAME], counts[BEFORE], counts[READ_REFUSED], counts[OPEN_REFUSED]);
    /* the flips reached each of them that they can lead to */
    return counts[WRONG] > 0 || !counts[SAME] || !counts[BEFORE] ||
           (!every && !counts[READ_REFUSED]);
}
