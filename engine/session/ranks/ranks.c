/* SPDX-License-Identifier: Apache-2.0 */
#include "session/ranks/ranks.h"

#include "base/size_text.h"
#include "comm/report.h"
#include "exec/visit/execute.h"
#include "machine/machine.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { TEXT_BYTES = 256 }; /* of what ranks compare */
enum { FIX_BYTES = 128 };

/* What is agreed on outside of steps is waited for however long ranks take to load, or to read. */
static int agree(struct hst_engine *engine, struct comm_op op)
{
    uint64_t ticket;
    op.patient = true;
    int rc = comm_begin(engine->comm, &op, &ticket);
    rc = rc ? rc : comm_wait(engine->comm, ticket);
    return rc ? comm_report(engine->comm, &engine->report, 0, rc) : 0;
}

int ranks_sum(struct hst_engine *engine, int64_t *values, size_t count)
{
    const struct comm_op op = {
        .kind = COMM_SUM64, .name = "sums", .in = values, .out = values, .count = count};
    return engine->comm ? agree(engine, op) : 0;
}

int ranks_take(struct hst_engine *engine, const char *name, uint32_t root, void *memory,
               size_t size_bytes)
{
    const struct comm_op op = {.kind = COMM_BCAST,
                               .name = name,
                               .in = memory,
                               .out = memory,
                               .count = size_bytes,
                               .root = root};
    return engine->comm ? agree(engine, op) : 0;
}

int ranks_take_first(struct hst_engine *engine, void *memory, size_t size_bytes)
{
    return ranks_take(engine, "rank 0's word", 0, memory, size_bytes);
}

bool ranks_tells(const struct hst_engine *engine)
{
    return !engine->comm || engine->config.launch->rank == 0;
}

int ranks_share_all(struct hst_engine *engine, const char *name, const void *own, void *all,
                    size_t size_bytes)
{
    if (!engine->comm) {
        memcpy(all, own, size_bytes);
        return 0;
    }
    return agree(engine,
                 (struct comm_op){
                     .kind = COMM_SHARE, .name = name, .in = own, .out = all, .count = size_bytes});
}

int ranks_meet(struct hst_engine *engine)
{
    int64_t one = 1;
    return ranks_sum(engine, &one, 1);
}

/* The caller's to free, null after an error. */
static void *share(struct hst_engine *engine, const char *name, const void *own, size_t bytes)
{
    void *all = calloc(engine->ranks.ranks, bytes);
    if (!all) {
        report_fail(&engine->report, HST_E_BUDGET, -ENOMEM, "no memory for what ranks say");
        return NULL;
    }
    if (ranks_share_all(engine, name, own, all, bytes) == 0)
        return all;
    free(all);
    return NULL;
}

/* *value ← the least of all ranks', or the most. */
static int take_extreme(struct hst_engine *engine, bool most, uint64_t *value)
{
    uint64_t *all = share(engine, "budgets", value, sizeof *value);
    for (uint32_t r = 0; all && r < engine->ranks.ranks; r++)
        if (most ? all[r] > *value : all[r] < *value)
            *value = all[r];
    free(all);
    return all ? 0 : engine->report.error.native;
}

/* This is of a budget. *whose: 1 and the first rank that has the least; 0: all have as much. */
static int take_least(struct hst_engine *engine, uint64_t *value, uint32_t *whose)
{
    const uint32_t ranks = engine->ranks.ranks;
    uint64_t *all = share(engine, "budgets", value, sizeof *value);
    uint32_t first = 0, have = 0;
    for (uint32_t r = 0; all && r < ranks; r++)
        *value = all[r] < *value ? all[r] : *value;
    for (uint32_t r = ranks; all && r-- > 0;)
        if (all[r] == *value) {
            first = r;
            have++;
        }
    *whose = have < ranks ? first + 1 : 0;
    free(all);
    return all ? 0 : engine->report.error.native;
}

/* ---- what must be the same ---- */

static int compare(struct hst_engine *engine, const char *what, const char *text)
{
    const bool of_host =
        text == engine->math && (hst_dev_flags(engine->dev) & HST_DEV_HOST_MEMORY) != 0;
    char own[TEXT_BYTES] = "";
    snprintf(own, sizeof own, "%s", text);
    char *all = share(engine, what, own, sizeof own);
    int rc = all ? 0 : engine->report.error.native;
    for (uint32_t r = 1; rc == 0 && r < engine->ranks.ranks; r++)
        if (strcmp(all, all + r * sizeof own) != 0)
            rc = report_fail(&engine->report, HST_E_RANKS_DIFFER, -EINVAL,
                             "ranks do not agree: %s is '%.80s' for rank 0 and '%.80s' for rank "
                             "%u. Fix: start all of them alike%s",
                             what, all, all + r * sizeof own, r,
                             of_host ? ", or name one --host-math for all" : "");
    engine->all_refuse = rc && all;
    free(all);
    return rc;
}

