/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Initial values in, trained values out, one tile at a time through the stream of the update:
 * loading and saving work for any model that can be trained, however little memory there is. A
 * copy's values come from its files.
 */
#include "ckpt/ckpt.h"
#include "exec/tiles/tile_stream.h"
#include "exec/visit/execute.h"
#include "session/ranks/ranks.h"
#include "session/slices.h"
#include "session/store/versions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef int overlap_visit(struct executor *exec, void *context, const struct tile_job *job,
                          const struct layout_overlap *overlap);

/* Calls visit for each stored parameter's part in the tile, in order of offset. */
static int each_overlap(struct executor *exec, const struct tile_job *job, overlap_visit *visit,
                        void *context)
{
    struct layout_overlap overlap;
    uint32_t next = layout_first_param_in(exec->in.layout, job->range);
    int rc = 0;
    while (rc == 0 && layout_next_overlap(exec->in.layout, job->range, &next, &overlap))
        rc = visit(exec, context, job, &overlap);
    return rc;
}

/* ---- load ---- */

struct load_context {
    const struct hst_reader *reader;
    float *values; /* where the tile's f32 values are read to */
};

static int load_overlap(struct executor *exec, void *context, const struct tile_job *job,
                        const struct layout_overlap *overlap)
{
    (void)job;
    struct load_context *load = context;
    struct hst_param_ref ref = layout_param_ref(exec->in.layout, overlap->param);
    int rc = load->reader->read(load->reader->context, &ref, overlap->in_param,
                                load->values + overlap->in_tile, overlap->count);
    if (rc)
        return report_fail(exec->in.report, HST_E_READ, rc,
                           "the initial values of \"%s\" could not be read: %s", ref.name,
                           strerror(-rc));
    return 0;
}

static int load_visit(struct executor *exec, void *context, const struct tile_job *jobs,
                      uint32_t count)
{
    struct load_context *load = context;
    for (uint32_t i = 0; i < count; i++) {
        const struct tile_job *job = &jobs[i];
        size_t n = job->range.elements;
        load->values =
            exec->in.kernel.optimizer->has_master
                ? (float *)(void *)(exec->in.host_arena + exec->in.placement->load_values)
                : job->arrays.weights;
        memset(load->values, 0, n * sizeof(float)); /* padding is zero and stays zero */
        int rc = each_overlap(exec, job, load_overlap, load);
        if (rc)
            return rc;
        if (exec->in.layout->units[job->range.unit].frozen) {
            optimizer_set_frozen(&exec->in.kernel, load->values, job->arrays.weights, n);
            continue;
        }
        optimizer_begin(&exec->in.kernel, load->values, &job->arrays, n);
        record_zero_gaps(job->record, exec->in.kernel.optimizer, n);
    }
    return 0;
}

int hst_engine_load(struct hst_engine *engine, const struct hst_reader *reader)
{
    if (engine->report.error.code)
        return engine->report.error.native;
    if (engine->phase != PHASE_SEALED || engine->versions.store || !reader || !reader->read ||
        reader->cursor_bytes > VERSIONS_CURSOR_BYTES)
        return report_refuse(&engine->report, "load comes once, after seal, and needs a reader");
    struct load_context load = {.reader = reader};
    int rc = versions_create(engine);
    if (rc == 0)
        versions_cursor(engine, true, reader->cursor, reader->cursor_bytes);
    rc = rc ? rc
            : tile_stream(&engine->exec, TILE_WRITE_WEIGHTS | TILE_WRITE_STATES, load_visit, &load);
    rc = rc ? rc : versions_now(engine);
    rc = rc ? rc : ranks_meet(engine);
    rc = rc ? rc : execute_gather(&engine->exec);
    if (rc == 0)
        engine->phase = PHASE_LOADED;
    return rc;
}

int hst_engine_resume(struct hst_engine *engine, uint64_t *step, void *cursor, size_t capacity,
                      size_t *cursor_bytes)
{
    if (engine->report.error.code)
        return engine->report.error.native;
    if (engine->phase != PHASE_SEALED || engine->versions.store || !step || !cursor_bytes)
        return report_refuse(&engine->report,
                             "resume comes once, after seal, in the place of load");
    int rc = versions_open(engine);
    rc = rc ? rc : ranks_meet(engine);
    rc = rc ? rc : execute_gather(&engine->exec);
    if (rc)
        return rc;
    engine->phase = PHASE_LOADED;
    *step = engine->standing.number;
    const struct version_note *note = &engine->versions.last;
    *cursor_bytes = note->cursor_bytes;
    if (cursor)
        memcpy(cursor, note->cursor, capacity < *cursor_bytes ? capacity : *cursor_bytes);
    return 0;
}

/* ---- save ---- */

