/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport of one rank: what all ranks have together is what this one has, so a gather does
 * nothing and an exchange copies. Each operation has ended when it is begun.
 */
#include "comm/comm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct block { /* one allocation */
    struct block *next;
    void *memory;
    size_t size_bytes;
};

struct self {
    struct comm base;
    struct block *blocks;
    uint64_t begun;
};

static struct self *self_of(struct comm *comm)
{
    return (struct self *)comm;
}

static int self_free(struct comm *comm, void *memory)
{
    struct self *self = self_of(comm);
    for (struct block **link = &self->blocks; *link; link = &(*link)->next) {
        struct block *block = *link;
        if (block->memory != memory)
            continue;
        *link = block->next;
        munmap(block->memory, block->size_bytes);
        free(block);
        return 0;
    }
    return -EINVAL;
}

static int self_close(struct comm *comm)
{
    struct self *self = self_of(comm);
    while (self->blocks)
        self_free(comm, self->blocks->memory);
    free(self);
    return 0;
}

/* There is nobody else to end. */
static void self_abort(struct comm *comm, int status)
{
    (void)comm;
    (void)status;
}

static void self_info(struct comm *comm, struct comm_info *info)
{
    (void)comm;
    *info = (struct comm_info){
        .ranks = 1, .locals = 1, .nodes = 1, .shared = true, .transport = "self"};
}

static void self_failure(struct comm *comm, struct comm_failure *failure)
{
    (void)comm;
    *failure = (struct comm_failure){.rank = COMM_NOBODY};
}

static int self_alloc(struct comm *comm, size_t size_bytes, void **memory)
{
    struct self *self = self_of(comm);
    struct block *block = malloc(sizeof *block);
    if (!block)
        return -ENOMEM;
    void *mapped =
        mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
        free(block);
        return -ENOMEM;
    }
    *block = (struct block){self->blocks, mapped, size_bytes};
    self->blocks = block;
    *memory = mapped;
    return 0;
}

/* There is nobody to read it. */
static int self_expose(struct comm *comm, void *memory, size_t size_bytes)
{
    (void)comm;
    (void)memory;
    (void)size_bytes;
    return 0;
}

/* There is one number. */
static int self_number(struct comm *comm, uint32_t rank)
{
    (void)rank;
    return self_of(comm)->blocks ? -EINVAL : 0;
}

/* It computes with what its own integers give back, as each of several would. */
static int give_back(const struct comm_op *op)
{
    enum { PIECE = 16 * HST_QUANT_BLOCK };
    unsigned char codes[PIECE];
    float scales[PIECE / HST_QUANT_BLOCK];
    const size_t size = hst_dtype_bytes(op->dtype), count = op->count / size;
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < count; at += PIECE) {
        const size_t n = count - at < PIECE ? count - at : PIECE;
        const struct hst_quantise to = {op->quant, op->dtype, n, (const char *)op->in + at * size,
                                        codes,     scales};
        const struct hst_dequantise from = {op->quant, op->dtype, n,
                                            codes,     scales,    (char *)op->out + at * size};
        rc = hst_host_quantise(&to);
        rc = rc ? rc : hst_host_dequantise(&from);
    }
    return rc;
}

static int self_begin(struct comm *comm, const struct comm_op *op, uint64_t *ticket)
{
    size_t bytes = 0;
    const int rc = op->kind == COMM_GATHER && op->quant ? give_back(op) : 0;
    if (rc)
        return rc;
    if (op->kind == COMM_EXCHANGE)
        bytes = op->count * hst_dtype_bytes(op->tree.root);
    else if (op->kind == COMM_SHARE || (op->kind == COMM_GATHER && op->near))
        bytes = op->count;
    if (bytes)
        memmove(op->out, op->in, bytes);
    *ticket = ++self_of(comm)->begun;
    return 0;
}

static int self_test(struct comm *comm, uint64_t ticket)
{
    return ticket && ticket <= self_of(comm)->begun ? 0 : -EINVAL;
}

static int self_fd(struct comm *comm)
{
    (void)comm;
    return -1;
}

static int self_library(struct comm *comm, const struct comm_op *op)
{
    (void)comm;
    (void)op;
    return -ENOTSUP;
}

int comm_self_open(struct comm **comm)
{
    static const struct comm_ops ops = {
        .size = sizeof ops,
        .close = self_close,
        .abort = self_abort,
        .info = self_info,
        .failure = self_failure,
        .alloc = self_alloc,
        .free = self_free,
        .begin = self_begin,
        .test = self_test,
        .fd = self_fd,
        .library = self_library,
        .expose = self_expose,
        .number = self_number,
    };
    struct self *self = calloc(1, sizeof *self);
    if (!self)
        return -ENOMEM;
    self->base.ops = &ops;
    *comm = &self->base;
    return 0;
}
