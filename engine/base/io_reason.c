/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why io_uring is not used, told so that the one setting that blocks it can be changed: sandbox,
 * sysctl, an old kernel and a limit all look like "it does not work" otherwise.
 */
#include "base/io_reason.h"

#include "base/size_text.h"

#include <errno.h>
#include <hoistway/hoistway.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

void io_reason(const struct io_refusal *refusal, char *text, size_t text_bytes)
{
    const char *name = strerrorname_np(refusal->error);
    char head[128], limit[32] = "unlimited";
    snprintf(head, sizeof head, "(%s at %s)", name ? name : "unknown error",
             refusal->step ? refusal->step : "the probe");
    if (refusal->memlock_bytes != UINT64_MAX)
        size_text(refusal->memlock_bytes, limit);
    if (refusal->error == EPERM && refusal->sysctl > 0)
        snprintf(text, text_bytes,
                 "io_uring is blocked %s: kernel.io_uring_disabled is %d. Fix: sudo sysctl "
                 "kernel.io_uring_disabled=0, or --io threads (pread/pwrite; slower)",
                 head, refusal->sysctl);
    else if (refusal->error == EPERM || refusal->error == EACCES)
        snprintf(text, text_bytes,
                 "io_uring is blocked %s by a sandbox; Docker's default seccomp profile denies it. "
                 "Fix: --security-opt seccomp=<profile allowing io_uring_*>, or --io threads "
                 "(pread/pwrite; slower)",
                 head);
    else if (refusal->error == ENOSYS)
        snprintf(text, text_bytes,
                 "io_uring is missing %s: the kernel is older than 5.1, or a sandbox such as "
                 "gVisor. Fix: --io threads (pread/pwrite; slower)",
                 head);
    else if (refusal->error == ENOMEM)
        snprintf(text, text_bytes,
                 "io_uring cannot have its queues %s: RLIMIT_MEMLOCK is %s. Fix: ulimit -l "
                 "unlimited, or --io threads (pread/pwrite; slower)",
                 head, limit);
    else
        snprintf(text, text_bytes,
                 "io_uring failed its probe %s: %s. Fix: --io threads (pread/pwrite; slower)", head,
                 strerror(refusal->error));
}

static int io_uring_sysctl(void)
{
    int value = -1;
    FILE *file = fopen("/proc/sys/kernel/io_uring_disabled", "re");
    if (file) {
        if (fscanf(file, "%d", &value) != 1)
            value = -1;
        fclose(file);
    }
    return value;
}

void hst_io_reason(int error, const char *step, char *text, size_t text_bytes)
{
    struct rlimit limit;
    bool limited = getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    const struct io_refusal refusal = {.error = error < 0 ? -error : error,
                                       .step = step,
                                       .sysctl = io_uring_sysctl(),
                                       .memlock_bytes = limited ? limit.rlim_cur : UINT64_MAX};
    io_reason(&refusal, text, text_bytes);
}
