/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine's life: create, describe, seal, destroy. Creating touches the device and the store
 * directory; sealing decides everything and allocates it; afterwards nothing grows.
 */
#include "base/real.h"
#include "base/size_text.h"
#include "exec/streams.h"
#include "exec/visit/execute.h"
#include "machine/machine.h"
#include "session/engine_state.h"
#include "session/executor_in.h"
#include "session/ranks/ranks.h"
#include "session/slices.h"
#include "session/store/failure.h"
#include "session/store/kept.h"
#include "session/store/other_run.h"
#include "session/store/shares.h"
#include "session/store/versions.h"
#include "session/update_time.h"
#include "session/way_sums.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS_MAX 1024u
/* ---- create ---- */

static int resolve_config(struct hst_engine *engine, const struct hst_config *given)
{
    struct hst_config *c = &engine->config;
    memcpy(c, given, given->size < sizeof *c ? given->size : sizeof *c);
    c->size = sizeof *c;
    engine->report.log = c->log;
    engine->report.log_context = c->log_context;
    optimizer_resolve(c);
    c->clip = real_or(c->clip, 1.0);
    if (c->store && !(c->store = engine->store = strdup(c->store)))
        return -ENOMEM;
    if (c->place && !(c->place = engine->place = strdup(c->place)))
        return -ENOMEM;
    if (c->durability && !(c->durability = engine->durability = strdup(c->durability)))
        return -ENOMEM;
    if (c->io_model && !(c->io_model = engine->io_model = strdup(c->io_model)))
        return -ENOMEM;
    if (c->io_fault && !(c->io_fault = engine->io_fault = strdup(c->io_fault)))
        return -ENOMEM;
    if (c->host_math && !(c->host_math = engine->host_math = strdup(c->host_math)))
        return -ENOMEM;
    c->device = engine->device = strdup(c->device ? c->device : "host");
    if (!c->device)
        return -ENOMEM;
    return 0;
}

static int refuse_value(struct hst_engine *engine, const char *text)
{
    return report_fail(&engine->report, HST_E_VALUE, -EINVAL, "%s", text);
}

