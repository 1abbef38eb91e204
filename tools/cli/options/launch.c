/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whether a process that a launcher has started as one of several may go on. Ranks that
 * nothing joins would be several whole runs that know nothing of each other, on one store, one log
 * and one export. Variables of names that others have, too (WORLD_SIZE), and that are half set or
 * no numbers, are nobody's: such a process is alone.
 */
#include "cli/options/launch.h"

#include "cli/message/voice.h"

#include <errno.h>

static int refuse(const struct hst_launch *launch, const char *why, struct hst_error *error)
{
    return fail(error, FAIL_RANKS, -EINVAL,
                "%s has started this as one of %u (%s is %u), and each would be a whole run that "
                "knows nothing of the others: %s. Fix: start it once, %s.",
                launch->launcher, launch->ranks, launch->variable, launch->ranks, why,
                launch->alone);
}

int launch_read_joined(const struct hst_launch_flags *flags, struct hst_launch *launch,
                       struct hst_error *error)
{
    char why[200];
    const int native = hst_launch_read(flags, NULL, launch, why);
    if (launch->refused_alike)
        voice_all_alike();
    if (native &&
        (launch->ranks > 1 || launch->half_set || flags->world || flags->rank || flags->rendezvous))
        return fail(error, FAIL_RANKS, native, "%s", why);
    return launch->meets ? 0 : launch_needs_mpi(launch, "", error);
}

int launch_needs_mpi(const struct hst_launch *launch, const char *own, struct hst_error *error)
{
    if (launch->ranks <= 1 || launch->mpi)
        return 0;
    if (*own)
        return fail(error, FAIL_RANKS, -EINVAL,
                    "%s has started this as one of %u, which MPI does not know of, and NCCL joins "
                    "GPUs, of which rank %u has none: %.200s. Fix: a GPU for each rank (hoistway "
                    "doctor), or mpirun.",
                    launch->launcher, launch->ranks, launch->rank, own);
    voice_all_alike();
    return refuse(launch, "MPI, which joins ranks, does not know of these", error);
}

int launch_read(const struct hst_launch_flags *flags, struct hst_launch *launch,
                struct hst_error *error)
{
    const int native = launch_read_joined(flags, launch, error);
    return native ? native : launch_needs_mpi(launch, "", error);
}

void launch_speak(const volatile sig_atomic_t *ended)
{
    struct hst_launch launch;
    char ignored[200]; /* the verb tells it */
    (void)hst_launch_read(NULL, NULL, &launch, ignored);
    if (launch.ranks > 1)
        voice_of(launch.rank, ended);
}
