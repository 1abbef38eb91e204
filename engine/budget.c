/* SPDX-License-Identifier: Apache-2.0 */
/* Decides the budgets where none were given, and refuses those that the machine does not have. */
#include "engine_state.h"
#include "machine/machine.h"

#include <errno.h>

#define DEFAULT_SHARE 0.9 /* of what is free */

/* Under RLIMIT_AS the threads need address space beside the budget: stacks, malloc's arenas and
   OpenBLAS's packing buffers, for which OpenBLAS waits for ever where it can not have them. */
#define THREAD_ADDRESS_BYTES (192ull << 20)

static void keep_address_space(struct machine_memory *memory, uint32_t threads)
{
    uint64_t kept = (threads + 1ull) * THREAD_ADDRESS_BYTES;
    if (memory->address_left_bytes == UINT64_MAX)
        return;
    memory->address_left_bytes =
        memory->address_left_bytes > kept ? memory->address_left_bytes - kept : 0;
}

static int dram_budget(struct hst_engine *engine, uint64_t *budget)
{
    struct machine_memory memory;
    int rc = machine_memory(&memory);
    if (rc)
        return engine_fail(engine, HST_E_BUDGET, rc,
                           "the free memory can not be read from /proc/meminfo");
    keep_address_space(&memory, engine->config.threads);
    uint64_t left = machine_memory_left(&memory);
    *budget = engine->config.dram_bytes;
    if (*budget == 0)
        *budget = (uint64_t)(DEFAULT_SHARE * (double)left);
    if (left == 0)
        return engine_fail(engine, HST_E_BUDGET, -ENOMEM,
                           "no memory is left for the model (least of free memory, cgroup limit, "
                           "and RLIMIT_AS less what %u threads need). Fix: raise ulimit -v or the "
                           "cgroup's limit, or lower --threads",
                           engine->config.threads);
    if (*budget > left)
        return engine_fail(engine, HST_E_BUDGET, -ENOMEM,
                           "--dram is %.1f MiB, but only %.1f MiB are free (least of free memory, "
                           "cgroup limit, and RLIMIT_AS less what threads need). Fix: lower --dram",
                           (double)*budget / 1048576.0, (double)left / 1048576.0);
    return 0;
}

static int nvme_budget(struct hst_engine *engine, uint64_t *budget)
{
    *budget = 0;
    if (!engine->config.store)
        return 0;
    uint64_t left;
    int rc = machine_disk_left(engine->config.store, &left);
    if (rc)
        return engine_fail(engine, HST_E_STORE_DIR, rc, "the free space of %s can not be read",
                           engine->config.store);
    *budget = engine->config.nvme_bytes;
    if (*budget == 0)
        *budget = (uint64_t)(DEFAULT_SHARE * (double)left);
    if (*budget > left)
        return engine_fail(engine, HST_E_DISK_SPACE, -ENOSPC,
                           "--nvme is %.2f GB, but %s has %.2f GB free. Fix: lower --nvme",
                           (double)*budget / 1e9, engine->config.store, (double)left / 1e9);
    return 0;
}

int budgets_resolve(struct hst_engine *engine, struct placement_in *in)
{
    int rc = dram_budget(engine, &in->dram_budget);
    return rc ? rc : nvme_budget(engine, &in->nvme_budget);
}
