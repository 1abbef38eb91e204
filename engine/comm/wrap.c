/* SPDX-License-Identifier: Apache-2.0 */
/* This is what a wrapper does not change: the call goes to the comm below. */
#include "comm/wrap.h"

#include <stdlib.h>

struct comm *wrap_inner(struct comm *comm)
{
    return ((struct wrap *)comm)->inner;
}

static int close_both(struct comm *comm)
{
    int rc = comm_close(&((struct wrap *)comm)->inner);
    if (!rc)
        free(comm);
    return rc;
}

static void abort_inner(struct comm *comm, int status)
{
    comm_abort(wrap_inner(comm), status);
}

static void info_inner(struct comm *comm, struct comm_info *info)
{
    comm_info(wrap_inner(comm), info);
}

static void failure_inner(struct comm *comm, struct comm_failure *failure)
{
    comm_failure(wrap_inner(comm), failure);
}

static int alloc_inner(struct comm *comm, size_t size_bytes, void **memory)
{
    return comm_alloc(wrap_inner(comm), size_bytes, memory);
}

static int free_inner(struct comm *comm, void *memory)
{
    return comm_free(wrap_inner(comm), memory);
}

static int begin_inner(struct comm *comm, const struct comm_op *op, uint64_t *ticket)
{
    return comm_begin(wrap_inner(comm), op, ticket);
}

static int test_inner(struct comm *comm, uint64_t ticket)
{
    return comm_test(wrap_inner(comm), ticket);
}

static int fd_inner(struct comm *comm)
{
    return comm_fd(wrap_inner(comm));
}

static int library_inner(struct comm *comm, const struct comm_op *op)
{
    struct comm *inner = wrap_inner(comm);
    return inner->ops->library(inner, op);
}

static int expose_inner(struct comm *comm, void *memory, size_t size_bytes)
{
    return comm_expose(wrap_inner(comm), memory, size_bytes);
}

static int number_inner(struct comm *comm, uint32_t rank)
{
    return comm_number(wrap_inner(comm), rank);
}

struct comm_ops wrap_ops(void)
{
    return (struct comm_ops){
        .size = sizeof(struct comm_ops),
        .close = close_both,
        .abort = abort_inner,
        .info = info_inner,
        .failure = failure_inner,
        .alloc = alloc_inner,
        .free = free_inner,
        .begin = begin_inner,
        .test = test_inner,
        .fd = fd_inner,
        .library = library_inner,
        .expose = expose_inner,
        .number = number_inner,
    };
}
