/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every placement with every depth of prefetch, number of micro-batches, clipping and backend, a
 * drive with delays of its own among them: the bytes of the in-memory run on one thread. Takes the
 * n-th of every so many runs: `--part N M`; without it all.
 */
#include "session/engine_state.h"
#include "smallest_budget.h"
#include "toy_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 3, AMPLE = 64 << 20, TILE = 4096 };

static char directory[] = "hst-matrix-XXXXXX";
static uint32_t first, stride = 1;

static const struct {
    const char *device, *homes;
    bool shares;     /* some units are resident on the device, and not all */
    double streamed; /* share of what is offloaded that the device updates */
} PLACES[] = {
    {NULL, "states=nvme,weights=dram,grads=dram,acts=dram", false, 0},
    {NULL, "states=dram,weights=nvme,grads=dram,acts=dram", false, 0},
    {NULL, "states=nvme,weights=nvme,grads=dram,acts=dram", false, 0},
    {NULL, "states=dram,weights=dram,grads=nvme,acts=nvme", false, 0},
    {NULL, "states=nvme,weights=nvme,grads=nvme,acts=nvme", false, 0},
    {NULL, "grads=nvme,acts=nvme", false, 0},
    {"far", "states=hbm,weights=hbm,grads=hbm,acts=dram", false, 0},
    {"far", "states=hbm,weights=hbm,grads=hbm,acts=nvme", false, 0},
    {"far", "states=dram,weights=dram,grads=dram,acts=dram", false, 0},
    {"far", "states=nvme,weights=dram,grads=dram,acts=hbm", false, 0},
    {"far", "states=nvme,weights=nvme,grads=dram,acts=nvme", false, 0},
    {"far", "states=nvme,weights=nvme,grads=nvme,acts=nvme", false, 0},
    {"far", "grads=nvme", false, 0},
    {"far", "acts=dram", true, 0},
    {"far", "acts=nvme", true, 0},
    {"far", "states=dram,weights=dram,grads=dram,acts=dram", false, 0.4},
    {"far", "acts=dram", true, 0.1},
};
/* Tokens of a step in micro-batches of 4, the last of them short; whether groups of tensors have
   numbers of their own. */