static int check_config(struct hst_engine *engine)
{
    const struct hst_config *c = &engine->config;
    if (c->batch_tokens == 0 || c->micro_batch_tokens == 0 ||
        c->micro_batch_tokens > c->batch_tokens)
        return refuse_value(
            engine, "batch_tokens and micro_batch_tokens must be > 0, the latter no larger");
    if ((c->batch_tokens + c->micro_batch_tokens - 1) / c->micro_batch_tokens > UINT32_MAX / 2)
        return refuse_value(engine, "more than 2^31 micro-batches in a step. Fix: a larger one");
    if (c->tile_elements % LAYOUT_UNIT_ALIGN != 0)
        return refuse_value(engine, "tile_elements must be a multiple of 4,096");
    if (c->threads > THREADS_MAX)
        return refuse_value(engine, "threads must be 1 to 1,024");
    if (c->precision != HST_PRECISION_DEFAULT && c->precision != HST_PRECISION_FP32 &&
        c->precision != HST_PRECISION_BF16 && c->precision != HST_PRECISION_FP16)
        return refuse_value(engine, "precision must be fp32, bf16 or fp16");
    if (c->loss_scale != 0 && c->precision != HST_PRECISION_FP16)
        return refuse_value(engine, "--loss-scale is for --precision fp16. Fix: leave it out");
    if ((unsigned)c->loss_scaling > HST_LOSS_SCALING_STATIC)
        return refuse_value(engine, "loss_scaling must be dynamic or static");
    if (c->loss_scaling != HST_LOSS_SCALING_DYNAMIC && c->precision != HST_PRECISION_FP16)
        return refuse_value(engine, "--loss-scaling is for --precision fp16. Fix: leave it out");
    if (c->loss_scale != 0 &&
        !(c->loss_scale >= LOSS_SCALE_LEAST && c->loss_scale <= LOSS_SCALE_MOST))
        return refuse_value(engine, "loss_scale must be 1 to 2^32");
    if (!hst_state_name(c->state))
        return refuse_value(engine, "state must be a value of enum hst_state");
    if (c->update_time != HST_UPDATE_AUTO && c->update_time != HST_UPDATE_DEFERRED &&
        c->update_time != HST_UPDATE_OPTIMISTIC)
        return refuse_value(engine, "update_time must be auto, deferred or optimistic");
    if (c->activations != HST_ACTIVATIONS_AUTO && c->activations != HST_ACTIVATIONS_RECOMPUTE)
        return refuse_value(engine, "activations must be auto or recompute");
    if ((unsigned)c->comm > HST_COMM_MPI)
        return refuse_value(engine, "comm must be auto, nccl or mpi");
    if (c->io != HST_IO_AUTO && c->io != HST_IO_URING && c->io != HST_IO_THREADS)
        return refuse_value(engine, "io must be auto, uring or threads");
    if (c->plan != HST_PLAN_TO_TRAIN && c->plan != HST_PLAN_HERE && c->plan != HST_PLAN_ELSEWHERE)
        return refuse_value(engine, "plan must be to train, here or elsewhere");
    if (c->planned && c->plan != HST_PLAN_ELSEWHERE)
        return refuse_value(engine, "a planned GPU is for a plan elsewhere");
    if (c->plan && c->io_model)
        return refuse_value(engine, "a plan has no simulated drives: io_model must be null");
    if (c->io_model && c->io != HST_IO_AUTO)
        return refuse_value(engine, "io must be auto where io_model says what the drives are");
    if ((c->io_model || c->io_fault) && !c->store)
        return refuse_value(engine, "io_model and io_fault are of drives: they need a store");
    if (c->gpu_update != HST_NONE && !(c->gpu_update >= 0 && c->gpu_update <= 1))
        return refuse_value(engine, "gpu_update must be 0 to 1, or HST_NONE");
    if (!(c->clip >= 0) || !isfinite(c->clip))
        return refuse_value(engine, "clip must be a finite number >= 0");
    char refusal[HST_WHY_BYTES];
    return optimizer_refusal(c, refusal) ? refuse_value(engine, refusal) : 0;
}

/* Each has refused by then what all refuse alike: who ends takes the directories away that it has
   made, and another one would miss them. The others wait for the end in what comes next. */
static int hear_all(struct hst_engine *engine, int rc)
{
    const int met = ranks_meet(engine);
    return rc ? rc : met;
}

static int open_places(struct hst_engine *engine)
{
    int rc = store_dirs_make(engine);
    if (rc == 0 && !engine->dev)
        rc = device_open(engine); /* first: it takes address space that budgets cannot have */
    rc = hear_all(engine, rc);
    rc = rc ? rc : ranks_check(engine);
    return rc ? rc : ranks_join_devices(engine); /* what NCCL takes of the device is not free */
}

static int open_ranks(struct hst_engine *engine)
{
    int rc = ranks_open(engine);
    if (rc || !ranks_wait_for_devices(engine))
        return rc;
    rc = device_open(engine);
    return rc ? rc : ranks_open_devices(engine);
}

static int open_parts(struct hst_engine *engine)
{
    char why[256];
    int rc = check_config(engine);
    rc = rc ? rc : groups_read(engine);
    rc = rc ? rc : frozen_read(engine);
    if (rc)
        return rc;
    if (engine->config.place &&
        place_parse(engine->config.place, &engine->plan_in.wish, why, sizeof why))
        return report_fail(&engine->report, HST_E_VALUE, -EINVAL, "%s", why);
    rc = open_ranks(engine);
    if (rc == 0 && engine->config.threads == 0)
        rc = ranks_threads(engine, &engine->config.threads);
    rc = rc ? rc : versions_configure(engine);
    rc = rc ? rc : shares_find(engine);
    rc = rc ? rc : store_words_fill(engine);
    rc = rc ? rc : open_places(engine);
    rc = rc ? rc : budgets_resolve(engine, &engine->plan_in);
    rc = rc ? rc : hear_all(engine, device_prepare(engine)); /* others may still read free space */
    return rc ? rc : ranks_compare_options(engine);
}

