/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides from what flags and launchers say who this process is among those that were started
 * together. Pure but for the getter: the rules are one table of sources, in the order in which they
 * hold. A launcher's variables reach every process below it, so a source counts only where it says
 * both how many there are and which one this is.
 */
#include "comm/meet.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHY_BYTES = MEET_WHY_BYTES, DIGITS_MOST = 10 };
#define RANKS_MOST 65536ul
#define PORT_MOST  65535ul
/* From here on a number of a Slurm step stands for the batch script and its like: no step. */
#define SLURM_NO_STEP 0xfffffff0ul

enum source_id { FLAGS, OPEN_MPI, MPICH, SLURM, TORCHRUN, SOURCES };

static const struct source {
    const char *launcher, *count, *rank, *locals, *local; /* variables; null: it has none */
    const char *alone;
    bool mpi;
    bool common_names; /* the rank's variable alone may be another program's */
    bool local_too;    /* complete only with the local rank */
} sources[SOURCES] = {
    [FLAGS] = {"--world", "--world", "--rank", NULL, NULL, "without --world and --rank", true,
               false, false},
    [OPEN_MPI] = {"mpirun of Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
                  "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "without mpirun",
                  true, false, false},
    [MPICH] = {"mpiexec", "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "MPI_LOCALRANKID",
               "without mpiexec", true, true, false},
    [SLURM] = {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", NULL, "SLURM_LOCALID",
               "with srun --ntasks=1, or without srun", true, true, false},
    [TORCHRUN] = {"torchrun", "WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE", "LOCAL_RANK",
                  "without torchrun", false, true, true},
};

/* This is what the process was given, flags included. */
struct given {
    const struct hst_launch_flags *flags;
    hst_getenv_fn *get;
};

static const char *value_of(const struct given *given, const char *name)
{
    const char *text = NULL;
    if (name && name[0] == '-')
        text = strcmp(name, "--world") == 0 ? given->flags->world : given->flags->rank;
    else if (name)
        text = given->get(name);
    return text && *text ? text : NULL;
}

/* Digits alone; false for anything else. */
static bool number_of(const char *text, unsigned long *number)
{
    if (!text || strlen(text) > DIGITS_MOST || text[strspn(text, "0123456789")])
        return false;
    *number = strtoul(text, NULL, 10);
    return true;
}

/* ---- one source ------------------------------------------------------------------------------ */

__attribute__((format(printf, 2, 3))) static int refuse(char *why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(why, WHY_BYTES, format, args);
    va_end(args);
    return -EINVAL;
}

/* A flag is to be another one; a variable is somebody's who has left it. */
static int refuse_rank(char *why, const struct source *s, const char *text, unsigned long count)
{
    char fix[80] = "unset both";
    if (s == &sources[FLAGS] && count > 1)
        snprintf(fix, sizeof fix, "each process's own --rank, 0 to %lu", count - 1);
    else if (s == &sources[FLAGS])
        snprintf(fix, sizeof fix, "--rank 0");
    return refuse(why, "%s is \"%.20s\": no rank below %s, which is %lu. Fix: %s.", s->rank, text,
                  s->count, count, fix);
}

/* Slurm's variables stand in batch scripts too, which are no step. */
static bool is_step(const struct given *given)
{
    unsigned long step;
    return number_of(value_of(given, "SLURM_STEP_ID"), &step) && step < SLURM_NO_STEP;
}

static void read_local(const struct given *given, const struct source *s, struct hst_launch *launch)
{
    unsigned long locals, local;
    if (!number_of(value_of(given, s->locals), &locals) ||
        !number_of(value_of(given, s->local), &local) || local >= locals || locals > launch->ranks)
        return;
    launch->locals = (uint32_t)locals;
    launch->local = (uint32_t)local;
}

/* The port behind torchrun's own. An address of IPv6 has colons itself. */
static void read_meeting(const struct given *given, struct hst_launch *launch)
{
    const char *host = value_of(given, "MASTER_ADDR");
    unsigned long port;
    if (!host || !number_of(value_of(given, "MASTER_PORT"), &port) || !port || port >= PORT_MOST)
        return;
    const bool colons = strchr(host, ':') != NULL;
    const int length = snprintf(launch->meet, sizeof launch->meet, "%s%s%s:%lu", colons ? "[" : "",
                                host, colons ? "]" : "", port + 1);
    if (length < 0 || (size_t)length >= sizeof launch->meet)
        launch->meet[0] = '\0';
    launch->meets = *launch->meet != '\0';
}

