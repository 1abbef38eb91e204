/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The toy client as one of several ranks: ranks.py starts it under mpirun and alone, and compares
 * what it prints. Its gradient is the parameter itself, by another factor in each micro-batch.
 *
 *     ranks OPTION=VALUE...     of the engine (ways=4, place=states=nvme, …); steps=N, resume=1
 */
#include "toy_client.h"

#include <hoistway/ranks.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIDEST (2400u * 64u)

struct client {
    struct hst_engine *engine;
    struct hst_part part;
    float factor; /* of the gradient of the first micro-batch */
};

static int add_gradients(const struct client *c, uint32_t unit, const struct hst_unit_view *view,
                         float factor)
{
    static float widened[WIDEST];
    struct hst_stream *stream = hst_engine_stream(c->engine);
    for (uint32_t i = 0; i < view->param_count; i++) {
        size_t n = toy_elements(&toy_units[unit].params[i]);
        struct hst_cast cast = {n, hst_engine_dtype(c->engine), HST_F32, view->param[i].data,
                                widened};
        struct hst_add add = {n, HST_F32, view->param[i].grad, widened, view->param[i].grad};
        int rc = hst_op_cast(stream, &cast);
        rc = rc ? rc : hst_stream_sync(stream);
        for (size_t k = 0; rc == 0 && k < n; k++)
            widened[k] *= factor;
        rc = rc ? rc : hst_op_add(stream, &add);
        if (rc)
            return rc;
    }
    return 0;
}

/* What a micro-batch is does not depend on who computes it: on its first token in the step. */
static int micro_backward(const struct client *c, uint32_t unit, uint32_t micro,
                          const struct hst_unit_view *view)
{
    struct hst_stream *stream = hst_engine_stream(c->engine);
    struct hst_micro found;
    struct hst_act act;
    int rc = hst_engine_micro(c->engine, micro, &found);
    rc = rc ? rc
            : hst_act_acquire(c->engine, unit, micro, HST_HIDDEN_GRAD, HST_WRITE, stream, &act);
    const uint64_t token = c->part.first_token + found.first_token;
    rc = rc ? rc : add_gradients(c, unit, view, c->factor * (0.7f + 0.31f * (float)token));
    return rc ? rc : hst_act_release(c->engine, unit, micro, HST_HIDDEN_GRAD);
}

static int visit(const struct client *c, uint32_t unit, enum hst_sweep sweep)
{
    const struct hst_unit_view *view;
    int rc = hst_unit_acquire(c->engine, unit, sweep, hst_engine_stream(c->engine), &view);
    for (uint32_t m = 0; rc == 0 && sweep == HST_BACKWARD && m < c->part.micro_count; m++)
        rc = micro_backward(c, unit, m, view);
    rc = rc || sweep != HST_BACKWARD ? rc : hst_unit_grad_ready(c->engine, unit);
    return rc ? rc : hst_unit_release(c->engine, unit);
}

static int step(struct client *c, struct hst_step_stats *stats)
{
    struct hst_step begun;
    struct hst_step_in in = {.size = sizeof in, .lr = TOY_LR};
    int rc = hst_step_begin(c->engine, &in, &begun);
    c->factor = begun.loss_scale;
    for (uint32_t u = 0; rc == 0 && u + 1 < TOY_UNITS; u++)
        rc = visit(c, u, HST_FORWARD);
    for (uint32_t u = TOY_UNITS; rc == 0 && u-- > 0;)
        rc = visit(c, u, HST_BACKWARD);
    rc = rc ? rc : hst_step_computed(c->engine);
    for (uint32_t m = 0; rc == 0 && m < c->part.micro_count; m++) {
        struct hst_micro micro;
        rc = hst_engine_micro(c->engine, m, &micro);
        const double at = (double)(c->part.first_token + micro.first_token);
        rc = rc ? rc : hst_sum_add(c->engine, 0, 0.1 + 1e-9 * at);
    }
    return rc ? rc : hst_step_end(c->engine, stats);
}