/* A text that is too long is told apart by its hash. */
static void texts_text(const char *const *list, char text[TEXT_BYTES])
{
    char all[HST_OPTION_TEXTS_BYTES] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < HST_OPTION_TEXTS_MOST && list[i] && n < sizeof all; i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ";" : "", list[i]);
    n = (size_t)snprintf(text, TEXT_BYTES, "%.200s", all);
    if (strlen(all) > n)
        snprintf(text + n, TEXT_BYTES - n, "... (%016llx)",
                 (unsigned long long)XXH3_64bits(all, strlen(all)));
}

/* A value as its option would be given. */
static void option_text(const struct hst_option *o, const struct hst_config *c,
                        char text[TEXT_BYTES])
{
    const void *field = (const char *)c + o->offset;
    const double *reals = field;
    int choice;
    switch (o->type) {
    case HST_OPTION_UINT32:
        snprintf(text, TEXT_BYTES, "%u", *(const uint32_t *)field);
        break;
    case HST_OPTION_REAL:
        snprintf(text, TEXT_BYTES, "%.17g", reals[0]);
        break;
    case HST_OPTION_PAIR:
        snprintf(text, TEXT_BYTES, "%.17g,%.17g", reals[0], reals[1]);
        break;
    case HST_OPTION_CHOICE:
        choice = *(const int *)field - o->first_choice;
        snprintf(text, TEXT_BYTES, "%s", choice < 0 ? "the default" : o->choices[choice]);
        break;
    case HST_OPTION_TEXT:
        snprintf(text, TEXT_BYTES, "%s", *(const char *const *)field ? *(char *const *)field : "");
        break;
    case HST_OPTION_TEXTS:
        texts_text(field, text);
        break;
    case HST_OPTION_FLAG:
        snprintf(text, TEXT_BYTES, "%s", *(const bool *)field ? "given" : "not given");
        break;
    default:
        snprintf(text, TEXT_BYTES, "%llu", (unsigned long long)*(const uint64_t *)field);
    }
}

/* Budgets are brought into line; directories, threads and what carries I/O are each rank's own. */
static bool may_differ(const char *option)
{
    static const char *const own[] = {"store", "dram", "hbm", "nvme", "threads", "host-math", "io"};
    bool found = false;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        found = found || strcmp(option, own[i]) == 0;
    return found;
}

int ranks_compare_options(struct hst_engine *engine)
{
    size_t count;
    char text[TEXT_BYTES], name[TEXT_BYTES];
    const struct hst_option *options = hst_engine_options(&count);
    if (!engine->comm)
        return 0;
    int rc = compare(engine, "the version of hoistway", hst_version());
    for (size_t i = 0; i < count && rc == 0; i++) {
        if (may_differ(options[i].name))
            continue;
        option_text(&options[i], &engine->config, text);
        snprintf(name, sizeof name, "--%s", options[i].name);
        rc = compare(engine, name, text);
    }
    return rc;
}

int hst_engine_same(struct hst_engine *engine, const char *what, const char *text)
{
    if (engine->report.error.code)
        return engine->report.error.native;
    if (engine->phase == PHASE_STEP || !what || !text)
        return report_refuse(&engine->report, "ranks are compared outside of steps");
    /* nothing of the graph is under way then, which has an order of its own */
    int rc = engine->comm && engine->phase == PHASE_LOADED ? execute_drain(&engine->exec) : 0;
    return rc || !engine->comm ? rc : compare(engine, what, text);
}