/* A caller built with a newer header may set what this library does not know: never ignored. */
static bool unknown_fields(const struct hst_config *config)
{
    const unsigned char *bytes = (const unsigned char *)config;
    for (size_t i = sizeof *config; i < config->size; i++)
        if (bytes[i])
            return true;
    return false;
}

int hst_engine_create(const struct hst_config *config, struct hst_engine **engine)
{
    if (!config || !engine || config->size < sizeof config->size || unknown_fields(config))
        return -EINVAL;
    struct hst_engine *e = calloc(1, sizeof *e);
    if (!e)
        return -ENOMEM;
    e->acquired = NO_UNIT;
    e->owner = getpid();
    int rc = resolve_config(e, config);
    rc = rc ? report_fail(&e->report, HST_E_VALUE, rc, "out of memory") : open_parts(e);
    if (rc) {
        if (e->config.error)
            *e->config.error = e->report.error;
        hst_engine_destroy(&e);
        return rc;
    }
    *engine = e;
    return 0;
}

/* ---- getters ---- */

const struct hst_error *hst_engine_error(const struct hst_engine *engine)
{
    return &engine->report.error;
}

struct hst_dev *hst_engine_device(struct hst_engine *engine)
{
    return engine->dev;
}

struct hst_stream *hst_engine_stream(struct hst_engine *engine)
{
    return engine->stream;
}

enum hst_precision hst_engine_precision(const struct hst_engine *engine)
{
    return engine->config.precision;
}

enum hst_dtype hst_engine_dtype(const struct hst_engine *engine)
{
    return precision_dtype(engine->config.precision);
}

/* ---- describe ---- */

int hst_unit_add(struct hst_engine *engine, const struct hst_unit_desc *desc, uint32_t *unit)
{
    char why[256];
    if (engine->report.error.code)
        return engine->report.error.native;
    if (engine->phase != PHASE_DESCRIBE)
        return -EBUSY;
    if (!desc || !unit)
        return -EINVAL;
    int rc = layout_add(&engine->layout, desc, why, sizeof why);
    if (rc)
        return report_fail(&engine->report, HST_E_VALUE, rc, "%s", why);
    *unit = engine->layout.unit_count - 1;
    return 0;
}

int hst_hidden_set(struct hst_engine *engine, uint64_t bytes_per_token)
{
    if (engine->report.error.code)
        return engine->report.error.native;
    if (engine->phase != PHASE_DESCRIBE)
        return -EBUSY;
    engine->hidden_bytes_per_token = bytes_per_token;
    return 0;
}

int hst_client_memory_set(struct hst_engine *engine, uint64_t device_bytes, uint64_t host_bytes)
{
    if (engine->report.error.code)
        return engine->report.error.native;
    if (engine->phase != PHASE_DESCRIBE)
        return -EBUSY;
    engine->plan_in.client_device_bytes = device_bytes;
    engine->plan_in.client_host_bytes = host_bytes;
    return 0;
}

/* ---- seal ---- */

static int open_units(struct hst_engine *engine)
{
    engine->units = calloc(engine->layout.unit_count, sizeof *engine->units);
    if (!engine->units)
        return -ENOMEM;
    for (uint32_t u = 0; u < engine->layout.unit_count; u++) {
        size_t count = engine->layout.units[u].param_count;
        engine->units[u].views = calloc(count + 1, sizeof *engine->units[u].views);
        if (!engine->units[u].views)
            return -ENOMEM;
    }
    const size_t joined = (size_t)engine->layout.param_count * engine->placement.way_sums.count;
    engine->way.joined = calloc(joined + 1, sizeof *engine->way.joined);
    if (!engine->way.joined)
        return -ENOMEM;
    if (!engine->placement.buckets && !engine->ways.tree.quant)
        return 0;
    const size_t shards = (size_t)engine->layout.unit_count * engine->ranks.ranks;
    engine->way.shards = calloc(shards, sizeof *engine->way.shards);
    return engine->way.shards ? 0 : -ENOMEM;
}

