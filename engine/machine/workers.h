/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_MACHINE_WORKERS_H
#define HOISTWAY_ENGINE_MACHINE_WORKERS_H
/*
 * The engine's worker threads: run the pieces of one job, the caller among them. Used by the
 * update, the norm, and (through struct hst_parallel) by the host device's operations.
 * Thread-safety: workers_run may be called from several threads; jobs then run one after another,
 * in the order of the calls.
 */
#include <hoistway/kernels.h>

struct workers;

/**
 * width: pieces at work at once, the caller's included; width - 1 threads are started, and
 * bound to the cores of NUMA nodes, the caller's first (machine_bind). Errors: -ENOMEM, -EAGAIN.
 */
int workers_create(unsigned width, struct workers **workers);
void workers_destroy(struct workers **workers);
/** As struct hst_parallel's run; `context` is the struct workers. */
void workers_run(void *context, size_t count,
                 void (*body)(void *arg, size_t index, unsigned worker), void *arg);
/** The same with `most` of the workers, evenly over all; 0: with all. Returns the seconds it had
 * them for, without those it waited for another job. */
double workers_time(struct workers *workers, unsigned most, size_t count,
                    void (*body)(void *arg, size_t index, unsigned worker), void *arg);

#endif