/* 1: complete, *launch is written; 0: nothing is said; -EINVAL: a part, or what makes no sense. */
static int read_source(const struct given *given, enum source_id id, struct hst_launch *launch,
                       char *why)
{
    const struct source *s = &sources[id];
    const char *count_text = value_of(given, s->count), *rank_text = value_of(given, s->rank);
    unsigned long count, rank;
    const char *missing = !count_text ? s->count : !rank_text ? s->rank : NULL;
    if (!missing && s->local_too && !value_of(given, s->local))
        missing = s->local;
    if (id == SLURM && !is_step(given))
        return 0;
    if (!count_text && (!rank_text || s->common_names))
        return 0;
    if (missing && id == FLAGS)
        return refuse(why, "%s %.20s is given without %s. Fix: give both, or neither.",
                      count_text ? s->count : s->rank, count_text ? count_text : rank_text,
                      missing);
    if (missing)
        return refuse(
            why,
            "%s is \"%.20s\", but %s is not set: a part of what %s says. Fix: set it too, "
            "or unset the first.",
            count_text ? s->count : s->rank, count_text ? count_text : rank_text, missing,
            s->launcher);
    if (!number_of(count_text, &count) || !count || count > RANKS_MOST)
        return refuse(why, "%s is \"%.20s\": no number of ranks (1 to %lu). Fix: %s.", s->count,
                      count_text, RANKS_MOST,
                      id == FLAGS ? "as many as there are processes" : "unset it");
    if (!number_of(rank_text, &rank) || rank >= count)
        return refuse_rank(why, s, rank_text, count);
    *launch = (struct hst_launch){.ranks = (uint32_t)count,
                                  .rank = (uint32_t)rank,
                                  .mpi = s->mpi,
                                  .launcher = s->launcher,
                                  .variable = s->count,
                                  .alone = s->alone};
    read_local(given, s, launch);
    if (id == TORCHRUN)
        read_meeting(given, launch);
    return 1;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* srun without PMI starts so many programs that MPI takes for worlds of one. */
static int check_pmi(const struct given *given, const struct hst_launch *launch, char *why)
{
    if (launch->ranks == 1 || value_of(given, "PMIX_RANK") || value_of(given, "PMI_RANK"))
        return 0;
    return refuse(why,
                  "srun started %u ranks without PMI: each would be alone (neither PMIX_RANK nor "
                  "PMI_RANK is set). Fix: srun --mpi=pmix.",
                  launch->ranks);
}

/* Two launchers, one inside the other: a world of one is no contradiction, nor is Slurm's step. */
static int compare(const struct hst_launch *first, const struct hst_launch *other,
                   enum source_id other_id, char *why)
{
    if (other_id == SLURM || first->ranks == 1 || other->ranks == 1 ||
        (first->ranks == other->ranks && first->rank == other->rank))
        return 0;
    return refuse(why,
                  "%s makes this rank %u of %u, and %s rank %u of %u. Fix: unset the variables of "
                  "one.",
                  first->variable, first->rank, first->ranks, other->variable, other->rank,
                  other->ranks);
}

static const char *of_the_process(const char *name)
{
    return getenv(name);
}

int hst_launch_read(const struct hst_launch_flags *flags, hst_getenv_fn *get,
                    struct hst_launch *launch, char *why)
{
    static const struct hst_launch_flags none;
    const struct given given = {flags ? flags : &none, get ? get : of_the_process};
    char own_why[WHY_BYTES] = "";
    int rc = 0;
    bool found = false, half_set = false;
    const char *by_mpi = NULL;
    *launch = (struct hst_launch){.ranks = 1, .launcher = "", .variable = "", .alone = ""};
    for (int id = 0; id < SOURCES; id++) {
        struct hst_launch said = {0};
        char reason[WHY_BYTES] = "";
        int state = read_source(&given, (enum source_id)id, &said, reason);
        if (state == 1 && said.mpi && said.ranks > 1 && id != FLAGS &&
            (id != SLURM || check_pmi(&given, &said, reason) == 0))
            by_mpi = said.launcher;
        if (state == 1 && !found) {
            *launch = said;
            state = id == SLURM ? check_pmi(&given, &said, reason) : 0;
            launch->refused_alike = state < 0;
            found = said.ranks > 1 || id == FLAGS; /* another may know more of a world of one */
        } else if (state == 1) {
            state = compare(launch, &said, (enum source_id)id, reason);
        } else if (state < 0 && id == SLURM && found) {
            state = 0;
        }
        if (state < 0 && !rc) {
            rc = state;
            memcpy(own_why, reason, sizeof own_why);
            half_set = !sources[id].common_names;
        }
    }
    launch->half_set = half_set;
    if (!rc && given.flags->rendezvous)
        rc = meet_read(given.flags->rendezvous, by_mpi, given.get, launch, own_why);
    if (why)
        memcpy(why, own_why, WHY_BYTES);
    return rc;
}