static const struct {
    uint64_t tokens;
    bool groups;
} BATCHES[] = {{4, false}, {10, true}, {16, false}};
static const double CLIPS[] = {0.5, HST_NONE};
static const struct {
    const char *name, *model;
    enum hst_io io;
} DRIVES[] = {
    {"uring or threads", NULL, HST_IO_AUTO},
    {"threads", NULL, HST_IO_THREADS},
    {"a drive with delays", "sim:read=3G,write=2G,lat=80us,jitter=2ms", HST_IO_AUTO},
    {"half duplex", "sim:read=1G,write=2G,mixed=1G,lat=20us,jitter=300us", HST_IO_AUTO},
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- a run ---- */

struct ran {
    struct toy_saved weights;
    double norms[STEPS];
    uint32_t buffers;  /* of all buffer pools */
    uint32_t streamed; /* tiles */
    uint64_t dram;
};
static struct ran oracle, other; /* large: not on the stack */

static void must(struct hst_engine *engine, int rc, const char *what)
{
    if (rc)
        fail_msg("%s: %d, E%d %s", what, rc, hst_engine_error(engine)->code,
                 hst_engine_error(engine)->message);
}

/* Checkpoints of a unit: written in the forward, and the same in the backward. */
static void touch_acts(struct hst_engine *engine, uint32_t unit, const struct hst_step *step,
                       unsigned access)
{
    struct hst_stream *stream = hst_engine_stream(engine);
    for (uint32_t m = 0; m < step->micro_count; m++) {
        struct hst_act act;
        int byte = (int)((step->number * 29 + unit * 5 + m) & 255);
        must(engine, hst_act_acquire(engine, unit, m, HST_CHECKPOINT, access, stream, &act), "act");
        must(engine, hst_stream_sync(stream), "sync");
        if (access == HST_WRITE)
            memset(act.data, byte, act.size_bytes);
        for (uint64_t i = 0; i < act.size_bytes; i++)
            assert_int_equal(((unsigned char *)act.data)[i], byte);
        must(engine, hst_act_release(engine, unit, m, HST_CHECKPOINT), "act");
    }
}

static void step(struct hst_engine *engine, struct hst_step_stats *stats)
{
    const struct hst_unit_view *view;
    struct hst_stream *stream = hst_engine_stream(engine);
    struct hst_step_in in = {.size = sizeof in, .lr = TOY_LR};
    struct hst_step at;
    must(engine, hst_step_begin(engine, &in, &at), "begin");
    for (uint32_t u = 0; u < TOY_UNITS; u++) {
        must(engine, hst_unit_acquire(engine, u, HST_FORWARD, stream, &view), "forward");
        touch_acts(engine, u, &at, HST_WRITE);
        must(engine, hst_unit_release(engine, u), "forward");
    }
    for (uint32_t u = TOY_UNITS; u-- > 0;) {
        must(engine, hst_unit_acquire(engine, u, HST_BACKWARD, stream, &view), "backward");
        touch_acts(engine, u, &at, HST_READ);
        must(engine, toy_add_gradients(engine, u, view, at.loss_scale), "gradients");
        must(engine, hst_unit_grad_ready(engine, u), "backward");
        must(engine, hst_unit_release(engine, u), "backward");
    }
    must(engine, hst_step_end(engine, stats), "end");
}

static uint32_t count_buffers(const struct placement *p)
{
    uint32_t count = p->slots.count + p->act_buffers.count + p->device_acts.count;
    for (int size = 0; size < UNIT_SIZES; size++)
        count += p->reservations[size].count + p->grad_buffers[size].count +
                 p->device_weights[size].count + p->device_grads[size].count;
    return count;
}

/* Bytes of the drives' lanes, by what their nodes say. */
struct traced {
    double read_bytes, written_bytes;
};

static void add_traced(void *context, const struct hst_trace_event *event)
{
    struct traced *traced = context;
    if (strcmp(event->lane, "read") == 0)
        traced->read_bytes += event->work;
    if (strcmp(event->lane, "write") == 0)
        traced->written_bytes += event->work;
}

/* What the drives have moved since then is what nodes say that they move. */
static void check_traced(struct hst_engine *engine, struct extent_counters before,
                         const struct traced *traced)
{
    must(engine, hst_engine_drain(engine, NULL), "drain");
    if (!engine->extents)
        return;
    const struct extent_counters *now = &engine->extents->counters;
    uint64_t read = now->read_bytes - before.read_bytes;
    uint64_t written = now->written_bytes - before.written_bytes;
    if ((double)read != traced->read_bytes || (double)written != traced->written_bytes)
        fail_msg("drives read %llu and wrote %llu bytes, nodes say %.17g and %.17g",
                 (unsigned long long)read, (unsigned long long)written, traced->read_bytes,
                 traced->written_bytes);
}

static void run(const struct hst_config *config, struct ran *ran)
{
    struct traced traced = {0};
    struct hst_engine *engine = NULL;
    struct hst_error error = {0};
    struct hst_step_stats stats;
    struct hst_config c = *config;
    *ran = (struct ran){0};
    c.error = &error;
    c.trace = add_traced;
    c.trace_context = &traced;
    alarm(60); /* a hang ends the test */
    if (hst_engine_create(&c, &engine))
        fail_msg("E%d %s", error.code, error.message);
    must(engine, toy_seal_and_load(engine), "seal");
    struct extent_counters before = {0};
    if (engine->extents)
        before = engine->extents->counters;
    for (int s = 0; s < STEPS; s++) {
        step(engine, &stats);
        ran->norms[s] = stats.grad_norm;
        assert_true(stats.peak.dram <= config->dram_bytes);
    }
    check_traced(engine, before, &traced);
    must(engine, toy_save(engine, &ran->weights), "save");
    ran->buffers = count_buffers(&engine->placement);
    ran->streamed = engine->placement.streamed_tiles;
    ran->dram = engine->placement.dram_bytes;
    hst_engine_destroy(&engine);
    alarm(0);
}

/* ---- the matrix ---- */

static void check_run(const struct hst_config *c, const char *drive)
{
    run(c, &other);
    assert_true(other.dram <= c->dram_bytes);
    if (other.weights.used != oracle.weights.used ||
        memcmp(other.weights.bytes, oracle.weights.bytes, oracle.weights.used) != 0)
        fail_msg("%s on %s, %s, %u buffers, %llu tokens, clip %g: other bytes", c->place,
                 c->device ? c->device : "the host", drive, other.buffers,
                 (unsigned long long)c->batch_tokens, c->clip);
    assert_memory_equal(other.norms, oracle.norms, sizeof oracle.norms);
}

static struct hst_config config_of(uint64_t tokens, bool groups, double clip)
{
    struct hst_config c =
        *hst_config(.store = directory, .durability = "none", .batch_tokens = tokens,
                    .micro_batch_tokens = 4, .clip = clip, .tile_elements = TILE,
                    .dram_bytes = AMPLE, .precision = HST_PRECISION_FP32);
    if (groups) {
        c.group[0] = "*.norm:lr=3x,decay=0.2";
        c.group[1] = "[ab].w:beta1=0.8,eps=1e-3";
    }
    return c;
}

static uint32_t check_depths(const struct hst_config *base, size_t place, uint32_t number)
{
    uint32_t runs = 0, buffers[3] = {0};
    for (size_t d = 0; d < COUNT(DRIVES); d++)
        for (uint32_t depth = 0; depth < 3; depth++) {
            if (number++ % stride != first)
                continue;
            struct hst_config c = *base;
            c.place = PLACES[place].homes;
            c.device = PLACES[place].device;
            c.gpu_update = PLACES[place].streamed;
            c.threads = 1 + number % 3;
            c.io = DRIVES[d].io;
            c.io_model = DRIVES[d].model;
            if (PLACES[place].shares)
                share_units(&c, AMPLE, toy_describe);
            else if (depth < 2 && c.device)
                lower_budget(&c, &c.hbm_bytes, AMPLE, toy_describe);
            if (depth < 2)
                lower_budget(&c, &c.dram_bytes, AMPLE, toy_describe);
            c.dram_bytes += depth == 1 ? c.dram_bytes / 4 : 0;
            c.hbm_bytes += depth == 1 && !PLACES[place].shares ? c.hbm_bytes / 4 : 0;
            check_run(&c, DRIVES[d].name);
            assert_true(other.streamed == 0 || c.gpu_update > 0);
            if (strstr(c.place, "states=dram")) /* else drives may have them all */
                assert_true((other.streamed > 0) == (c.gpu_update > 0));
            buffers[depth] = other.buffers;
            runs++;
        }
    bool all_fixed = strstr(PLACES[place].homes, "weights="); /* or a small budget moves more */
    if (all_fixed && buffers[0] > 0 && buffers[2] > 0 && buffers[0] >= buffers[2])
        fail_msg("%s: %u buffers in the smallest budget, %u in an ample one", PLACES[place].homes,
                 buffers[0], buffers[2]);
    return runs;
}

static void the_bytes_are_those_of_the_run_in_memory(void **state)
{
    (void)state;
    uint32_t number = 0, runs = 0;
    for (size_t t = 0; t < COUNT(BATCHES); t++)
        for (size_t k = 0; k < COUNT(CLIPS); k++) {
            struct hst_config base = config_of(BATCHES[t].tokens, BATCHES[t].groups, CLIPS[k]);
            struct hst_config memory = base;
            memory.place = "states=dram,weights=dram,grads=dram,acts=dram";
            memory.threads = 1;
            run(&memory, &oracle);
            for (size_t p = 0; p < COUNT(PLACES); p++, number += 3 * COUNT(DRIVES))
                runs += check_depths(&base, p, number);
        }
    print_message("%u of %u runs\n", runs, number);
    assert_true(runs > 0);
}

static int make_directory(void **state)
{
    (void)state;
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    return rmdir(directory);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--part") == 0) {
        first = (uint32_t)strtoul(argv[2], NULL, 10);
        stride = (uint32_t)strtoul(argv[3], NULL, 10);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_are_those_of_the_run_in_memory),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
