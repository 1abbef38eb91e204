/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what is measured, in which order, and how much of it. Training writes for days, so the
 * drive is first brought to where training will find it: after a pause, in which a write cache can
 * empty itself, one long write fills that cache and shows where it ends. The sweep follows at once,
 * then the steady rates in the shape of request that suits best; another pause shows what it gives
 * back; then all drives together; last, everything is read again and compared.
 */
#include "nvme_bench/measure.h"

#include "base/text.h"
#include "cli/message/activity.h"
#include "cli/message/message.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define MIB           (UINT64_C(1) << 20)
#define SECOND        UINT64_C(1000000000)
#define SLICE_NS      (SECOND / 10)
#define WINDOW_ROUNDS 4u

static void tell(struct nb_bench *b, uint32_t drive, const char *what)
{
    char line[ACTIVITY_NAME_BYTES];
    snprintf(line, sizeof line, "%.80s: %s", b->result->drives[drive].path, what);
    activity_begin(line);
}

static struct nb_point *new_point(struct nb_bench *b, enum nb_phase phase, enum nb_kind kind,
                                  uint32_t drive, const struct nb_shape *shape)
{
    struct nb_point *p = &b->result->points[b->result->point_count];
    *p = (struct nb_point){.phase = phase, .kind = kind, .drive = drive, .shape = *shape};
    return p;
}

/* ---- the sweep ---- */

/* On the first lane alone the requests of all threads are in flight: simulated drives have one
   queue, and long writes need no second thread. */
static struct nb_job job_of(const struct nb_bench *b, enum nb_kind kind,
                            const struct nb_shape *shape, uint32_t lanes)
{
    uint32_t threads = shape->threads / lanes;
    return (struct nb_job){
        .kind = kind,
        .block_bytes = shape->block_bytes,
        .depth = shape->depth * threads,
        /* reading wears nothing */
        .most_bytes = (kind == NB_READ ? 4 : 1) * b->budget.point_bytes / lanes,
        .most_ns = b->budget.point_ns,
    };
}

static int measure_point(struct nb_bench *b, enum nb_kind kind, uint32_t drive,
                         const struct nb_shape *shape)
{
    struct nb_lane *lanes[NB_MAX_THREADS];
    struct nb_job jobs[NB_MAX_THREADS];
    uint32_t count = b->world ? 1 : shape->threads;
    for (uint32_t i = 0; i < count; i++) {
        lanes[i] = &b->lanes[drive][i];
        jobs[i] = job_of(b, kind, shape, count);
    }
    struct nb_point *point = new_point(b, NB_SWEEP, kind, drive, shape);
    int rc = nb_run_lanes(b, lanes, jobs, count, point);
    b->result->point_count += rc == 0;
    return rc;
}

static int sweep(struct nb_bench *b, uint32_t drive)
{
    const struct nb_args *a = b->args;
    char what[64];
    uint32_t done = 0;
    for (uint32_t t = 0; t < a->threads.count; t++)
        for (uint32_t s = 0; s < a->blocks.count; s++)
            for (uint32_t q = 0; q < a->depths.count; q++)
                for (uint32_t kind = 0; kind < NB_KINDS; kind++) {
                    struct nb_shape shape = {a->blocks.values[s], a->depths.values[q],
                                             a->threads.values[t]};
                    snprintf(what, sizeof what, "sweep %u/%u", ++done, b->budget.sweep_points);
                    tell(b, drive, what);
                    int rc = measure_point(b, (enum nb_kind)kind, drive, &shape);
                    if (rc)
                        return rc;
                }
    nb_choose_best(b->result, drive, &b->result->drives[drive].best);
    return 0;
}

