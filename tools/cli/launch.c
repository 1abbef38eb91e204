/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whether a launcher has started several of this program. They would be whole runs that
 * know nothing of each other, on one store, one log and one export. What launchers say is in the
 * environment: a count of processes, and, where a shell has that too, what only a process that was
 * launched has. Values that are no numbers are nobody's.
 */
#include "cli/launch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* From here on a number of a Slurm step stands for the batch script and its like: no step. */
#define SLURM_NO_STEP 0xfffffff0ul

static const struct {
    const char *launcher, *count;
    const char *beside[2]; /* numbers, too, in a process that was launched */
    const char *alone;
} launchers[] = {
    {"mpirun of Open MPI", "OMPI_COMM_WORLD_SIZE", {NULL}, "without mpirun"},
    {"mpiexec", "PMI_SIZE", {NULL}, "without mpiexec"},
    {"srun", "SLURM_STEP_NUM_TASKS", {"SLURM_STEP_ID"}, "with srun --ntasks=1, or without srun"},
    {"torchrun", "WORLD_SIZE", {"RANK", "LOCAL_RANK"}, "without torchrun"},
};

/* Digits alone; false for anything else, and for what is no number of processes. */
static bool number_of(const char *text, unsigned long *number)
{
    if (!text || !*text || strlen(text) > 10 || text[strspn(text, "0123456789")])
        return false;
    *number = strtoul(text, NULL, 10);
    return true;
}

static bool is_launched(launch_getenv get, const char *const beside[2])
{
    unsigned long number;
    for (int i = 0; i < 2 && beside[i]; i++) {
        if (!number_of(get(beside[i]), &number))
            return false;
        if (strcmp(beside[i], "SLURM_STEP_ID") == 0 && number >= SLURM_NO_STEP)
            return false;
    }
    return true;
}

struct launch launch_of(launch_getenv get)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        unsigned long count;
        if (number_of(get(launchers[i].count), &count) && count > 1 &&
            is_launched(get, launchers[i].beside))
            return (struct launch){launchers[i].launcher, launchers[i].count, count,
                                   launchers[i].alone};
    }
    return (struct launch){NULL, NULL, 0, NULL};
}

static const char *of_the_process(const char *name)
{
    return getenv(name);
}

int launch_check(struct hst_error *error)
{
    const struct launch launch = launch_of(of_the_process);
    if (!launch.launcher)
        return 0;
    return fail(error, FAIL_RANKS, -EINVAL,
                "%s has started this as one of %lu (%s is %lu), and each would be a whole run that "
                "knows nothing of the others: hoistway is one process yet. Fix: start it once, %s.",
                launch.launcher, launch.count, launch.variable, launch.count, launch.alone);
}
