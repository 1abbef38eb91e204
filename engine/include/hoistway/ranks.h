/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_RANKS_H
#define HOISTWAY_RANKS_H
/*
 * Ranks: the processes that a launcher starts to train one model together. What launchers say
 * stands in the environment; this is the one place that reads it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Value of a variable of the environment, or null: getenv, or a test's table. */
typedef const char *hst_getenv_fn(const char *name);

/** What the user said of this process; null: nothing. Both, or neither. */
struct hst_launch_flags {
    const char *world; /* number of ranks, in digits */
    const char *rank;  /* below it */
};

/** Who this process is among those that were started together. */
struct hst_launch {
    uint32_t ranks, rank;      /* 1, 0 where nobody has launched it as one of several */
    uint32_t locals, local;    /* of those on this node; locals 0: not said */
    bool mpi;                  /* MPI started it, or can: a transport carries this world */
    const char *launcher;      /* "mpirun of Open MPI"; "" where there is none; static */
    const char *variable;      /* that says how many there are; "" */
    const char *alone;         /* how it is started alone: "without mpirun"; "" */
};

/**
 * Reads the first complete source of: the flags, Open MPI, MPICH and Intel MPI, Slurm (a step with
 * PMI), torchrun. A source is complete if it says a number of ranks and one below it (torchrun: and
 * the local rank). What a batch
 * script of Slurm, or the step that carries mpirun's own daemons, has of Slurm's variables beside
 * another source, is no conflict. Empty variables count as not set.
 *
 * get      null: the process's own environment
 * launch   written always: the first complete source, even where there is a refusal because of
 *          another; else ranks 1
 * why      [200], one line with a fix; "" unless refused; may be null
 *
 * Errors: -EINVAL: a source says a part (only the number, only the rank), or what is no number,
 * or a rank that is not below it; two complete sources contradict each other; a Slurm step of
 * several without PMI, each of which would be alone.
 * Thread-safety: safe where the getter is. Pure but for it.
 */
int hst_launch_read(const struct hst_launch_flags *flags, hst_getenv_fn *get,
                    struct hst_launch *launch, char *why);

#ifdef __cplusplus
}
#endif
#endif
