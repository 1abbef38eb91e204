/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_MESSAGE_VOICE_H
#define HOISTWAY_TOOLS_CLI_MESSAGE_VOICE_H
/*
 * Who speaks where a program runs as several ranks. What is the same on all of them rank 0 tells,
 * without a word of its own. The others tell what is theirs alone, behind "rank 3 (node2): ", and
 * what ends all of them is told by the first one that finds it.
 *
 * Until voice_of a process is rank 0.   Thread-safety: one thread, but voice_prefix any.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#define VOICE_BYTES 96u

/** From now on this is that rank. ended: a signal's number, once one has come; may be null. */
void voice_of(uint32_t rank, const volatile sig_atomic_t *ended);
/** Warnings and notes are of this from now on, a name that stands before them; null: of all that
 * the program does. It is borrowed. */
void voice_about(const char *subject);
/** Returns that name, or null. */
const char *voice_subject(void);
/** True where it is not rank 0. */
bool voice_is_other(void);
/** "rank 3 (node2): "; "" of rank 0. Never null. */
const char *voice_prefix(void);
/** All ranks end by what ends this one, in the same words: rank 0 tells it. Until voice_of. */
void voice_all_alike(void);
/** True of another rank than 0 after that. */
bool voice_is_told(void);
/**
 * Whether this rank tells what ends it. Rank 0 does at once. Another one waits for two seconds
 * first: where the launcher ends it meanwhile (a signal comes), the cause was told by who found it
 * before.
 */
bool voice_tells_end(void);

#endif