int ranks_plan_alike(struct hst_engine *engine, struct placement_in *in)
{
    char drives[TEXT_BYTES], model[TEXT_BYTES];
    if (!engine->comm)
        return 0;
    snprintf(model, sizeof model, "%u units (%016llx)", engine->layout.unit_count,
             (unsigned long long)layout_digest(&engine->layout));
    snprintf(drives, sizeof drives, "%u", engine->drive_count);
    int rc = compare(engine, "the model", model);
    rc = rc ? rc : compare(engine, "the kernels of products", engine->math);
    rc = rc ? rc : compare(engine, "the number of directories of --store", drives);
    rc = rc ? rc : take_extreme(engine, false, &in->dram_budget);
    rc = rc ? rc : take_extreme(engine, false, &in->hbm_budget);
    rc = rc ? rc : take_least(engine, &in->nvme_budget, &in->scarcest);
    for (uint32_t d = 0; d < engine->drive_count && rc == 0; d++) {
        rc = take_extreme(engine, false, &in->drive_budgets[d]);
        rc = rc ? rc : take_extreme(engine, true, &in->store_there[d]);
    }
    return rc ? rc : ranks_take_first(engine, in->drive_rates, sizeof in->drive_rates);
}

/* The order is what a deadlock would come of: FNV-1a over its nodes. */
int ranks_compare_graphs(struct hst_engine *engine)
{
    const struct graph *graph = &engine->exec.step.graph;
    uint64_t digest = 0xcbf29ce484222325ull;
    char text[TEXT_BYTES];
    if (!engine->comm)
        return 0;
    for (uint32_t i = 0; i < graph->lane_count[LANE_NET]; i++) {
        const struct node *node = &graph->nodes[graph->lane[LANE_NET][i]];
        const uint64_t words[] = {node->kind, node->phases, node->unit};
        for (size_t w = 0; w < sizeof words / sizeof words[0]; w++)
            digest = (digest ^ words[w]) * 0x100000001b3ull;
    }
    snprintf(text, sizeof text, "%u operations (%016llx)", graph->lane_count[LANE_NET],
             (unsigned long long)digest);
    return compare(engine, "the plan of what ranks do together", text);
}

/* ---- what others read ---- */

/* text ← what helps where /dev/shm lacks room for so many more bytes of each rank: its size, in
   words that mount and Docker know. */
static void name_room(const struct comm_info *info, uint64_t missing_bytes, char text[FIX_BYTES])
{
    const uint64_t mib = UINT64_C(1) << 20;
    const uint64_t more = missing_bytes * info->locals / 9 * 10; /* a tenth is left to others */
    const unsigned long long size = (info->room_used_bytes + more) / mib + 2;
    if (info->lacks_room)
        snprintf(text, FIX_BYTES,
                 "mount -o remount,size=%llum /dev/shm on each node, or docker run "
                 "--shm-size=%llum",
                 size, size);
    else
        snprintf(text, FIX_BYTES, "docs/launch.md, Shared memory");
}

/* bytes: that are shared; missing_bytes: that are not; info: whether the last part is. */
static void tell_exposed(struct hst_engine *engine, const struct comm_info *info, uint64_t bytes,
                         uint64_t missing_bytes)
{
    char size[SIZE_TEXT_BYTES], fix[FIX_BYTES];
    if (!ranks_tells(engine))
        return;
    name_room(info, missing_bytes, fix);
    if (!info->shared && bytes > 0) {
        report_log(&engine->report, HST_LOG_WARNING,
                   "W506 ranks of a node read only %s of each in place, and send each other "
                   "messages for the rest, which is slower: %s. Results are the same. Fix: %s",
                   size_text(bytes, size), info->why_not_shared, fix);
        return;
    }
    if (info->shared)
        report_log(&engine->report, HST_LOG_INFO,
                   "I506 ranks of a node read each other's buffers in place: %s of each are in "
                   "shared memory",
                   size_text(bytes, size));
    else if (info->why_not_shared[0])
        report_log(&engine->report, HST_LOG_WARNING,
                   "W506 ranks of a node send each other messages, which is slower than reading "
                   "each other's memory: %s. Results are the same. Fix: %s",
                   info->why_not_shared, fix);
}

/* All agree on what is shared: so they do on where to leave off. */
int ranks_expose(struct hst_engine *engine, unsigned char *arena)
{
    struct exposed parts[EXPOSED_MAX];
    struct comm_info info = {.shared = true};
    uint64_t bytes = 0, missing_bytes = 0;
    if (!engine->comm)
        return 0;
    const uint32_t count = placement_exposed(&engine->placement, parts);
    if (count == 0)
        return 0;
    int rc = ranks_meet(engine); /* with patience: they have planned, each in its time */
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        if (info.shared) {
            rc = comm_expose(engine->comm, arena + parts[i].at, parts[i].bytes);
            rc = rc ? comm_report(engine->comm, &engine->report, 0, rc) : 0;
            comm_info(engine->comm, &info);
        }
        bytes += info.shared ? parts[i].bytes : 0;
        missing_bytes += info.shared ? 0 : parts[i].bytes;
    }
    if (rc == 0)
        tell_exposed(engine, &info, bytes, missing_bytes);
    return rc;
}

