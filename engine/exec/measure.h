/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_EXEC_MEASURE_H
#define HOISTWAY_ENGINE_EXEC_MEASURE_H
/*
 * This header has what visits, updates and norms took in the steps after the first, which warms up:
 * what a prediction of the steps to come is made from (predict.c). Each as if it had the cores to
 * itself: the host device and the optimizer share the workers, which run one job at a time, so the
 * seconds of the optimizer's jobs are taken from the visits they ran beside.
 */
#include "plan/graph/scheduler.h"

struct executor;
struct passage;

struct measure_visit {
    double seconds; /* of all of them */
    uint32_t count;
};

struct measure_work {
    double elements, seconds;
};

enum measure_sweep { MEASURE_FORWARD = 0, MEASURE_RECOMPUTE, MEASURE_BACKWARD, MEASURE_SWEEPS };

struct measure {
    struct measure_visit *visits[MEASURE_SWEEPS]; /* [unit] */
    struct measure_work update, norm;             /* of the workers */
    double host_s;                                /* that the workers had for the optimizer, ever */
    double visit_end_s, visit_host_s; /* when the last visit had ended, and host_s then */
};

/** It serves a node that is a visit. */
enum measure_sweep measure_sweep(const struct node *node);

/** Errors: -ENOMEM. */
int measure_open(struct executor *exec);
void measure_close(struct executor *exec);
/** A visit was seen to have ended. */
void measure_passage(struct executor *exec, const struct passage *passage);
/** An update or a norm of the workers took so long. */
void measure_host(struct executor *exec, const struct node *node, double seconds);

#endif
