/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_AIO_KERNEL_H
#define HST_TESTS_AIO_KERNEL_H
/*
 * What the kernel gives a program that asks without the library: a test is skipped for want of it
 * only where it is not there.
 */
#include <liburing.h>
#include <stdbool.h>

static inline bool kernel_has_uring(void)
{
    struct io_uring ring;
    if (io_uring_queue_init(4, &ring, 0) < 0)
        return false;
    const bool new_enough = ring.features & IORING_FEAT_EXT_ARG; /* Linux 5.11 */
    io_uring_queue_exit(&ring);
    return new_enough;
}

/* Buffers and files can be registered with a ring (Linux 5.19). */
static inline bool kernel_registers(void)
{
    struct io_uring ring;
    if (!kernel_has_uring() || io_uring_queue_init(4, &ring, 0) < 0)
        return false;
    const bool works = io_uring_register_buffers_sparse(&ring, 4) == 0 &&
                       io_uring_register_files_sparse(&ring, 4) == 0;
    io_uring_queue_exit(&ring);
    return works;
}
#endif
