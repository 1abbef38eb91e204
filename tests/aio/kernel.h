/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_AIO_KERNEL_H
#define HST_TESTS_AIO_KERNEL_H
/*
 * What the kernel gives a program that asks without the library: a test is skipped for want of it
 * only where it is not there.
 */
#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>

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

/* This user may register so much memory (RLIMIT_MEMLOCK, which root does not have). */
static inline bool kernel_registers_bytes(size_t size_bytes)
{
    struct io_uring ring;
    struct iovec memory = {.iov_len = size_bytes};
    if (!kernel_registers() || io_uring_queue_init(4, &ring, 0) < 0)
        return false;
    memory.iov_base =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool works = memory.iov_base != MAP_FAILED;
    if (works) {
        works = io_uring_register_buffers(&ring, &memory, 1) == 0;
        if (works)
            io_uring_unregister_buffers(&ring); /* at once: a ring that ends gives back later */
        munmap(memory.iov_base, size_bytes);
    }
    io_uring_queue_exit(&ring);
    return works;
}
#endif
