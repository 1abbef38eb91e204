/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int comm_report(struct comm *comm, struct report *report, uint64_t step, int native)
{
    char when[40] = "";
    struct comm_failure failure;
    comm_failure(comm, &failure);
    if (step > 0)
        snprintf(when, sizeof when, ", in step %llu", (unsigned long long)step);
    if (!failure.native)
        return report_fail(report, HST_E_COMM, native,
                           "ranks cannot go on together: %s%s. Fix: start all of them again",
                           strerror(-native), when);
    if (failure.native == -EPIPE)
        return report_fail(report, HST_E_RANK, failure.native,
                           "%s%s. Fix: mend what that rank has said, then start all again, with "
                           "--resume where a store is there",
                           failure.text, when);
    return report_fail(report, HST_E_COMM, failure.native,
                       "%s%s. Fix: start all ranks again, with --resume where a store is there; if "
                       "it comes again, 'hoistway bench comm' tries what joins them",
                       failure.text, when);
}

enum hst_code comm_open_code(const struct comm_failure *failure, bool device)
{
    if (failure->native == -EPIPE)
        return HST_E_RANK;
    return device ? HST_E_JOIN_NCCL : HST_E_JOIN_MPI;
}

int comm_report_open(const struct comm_failure *failure, bool device, struct report *report)
{
    const char *fix = "hoistway bench comm tells more; docs/launch.md";
    if (device && failure->native == -ENODEV)
        fix = "NCCL 2.19.3 or later on all nodes, in a folder of HOISTWAY_CUDA_PATH or where the "
              "loader looks, or --comm mpi";
    else if (device && failure->native == -ENOTSUP)
        fix = "--comm mpi, of ranks that mpirun or srun starts";
    else if (failure->native == -EPIPE)
        fix = "what that rank has said; then start all of them again";
    fix = *failure->fix ? failure->fix : fix;
    return report_fail(report, comm_open_code(failure, device), failure->native,
                       "ranks cannot be joined: %s. Fix: %s", failure->text, fix);
}
