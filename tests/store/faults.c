/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every operation of a small run fails in turn, in every way. Either nothing comes of it, or the
 * run stops; an open without faults then finds a version that was begun, not older than the last
 * whose commit had returned, with every byte of it.
 *
 *     faults STRIDE [SEED]
 *
 * STRIDE: 1, all operations; n, every n-th. A failure prints what replays it.
 */
#include "images.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSIONS 3u

static struct toy toy;

struct outcome {
    uint64_t least, most; /* versions that may be found */
    uint64_t operations;
    bool whole; /* all went well */
};

/* From a store of version 1, closed in order or not. */
static struct outcome go(void)
{
    struct store *store;
    struct store_found found;
    struct hst_error error = {0};
    struct outcome out = {1, 1, 0, false};
    int rc = store_open(&toy.config, &store, &found, &error);
    if (rc == 0) {
        if (found.stepped_back) /* said, and for damage alone */
            out.least = out.most = found.version;
        for (uint64_t version = found.version + 1; version < 2 + VERSIONS && rc == 0; version++) {
            out.most = version;
            rc = toy_commit_all(&toy, store, version);
            out.least = rc ? out.least : version;
        }
        if ((rc != 0) != (store_error(store)->code != 0) ||
            (rc && store_error(store)->message[0] == 0))
            out.most = UINT64_MAX; /* an error that the store does not tell, or no error */
        store_close(&store);
    } else if (error.code == 0 || error.native != rc) {
        out.most = UINT64_MAX;
    }
    out.whole = rc == 0;
    out.operations = fake_operations();
    return out;
}

static int check(struct outcome out, const char *what, uint64_t number, int error, uint64_t seed)
{
    struct store *store;
    struct store_found found = {0};
    struct hst_error why = {.message = "no error is told"};
    const char *wrong = out.most == UINT64_MAX ? why.message : NULL;
    fake_fault(FAKE_NO_FAULT, 0, 0);
    if (!wrong && store_open(&toy.config, &store, &found, &why) == 0) {
        if (found.version < out.least || found.version > out.most)
            wrong = "a version that may not be found";
        wrong = wrong ? wrong : toy_compare(&toy, store, found.version);
        toy_drop(store);
    } else {
        wrong = why.message;
    }
    if (wrong)
        printf("seed %llu, %s, operation %llu, error %d: %s (versions %llu to %llu, found %llu)\n",
               (unsigned long long)seed, what, (unsigned long long)number, error, wrong,
               (unsigned long long)out.least, (unsigned long long)out.most,
               (unsigned long long)found.version);
    return wrong ? 1 : 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        enum fake_fault fault;
        int error;
    } KINDS[] = {
        {"fails once", FAKE_ONCE, -EIO},
        {"is full once", FAKE_ONCE, -ENOSPC},
        {"fails from then on", FAKE_ALWAYS, -EIO},
        {"is gone", FAKE_ALWAYS, -ENODEV},
        {"flips a bit", FAKE_FLIP, 0},
        {"breaks down", FAKE_BROKEN, -ETIMEDOUT},
    };
    const uint64_t stride = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1, runs = 0, stopped = 0;
    struct files closed = toy_base(&toy, SHARE_ALL, NULL);
    uint64_t stamps[2][TOY_EXTENTS];
    memcpy(stamps, toy.stamps, sizeof stamps);
    int rc = 0;
    struct store *store;
    struct store_found found;
    struct hst_error error;
    if (store_open(&toy.config, &store, &found, &error))
        abort();
    toy_drop(store);
    struct files left = files_read(&toy); /* by a process that was killed */
    for (int clean = 0; clean < 2 && rc == 0; clean++)
        for (size_t kind = 0; kind < sizeof KINDS / sizeof KINDS[0] && rc == 0; kind++) {
            bool struck = true;
            for (uint64_t number = 1 + seed % stride; struck && rc == 0;
                 number += stride, seed++, runs++) {
                files_write(&toy, clean ? &closed : &left);
                memcpy(toy.stamps, stamps, sizeof stamps);
                fake_seed(seed);
                fake_fault(KINDS[kind].fault, number, KINDS[kind].error);
                const struct outcome out = go();
                struck = out.operations >= number;
                stopped += !out.whole;
                rc = check(out, KINDS[kind].name, number, KINDS[kind].error, seed);
            }
        }
    files_free(&closed);
    files_free(&left);
    toy_close(&toy);
    printf("%llu runs, %llu of them stopped\n", (unsigned long long)runs,
           (unsigned long long)stopped);
    return rc ? rc : runs == 0 || stopped == 0;
}
