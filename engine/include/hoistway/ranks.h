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

/** This is what the user said of this process; null: nothing. Both, or neither. */
struct hst_launch_flags {
    const char *world; /* number of ranks, in digits */
    const char *rank;  /* below it */
    /* where ranks meet that MPI does not know of: "file:DIR" or "tcp:HOST:PORT"; null: where the
       launcher says */
    const char *rendezvous;
};

/** Who this process is among those that were started together. */
struct hst_launch {
    uint32_t ranks, rank;      /* 1, 0 where nobody has launched it as one of several */
    uint32_t locals, local;    /* of those on this node; locals 0: not said */
    bool mpi;                  /* MPI started it, or can: a transport carries this world */
    const char *launcher;      /* "mpirun of Open MPI"; "" where there is none; static */
    const char *variable;      /* that says how many there are; "" */
    const char *alone;         /* how it is started alone: "without mpirun"; "" */
    bool refused_alike;        /* what it is refused for is so on each of them */
    bool half_set; /* or no numbers: variables that nobody but that launcher has */
    /* torchrun: "HOST:PORT" where NCCL's ranks can meet, behind MASTER_PORT, which is torchrun's;
       "" where nothing, or no such place, is said. Or what --rendezvous tcp: says */
    char meet[96];
    bool meet_chosen;   /* it is the latter, and holds against NCCL_COMM_ID */
    const char *folder; /* --rendezvous file: they meet by files of it; the flags' own; or null */
    char file[96];      /* whose names begin with it: of the run and its attempt */
    bool meets;         /* MPI does not know of the ranks, and one of these is said */
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
 * With flags->rendezvous ranks of --world and --rank are not MPI's, either.
 *
 * Errors: -EINVAL: a source says a part (only the number, only the rank), or what is no number,
 * or a rank that is not below it; two complete sources contradict each other; a Slurm step of
 * several without PMI, each of which would be alone; a rendezvous that is no place, of ranks that
 * MPI has started, or of a process that nobody numbers.
 * Thread-safety: safe where the getter is. Pure but for it.
 */
int hst_launch_read(const struct hst_launch_flags *flags, hst_getenv_fn *get,
                    struct hst_launch *launch, char *why);

/**
 * It tells whether this machine could join several ranks: the transport over MPI is found, and
 * loads. No MPI is started.
 *
 * why  [400], one line, written on failure: where it was looked for, and what helps
 *
 * Errors: -EINVAL, those of the load: -ENODEV, -ENOTSUP.   Thread-safety: safe.
 */
int hst_ranks_transport(char *why);

struct hst_rates;
struct hst_error;

/** This is what is measured between ranks. */
struct hst_ranks_measure {
    size_t size_bytes;  /* of a row in f32; is rounded up to blocks of 4,096 elements per rank */
    uint32_t pairs;     /* turns of each contestant, after one that warms up; 1 to HST_PAIRS_MOST */
    /* null: not measured; else figures NET_* are written (machine.h), the same on all ranks */
    struct hst_rates *rates;
};
#define HST_PAIRS_MOST 101u
#define HST_RANKS_CASES 5u

/** An operation of ours and the one of the library below that does the same, by turns. */
struct hst_ranks_case {
    const char *name;         /* "exchange f32, shared memory"; static */
    const char *library_name; /* "MPI_Reduce_scatter_block f32"; static */
    double own_s, library_s;  /* seconds of one, the median */
    double ratio, ratio_least, ratio_most; /* own / library: median and range of the pairs */
};

struct hst_ranks_measured {
    uint32_t rank, ranks, nodes;
    char transport[64];
    size_t size_bytes; /* of a row, as rounded */
    struct hst_ranks_case cases[HST_RANKS_CASES];
    uint32_t case_count; /* without shared memory those that need it are left out */
};

/**
 * Opens a comm with the ranks that a launcher has started with this one and measures it: exchanges
 * and gathers, in memory that the node shares and by messages. All of them must call it alike.
 *
 * error  written on failure, with its code (error.h)
 *
 * Errors: -EINVAL (E501: hst_launch_read's refusals, ranks that MPI does not know of; E502: one
 * rank alone; E402: a number of pairs out of its range), -ENODEV no transport joins them (E502),
 * -ENOMEM and -EIO (E502, or E507 once they are joined), -EPIPE a rank does not answer (E504).
 * After these the process ends itself soon: other ranks may wait for it.
 * Thread-safety: one call in a process. Cost: five buffers of size_bytes; seconds.
 */
int hst_ranks_measure(const struct hst_ranks_measure *in, struct hst_ranks_measured *out,
                      struct hst_error *error);

#ifdef __cplusplus
}
#endif
#endif
