/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The toy client as one of several ranks: ranks.py starts it under mpirun and alone, and compares
 * what it prints. Its gradient is the parameter itself, by another factor in each micro-batch.
 *
 *     ranks OPTION=VALUE...     of the engine (ways=4, place=states=nvme, …), and
 *
 *     steps=N, resume=1
 *     eval=N,TIMES              behind each step so many evaluations, which visit the first N units
 *     end=HOW,RANK,STEP,VISIT   kill, segv, exit or stop: how this rank ends before its so manieth
 *                               visit of a step; ALL_VISITS when its end is asked for, and one more
 *                               when it has ended; STEP=N, 0: when all is over
 *     device=NAME               in place of the host, whose bytes it has
 *     rates=X                   all rates of the machine; it tells what was planned
 *     only=RANK,OPTION=VALUE    an option of this rank alone
 *     stray=STEP                this step's forward has its first two units in the other order
 *     swap=RANK                 two of its operations with the others change places in its graph
 */
#include "session/engine_state.h"
#include "toy_client.h"

#include <hoistway/predict.h>
#include <hoistway/ranks.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WIDEST     (2400u * 64u)
#define ALL_VISITS (2 * TOY_UNITS - 1) /* of a step: the forward leaves out the head */

/* Where a rank ends of itself. */
struct early_end {
    char how[8];
    uint32_t rank, step, visit;
};

struct client {
    struct hst_engine *engine;
    struct hst_part part;
    float factor;   /* of the gradient of the first micro-batch */
    uint64_t at;    /* steps that are over */
    uint64_t stray; /* the step that leaves the order of visits */
    uint32_t visits, eval_units, eval_times;
    struct early_end end;
    bool rates; /* are known */
};

static uint32_t swapping = UINT32_MAX; /* the rank whose operations do */

int __real_ranks_compare_graphs(struct hst_engine *engine);
int __wrap_ranks_compare_graphs(struct hst_engine *engine);
int __wrap_ranks_compare_graphs(struct hst_engine *engine)
{
    uint32_t *net = engine->exec.step.graph.lane[LANE_NET];
    if (engine->ranks.rank == swapping) {
        const uint32_t first = net[0];
        net[0] = net[1];
        net[1] = first;
    }
    return __real_ranks_compare_graphs(engine);
}

static void end_early(const struct client *c)
{
    const struct early_end *end = &c->end;
    if (end->rank != c->part.rank || end->step != c->at || end->visit != c->visits || !*end->how)
        return;
    if (strcmp(end->how, "exit") == 0)
        _exit(0); /* mpirun hears of no failure */
    raise(strcmp(end->how, "stop") == 0   ? SIGSTOP
          : strcmp(end->how, "segv") == 0 ? SIGSEGV
                                          : SIGKILL);
}

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
        rc = rc ? rc : hst_stream_sync(stream); /* it has read `widened` */
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
    rc =
        rc ? rc : hst_act_acquire(c->engine, unit, micro, HST_HIDDEN_GRAD, HST_WRITE, stream, &act);
    const uint64_t token = c->part.first_token + found.first_token;
    rc = rc ? rc : add_gradients(c, unit, view, c->factor * (0.7f + 0.31f * (float)token));
    return rc ? rc : hst_act_release(c->engine, unit, micro, HST_HIDDEN_GRAD);
}

static int visit(struct client *c, uint32_t unit, enum hst_sweep sweep)
{
    const struct hst_unit_view *view;
    if (sweep != HST_EVAL)
        end_early(c);
    c->visits++;
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
    c->visits = 0;
    for (uint32_t u = 0; rc == 0 && u + 1 < TOY_UNITS; u++)
        rc = visit(c, c->at == c->stray && u < 2 ? 1 - u : u, HST_FORWARD);
    for (uint32_t u = TOY_UNITS; rc == 0 && u-- > 0;)
        rc = visit(c, u, HST_BACKWARD);
    end_early(c);
    rc = rc ? rc : hst_step_computed(c->engine);
    for (uint32_t m = 0; rc == 0 && m < c->part.micro_count; m++) {
        struct hst_micro micro;
        rc = hst_engine_micro(c->engine, m, &micro);
        const double at = (double)(c->part.first_token + micro.first_token);
        rc = rc ? rc : hst_sum_add(c->engine, 0, 0.1 + 1e-9 * at);
    }
    return rc ? rc : hst_step_end(c->engine, stats);
}

