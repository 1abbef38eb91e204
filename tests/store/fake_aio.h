/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_STORE_FAKE_AIO_H
#define HST_TESTS_STORE_FAKE_AIO_H
/*
 * <hoistway/aio.h> as the store uses it, in place of the real one: on one thread, everything that
 * the real one leaves open (how many are taken, when and in which order they complete) drawn from a
 * seed; and a record of every write and sync, from which the bytes that a crash could have left are
 * made.
 */
#include <hoistway/aio.h>

#define FAKE_FILES 2u /* told apart by their names, ….d0.blk and ….d1.blk */

enum fake_kind { FAKE_WRITE, FAKE_SYNC, FAKE_MARK };
struct fake_event {
    enum fake_kind kind;
    uint32_t file;
    uint64_t offset, bytes;
    unsigned char *data;
    /* in what order it happened: everything has a moment of its own */
    uint64_t submitted, completed; /* UINT64_MAX: it has not */
    uint64_t durable;              /* of a write: when a sync behind it had completed */
    int mark;                      /* of a mark, with the caller's number */
    uint64_t number;
};

struct fake_record {
    struct fake_event *events;
    uint32_t count, room;
    uint64_t now;
};

void fake_seed(uint64_t seed);
/** Events go there from now on; null: nowhere. */
void fake_record(struct fake_record *record);
/** Something that happens to the caller. */
void fake_mark(int mark, uint64_t number);
/** Works out what was durable when. */
void fake_finish(struct fake_record *record);
void fake_free(struct fake_record *record);

/* What befalls the operation with a number, counted from fake_fault on, and all behind it. */
enum fake_fault {
    FAKE_NO_FAULT,
    FAKE_ONCE,   /* it alone ends with the error; of a write any part may have landed */
    FAKE_ALWAYS, /* the others too */
    FAKE_FLIP,   /* a read arrives with one bit inverted */
    FAKE_BROKEN, /* the context breaks: what is in flight is lost, every call fails */
};
void fake_fault(enum fake_fault fault, uint64_t number, int error);
/** Operations that were carried out since. */
uint64_t fake_operations(void);

struct fake_image {
    unsigned char *bytes;
    uint64_t count;
};
/**
 * Turns the bytes of the files before the record into those that are left by a crash at a moment:
 * what was durable, and of each other write that was submitted by then each `unit` of bytes or
 * not, in any order; `how`: 0 as the seed says, 1 none, 2 all.
 */
void fake_crash(const struct fake_record *record, uint64_t moment, uint64_t unit, int how,
                uint64_t seed, struct fake_image images[FAKE_FILES]);

#endif
