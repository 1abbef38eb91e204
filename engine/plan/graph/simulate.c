/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A discrete-event simulation of fluid lanes: nothing changes between two ends of nodes, so time
 * jumps from one to the next. Which node may start is the scheduler's decision, not made again
 * here.
 */
#include "plan/graph/simulate.h"

#include "plan/graph/scheduler.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define STEP_WINDOWS_DEFAULT 6u
#define HOPELESS_BY          1e-6 /* above what rounding may be */
/* A node that ends within this share of a jump ends with it: the same seconds were summed
 * otherwise. */
#define SAME_TIME 1e-12
/* Likewise of where two steps ended, as a share of a step. */
#define SAME_PLACE 1e-9

/* It tells where lanes are as a step ends, counted from its own nodes on. What is done, which
 * buffers are lent and what is to come all follow from it. */
struct ending {
    uint64_t step_window;
    double at_s;
    uint64_t opened, started[LANE_COUNT];
    uint32_t under_way[LANE_COUNT];
    double left_s[LANE_COUNT];
};

struct lane_run {
    struct scheduled *queue; /* started, in order; the first one is served */
    uint32_t first, count, room;
    double left_s;  /* of the node that is served, at full speed */
    double until_s; /* its end, from now on, at its speed */
    double dram;    /* bytes/s that it asks of host memory then */
    double speed;   /* now, of the full one */
    double start_s; /* when it began */
};

struct run {
    const struct sim_in *in;
    struct scheduler scheduler;
    struct lane_run lane[LANE_COUNT];
    /* Sets of lanes: those that have nodes; that serve one; that may do something now; whose next
       node was found not to be ready; that have none before a step window is opened. */
    uint32_t used, busy, awake, held, over;
    uint32_t step_windows;
    double mixed_speed, busy_speed; /* sim_mixed_speed, sim_busy_speed */
    double now_s;
    double ended_s[4];  /* of steps: the first, where measuring begins and ends, the last */
    double compute_s;   /* of the computation alone, of a step; known where there is a limit */
    double stalled_s;   /* it stood still so long while steps were measured */
    bool step_ended;    /* since the last jump */
    struct ending last; /* of the step before; step_window 0: of none with an update */
    double repeated_s;  /* of a step that ended as the one before; 0: none has */
    struct sim *sim;
};

/* ---- seconds and speeds ---- */

/* fmin and fmax are calls, where nothing is a NaN. */
static double least(double a, double b)
{
    return a < b ? a : b;
}

static double most(double a, double b)
{
    return a > b ? a : b;
}

static double over(double work, double rate)
{
    return rate > 0 ? work / rate : 0;
}

static double visit_seconds(const struct sim_rates *r, const struct node *node,
                            const double *measured)
{
    return measured ? measured[node->unit] : over(node->work, r->flops_per_s);
}

static double messages_seconds(const struct sim_net *net, const struct node *node)
{
    return node->kind == NODE_GATHER        ? net->gather_messages_s
           : node->kind == NODE_GATHER_NEAR ? net->near_messages_s
           : node->kind == NODE_EXCHANGE    ? net->exchange_messages_s
                                            : 0;
}

/* A gather of a unit's weights and of others' that it reads is an operation for each. */
static double net_seconds(const struct sim_net *net, const struct node *node)
{
    const bool exchange = node->kind == NODE_EXCHANGE;
    const double crossing = exchange                         ? net->exchange_crossing
                            : node->kind == NODE_GATHER_NEAR ? 0
                                                             : net->gather_crossing;
    const double operations = node->operand_count > 1 ? node->operand_count : 1;
    const bool gathers = node->kind == NODE_GATHER;
    const double in_node = 1 - (gathers ? net->gather_saved : exchange ? net->exchange_saved : 0);
    const double between = 1 - (gathers    ? net->gather_saved_between
                                : exchange ? net->exchange_saved_between
                                           : 0);
    return operations * (net->operation_s + messages_seconds(net, node)) +
           over(node->work * (1 - crossing) * in_node, exchange ? net->exchange : net->gather) +
           over(node->work * crossing * between, net->between);
}

