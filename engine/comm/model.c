/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model of a link around a comm. Each operation is due when the one before was, or when it
 * began, and its latency and its bytes have passed. A timer beside the descriptor of the comm below
 * wakes who waits for the one or the other.
 */
#include "comm/wrap.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_SECOND 1000000000ull
#define YEAR_S        3.2e7

struct due {
    uint64_t ticket, at_ns;
};

struct model {
    struct wrap wrap;
    struct comm_ops ops;
    struct comm_model link;
    uint32_t ranks, locals;
    int timer, epoll;
    uint64_t free_ns; /* when the link is through with all that was begun */
    struct due due[COMM_IN_FLIGHT];
    uint64_t begun, ended;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_SECOND + (uint64_t)t.tv_nsec;
}

/* The timer rings when the first operation under way is due; it is silent where there is none. */
static void set_timer(const struct model *m)
{
    struct itimerspec at = {0};
    if (m->begun != m->ended) {
        const uint64_t due_ns = m->due[m->ended % COMM_IN_FLIGHT].at_ns;
        at.it_value.tv_sec = (time_t)(due_ns / NS_PER_SECOND);
        at.it_value.tv_nsec = (long)(due_ns % NS_PER_SECOND);
    }
    timerfd_settime(m->timer, TFD_TIMER_ABSTIME, &at, NULL);
}

/* Operations that are due, and have ended below, have ended. Once rung, the timer is silent. */
static int look(struct model *m)
{
    int rc = 0;
    const uint64_t at_ns = now_ns();
    while (m->begun != m->ended) {
        const struct due *due = &m->due[m->ended % COMM_IN_FLIGHT];
        rc = comm_test(m->wrap.inner, due->ticket);
        if (rc || due->at_ns > at_ns)
            break;
        m->ended++;
    }
    if (rc == -EAGAIN) { /* the comm below rings when it is through */
        const struct itimerspec never = {0};
        timerfd_settime(m->timer, 0, &never, NULL);
    } else {
        set_timer(m);
    }
    return rc == -EAGAIN ? 0 : rc;
}

static int model_begin(struct comm *comm, const struct comm_op *op, uint64_t *ticket)
{
    struct model *m = (struct model *)comm;
    int rc = look(m);
    if (!rc && m->begun - m->ended == COMM_IN_FLIGHT)
        rc = -EAGAIN;
    struct due *due = &m->due[m->begun % COMM_IN_FLIGHT];
    rc = rc ? rc : comm_begin(m->wrap.inner, op, &due->ticket);
    if (rc)
        return rc;
    const uint64_t at_ns = now_ns();
    double takes_s =
        m->link.latency_s + (double)comm_op_bytes(op, m->ranks, m->locals) / m->link.bytes_per_s;
    takes_s = takes_s < YEAR_S ? takes_s : YEAR_S;
    m->free_ns =
        (m->free_ns > at_ns ? m->free_ns : at_ns) + (uint64_t)(takes_s * (double)NS_PER_SECOND);
    due->at_ns = m->free_ns;
    *ticket = ++m->begun;
    set_timer(m);
    return 0;
}

static int model_test(struct comm *comm, uint64_t ticket)
{
    struct model *m = (struct model *)comm;
    if (!ticket || ticket > m->begun)
        return -EINVAL;
    int rc = look(m);
    return ticket <= m->ended ? 0 : rc ? rc : -EAGAIN;
}

static int model_fd(struct comm *comm)
{
    return ((struct model *)comm)->epoll;
}

static int model_close(struct comm *comm)
{
    struct model *m = (struct model *)comm;
    int rc = comm_close(&m->wrap.inner);
    if (rc)
        return rc;
    close(m->timer);
    close(m->epoll);
    free(m);
    return 0;
}

static int watch(const struct model *m, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return fd < 0 || epoll_ctl(m->epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : -errno;
}

static bool is_link(const struct comm_model *model)
{
    return model && model->bytes_per_s > 0 && model->latency_s >= 0;
}

int comm_model_set(struct comm *comm, const struct comm_model *model)
{
    if (!comm || comm->ops->begin != model_begin || !is_link(model))
        return -EINVAL;
    ((struct model *)comm)->link = *model;
    return 0;
}

int comm_model_wrap(struct comm **comm, const struct comm_model *model)
{
    struct comm_info info;
    if (!comm || !*comm || !is_link(model))
        return -EINVAL;
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return -ENOMEM;
    comm_info(*comm, &info);
    m->wrap.inner = *comm;
    m->ops = wrap_ops();
    m->ops.close = model_close;
    m->ops.begin = model_begin;
    m->ops.test = model_test;
    m->ops.fd = model_fd;
    m->wrap.base.ops = &m->ops;
    m->link = *model;
    m->ranks = info.ranks;
    m->locals = info.locals;
    m->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    m->epoll = epoll_create1(EPOLL_CLOEXEC);
    int rc = m->timer < 0 || m->epoll < 0 ? -EMFILE : watch(m, m->timer);
    rc = rc ? rc : watch(m, comm_fd(*comm));
    if (rc) {
        close(m->timer);
        close(m->epoll);
        free(m);
        return rc;
    }
    *comm = &m->wrap.base;
    return 0;
}