/* ---- joining and leaving ---- */

/* A plan is rank 0's, and joins nobody: no rank has more than it. Nodes have as many ranks. */
static int plan_as_one(struct hst_engine *engine, const struct hst_launch *launch)
{
    const uint32_t locals = launch->locals ? launch->locals : launch->ranks;
    if (launch->ranks % locals)
        return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                           "%u ranks are planned, %u on each node, which does not come out even. "
                           "Fix: as many ranks on each node",
                           launch->ranks, locals);
    engine->ranks.ranks = launch->ranks;
    engine->ranks.locals = locals;
    engine->ranks.nodes = launch->ranks / locals;
    engine->ranks.shared = true;
    return 0;
}

int ranks_open(struct hst_engine *engine)
{
    const struct hst_config *c = &engine->config;
    struct comm_failure failure;
    engine->ranks = (struct comm_info){.ranks = 1, .locals = 1, .nodes = 1, .transport = "self"};
    if (!c->launch || c->launch->ranks <= 1)
        return 0;
    if (c->plan)
        return plan_as_one(engine, c->launch);
    if (ranks_wait_for_devices(engine))
        return ranks_await_devices(engine);
    const struct comm_config config = {
        .size = sizeof config, .launch = *c->launch, .limit_s = c->peer_timeout_s};
    int rc = comm_open(&config, &engine->comm, &failure);
    if (rc)
        return comm_report_open(&failure, false, &engine->report);
    comm_info(engine->comm, &engine->ranks);
    return 0;
}

/* A rank's node, and the cores that it may use. */
struct place {
    uint32_t node;
    cpu_set_t cores;
};

int ranks_threads(struct hst_engine *engine, uint32_t *threads)
{
    struct place own, *all;
    uint32_t others = 0; /* of those that may use the same cores */
    *threads = machine_cores();
    if (!engine->comm && *threads >= engine->ranks.locals)
        *threads /= engine->ranks.locals; /* of a plan */
    if (!engine->comm)
        return 0;
    memset(&own, 0, sizeof own);
    own.node = engine->ranks.node;
    /* where it fails all of a node count as having the same */
    (void)sched_getaffinity(0, sizeof own.cores, &own.cores);
    all = share(engine, "cores", &own, sizeof own);
    for (uint32_t r = 0; all && r < engine->ranks.ranks; r++)
        others += r != engine->ranks.rank && all[r].node == own.node &&
                  CPU_EQUAL(&all[r].cores, &own.cores);
    if (all)
        *threads = *threads > others ? *threads / (others + 1) : 1;
    free(all);
    return all ? 0 : engine->report.error.native;
}

/* The file systems of a rank's directories: two ranks may have one drive, or each its own. */
struct mounts {
    uint32_t node, count;
    dev_t file_systems[STRIPE_DRIVES_MAX];
};

static bool has_mount(const struct mounts *mounts, uint32_t node, dev_t file_system)
{
    bool found = false;
    for (uint32_t d = 0; d < mounts->count && mounts->node == node; d++)
        found = found || mounts->file_systems[d] == file_system;
    return found;
}

int ranks_share_drives(struct hst_engine *engine, uint32_t sharers[STRIPE_DRIVES_MAX])
{
    struct mounts own, *all;
    for (uint32_t d = 0; d < STRIPE_DRIVES_MAX; d++)
        sharers[d] = engine->comm ? 1 : engine->ranks.locals; /* a plan's have them all */
    if (!engine->comm)
        return 0;
    memset(&own, 0, sizeof own);
    own.node = engine->ranks.node;
    own.count = engine->drive_count;
    for (uint32_t d = 0; d < own.count; d++)
        own.file_systems[d] = engine->drives[d].file_system;
    all = share(engine, "drives", &own, sizeof own);
    for (uint32_t r = 0; all && r < engine->ranks.ranks; r++)
        for (uint32_t d = 0; d < own.count && r != engine->ranks.rank; d++)
            sharers[d] += has_mount(&all[r], own.node, own.file_systems[d]);
    free(all);
    return all ? 0 : engine->report.error.native;
}

