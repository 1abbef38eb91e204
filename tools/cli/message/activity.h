/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_MESSAGE_ACTIVITY_H
#define HOISTWAY_TOOLS_CLI_MESSAGE_ACTIVITY_H
/*
 * This is what the program is at, on stderr, so that it is never silent for long: on a terminal a
 * line that is written over and whose time ticks, elsewhere a line every 30 seconds. A process has
 * one stderr and so one activity. A thread of its own keeps the line up, because much of what takes
 * long is one call that does not call back: a probe, a sync, the locking of memory. The thread
 * starts with the first activity, takes no signal, and ends with the process.
 *
 * Thread-safety: activity_count from any thread; the others from one thread at a time.
 */
#include <stdbool.h>
#include <stdint.h>

#define ACTIVITY_NAME_BYTES 160u
#define ACTIVITY_LINE_BYTES 512u

/* An activity at one moment. */
struct activity {
    const char *what; /* "verify step 120" */
    uint64_t done_bytes, total_bytes; /* total 0: nothing is counted */
    double elapsed_s;
    const char *beside; /* a line that it stands in front of; null or empty: none */
};

/** "verify step 120 0:12 | 1.5 GiB of 4.0 GiB 38% | 128.0 MiB/s | eta 20s". Pure. */
void activity_format(const struct activity *activity, char line[ACTIVITY_LINE_BYTES]);

/** From now on the program is at `what`, which is copied; what it was at before has ended. Nothing
 * is shown of activities that take less than a second, all since a line or since there was none. */
void activity_begin(const char *what);
/** It tells how far the work has come. It waits for nothing. */
void activity_count(uint64_t done_bytes, uint64_t total_bytes);
/** Nothing is under way any more. */
void activity_end(void);

/** It tells whether stderr is a terminal. */
bool activity_on_terminal(void);
/**
 * Shows a line that stays: elsewhere than on a terminal at once, there until the next such line
 * takes its place. `last`: none does.
 */
void activity_show(const char *line, bool last);

/**
 * Between the two the caller alone writes to the terminal, on a line of its own: what ticks was
 * erased, a line that stays was ended.
 */
void activity_hold(void);
void activity_release(void);
/** Both at once: what is written next begins a line, unless an activity is under way. */
void activity_interrupt(void);
/** Leaves the terminal as activity_hold does. For handlers of signals that end the process. */
void activity_leave(void);

#endif
