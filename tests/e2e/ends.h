/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TESTS_ENDS_H
#define HOISTWAY_TESTS_ENDS_H
/* Where a rank ends, stops or fails: what the files of hoistway_ends share (ends.c). */
#include <stdbool.h>

/* Each counts for itself, from 1, in a rank's whole life. */
enum place {
    NUMBER,    /* ranks are numbered by a call of MPI: twice at the start */
    WINDOW,    /* and another shares a node's memory */
    LOAD,      /* a tile's initial values are there */
    PUBLISH,   /* the files of the first version get their names */
    SYNC_NAME, /* a directory is synced: after each of these, and before a move's vote */
    PUBLISHED,
    MOVE,    /* a rank of another number takes elements of a tile */
    CLEAN,   /* what is left of the store before is removed */
    FORWARD, /* the client acquires a unit */
    BACKWARD,
    GATHER, /* this and the next two: an operation of a step begins */
    EXCHANGE,
    AGREE,
    AGREED,   /* and its end is seen */
    UPDATE,   /* of a tile */
    MANIFEST, /* C2: a transfer is put together; C3 and C4 alike */
    SYNC,
    SUPERBLOCK,
    SUPERBLOCK_SYNC,
    VOTE, /* C5 */
    COMMITTED,
    VERSIONS,      /* a resume compares what ranks have */
    VERSIONS_SEEN, /* and knows it */
    OPENED,        /* a resume writes its superblock */
    KEEP,          /* ranks ask each other how far a copy of a version is */
    NAME,          /* a copy gets its name, or loses it */
    SAMPLES,       /* and tell each other what they have found for samples */
    EXPORT,        /* a tile of all ranks is gathered */
    SAVE,          /* a kernel is looked for: before ckpt asks for the memory of an export */
    TAKE,          /* ckpt takes what one of them has of the store */
    FILE_OPEN,     /* a file that tiles are read from or written to is opened */
    LEAVE,         /* the client has written its export, and asks to leave */
    CLOSE,
    LOAD_WRITE, /* a tile goes to a drive before the first visit: this and the next ones begin */
    LOAD_READ,  /* one is read before it, as a resume does */
    WEIGHTS_READ,
    WEIGHTS_WRITE,
    STATES_READ,
    STATES_WRITE,
    SCRATCH_READ, /* gradients, kept activations */
    SCRATCH_WRITE,
    EXPORT_READ,  /* a tile is read for the export */
    EXPORT_WRITE, /* a part of the export's file is written */
    STORE_READ,   /* ckpt, or a move to another number of ranks, reads a part of a store */
    PLACES,
};

/**
 * Ends or stops this rank where it is this place's turn. Returns true there if it goes on, and what
 * happens is the caller's: "eio", "full", "nan", "broken", "empty".
 */
bool strike(enum place place);
bool is_how(const char *how);
/** A request or a write is to fail, by `errno_of_how`. */
bool is_failure(void);
int errno_of_how(void);
/** The first visit begins: what tiles are moved for is no load any more. */
void now_steps(void);

#endif