static double lane_seconds(const struct sim_rates *r, const struct node *node)
{
    switch ((enum node_kind)node->kind) {
    case NODE_UPDATE:
        return over(node->work, node->lane == LANE_UPDATE ? r->update : r->device_update);
    case NODE_NORM:
        return over(node->work, r->norm);
    case NODE_FORWARD:
        return visit_seconds(r, node, r->forward_s);
    case NODE_RECOMPUTE:
        return visit_seconds(r, node, r->recompute_s);
    case NODE_BACKWARD:
        return visit_seconds(r, node, r->backward_s);
    default:
        break;
    }
    switch ((enum lane)node->lane) {
    case LANE_READ:
        return over(node->work, r->read);
    case LANE_WRITE:
        return over(node->work, r->write);
    case LANE_H2D:
        return over(node->work, r->h2d);
    case LANE_D2H:
        return over(node->work, r->d2h);
    case LANE_NET:
        return net_seconds(&r->net, node);
    default:
        return 0;
    }
}

double sim_node_seconds(const struct sim_rates *rates, const struct node *node)
{
    return most(lane_seconds(rates, node), over(node->dram_bytes, rates->dram));
}

double sim_mixed_speed(const struct sim_rates *rates)
{
    bool limited = rates->mixed > 0 && rates->read > 0 && rates->write > 0;
    return limited ? least(rates->mixed / (rates->read + rates->write), 1) : 1;
}

double sim_busy_speed(const struct sim_rates *rates)
{
    const double idle = rates->mixed > 0 ? rates->mixed : rates->read + rates->write;
    return rates->mixed_busy > 0 && idle > 0 ? least(rates->mixed_busy / idle, 1) : 1;
}

static uint32_t set_of(enum lane lane)
{
    return 1u << lane;
}

/* Takes the first lane out of a set that has any. */
static enum lane take_lane(uint32_t *set)
{
    const int lane = __builtin_ctz(*set);
    *set &= *set - 1;
    return (enum lane)lane;
}

static bool are_busy(const struct run *run, enum lane a, enum lane b)
{
    return (run->busy & set_of(a)) && (run->busy & set_of(b));
}

static double drives_speed(const struct run *run)
{
    const uint32_t cores = set_of(LANE_COMPUTE) | set_of(LANE_UPDATE);
    const bool computes = run->in->rates.shared_cores && (run->busy & cores);
    return (are_busy(run, LANE_READ, LANE_WRITE) ? run->mixed_speed : 1) *
           (computes ? run->busy_speed : 1);
}

static void set_speeds(struct run *run)
{
    const struct sim_rates *r = &run->in->rates;
    struct lane_run *l = run->lane;
    double dram = 0;
    for (uint32_t set = run->busy; set;)
        l[take_lane(&set)].speed = 1;
    l[LANE_READ].speed = l[LANE_WRITE].speed = drives_speed(run);
    if (r->shared_cores && are_busy(run, LANE_COMPUTE, LANE_UPDATE))
        l[LANE_COMPUTE].speed = l[LANE_UPDATE].speed = 0.5;
    if (r->dram <= 0)
        return;
    for (uint32_t set = run->busy; set;) {
        const struct lane_run *of = &l[take_lane(&set)];
        dram += of->speed * of->dram;
    }
    for (uint32_t set = dram > r->dram ? run->busy : 0; set;) {
        struct lane_run *of = &l[take_lane(&set)];
        of->speed *= of->dram > 0 ? r->dram / dram : 1;
    }
}

/* ---- what ends ---- */

static void count_buffers(struct run *run)
{
    for (int p = 0; p < POOL_COUNT && !run->in->brief; p++) {
        uint32_t lent = run->in->graph->buffers[p] - run->scheduler.free_count[p];
        if (run->sim->peak[p] < lent)
            run->sim->peak[p] = lent;
    }
}