struct save_context {
    const struct hst_writer *writer;
    enum hst_dtype dtype;
    bool masters;             /* in place of the working weights */
    bool writes;              /* of several ranks: what all have */
    const unsigned char *src; /* of the tile */
    unsigned char *gathered;  /* of several ranks: a tile of each */
    uint32_t unit, nth;       /* which tile of the unit comes next */
    uint64_t step;            /* of a copy */
};

static int save_overlap(struct executor *exec, void *context, const struct tile_job *job,
                        const struct layout_overlap *overlap)
{
    (void)job;
    const struct save_context *save = context;
    struct hst_param_ref ref = layout_param_ref(exec->in.layout, overlap->param);
    return save->writer->write(save->writer->context, &ref, overlap->in_param,
                               save->src + overlap->in_tile * hst_dtype_bytes(save->dtype),
                               overlap->count, save->dtype);
}

/* Between steps the accumulator holds no gradient: what is joined has room there. */
static const void *masters_of(const struct executor *exec, const struct tile_job *job)
{
    float *values = (float *)(void *)(exec->in.host_arena + exec->in.placement->load_values);
    if (exec->in.layout->units[job->range.unit].frozen)
        return optimizer_widen(&exec->in.kernel, job->arrays.weights, values, job->range.elements);
    return optimizer_masters(&exec->in.kernel, &job->arrays, values, job->range.elements);
}

/* ---- of several ranks: one writes the tiles of all, a tile of each at a time ---- */

/* Elements that each rank has of the unit's row at most, and of them those of its nth tile. */
static struct tile_range tile_of_rank(const struct layout *layout, uint32_t unit, uint32_t nth,
                                      uint32_t rank)
{
    const uint64_t row = layout->units[unit].elements;
    const struct shard shard = shard_of(row, (struct share){rank, layout->share.world});
    const uint64_t before = (uint64_t)nth * layout->tile_elements;
    const uint64_t left = shard.elements > before ? shard.elements - before : 0;
    return (struct tile_range){.unit = unit,
                               .offset = shard.first + before,
                               .elements = left < layout->tile_elements ? (uint32_t)left
                                                                        : layout->tile_elements};
}

static size_t gathered_bytes(const struct executor *exec, const struct save_context *save)
{
    return exec->in.layout->tile_elements * hst_dtype_bytes(save->dtype);
}

static int write_gathered(struct executor *exec, struct save_context *save)
{
    const struct layout *layout = exec->in.layout;
    int rc = 0;
    for (uint32_t r = 0; r < layout->share.world && rc == 0; r++) {
        const struct tile_job job = {.range = tile_of_rank(layout, save->unit, save->nth, r)};
        save->src = save->gathered + r * gathered_bytes(exec, save);
        rc = job.range.elements ? each_overlap(exec, &job, save_overlap, save) : 0;
    }
    return rc;
}

/* The next tile of all ranks; src: the rank's own, or null where its shard has none. */
static int gather_next(struct executor *exec, struct save_context *save, const void *src)
{
    const struct layout *layout = exec->in.layout;
    const uint32_t rank = layout->share.rank;
    const size_t bytes = gathered_bytes(exec, save);
    uint64_t ticket;
    if (src)
        memcpy(save->gathered + rank * bytes, src,
               tile_of_rank(layout, save->unit, save->nth, rank).elements *
                   hst_dtype_bytes(save->dtype));
    const struct comm_op op = {.kind = COMM_GATHER,
                               .name = layout->units[save->unit].name,
                               .in = save->gathered,
                               .out = save->gathered,
                               .count = bytes,
                               .patient = true};
    int rc = comm_begin(exec->in.comm, &op, &ticket);
    rc = rc ? rc : comm_wait(exec->in.comm, ticket);
    rc = rc ? executor_fail_comm(exec, rc) : save->writes ? write_gathered(exec, save) : 0;
    save->nth++;
    return rc;
}

/* All that comes before a tile of this rank: of these units it has less than others, or nothing. */
static int gather_until(struct executor *exec, struct save_context *save, uint32_t unit,
                        uint32_t nth)
{
    const struct layout *layout = exec->in.layout;
    int rc = 0;
    while (rc == 0 && save->unit < layout->unit_count && (save->unit < unit || save->nth < nth)) {
        if (tile_of_rank(layout, save->unit, save->nth, 0).elements > 0) { /* it has most */
            rc = gather_next(exec, save, NULL);
            continue;
        }
        save->unit++;
        save->nth = 0;
    }
    return rc;
}

static int save_values(struct executor *exec, struct save_context *save, const struct tile_job *job,
                       const void *src)
{
    if (exec->in.layout->share.world == 1) {
        save->src = src;
        return each_overlap(exec, job, save_overlap, save);
    }
    const uint32_t first = exec->in.layout->units[job->range.unit].first_tile;
    int rc = gather_until(exec, save, job->range.unit, job->tile - first);
    return rc ? rc : gather_next(exec, save, src);
}