/* Bytes that this rank has read where others of its node have them. */
static uint64_t in_place(const struct client *c)
{
    struct comm_info info = {0};
    if (c->engine->comm)
        comm_info(c->engine->comm, &info);
    return info.in_place_bytes;
}

static int evaluate_unit(struct client *c, uint32_t unit)
{
    const struct hst_unit_view *view;
    struct hst_stream *stream = hst_engine_stream(c->engine);
    int rc = hst_unit_acquire(c->engine, unit, HST_EVAL, stream, &view);
    for (uint32_t i = 0; rc == 0 && i < view->param_count; i++) {
        static float widened[WIDEST];
        const size_t n = toy_elements(&toy_units[unit].params[i]);
        const struct hst_cast cast = {n, hst_engine_dtype(c->engine), HST_F32, view->param[i].data,
                                      widened};
        rc = hst_op_cast(stream, &cast);
        rc = rc ? rc : hst_stream_sync(stream);
        /* each rank has a part of the elements, as of an evaluation's rows */
        for (size_t k = c->part.rank; rc == 0 && k < n; k += c->part.ranks)
            rc = hst_sum_add(c->engine, 1, widened[k] * (double)(1 + k % 7));
    }
    return rc ? rc : hst_unit_release(c->engine, unit);
}

/* What it sees of the weights is agreed on. */
static int evaluate(struct client *c)
{
    double sums[HST_SUMS];
    int rc = 0;
    if (c->eval_times == 0)
        return 0;
    for (uint32_t i = 0; rc == 0 && i < c->eval_times * c->eval_units; i++)
        rc = evaluate_unit(c, i % c->eval_units);
    rc = rc ? rc : hst_sum_agree(c->engine, sums);
    if (rc == 0 && c->part.rank == 0)
        printf("evaluation %a\n", sums[1]);
    return rc;
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

/* Rank 0's writer alone has anything to write. */
static int refuse(void *context, const struct hst_param_ref *param, uint64_t offset,
                  const void *src, size_t count, enum hst_dtype dtype)
{
    (void)context, (void)param, (void)offset, (void)src, (void)count, (void)dtype;
    return -EPERM;
}

static int print_weights(const struct client *c)
{
    static unsigned char bytes[2 * TOY_ELEMENTS * sizeof(float)];
    uint64_t digest = 0xcbf29ce484222325ull;
    const struct hst_writer writer = {c->part.rank == 0 ? collect : refuse, bytes};
    int rc = hst_engine_save_masters(c->engine, &writer);
    for (size_t i = 0; i < sizeof bytes; i++)
        digest = (digest ^ bytes[i]) * 0x100000001b3ull;
    if (rc == 0 && c->part.rank == 0)
        printf("weights %016llx\n", (unsigned long long)digest);
    return rc;
}

/* As it was planned, by what all ranks know. */
static int print_plan(const struct client *c)
{
    struct hst_decision d;
    int rc = hst_engine_decision(c->engine, &d);
    if (rc == 0)
        fprintf(stderr, "rank %u plans a step of %a s, else %a s: %s, %s, %g late\n", c->part.rank,
                d.step_s, d.usual_step_s, d.homes, d.update, d.late_share);
    return rc;
}

/* What is given is a node's. The others speak of themselves alone where they take too much. */
static int check_peak(const struct client *c, const struct hst_step_stats *stats)
{
    const uint64_t own = c->engine->config.dram_bytes / c->engine->ranks.locals;
    if (stats->peak.dram > 0 && stats->peak.dram <= own)
        return 0;
    fprintf(stderr, "rank %u: a peak of %llu bytes, of %llu that are its own\n", c->part.rank,
            (unsigned long long)stats->peak.dram, (unsigned long long)own);
    return -ENOMEM;
}

static int run(struct client *c, uint64_t steps, bool resume)
{
    size_t cursor;
    int rc = toy_describe(c->engine);
    rc = rc ? rc : hst_engine_seal(c->engine, HST_ORDER_FORWARD);
    rc = rc ? rc : hst_engine_part(c->engine, &c->part);
    rc = rc || !c->rates ? rc : print_plan(c);
    rc = rc       ? rc
         : resume ? hst_engine_resume(c->engine, &c->at, NULL, 0, &cursor)
                  : toy_load(c->engine);
    while (rc == 0 && c->at < steps) {
        struct hst_step_stats stats;
        rc = step(c, &stats);
        rc = rc ? rc : check_peak(c, &stats);
        c->visits++;
        end_early(c);
        c->at++;
        if (rc == 0 && c->part.rank == 0)
            printf("step %llu norm %a sum %a net %llu, %llu so far in place, peak %llu\n",
                   (unsigned long long)stats.step, stats.grad_norm, stats.sums[0],
                   (unsigned long long)stats.bytes.net, (unsigned long long)in_place(c),
                   (unsigned long long)stats.peak.dram);
        rc = rc ? rc : evaluate(c);
    }
    rc = rc ? rc : hst_engine_drain(c->engine, NULL);
    rc = rc ? rc : print_weights(c);
    c->visits = 0;
    end_early(c);
    return rc;
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

static bool set_option(struct hst_config *config, const char *name, const char *value)
{
    char why[200] = "there is no such option";
    const struct hst_option *option = find_option(name);
    if (option && hst_option_parse(option, value, config, why, sizeof why) == 0)
        return true;
    fprintf(stderr, "%s=%s: %s\n", name, value, why);
    return false;
}

/* What the program is called with beside the engine's options. */
struct called {
    uint64_t steps, resume;
    struct client client;
    struct hst_config config;
    struct hst_rates rates;
};

static void set_rates(struct called *called, double rate)
{
    for (int r = 0; r < HST_RATE_COUNT; r++)
        called->rates.figures[r].value = rate;
    called->config.rates = &called->rates;
    called->client.rates = true;
}

/* A word NAME=VALUE; values last as long as the program's arguments. */
static bool take(struct called *called, uint32_t rank, char *word)
{
    struct early_end *end = &called->client.end;
    char *value = strchr(word, '='), *comma = value ? strchr(value, ',') : NULL;
    if (!value)
        return false;
    *value++ = '\0';
    if (strcmp(word, "steps") == 0 || strcmp(word, "resume") == 0)
        *(word[0] == 's' ? &called->steps : &called->resume) = strtoull(value, NULL, 10);
    else if (strcmp(word, "eval") == 0)
        return sscanf(value, "%u,%u", &called->client.eval_units, &called->client.eval_times) == 2;
    else if (strcmp(word, "end") == 0)
        return sscanf(value, "%7[a-z],%u,%u,%u", end->how, &end->rank, &end->step, &end->visit) ==
               4;
    else if (strcmp(word, "device") == 0)
        called->config.device = value;
    else if (strcmp(word, "rates") == 0)
        set_rates(called, strtod(value, NULL));
    else if (strcmp(word, "stray") == 0)
        called->client.stray = strtoull(value, NULL, 10);
    else if (strcmp(word, "swap") == 0)
        swapping = (uint32_t)strtoul(value, NULL, 10);
    else if (strcmp(word, "only") == 0 && comma)
        return strtoul(value, NULL, 10) != rank || take(called, rank, comma + 1);
    else
        return set_option(&called->config, word, value);
    return true;
}

int main(int argc, char **argv)
{
    struct hst_launch launch;
    struct hst_error error = {0};
    struct called called = {.steps = 3,
                            .client = {.stray = UINT64_MAX},
                            .config = {.size = sizeof called.config,
                                       .batch_tokens = 24,
                                       .micro_batch_tokens = 4,
                                       .tile_elements = 4096,
                                       .threads = 1,
                                       .dram_bytes = 64u << 20,
                                       .durability = "none",
                                       .launch = &launch,
                                       .log = tell,
                                       .error = &error}};
    struct client *c = &called.client;
    char why[200];
    if (hst_launch_read(NULL, NULL, &launch, why)) {
        fprintf(stderr, "%s\n", why);
        return 2;
    }
    for (int i = 1; i < argc; i++)
        if (!take(&called, launch.rank, argv[i]))
            return 2;
    int rc = hst_engine_create(&called.config, &c->engine);
    rc = rc ? rc : run(c, called.steps, called.resume);
    if (rc) {
        const struct hst_error *told = c->engine ? hst_engine_error(c->engine) : &error;
        fprintf(stderr, "rank %u: E%d %s (%d)\n", launch.rank, told->code, told->message, rc);
        fflush(stderr);
        hst_engine_abort(c->engine, 1);
    }
    hst_engine_destroy(&c->engine);
    return rc ? 1 : 0;
}
