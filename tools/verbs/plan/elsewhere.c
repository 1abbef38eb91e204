/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides what a plan takes from a machine that it is not made on: sizes where the command line has
 * none, rates, and a GPU that is known by its size alone.
 */
#include "verbs/plan/elsewhere.h"

#include "cli/message/message.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SHARE 0.9 /* of memory and drives, as of those of this machine */

static bool is_host(const char *device)
{
    return device && strcmp(device, "host") == 0;
}

static bool is_cuda(const char *device)
{
    return device && (strcmp(device, "cuda") == 0 || strncmp(device, "cuda:", 5) == 0);
}

/* Each rank has one. */
static int take_gpus(struct plan_options *o, uint32_t locals, struct hst_error *error)
{
    const struct machine *m = &o->machine_is;
    struct hst_config *c = &o->train.engine;
    const uint64_t each = c->hbm_bytes ? c->hbm_bytes : hst_dev_usual_bytes(m->hbm_bytes);
    if (locals > m->gpus)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "%u ranks on a node are more than the %u GPU%s of '%s'. Fix: --nodes %u, or "
                    "--device host.",
                    locals, m->gpus, m->gpus == 1 ? "" : "s", m->name,
                    (o->world + m->gpus - 1) / m->gpus);
    if (each > m->hbm_bytes)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--hbm is more than a GPU of '%s' has, %llu bytes. Fix: lower --hbm.", m->name,
                    (unsigned long long)m->hbm_bytes);
    o->planned =
        (struct hst_dev_planned){.memory_bytes = m->hbm_bytes, .compute_major = m->compute_major};
    c->hbm_bytes = each;
    c->device = c->device ? c->device : "cuda";
    c->planned = &o->planned;
    return 0;
}

/* The rate of the machine's GPUs says nothing of its cores. */
static void leave_gpus(struct plan_options *o)
{
    struct hst_figure *compute = &o->machine_is.rates.figures[HST_RATE_COMPUTE];
    if (o->machine_is.gpus == 0)
        return;
    *compute = (struct hst_figure){0};
    snprintf(compute->how, sizeof compute->how, "'%s' has its GPUs' alone", o->machine_is.name);
}

/* There are so many that all have as many ranks, and none more than GPUs. */
static uint32_t nodes_for(uint32_t world, uint32_t gpus)
{
    uint32_t nodes = (world + gpus - 1) / gpus;
    while (world % nodes)
        nodes++;
    return nodes;
}

static int take_machine(struct plan_options *o, struct hst_error *error)
{
    const struct machine *m = &o->machine_is;
    struct hst_config *c = &o->train.engine;
    const bool gpu = m->gpus > 0 && !is_host(c->device);
    if (o->world > 1 && o->nodes == 0 && m->gpus > 0)
        o->nodes = nodes_for(o->world, m->gpus);
    const uint32_t world = o->world ? o->world : 1, nodes = o->nodes ? o->nodes : 1;
    if (c->device && !is_host(c->device) && (m->gpus == 0 || !is_cuda(c->device)))
        return fail(error, FAIL_VALUE, -EINVAL, "--device %.40s is none of '%s'. Fix: --device %s.",
                    c->device, m->name, m->gpus > 0 ? "cuda" : "host");
    if (m->nvme_bytes == 0 && c->store && c->nvme_bytes == 0)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--store is on drives, and '%s' has none. Fix: --nvme SIZE, or leave --store "
                    "out.",
                    m->name);
    c->dram_bytes = c->dram_bytes ? c->dram_bytes : (uint64_t)(SHARE * (double)m->dram_bytes);
    c->nvme_bytes = c->nvme_bytes ? c->nvme_bytes : (uint64_t)(SHARE * (double)m->nvme_bytes);
    if (gpu)
        return take_gpus(o, (world + nodes - 1) / nodes, error);
    leave_gpus(o);
    c->device = "host";
    return 0;
}

/* With a budget of its memory a GPU is planned by formulas, whether one is here or not. */
static void take_rates(struct plan_options *o)
{
    struct hst_config *c = &o->train.engine;
    o->elsewhere = o->rates != NULL;
    if (!o->rates || !c->hbm_bytes || (c->device && !is_cuda(c->device)))
        return;
    o->planned = (struct hst_dev_planned){.memory_bytes = c->hbm_bytes};
    c->device = c->device ? c->device : "cuda";
    c->planned = &o->planned;
}

int plan_take_elsewhere(struct plan_options *o, bool *done, struct hst_error *error)
{
    if (!o->machine || strcmp(o->machine, MACHINE_HERE) == 0) {
        take_rates(o);
        return 0;
    }
    if (strcmp(o->machine, "list") == 0) {
        machines_print(stdout);
        *done = true;
        return 0;
    }
    if (o->probe)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--probe measures this machine, and --machine names another. Fix: leave one of "
                    "them out.");
    o->elsewhere = true;
    const int native = machine_find("--machine", o->machine, &o->machine_is, error);
    return native ? native : take_machine(o, error);
}

void plan_merge_rates(const struct machine *machine, struct hst_rates *rates)
{
    for (int r = 0; r < HST_RATE_COUNT; r++) {
        if (rates->figures[r].value > 0)
            continue;
        rates->figures[r] = machine->rates.figures[r];
        rates->figure_ms[r] = machine->rates.figure_ms[r];
    }
}