/* The last computation of a step window ends its step. */
static void note_step(struct run *run, struct scheduled at)
{
    const struct graph *g = run->in->graph;
    if (g->lane_count[LANE_COMPUTE] == 0 ||
        at.node != g->lane[LANE_COMPUTE][g->lane_count[LANE_COMPUTE] - 1])
        return;
    run->step_ended = true;
    const uint64_t steps[] = {0, run->step_windows / 2, run->step_windows, run->step_windows + 1};
    for (int i = 0; i < 4; i++)
        if (at.step_window == steps[i])
            run->ended_s[i] = run->now_s;
}

/* A lane's reason to wait may be gone. */
static void wake(struct run *run)
{
    for (uint32_t set = run->held; set;) {
        const enum lane lane = take_lane(&set);
        if (scheduler_is_held(&run->scheduler, lane))
            continue;
        run->awake |= set_of(lane);
        run->held &= ~set_of(lane);
    }
}

static void end_node(struct run *run, enum lane lane)
{
    struct lane_run *l = &run->lane[lane];
    const struct scheduled at = {l->queue[l->first].step_window, l->queue[l->first].node};
    l->first = l->first + 1 < l->room ? l->first + 1 : 0;
    l->count--;
    run->busy &= ~set_of(lane);
    scheduler_done(&run->scheduler, at);
    wake(run);
    if (run->in->node)
        run->in->node(run->in->context, at.step_window, at.node, l->start_s, run->now_s);
    note_step(run, at);
}

/* ---- what begins ---- */

static void serve(struct run *run, enum lane lane)
{
    struct lane_run *l = &run->lane[lane];
    const struct scheduled *at = &l->queue[l->first];
    const struct node *node = &run->in->graph->nodes[at->node];
    bool nothing =
        node_kind_is_retained(node->kind) && scheduler_was_retained(&run->scheduler, *at);
    run->busy |= set_of(lane);
    l->left_s = nothing ? 0 : sim_node_seconds(&run->in->rates, node);
    l->dram = l->left_s > 0 ? node->dram_bytes / l->left_s : 0;
    l->start_s = run->now_s;
}

static bool start_nodes(struct run *run, enum lane lane)
{
    struct lane_run *l = &run->lane[lane];
    struct scheduled at;
    bool any = false;
    enum scheduler_turn turn;
    while ((turn = scheduler_start_next(&run->scheduler, lane, &at)) == TURN_STARTED) {
        if (l->count == 0)
            l->first = 0; /* memory that was used lately */
        uint32_t end = l->first + l->count++;
        end -= end >= l->room ? l->room : 0;
        l->queue[end].step_window = at.step_window;
        l->queue[end].node = at.node;
        any = true;
    }
    run->held |= turn == TURN_HELD ? set_of(lane) : 0;
    run->over |= turn == TURN_NONE ? set_of(lane) : 0;
    if (any)
        wake(run);
    return any;
}

/* The first step has no update behind it; after the last one there is an update alone. A step that
 * is measured has another one behind it. */
static bool open_step_window(struct run *run)
{
    uint64_t next = run->scheduler.opened, drain = (uint64_t)run->step_windows + 2;
    if (next > drain || !scheduler_may_open(&run->scheduler))
        return false;
    unsigned phases = PHASES_TRAIN | run->in->phases;
    if (next == 0)
        phases = (unsigned)PHASE_FORWARD | PHASE_BACKWARD;
    if (next == drain)
        phases = PHASE_UPDATE | run->in->phases;
    scheduler_open(&run->scheduler, phases);
    run->awake = run->used;
    run->held = run->over = 0;
    return true;
}

/* Starts what may start in a lane, and ends what takes no time. False where there was neither. */
static bool visit_lane(struct run *run, enum lane lane)
{
    const struct lane_run *l = &run->lane[lane];
    run->awake &= ~set_of(lane);
    const bool asks = !((run->held | run->over) & set_of(lane));
    const bool started = asks && start_nodes(run, lane);
    if (!(run->busy & set_of(lane)) && l->count > 0)
        serve(run, lane);
    if (!(run->busy & set_of(lane)) || l->left_s > 0)
        return started;
    end_node(run, lane);
    run->awake |= set_of(lane);
    return true;
}