static int fail_memory(struct hst_engine *engine, int native, uint64_t bytes, const char *option)
{
    struct hst_dev_failure failure;
    char size[SIZE_TEXT_BYTES];
    hst_dev_failure(engine->dev, &failure);
    if (failure.why != HST_DEV_OK)
        return engine_fail_device(engine, native, "allocating what was planned");
    return report_fail(&engine->report, HST_E_BUDGET, native,
                       "%s of memory could not be allocated: %s. Fix: lower --%s",
                       size_text(bytes, size), strerror(-native), option);
}

/* Other ranks read these pages, which are there before a device locks them and drives' queues know
   them. */
static int expose(void *context, void *memory)
{
    return ranks_expose(context, memory);
}

/* Both arenas; on the host they are one. */
static int open_arenas(struct hst_engine *engine)
{
    const struct placement *p = &engine->placement;
    const struct hst_host_pages pages = {expose, engine};
    void *memory = NULL;
    int rc = hst_dev_host_alloc_of(engine->dev, p->dram_bytes, &pages, &memory);
    if (rc)
        return engine->report.error.code ? rc : fail_memory(engine, rc, p->dram_bytes, "dram");
    engine->arena = engine->host_arena = memory;
    /* other ranks' blocks of the norm stay 0 here */
    memset(engine->host_arena + p->host_partials, 0,
           placement_partials_bytes(engine->layout.elements));
    if (engine_computes_in_dram(engine))
        return 0;
    rc = hst_dev_mem_alloc(engine->dev, p->hbm_bytes, &memory);
    engine->arena = rc ? NULL : memory;
    return rc ? fail_memory(engine, rc, p->hbm_bytes, "hbm") : 0;
}

static int open_extents(struct hst_engine *engine)
{
    int rc = engine->placement.nvme_bytes > 0 ? store_dirs_open(engine) : 0;
    if (rc || !engine_has_resident(engine))
        return rc;
    rc =
        hbm_open(engine->stream, engine->dev, engine->arena, &engine->placement, &engine->resident);
    return rc ? engine_fail_device(engine, rc, "preparing copies") : 0;
}

static int allocate(struct hst_engine *engine)
{
    int rc = open_arenas(engine);
    if (rc)
        return rc;
    way_sums_open(engine);
    rc = open_units(engine);
    rc = rc ? rc : slices_open(engine);
    const struct executor_in in = engine_executor_in(engine);
    rc = rc ? rc : execute_open(&engine->exec, &in);
    rc = rc ? engine_fail_tables(engine, rc) : open_extents(engine);
    executor_attach(&engine->exec, engine->extents, engine->resident);
    return rc ? rc : ranks_compare_graphs(engine);
}

int hst_engine_seal(struct hst_engine *engine, enum hst_order order)
{
    if (engine->report.error.code)
        return engine->report.error.native;
    if (engine->phase != PHASE_DESCRIBE || order != HST_ORDER_FORWARD ||
        engine->layout.unit_count == 0)
        return report_refuse(&engine->report,
                             "seal comes once, after at least one unit, with HST_ORDER_FORWARD");
    /* what the client asked the device for may have decided which of its kernels serve */
    hst_dev_math(engine->dev, engine->math, sizeof engine->math);
    int rc = groups_assign(engine);
    rc = rc ? rc : frozen_assign(engine);
    rc = rc ? rc : decide(engine);
    rc = rc ? other_run_explain(engine, rc) : 0;
    rc = rc ? rc : versions_check(engine);
    rc = rc ? rc : optimistic_check(engine);
    rc = rc ? rc : decide_update(engine);
    rc = engine->config.plan ? decide_end(engine, rc) : rc ? rc : allocate(engine);
    if (rc == 0 && !engine->config.plan)
        engine->phase = PHASE_SEALED;
    engine->config.rates = NULL;
    free(engine->alike);
    engine->alike = NULL;
    return rc;
}