/* The GPU of a rank: two may have been given one. */
struct card {
    uint32_t node;
    char pci[sizeof((struct hst_dev_info *)0)->pci];
};

uint32_t ranks_share_device(struct hst_engine *engine, const struct hst_dev_info *info)
{
    struct card own = {.node = engine->ranks.node}, *all;
    uint32_t sharers = 0;
    if (!engine->comm)
        return 1; /* a plan's ranks have one each */
    memcpy(own.pci, info->pci, sizeof own.pci);
    all = share(engine, "GPUs", &own, sizeof own);
    for (uint32_t r = 0; all && r < engine->ranks.ranks; r++)
        sharers += memcmp(&all[r], &own, sizeof own) == 0;
    free(all);
    return sharers;
}

static int refuse(struct hst_engine *engine, const char *what, const char *fix)
{
    return report_fail(&engine->report, HST_E_VALUE, -EINVAL, "%u ranks %s. Fix: %s",
                       engine->ranks.ranks, what, fix);
}

static bool is_on_drives(const struct hst_engine *engine, enum hst_class class)
{
    const struct place_wish *wish = &engine->plan_in.wish;
    return wish->fixed[class] && wish->tier[class] == HST_TIER_NVME;
}

/* "cuda", whichever of them a rank has. */
static int compare_devices(struct hst_engine *engine)
{
    char kind[TEXT_BYTES];
    snprintf(kind, sizeof kind, "%s", engine->config.device);
    kind[strcspn(kind, ":")] = '\0';
    return engine->comm ? compare(engine, "the device", kind) : 0;
}

int ranks_check(struct hst_engine *engine)
{
    int rc = ranks_check_gathers(engine);
    if (rc || engine->ranks.ranks == 1)
        return rc;
    rc = compare_devices(engine);
    if (rc)
        return rc;
    if (engine->config.zero_stage >= HST_ZERO_2 && is_on_drives(engine, HST_CLASS_WEIGHTS))
        return refuse(engine,
                      "have all weights each in memory with ZeRO stages 0 to 2, not on NVMe",
                      "--zero-stage 3, or --place weights=dram");
    if (engine->config.zero_stage >= HST_ZERO_1 && is_on_drives(engine, HST_CLASS_GRADS))
        return refuse(engine,
                      "have all gradients each in memory with ZeRO stages 0 and 1, not on "
                      "NVMe",
                      "--zero-stage 2, or --place grads=dram");
    return 0;
}

/* Ranks meet with patience first: one may still write what it has gathered of all. */
int hst_engine_leave(struct hst_engine *engine)
{
    if (engine->report.error.code)
        return engine->report.error.native;
    if (!engine->comm)
        return 0;
    int rc = ranks_meet(engine);
    if (rc)
        return rc;
    rc = comm_close(&engine->comm);
    return rc ? comm_report(engine->comm, &engine->report, 0, rc) : 0;
}

bool ranks_close(struct hst_engine *engine)
{
    /* after an error others may wait for this one in an operation: what ends them is its own end */
    (void)hst_engine_leave(engine);
    return engine->comm == NULL;
}

enum hst_dtype ranks_widest(const struct hst_engine *engine)
{
    struct ways ways = engine->ways;
    enum hst_dtype widest = ways_type(&ways);
    for (ways.first = 0; ways.first < ways.tree.ways; ways.first += ways.count)
        widest = ways_type(&ways) == HST_F32 ? HST_F32 : widest;
    return widest;
}

/* ---- what the client sees ---- */

int hst_engine_part(const struct hst_engine *engine, struct hst_part *part)
{
    const struct ways *ways = &engine->ways;
    const struct comm_info *ranks = &engine->ranks;
    if (engine->phase < PHASE_SEALED || !part)
        return -EINVAL;
    *part = (struct hst_part){
        .rank = ranks->rank,
        .ranks = ranks->ranks,
        .node = ranks->node,
        .nodes = ranks->nodes,
        .ways = ways->tree.ways,
        .first_token = ways->first * ways->tokens,
        .tokens = ways->count * ways->tokens,
        .micro_count = ways_micro_count(ways),
        .transport = ranks->transport,
        .locals = ranks->locals,
    };
    return 0;
}

int hst_engine_micro(const struct hst_engine *engine, uint32_t micro, struct hst_micro *found)
{
    if (engine->phase < PHASE_SEALED || !found || micro >= ways_micro_count(&engine->ways))
        return -EINVAL;
    *found = ways_micro(&engine->ways, micro);
    return 0;
}
