/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One bit anywhere in the files is inverted. An open finds the newest version or the one before,
 * whole, or refuses, or a read of what it found fails; no byte is ever given that was not written.
 *
 *     rot FLIPS [SEED]
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
    if ((result == BEFORE) != found.stepped_back)
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

int main(int argc, char **argv)
{
    const unsigned long flips = argc > 1 ? strtoul(argv[1], NULL, 0) : 300;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    struct files first = toy_base(&toy), states[2];
    struct store *store;
    struct store_found found;
    struct hst_error error = {0};
    unsigned long counts[RESULTS] = {0};
    if (store_open(&toy.config, &store, &found, &error) || toy_commit_all(&toy, store, 2) ||
        toy_commit_all(&toy, store, 3))
        abort();
    states[0] = files_read(&toy); /* as a kill leaves it */
    store_close(&store);
    states[1] = files_read(&toy);
    for (unsigned long i = 0; i < flips && counts[WRONG] == 0; i++, seed++) {
        uint64_t random = seed;
        struct files files = files_copy(&states[i % 2]);
        struct fake_image *image = &files.images[toy_below(&random, FAKE_FILES)];
        /* as often in metadata, which is at the ends, as anywhere */
        const uint64_t limit = toy_below(&random, 2) ? image->count : image->count / 6;
        uint64_t at = toy_below(&random, limit);
        at = toy_below(&random, 2) ? at : image->count - 1 - at;
        image->bytes[at] ^= (unsigned char)(1 << toy_below(&random, 8));
        files_write(&toy, &files);
        files_free(&files);
        fake_seed(seed);
        const enum result result = open_and_read(&error);
        counts[result]++;
        if (result == WRONG)
            printf("seed %llu: a bit at %llu is not noticed, or not told as it should be: %s\n",
                   (unsigned long long)seed, (unsigned long long)at, error.message);
    }
    files_free(&first);
    files_free(&states[0]);
    files_free(&states[1]);
    toy_close(&toy);
    printf("the same %lu, the version before %lu, reads refused %lu, opens refused %lu\n",
           counts[SAME], counts[BEFORE], counts[READ_REFUSED], counts[OPEN_REFUSED]);
    /* the flips reached each of them that one bit can lead to */
    return counts[WRONG] > 0 || !counts[SAME] || !counts[BEFORE] || !counts[READ_REFUSED];
}
