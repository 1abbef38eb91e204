/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_AIO_SIM_MODEL_H
#define HST_AIO_SIM_MODEL_H
/*
 * A drive as a flow of bytes: the formulas of aio.h ("The model of HST_AIO_SIM"), in integers. It
 * knows requests by size and direction, no bytes, no files. Pure: time is an argument.
 *
 * Work is counted in bytes · 1e9, so that rate [bytes/s] · time [ns] is exact.
 */
#include "internal.h"

#pragma GCC visibility push(hidden)

__extension__ typedef unsigned __int128 sim_work;

struct sim_speed {
    uint64_t read, write, mixed, slc_write, drain; /* bytes per second */
    uint64_t latency_ns, jitter_ns, seed;
    uint64_t slc_bytes, size_bytes; /* UINT64_MAX: no such limit */
};

/* Errors: -EINVAL, why[HST_AIO_REFUSAL_BYTES] says which word. */
int hst_aio_sim_parse(const char *text, struct sim_speed *speed, char *why);

struct sim_request {
    struct piece *piece;
    uint64_t ready_ns; /* latency over */
    uint64_t number;   /* order of arrival */
    sim_work left;
};

struct sim_queue { /* a circle, in order of ready_ns */
    struct sim_request *requests;
    uint32_t head, count, capacity;
};

enum { SIM_READS, SIM_WRITES, SIM_SYNCS, SIM_QUEUES };

struct sim_flow {
    struct sim_speed speed;
    uint64_t now_ns;
    uint64_t arrivals;
    uint64_t random; /* of the jitter */
    sim_work cached; /* in the write cache */
    struct sim_queue queues[SIM_QUEUES];
    struct piece **finished; /* in order of completion; capacity of one queue */
    uint32_t finished_count;
};

void hst_aio_sim_arrive(struct sim_flow *flow, struct piece *piece, uint64_t now_ns);
/* The next time at which something in the flow changes; UINT64_MAX: never. */
uint64_t hst_aio_sim_next_ns(const struct sim_flow *flow);
/* Up to a time that is not before flow->now_ns. */
void hst_aio_sim_run(struct sim_flow *flow, uint64_t to_ns);

#pragma GCC visibility pop
#endif
