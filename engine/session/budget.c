/* SPDX-License-Identifier: Apache-2.0 */
/* Decides the budgets where none were given, and refuses those that the machine does not have. */
#include "base/saturate.h"
#include "base/size_text.h"
#include "machine/machine.h"
#include "session/ranks/ranks.h"

#include <errno.h>
#include <stdio.h>

#define DEFAULT_SHARE 0.9 /* of what is free */

/* Under RLIMIT_AS the threads need address space beside the budget: stacks and malloc's arenas.
   What OpenBLAS needs for the first of them is mapped already, since the device is open; it maps a
   buffer for each of the others at its first product. */
#define THREAD_ADDRESS_BYTES (80ull << 20)
#define BLAS_BUFFER_BYTES    (128ull << 20)
#define BLAS_BUFFERS_MAPPED  64u

static void keep_address_space(struct machine_memory *memory, uint32_t threads)
{
    uint64_t kept = (threads + 1ull) * THREAD_ADDRESS_BYTES;
    if (threads > BLAS_BUFFERS_MAPPED)
        kept += (threads - BLAS_BUFFERS_MAPPED) * BLAS_BUFFER_BYTES;
    if (memory->address_left_bytes == UINT64_MAX)
        return;
    memory->address_left_bytes =
        memory->address_left_bytes > kept ? memory->address_left_bytes - kept : 0;
}

static int dram_budget(struct hst_engine *engine, struct placement_in *in)
{
    uint64_t *budget = &in->dram_budget;
    struct machine_memory memory;
    int rc = machine_memory(&memory);
    if (rc)
        return report_fail(&engine->report, HST_E_BUDGET, rc,
                           "the free memory cannot be read from /proc/meminfo");
    char wish[SIZE_TEXT_BYTES], there[SIZE_TEXT_BYTES];
    keep_address_space(&memory, engine->config.threads);
    uint64_t left = machine_memory_left(&memory);
    *budget = engine->config.dram_bytes;
    if (*budget == 0)
        *budget = (uint64_t)(DEFAULT_SHARE * (double)left);
    if (left == 0)
        return report_fail(&engine->report, HST_E_BUDGET, -ENOMEM,
                           "no memory is left for the model (least of free memory, cgroup limit, "
                           "and RLIMIT_AS less what %u threads need). Fix: raise ulimit -v or the "
                           "cgroup's limit, or lower --threads",
                           engine->config.threads);
    in->dram_most = engine->config.plan != HST_PLAN_ELSEWHERE ? left : 0;
    if (in->dram_most && *budget > left)
        return report_fail(&engine->report, HST_E_BUDGET, -ENOMEM,
                           "--dram is %s, but only %s are free (least of free memory, cgroup "
                           "limit, and RLIMIT_AS less what threads need). Fix: lower --dram",
                           size_text(*budget, wish), size_text(left, there));
    return 0;
}

/* It is the room of a directory; those on one file system share what is free there. */
struct room {
    uint64_t bytes; /* together with the others' it is no more than there is */
    uint64_t most;  /* where the others need less than what they left */
};

/* The files that a killed start left are removed before the store is made: they are room, for any
   of those that share the file system, and as much as it was for the directory that it is in. */
static struct room room_of(const struct hst_engine *engine, uint32_t drive, uint64_t free_bytes)
{
    const uint64_t own = store_dir_leftover(engine, drive);
    uint64_t count = 0, left = 0;
    for (uint32_t d = 0; d < engine->drive_count; d++)
        if (engine->drives[d].file_system == engine->drives[drive].file_system) {
            left = sat_add(left, store_dir_leftover(engine, d));
            count++;
        }
    const uint64_t share = free_bytes / count, all = sat_add(share, left / count);
    return (struct room){all, share + own > all ? share + own : all};
}

#define PART_BYTES (SIZE_TEXT_BYTES + 48u)

/* Of several ranks of a node each has a part of what is given for all. */
static const char *part_text(const struct hst_engine *engine, uint64_t bytes, char text[PART_BYTES])
{
    char size[SIZE_TEXT_BYTES];
    text[0] = '\0';
    if (engine->ranks.locals > 1)
        snprintf(text, PART_BYTES, " for the node's %u ranks, %s for each", engine->ranks.locals,
                 size_text(bytes / engine->ranks.locals, size));
    return text;
}

static int nvme_budget(struct hst_engine *engine, struct placement_in *in)
{
    uint64_t wish = engine->config.nvme_bytes, sum = 0;
    char wished[SIZE_TEXT_BYTES], there[SIZE_TEXT_BYTES], part[PART_BYTES];
    uint32_t sharers[STRIPE_DRIVES_MAX];
    int rc = ranks_share_drives(engine, sharers);
    if (rc)
        return rc;
    for (uint32_t d = 0; d < engine->drive_count; d++) {
        const struct drive *drive = &engine->drives[d];
        uint64_t left = wish; /* each may hold all that is said to be there */
        rc =
            drive->path ? machine_disk_left(drive->parent ? drive->parent : drive->path, &left) : 0;
        if (rc)
            return report_fail(&engine->report, HST_E_STORE_DIR, rc,
                               "the free space of %s cannot be read", drive->path);
        if (!wish)
            left = (uint64_t)(DEFAULT_SHARE * (double)left);
        left /= sharers[d]; /* what is free there */
        struct room room = drive->path ? room_of(engine, d, left) : (struct room){left, left};
        in->drive_budgets[d] = room.most;
        if (in->stored && store_dir_leftover(engine, d) == 0) { /* its files have their space */
            const uint64_t files = store_dir_there(engine, d) + store_dir_room_there(engine, d);
            in->drive_budgets[d] += files;
            room.bytes += files;
        }
        sum = sat_add(sum, room.bytes);
    }
    in->nvme_budget = wish ? wish / engine->ranks.locals : sum;
    if (engine->drive_count > 0 && in->nvme_budget > sum)
        return report_fail(&engine->report, HST_E_DISK_SPACE, -ENOSPC,
                           "--nvme is %s%s, but %s has %s free%s. Fix: lower --nvme",
                           size_text(wish, wished), part_text(engine, wish, part),
                           engine->config.store, size_text(sum, there),
                           engine->ranks.locals > 1 ? " for it" : "");
    return 0;
}

int budgets_resolve(struct hst_engine *engine, struct placement_in *in)
{
    int rc = dram_budget(engine, in);
    rc = rc ? rc : nvme_budget(engine, in);
    in->sharers = engine->ranks.locals; /* of the node's */
    in->dram_budget /= in->sharers;
    in->dram_most /= in->sharers;
    return rc;
}
