/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked into the program, makes every file lie on a drive as slow as HOISTWAY_DRIVE says, in the
 * words of a simulated drive: "sim:read=2000000,write=5000000", bytes per second, requests one
 * after the other. These calls are found before the C library's, also by the engine's library;
 * io_uring, which would pass by them, is not there.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

ssize_t pread64(int fd, void *dst, size_t bytes, off64_t offset);
ssize_t pwrite64(int fd, const void *src, size_t bytes, off64_t offset);
int io_uring_queue_init_params(unsigned entries, void *ring, void *params);

static struct {
    pthread_mutex_t lock;
    double read, write; /* bytes per second */
    double busy_s;      /* until then */
} drive = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void __attribute__((constructor)) read_model(void)
{
    const char *model = getenv("HOISTWAY_DRIVE");
    if (!model || sscanf(model, "sim:read=%lf,write=%lf", &drive.read, &drive.write) != 2) {
        fprintf(stderr, "HOISTWAY_DRIVE: want sim:read=BYTES,write=BYTES\n");
        _exit(2);
    }
}

static void wait_for_drive(double seconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    pthread_mutex_lock(&drive.lock);
    const double now_s = (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
    drive.busy_s = (drive.busy_s > now_s ? drive.busy_s : now_s) + seconds;
    at.tv_sec = (time_t)drive.busy_s;
    at.tv_nsec = (long)(1e9 * (drive.busy_s - (double)at.tv_sec));
    pthread_mutex_unlock(&drive.lock);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

ssize_t pread64(int fd, void *dst, size_t bytes, off64_t offset)
{
    const ssize_t n = syscall(SYS_pread64, fd, dst, bytes, offset);
    const int error = errno;
    if (n > 0)
        wait_for_drive((double)n / drive.read);
    errno = error;
    return n;
}

ssize_t pwrite64(int fd, const void *src, size_t bytes, off64_t offset)
{
    const ssize_t n = syscall(SYS_pwrite64, fd, src, bytes, offset);
    const int error = errno;
    if (n > 0)
        wait_for_drive((double)n / drive.write);
    errno = error;
    return n;
}

int io_uring_queue_init_params(unsigned entries, void *ring, void *params)
{
    (void)entries;
    (void)ring;
    (void)params;
    return -ENOSYS;
}