/* All that may start now, and what takes no time, lane by lane in their order. */
static void settle(struct run *run)
{
    bool any = true;
    while (any) {
        any = open_step_window(run);
        for (uint32_t from = 0, set; (set = run->awake >> from) != 0;) {
            const enum lane lane = (enum lane)(from + (uint32_t)__builtin_ctz(set));
            from = lane + 1u;
            any |= visit_lane(run, lane);
        }
        count_buffers(run);
    }
}

/* ---- time ---- */

/* The lane that the computation waits for: what it waits for, what that waits for, and so on until
 * something is being done. Each wait is for an earlier node, so this ends. */
static enum lane blamed(struct run *run)
{
    enum lane lane = LANE_COMPUTE;
    while (!(run->busy & set_of(lane))) {
        struct scheduled head, on;
        if (!scheduler_next(&run->scheduler, lane, &head) ||
            !scheduler_waits_for(&run->scheduler, head, &on))
            break;
        lane = (enum lane)run->in->graph->nodes[on.node].lane;
    }
    return lane;
}

static void account(struct run *run, double seconds)
{
    if (run->ended_s[1] == 0 || run->ended_s[2] > 0)
        return; /* before or after what is measured */
    const bool stalls = !(run->busy & set_of(LANE_COMPUTE));
    run->stalled_s += stalls ? seconds : 0;
    if (run->in->brief)
        return;
    for (uint32_t set = run->busy; set;)
        run->sim->busy_s[take_lane(&set)] += seconds;
    if (stalls)
        run->sim->stall_s[blamed(run)] += seconds;
}

/* ---- steps that repeat ---- */

static struct ending ending_of(const struct run *run)
{
    const struct scheduler *scheduler = &run->scheduler;
    const struct graph *g = run->in->graph;
    const struct scheduler_place *compute = &scheduler->lane[LANE_COMPUTE];
    const bool whole = compute->at == g->lane_count[LANE_COMPUTE];
    struct ending e = {.at_s = run->now_s};
    e.step_window = compute->step_window - (whole ? 0 : 1);
    e.opened = scheduler->opened - e.step_window;
    for (int l = 0; l < LANE_COUNT; l++) {
        const struct scheduler_place *place = &scheduler->lane[l];
        e.started[l] = (place->step_window - e.step_window) * g->lane_count[l] + place->at;
        e.under_way[l] = run->lane[l].count;
        e.left_s[l] = run->busy & set_of((enum lane)l) ? run->lane[l].left_s : 0;
    }
    return e;
}

static bool end_alike(const struct ending *a, const struct ending *b)
{
    const double least_s = SAME_PLACE * (b->at_s - a->at_s);
    bool alike = a->opened == b->opened;
    for (int l = 0; l < LANE_COUNT; l++)
        alike = alike && a->started[l] == b->started[l] && a->under_way[l] == b->under_way[l] &&
                fabs(a->left_s[l] - b->left_s[l]) <= least_s;
    return alike;
}

/* The first step has no update behind it, and so is no step like the others. */
static bool repeats(struct run *run)
{
    if (!run->in->brief || !run->step_ended)
        return false;
    run->step_ended = false;
    const struct ending now = ending_of(run), last = run->last;
    run->last = now;
    if (last.step_window == 0 || now.step_window != last.step_window + 1 || !end_alike(&last, &now))
        return false;
    run->repeated_s = now.at_s - last.at_s;
    return true;
}

/* ---- what is not worth an end ---- */

static uint32_t measured_steps(const struct run *run)
{
    return run->step_windows - run->step_windows / 2;
}

/* Steps end with a computation: the measured ones take what they compute and have stood still. */
static bool is_hopeless(const struct run *run)
{
    const double steps = measured_steps(run), limit_s = run->in->limit_s;
    return limit_s > 0 &&
           run->stalled_s + steps * run->compute_s > steps * limit_s * (1 + HOPELESS_BY);
}

