/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for several contexts at once.
 *
 * A backend's descriptor (an eventfd) says when the kernel has something; what
 * becomes due without it (a pause after EAGAIN, a result that a plan of faults holds back) is a
 * time. Contexts in virtual time have no descriptors: their clock moves to whichever is due first.
 */
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { SHORTAGE_PAUSE_NS = 1000000 }; /* until what the kernel did not take is offered again */

static bool is_ready(const struct hst_aio *aio)
{
    return aio->broken || aio->done.head;
}

static size_t count_ready(struct hst_aio *const *contexts, size_t count, bool *ready)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        ready[i] = is_ready(contexts[i]);
        found += ready[i];
    }
    return found;
}

/* When a context needs its caller, as far as that is known. */
static uint64_t due_ns(struct hst_aio *aio)
{
    uint64_t due = hst_aio_due_ns(aio);
    if (aio->ops->due) {
        const uint64_t next = aio->ops->due(aio);
        return next < due ? next : due;
    }
    if (aio->pushed) {
        const uint64_t again = hst_aio_now_ns() + SHORTAGE_PAUSE_NS;
        return again < due ? again : due;
    }
    return due;
}

static int sleep_real(struct hst_aio *const *contexts, size_t count, uint64_t until_ns)
{
    struct pollfd fds[HST_AIO_WAIT_MAX];
    nfds_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (contexts[i]->in_flight == 0 || !contexts[i]->ops->descriptor)
            continue;
        const int fd = contexts[i]->ops->descriptor(contexts[i]);
        if (fd < 0)
            return fd;
        fds[used++] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    const uint64_t now_ns = hst_aio_now_ns();
    const uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    const struct timespec left = {.tv_sec = (time_t)(left_ns / 1000000000u),
                                  .tv_nsec = (long)(left_ns % 1000000000u)};
    const int rc = ppoll(fds, used, until_ns == UINT64_MAX ? NULL : &left, NULL);
    return rc < 0 && errno != EINTR ? -errno : 0;
}

static int check(struct hst_aio *const *contexts, size_t count, const bool *ready)
{
    if (count == 0 || count > HST_AIO_WAIT_MAX || !contexts || !ready)
        return -EINVAL;
    for (size_t i = 0; i < count; i++) {
        if (!contexts[i] || !*contexts[i]->native ||
            contexts[i]->ops->travel != contexts[0]->ops->travel ||
            contexts[i]->config.world != contexts[0]->config.world)
            return -EINVAL;
        if (contexts[i]->ops->travel && count > 1 && !contexts[i]->config.world)
            return -EINVAL;
    }
    return 0;
}

/* Progress in all contexts, without waiting. Returns when the first of them is due again. */
static uint64_t advance_all(struct hst_aio *const *contexts, size_t count, size_t *in_flight)
{
    uint64_t first_ns = UINT64_MAX;
    *in_flight = 0;
    for (size_t i = 0; i < count; i++) {
        struct hst_aio *aio = contexts[i];
        if (aio->broken || aio->in_flight == 0)
            continue;
        hst_aio_advance(aio, 0, 0);
        hst_aio_flush(aio);
        *in_flight += aio->in_flight;
        const uint64_t due = due_ns(aio);
        first_ns = due < first_ns ? due : first_ns;
    }
    return first_ns;
}

int hst_aio_wait_any(struct hst_aio *const *contexts, size_t count, bool *ready,
                     uint64_t timeout_ns)
{
    int rc = check(contexts, count, ready);
    if (rc < 0)
        return rc;
    uint64_t deadline_ns = UINT64_MAX;
    if (timeout_ns != UINT64_MAX &&
        __builtin_add_overflow(hst_aio_clock_ns(contexts[0]), timeout_ns, &deadline_ns))
        deadline_ns = UINT64_MAX;
    size_t found = count_ready(contexts, count, ready);
    while (found == 0) {
        size_t in_flight;
        const uint64_t first_ns = advance_all(contexts, count, &in_flight);
        found = count_ready(contexts, count, ready);
        if (found > 0 || in_flight == 0 || hst_aio_clock_ns(contexts[0]) >= deadline_ns)
            break;
        const uint64_t until_ns = first_ns < deadline_ns ? first_ns : deadline_ns;
        if (!contexts[0]->ops->travel)
            rc = sleep_real(contexts, count, until_ns);
        else if (until_ns != UINT64_MAX)
            contexts[0]->ops->travel(contexts[0], until_ns);
        if (rc < 0)
            return rc;
    }
    return (int)found;
}

static int follow(struct hst_aio *aio)
{
    const int fd = aio->ops->descriptor(aio);
    if (fd == aio->epoll_member || fd < 0)
        return fd < 0 ? fd : 0;
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(aio->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 && errno != EEXIST)
        return -errno;
    aio->epoll_member = fd;
    return 0;
}

void hst_aio_fd_update(struct hst_aio *aio)
{
    eventfd_t drained;
    (void)follow(aio); /* as it did when the descriptor was made: no ring without its signal */
    if (aio->in_flight == 0 && aio->epoll_member >= 0)
        eventfd_read(aio->epoll_member, &drained); /* what it told of has been reaped */
    uint64_t due = is_ready(aio) ? 1 : aio->in_flight > 0 ? due_ns(aio) : UINT64_MAX;
    if (due == aio->timer_ns)
        return;
    struct itimerspec timer = {0};
    if (due != UINT64_MAX) {
        timer.it_value.tv_sec = (time_t)(due / 1000000000u);
        timer.it_value.tv_nsec = (long)(due % 1000000000u);
        if (due == 0)
            timer.it_value.tv_nsec = 1;
    }
    if (timerfd_settime(aio->timer_fd, TFD_TIMER_ABSTIME, &timer, NULL) == 0)
        aio->timer_ns = due;
}

void hst_aio_fd_close(struct hst_aio *aio)
{
    if (aio->epoll_fd >= 0)
        close(aio->epoll_fd);
    if (aio->timer_fd >= 0)
        close(aio->timer_fd);
    aio->epoll_fd = aio->timer_fd = aio->epoll_member = -1;
}

int hst_aio_fd(struct hst_aio *aio)
{
    if (aio->epoll_fd >= 0)
        return aio->epoll_fd;
    if (!aio->ops->descriptor)
        return -ENOTSUP;
    struct epoll_event event = {.events = EPOLLIN};
    aio->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    aio->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    aio->timer_ns = UINT64_MAX;
    if (aio->epoll_fd < 0 || aio->timer_fd < 0 ||
        epoll_ctl(aio->epoll_fd, EPOLL_CTL_ADD, aio->timer_fd, &event) < 0) {
        const int rc = -errno;
        hst_aio_fd_close(aio);
        return rc;
    }
    const int rc = follow(aio);
    if (rc < 0) {
        hst_aio_fd_close(aio);
        return rc;
    }
    hst_aio_fd_update(aio);
    return aio->epoll_fd;
}