/* Reads need data: every block of every file is written once. */
static int fill_files(struct nb_bench *b, uint32_t drive)
{
    tell(b, drive, "filling scratch files");
    for (uint32_t i = 0; i < b->budget.lanes; i++) {
        struct nb_lane *lane = &b->lanes[drive][i];
        uint32_t block = (uint32_t)MIB;
        uint64_t depth = lane->buffer_bytes / block;
        const struct nb_job job = {.kind = NB_WRITE,
                                   .block_bytes = block,
                                   .depth = depth < 8 ? (uint32_t)depth : 8,
                                   .most_bytes = lane->file_bytes,
                                   .most_ns = UINT64_MAX};
        struct nb_point ignored = {0};
        int rc = nb_run_lanes(b, &lane, &job, 1, &ignored);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- the long write ---- */

static int pause_drive(struct nb_bench *b, uint32_t drive)
{
    struct hst_aio *aio = b->lanes[drive][0].aio;
    for (uint64_t left = b->budget.idle_ns; left && !*b->stopped;) {
        uint64_t slice = left < SLICE_NS ? left : SLICE_NS;
        hst_aio_idle(aio, slice);
        left -= slice;
    }
    return *b->stopped ? -ECANCELED : 0;
}

/* Whole blocks, and several times what is in flight: that may complete all at once. */
static uint64_t window_bytes(uint64_t wanted, const struct nb_job *job)
{
    uint64_t least = WINDOW_ROUNDS * (uint64_t)job->block_bytes * job->depth;
    uint64_t bytes = wanted < least ? least : wanted;
    return bytes - bytes % job->block_bytes;
}

/* It is the one of the sweep's shapes that surely keeps a drive busy: blocks of up to 1 MiB, and
   the most requests. */
static struct nb_shape long_shape(const struct nb_bench *b)
{
    struct nb_shape shape = {b->args->blocks.values[0], b->budget.most_depth, 1};
    for (uint32_t i = 0; i < b->args->blocks.count; i++)
        if (b->args->blocks.values[i] <= MIB)
            shape.block_bytes = b->args->blocks.values[i];
    return shape;
}

static int write_long(struct nb_bench *b, uint32_t drive)
{
    struct nb_sustained *s = &b->result->drives[drive].sustained;
    struct nb_lane *lane = &b->lanes[drive][0];
    const struct nb_shape shape = long_shape(b);
    struct nb_job job = job_of(b, NB_WRITE, &shape, 1);
    struct nb_point ignored = {0};
    job.most_bytes = b->budget.sustain_bytes;
    job.most_ns = UINT64_MAX; /* a cache is as large as it is: bytes end it */
    job.window_bytes = window_bytes(b->budget.window_bytes, &job);
    job.stop_when_flat = true;
    *s = (struct nb_sustained){.window_bytes = job.window_bytes,
                               .idle_s = (double)b->budget.idle_ns * 1e-9};
    tell(b, drive, "long write");
    lane->sustained = s;
    int rc = nb_run_lanes(b, &lane, &job, 1, &ignored);
    nb_sustained_judge(s);
    return rc;
}

/* It measures the drive in its best shape, on its first lane; *out is the next free point. */
static int measure_best(struct nb_bench *b, enum nb_kind kind, uint32_t drive, uint64_t most_bytes,
                        struct nb_point **out)
{
    const struct nb_shape *best = &b->result->drives[drive].best;
    struct nb_lane *lane = &b->lanes[drive][0];
    struct nb_job job = job_of(b, kind, best, 1);
    job.most_ns = b->budget.steady_ns;
    job.most_bytes = most_bytes ? most_bytes : job.most_bytes;
    *out = new_point(b, NB_STEADY, kind, drive, best);
    return nb_run_lanes(b, &lane, &job, 1, *out);
}

static int measure_steady(struct nb_bench *b, uint32_t drive)
{
    static const enum nb_kind kinds[] = {NB_WRITE, NB_MIXED, NB_READ}; /* while the cache is full */
    struct nb_sustained *s = &b->result->drives[drive].sustained;
    struct nb_point *point;
    int rc = 0;
    for (size_t i = 0; !rc && i < sizeof kinds / sizeof kinds[0]; i++) {
        rc = measure_best(b, kinds[i], drive, 0, &point);
        b->result->point_count += rc == 0;
    }
    tell(b, drive, "pause");
    rc = rc ? rc : pause_drive(b, drive);
    rc = rc ? rc : measure_best(b, NB_WRITE, drive, b->budget.recovery_bytes, &point);
    s->recovered = rc ? (double)NAN : point->rate; /* not kept as a point */
    return rc;
}

/* ---- all drives ---- */

/* Whole blocks, so that a drive with `share` of the bytes works as long as the one with `most`. */
static uint64_t shared_bytes(const struct nb_job *job, double share, double most)
{
    double blocks = (double)job->most_bytes * (share / most) / job->block_bytes;
    uint64_t bytes = (uint64_t)fmax(1, floor(blocks + 0.5)) * job->block_bytes;
    return bytes < job->most_bytes ? bytes : job->most_bytes;
}

/* Every drive is given as much as its share, as in training: equal parts would have all wait for
   the slowest. */
static int measure_striped(struct nb_bench *b)
{
    struct nb_lane *lanes[NB_MAX_DRIVES];
    struct nb_job jobs[NB_MAX_DRIVES];
    const struct nb_shape shape = {0};
    double shares[NB_MAX_DRIVES], most = 0;
    nb_shares_of(b->result, shares);
    for (uint32_t d = 0; d < b->result->drive_count; d++)
        most = fmax(most, shares[d]);
    for (uint32_t kind = 0; kind < NB_KINDS; kind++) {
        for (uint32_t d = 0; d < b->result->drive_count; d++) {
            lanes[d] = &b->lanes[d][0];
            jobs[d] = job_of(b, (enum nb_kind)kind, &b->result->drives[d].best, 1);
            jobs[d].most_ns = b->budget.steady_ns;
            jobs[d].most_bytes = shared_bytes(&jobs[d], shares[d], most);
        }
        tell(b, 0, "all drives together");
        struct nb_point *p = new_point(b, NB_STRIPED, (enum nb_kind)kind, NB_ALL_DRIVES, &shape);
        int rc = nb_run_lanes(b, lanes, jobs, b->result->drive_count, p);
        if (rc)
            return rc;
        b->result->point_count++;
    }
    return 0;
}

static int tell_mismatch(struct nb_bench *b, const struct nb_lane *lane,
                         const struct nb_mismatch *wrong)
{
    static const char fix[] = "Fix: do not trust this drive; see dmesg and smartctl -a.";
    const char *path = b->result->drives[lane->drive].path;
    unsigned long long offset = wrong->offset;
    if (!wrong->is_other)
        return fail(b->error, FAIL_READ, -EBADMSG,
                    "'%.200s', file %u, offset %llu: the data read back is not what was written "
                    "(a byte is 0x%02x, 0x%02x was written). %s",
                    path, lane->index, offset, wrong->byte, wrong->wanted, fix);
    return fail(b->error, FAIL_READ, -EBADMSG,
                "'%.200s', file %u, offset %llu: the data read back is not what was written "
                "(found %sdrive %u, file %u, offset %llu, pass %u; wanted pass %u). %s",
                path, lane->index, offset, wrong->found.run == lane->run ? "" : "another run's ",
                wrong->found.drive, wrong->found.file, (unsigned long long)wrong->found.offset,
                wrong->found.pass, lane->written[offset / NB_SECTOR_BYTES].pass, fix);
}

static int verify_lane(struct nb_bench *b, uint32_t drive, struct nb_lane *lane)
{
    struct nb_mismatch wrong;
    uint64_t bytes;
    int rc = nb_lane_verify(lane, &bytes, &wrong);
    b->result->drives[drive].verified_bytes += bytes;
    if (rc == -EBADMSG)
        return tell_mismatch(b, lane, &wrong);
    return rc ? nb_lane_fail(b, lane) : *b->stopped ? -ECANCELED : 0;
}

static int verify(struct nb_bench *b)
{
    for (uint32_t d = 0; d < b->result->drive_count; d++) {
        tell(b, d, "reading back");
        for (uint32_t i = 0; i < b->budget.lanes; i++) {
            int rc = verify_lane(b, d, &b->lanes[d][i]);
            if (rc)
                return rc;
        }
    }
    return 0;
}

int nb_measure(struct nb_bench *b)
{
    int rc = 0;
    for (uint32_t d = 0; !rc && d < b->result->drive_count; d++) {
        rc = fill_files(b, d);
        rc = rc ? rc : pause_drive(b, d);
        rc = rc ? rc : write_long(b, d);
        rc = rc ? rc : sweep(b, d);
        rc = rc ? rc : measure_steady(b, d);
    }
    if (!rc && b->result->drive_count > 1)
        rc = measure_striped(b);
    return rc ? rc : verify(b);
}
