/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_IO_REASON_H
#define HOISTWAY_ENGINE_IO_REASON_H
#include <stddef.h>
#include <stdint.h>

struct io_refusal {
    int error;              /* errno, positive */
    const char *step;       /* what was refused; null: the probe */
    int sysctl;             /* kernel.io_uring_disabled, -1 where there is none */
    uint64_t memlock_bytes; /* RLIMIT_MEMLOCK, UINT64_MAX: none */
};

/** The text of hst_io_reason. Pure. */
void io_reason(const struct io_refusal *refusal, char *text, size_t text_bytes);

#endif