/* A parameter's bytes where they belong, in whatever order they come. */
static int collect(void *context, const struct hst_param_ref *param, uint64_t offset,
                   const void *src, size_t count, enum hst_dtype dtype)
{
    unsigned char *bytes = context;
    uint64_t at = offset;
    for (uint32_t u = 0; u < TOY_UNITS; u++)
        for (uint32_t p = 0; p < toy_units[u].count; p++)
            if (u < param->unit || (u == param->unit && p < param->param))
                at += toy_elements(&toy_units[u].params[p]);
    memcpy(bytes + at * sizeof(float), src, count * hst_dtype_bytes(dtype));
    return 0;
}

static int print_weights(const struct client *c)
{
    static unsigned char bytes[2 * TOY_ELEMENTS * sizeof(float)];
    uint64_t digest = 0xcbf29ce484222325ull;
    int rc = hst_engine_save_masters(c->engine, &(struct hst_writer){collect, bytes});
    for (size_t i = 0; i < sizeof bytes; i++)
        digest = (digest ^ bytes[i]) * 0x100000001b3ull;
    if (rc == 0 && c->part.rank == 0)
        printf("weights %016llx\n", (unsigned long long)digest);
    return rc;
}

static int run(struct client *c, uint64_t steps, bool resume)
{
    uint64_t at = 0;
    size_t cursor;
    int rc = toy_describe(c->engine);
    rc = rc ? rc : hst_engine_seal(c->engine, HST_ORDER_FORWARD);
    rc = rc ? rc : hst_engine_part(c->engine, &c->part);
    rc = rc ? rc
            : resume ? hst_engine_resume(c->engine, &at, NULL, 0, &cursor) : toy_load(c->engine);
    while (rc == 0 && at < steps) {
        struct hst_step_stats stats;
        rc = step(c, &stats);
        at++;
        if (rc == 0 && c->part.rank == 0)
            printf("step %llu norm %a sum %a net %llu\n", (unsigned long long)stats.step,
                   stats.grad_norm, stats.sums[0], (unsigned long long)stats.bytes.net);
    }
    rc = rc ? rc : hst_engine_drain(c->engine, NULL);
    return rc ? rc : print_weights(c);
}

static void tell(void *context, enum hst_log_level level, const char *line)
{
    (void)context;
    if (level == HST_LOG_WARNING)
        fprintf(stderr, "%s\n", line);
}

static const struct hst_option *find_option(const char *name)
{
    size_t count;
    const struct hst_option *options = hst_engine_options(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

int main(int argc, char **argv)
{
    struct hst_launch launch;
    struct hst_error error = {0};
    struct hst_config config = {.size = sizeof config,
                                .batch_tokens = 24,
                                .micro_batch_tokens = 4,
                                .tile_elements = 4096,
                                .threads = 1,
                                .dram_bytes = 64u << 20,
                                .durability = "none",
                                .launch = &launch,
                                .log = tell,
                                .error = &error};
    uint64_t steps = 3, resume = 0;
    char why[200];
    if (hst_launch_read(NULL, NULL, &launch, why)) {
        fprintf(stderr, "%s\n", why);
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        const struct hst_option *option;
        if (!value)
            return 2;
        *value++ = '\0';
        if (strcmp(argv[i], "steps") == 0 || strcmp(argv[i], "resume") == 0) {
            *(argv[i][0] == 's' ? &steps : &resume) = strtoull(value, NULL, 10);
            continue;
        }
        option = find_option(argv[i]);
        if (!option || hst_option_parse(option, value, &config, why, sizeof why)) {
            fprintf(stderr, "%s=%s: %s\n", argv[i], value, why);
            return 2;
        }
    }
    struct client c = {.engine = NULL};
    int rc = hst_engine_create(&config, &c.engine);
    rc = rc ? rc : run(&c, steps, resume);
    if (rc) {
        const struct hst_error *told = c.engine ? hst_engine_error(c.engine) : &error;
        fprintf(stderr, "rank %u: E%d %s (%d)\n", launch.rank, told->code, told->message, rc);
        fflush(stderr);
        hst_engine_abort(c.engine, 1);
    }
    hst_engine_destroy(&c.engine);
    return rc ? 1 : 0;
}