int hst_engine_memory(const struct hst_engine *engine, struct hst_memory *memory)
{
    if (engine->phase == PHASE_DESCRIBE || !memory)
        return -EINVAL;
    const struct placement *p = &engine->placement;
    *memory = (struct hst_memory){
        .parameters = engine->layout.parameters,
        .tile_elements = engine->layout.tile_elements,
        .threads = engine->config.threads,
        .io = p->nvme_bytes > 0 ? store_dir_backend(engine) : "none",
        .comm = ranks_comm(engine),
    };
    memcpy(memory->bytes, p->table, sizeof memory->bytes);
    memory->total[HST_TIER_HBM] = p->hbm_bytes;
    memory->budget[HST_TIER_HBM] = engine->plan_in.hbm_budget;
    memory->total[HST_TIER_DRAM] = p->dram_bytes;
    memory->total[HST_TIER_NVME] = p->nvme_bytes;
    memory->budget[HST_TIER_DRAM] = engine->plan_in.dram_budget;
    memory->budget[HST_TIER_NVME] = engine->plan_in.nvme_budget;
    memory->most[HST_TIER_HBM] = engine->plan_in.hbm_most;
    memory->most[HST_TIER_DRAM] = engine->plan_in.dram_most;
    return 0;
}

int hst_client_memory(struct hst_engine *engine, struct hst_client_memory *memory)
{
    if (engine->phase < PHASE_SEALED || !memory)
        return -EINVAL;
    const struct placement_in *in = &engine->plan_in;
    *memory = (struct hst_client_memory){
        .device = in->client_device_bytes ? engine->arena + engine->placement.client_device : NULL,
        .host = in->client_host_bytes ? engine->host_arena + engine->placement.client_host : NULL,
        .device_bytes = in->client_device_bytes,
        .host_bytes = in->client_host_bytes,
    };
    return 0;
}

/* ---- destroy: in the reverse order; nothing may move when its memory goes ---- */

/* left: no other rank's bytes may still arrive. */
static void close_memory(struct hst_engine *engine, bool left)
{
    if (engine->resident)
        engine->resident->ops->close(engine->resident);
    if (engine->extents)
        engine->extents->ops->close(engine->extents);
    execute_close(&engine->exec);
    for (uint32_t u = 0; engine->units && u < engine->layout.unit_count; u++)
        free(engine->units[u].views);
    free(engine->units);
    free(engine->way.shards);
    free(engine->way.joined);
    slices_close(engine);
    if (engine->arena && engine->arena != engine->host_arena)
        hst_dev_mem_free(engine->dev, engine->arena, engine->placement.hbm_bytes);
    if (engine->host_arena && left)
        hst_dev_host_free(engine->dev, engine->host_arena, engine->placement.dram_bytes);
}

void hst_engine_destroy(struct hst_engine **engine)
{
    struct hst_engine *e = engine ? *engine : NULL;
    if (!e)
        return;
    if (e->owner != getpid()) { /* its threads, queues and store are the parent's */
        *engine = NULL;
        return;
    }
    if (e->stream)
        hst_stream_sync(e->stream);
    streams_await_unit(&e->exec); /* it may have been on a stream of the client's */
    kept_close(e);
    const bool left = ranks_close(e);
    close_memory(e, left);
    hst_stream_destroy(&e->stream);
    /* else it keeps the memory that others' bytes may arrive in, and what a comm has of it */
    if (left || (!e->host_arena && !e->plan_in.joined))
        hst_dev_close(&e->dev);
    workers_destroy(&e->workers);
    store_dirs_close(e);
    graph_free(&e->planned_graph);
    placement_free(&e->placement);
    layout_free(&e->layout);
    layout_free(&e->whole);
    free(e->store);
    free(e->place);
    free(e->device);
    free(e->host_math);
    free(e->alike);
    free(e->durability);
    free(e->versions.cursors);
    shares_close(e);
    free(e->io_model);
    free(e->io_fault);
    free(e);
    *engine = NULL;
}