/* Whatever else a lane waits for, it has no more speed than its own. */
static double computation(const struct sim_in *in)
{
    const struct graph *g = in->graph;
    double seconds = 0;
    for (uint32_t i = 0; i < g->lane_count[LANE_COMPUTE]; i++) {
        const struct node *node = &g->nodes[g->lane[LANE_COMPUTE][i]];
        if (node->phases & (PHASES_TRAIN | in->phases))
            seconds += sim_node_seconds(&in->rates, node);
    }
    return seconds;
}

/* To the next end of a node. False where nothing is being done. */
static bool jump(struct run *run)
{
    double seconds = INFINITY;
    set_speeds(run);
    for (uint32_t set = run->busy; set;) {
        struct lane_run *lane = &run->lane[take_lane(&set)];
        lane->until_s = lane->left_s / lane->speed;
        seconds = least(seconds, lane->until_s);
    }
    if (isinf(seconds))
        return false;
    account(run, seconds);
    run->now_s += seconds;
    for (uint32_t set = run->busy; set;) {
        const enum lane of = take_lane(&set);
        struct lane_run *lane = &run->lane[of];
        const bool ends = lane->until_s <= seconds * (1 + SAME_TIME);
        lane->left_s = ends ? 0 : lane->left_s - seconds * lane->speed;
        run->awake |= ends ? set_of(of) : 0;
    }
    return true;
}

static void summarize(struct run *run)
{
    struct sim *sim = run->sim;
    double steps = measured_steps(run);
    sim->first_s = run->ended_s[0];
    sim->step_s = (run->ended_s[2] - run->ended_s[1]) / steps;
    sim->drain_s = run->now_s - run->ended_s[3];
    for (int l = 0; l < LANE_COUNT; l++) {
        sim->busy_s[l] /= steps;
        sim->stall_s[l] /= steps;
        if (sim->busy_s[l] > sim->busy_s[sim->bound_by])
            sim->bound_by = (enum lane)l;
    }
}

static int run_open(struct run *run)
{
    int rc = scheduler_init(&run->scheduler, run->in->graph);
    for (int l = 0; l < LANE_COUNT && rc == 0; l++) {
        run->used |= run->in->graph->lane_count[l] > 0 ? set_of((enum lane)l) : 0;
        run->lane[l].room = SCHEDULER_WINDOWS * run->in->graph->lane_count[l] + 1;
        run->lane[l].queue = malloc(run->lane[l].room * sizeof *run->lane[l].queue);
        rc = run->lane[l].queue ? 0 : -ENOMEM;
    }
    return rc;
}

static void run_close(struct run *run)
{
    for (int l = 0; l < LANE_COUNT; l++)
        free(run->lane[l].queue);
    scheduler_free(&run->scheduler);
}

int simulate(const struct sim_in *in, struct sim *sim)
{
    struct sim result = {0};
    struct run run = {.in = in,
                      .sim = &result,
                      .mixed_speed = sim_mixed_speed(&in->rates),
                      .busy_speed = sim_busy_speed(&in->rates)};
    run.step_windows = in->step_windows ? in->step_windows : STEP_WINDOWS_DEFAULT;
    int rc = run_open(&run);
    if (rc == 0 && in->limit_s > 0)
        run.compute_s = computation(in);
    const bool hopeless_at_once = is_hopeless(&run);
    if (rc == 0 && !hopeless_at_once) {
        do
            settle(&run);
        while (!is_hopeless(&run) && !repeats(&run) && jump(&run));
        const bool idle = scheduler_is_idle(&run.scheduler);
        rc = is_hopeless(&run) || run.repeated_s > 0 || idle ? 0 : -EDEADLK;
    }
    run_close(&run);
    if (rc)
        return rc;
    if (in->brief) /* nothing but the ends of steps was looked at */
        result = (struct sim){.step_s = run.repeated_s > 0 ? run.repeated_s
                                                           : (run.ended_s[2] - run.ended_s[1]) /
                                                                 measured_steps(&run)};
    else
        summarize(&run);
    if (is_hopeless(&run))
        result.step_s = INFINITY;
    *sim = result;
    return 0;
}