static int save_tile(struct executor *exec, struct save_context *save, const struct tile_job *job)
{
    return save_values(exec, save, job,
                       save->masters ? masters_of(exec, job) : job->arrays.weights);
}

static int save_visit(struct executor *exec, void *context, const struct tile_job *jobs,
                      uint32_t count)
{
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = save_tile(exec, context, &jobs[i]);
    return rc;
}

/* It saves all own tiles. */
typedef int save_all(struct hst_engine *engine, struct save_context *context);

static int save(struct hst_engine *engine, struct save_context *context, save_all *all)
{
    if (engine->report.error.code)
        return engine->report.error.native;
    if (engine->phase != PHASE_LOADED || engine->acquired != NO_UNIT || !context->writer ||
        !context->writer->write)
        return report_refuse(
            &engine->report,
            "save comes between steps, after load, with no unit acquired, and needs "
            "a writer");
    int rc = execute_drain(&engine->exec);
    if (ranks_are_replicas(engine) && engine->ranks.rank > 0)
        return rc; /* rank 0 has all that is written */
    if (rc || engine->layout.share.world == 1)
        return rc ? rc : all(engine, context);
    context->gathered = calloc(engine->ranks.ranks, gathered_bytes(&engine->exec, context));
    if (!context->gathered)
        return engine_fail_tables(engine, -ENOMEM);
    context->writes = ranks_tells(engine);
    rc = all(engine, context);
    rc = rc ? rc : gather_until(&engine->exec, context, engine->layout.unit_count, 0);
    free(context->gathered);
    return rc;
}

static int save_weights(struct hst_engine *engine, struct save_context *context)
{
    return tile_stream(&engine->exec, TILE_READ_WEIGHTS, save_visit, context);
}

static int save_masters(struct hst_engine *engine, struct save_context *context)
{
    const enum hst_dtype dtype = precision_dtype(engine->config.precision);
    return tile_stream(&engine->exec,
                       dtype == HST_F32   ? TILE_READ_WEIGHTS
                       : dtype == HST_F16 ? TILE_READ_STATES /* they hold the masters */
                                          : TILE_READ_WEIGHTS | TILE_READ_STATES,
                       save_visit, context);
}

int hst_engine_save(struct hst_engine *engine, const struct hst_writer *writer)
{
    struct save_context context = {.writer = writer,
                                   .dtype = precision_dtype(engine->config.precision)};
    return save(engine, &context, save_weights);
}

int hst_engine_save_masters(struct hst_engine *engine, const struct hst_writer *writer)
{
    struct save_context context = {.writer = writer, .dtype = HST_F32, .masters = true};
    return save(engine, &context, save_masters);
}

/* ---- of a copy ---- */

struct taking {
    struct hst_engine *engine;
    struct save_context *save;
};

static int take_tile(void *context, uint32_t tile, const void *values)
{
    const struct taking *t = context;
    const struct tile_job job = {.tile = tile, .range = layout_tile(&t->engine->layout, tile)};
    return save_values(&t->engine->exec, t->save, &job, values);
}

/* paths: written. */
static struct ckpt_own own_copy(const struct hst_engine *engine, uint64_t step,
                                const char *paths[STRIPE_DRIVES_MAX])
{
    for (uint32_t d = 0; d < engine->drive_count; d++)
        paths[d] = engine->drives[d].path;
    return (struct ckpt_own){.paths = paths,
                             .drives = engine->drive_count,
                             .step = step,
                             .rank = engine->ranks.rank,
                             .layout = &engine->layout,
                             .precision = engine->config.precision,
                             .optimizer = engine->exec.in.kernel.optimizer};
}

bool hst_engine_has_kept(const struct hst_engine *engine, uint64_t step)
{
    const char *paths[STRIPE_DRIVES_MAX];
    const struct ckpt_own own = own_copy(engine, step, paths);
    return engine->versions.store && ckpt_own_is_there(&own);
}

static int save_kept(struct hst_engine *engine, struct save_context *context)
{
    const char *paths[STRIPE_DRIVES_MAX];
    struct taking taking = {engine, context};
    struct hst_error error = {0};
    const struct ckpt_own own = own_copy(engine, context->step, paths);
    const int rc = ckpt_own_save(&own, context->masters, take_tile, &taking, &error);
    return rc && error.code ? report_fail_as(&engine->report, &error) : rc;
}

int hst_engine_save_kept(struct hst_engine *engine, uint64_t step, bool masters,
                         const struct hst_writer *writer)
{
    const enum hst_dtype dtype = precision_dtype(engine->config.precision);
    struct save_context context = {
        .writer = writer, .dtype = masters ? HST_F32 : dtype, .masters = masters, .step = step};
    if (engine->report.error.code)
        return engine->report.error.native;
    if (!engine->versions.store)
        return report_refuse(&engine->report, "copies are kept beside a store");
    return save(engine, &context, save_kept);
}
