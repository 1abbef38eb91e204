/* SPDX-License-Identifier: Apache-2.0 */
/* Names of what is measured, and finding it again. */
#include "nvme_bench/result.h"

#include <math.h>
#include <stddef.h>

const char *const nb_kind_names[NB_KINDS] = {"read", "write", "mixed"};
const char *const nb_phase_names[NB_PHASES] = {"sweep", "steady", "striped"};
const char *const nb_percentile_names[NB_PERCENTILES] = {"p50", "p90", "p99", "p999", "max"};

static bool same_shape(const struct nb_shape *a, const struct nb_shape *b)
{
    return a->block_bytes == b->block_bytes && a->depth == b->depth && a->threads == b->threads;
}

const struct nb_point *nb_find_swept(const struct nb_result *r, enum nb_kind kind, uint32_t drive,
                                     const struct nb_shape *shape)
{
    for (uint32_t i = 0; i < r->point_count; i++) {
        const struct nb_point *p = &r->points[i];
        if (p->phase == NB_SWEEP && p->kind == kind && p->drive == drive &&
            same_shape(&p->shape, shape))
            return p;
    }
    return NULL;
}

const struct nb_point *nb_find(const struct nb_result *r, enum nb_phase phase, enum nb_kind kind,
                               uint32_t drive)
{
    if (phase == NB_SWEEP)
        return nb_find_swept(r, kind, drive, &r->drives[drive].best);
    for (uint32_t i = 0; i < r->point_count; i++) {
        const struct nb_point *p = &r->points[i];
        if (p->phase == phase && p->kind == kind && p->drive == drive)
            return p;
    }
    return NULL;
}

double nb_ceiling(const struct nb_result *r, enum nb_kind kind, uint32_t drive)
{
    double most = 0;
    for (uint32_t i = 0; i < r->point_count; i++) {
        const struct nb_point *p = &r->points[i];
        if (p->phase == NB_SWEEP && p->kind == kind && p->drive == drive)
            most = fmax(most, p->rate);
    }
    return most;
}
