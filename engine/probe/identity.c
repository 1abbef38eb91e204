/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file says what a set of rates belongs to, as text: everything that they depend on and that
 * can be had in some milliseconds. Two machines, or one before and after a change, must not be
 * taken for the same; a text that changes without need costs a second of measuring.
 */
#include "machine/machine.h"
#include "probe/cache.h"
#include "probe_code.h"

#include <hoistway/cpu_adam.h>
#include <hoistway/hoistway.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

static void put(struct identity *id, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct identity *id, const char *format, ...)
{
    size_t room = sizeof id->text - id->used;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(id->text + id->used, room, format, args);
    va_end(args);
    id->cut |= n < 0 || (size_t)n >= room;
    id->used += id->cut ? 0 : (size_t)n;
}

/* Not the bytes of memory: a virtual machine is given more and less of it while it runs. */
static void put_processor(const struct hst_probe *probe, struct identity *id)
{
    struct hst_topology machine;
    struct utsname uts;
    if (topology_processors(&machine) == 0)
        put(id, "cpu %s, %s, %u cores, %" PRIu64 " B of cache\n", machine.cpu, machine.cpus,
            machine.cores, machine.cache_bytes);
    if (uname(&uts) == 0)
        put(id, "kernel %s\n", uts.release);
    put(id, "library %s, code %s, %s, %u workers, %u threads\n", hst_version(), PROBE_CODE,
        hst_cpu_adam_ops(HST_CPU_ISA_AUTO)->name, probe->parallel ? probe->parallel->width : 0,
        probe->threads);
}

static void put_device(const struct hst_probe *probe, struct identity *id)
{
    struct hst_dev_info info;
    if (!probe->dev)
        return;
    hst_dev_info(probe->dev, &info);
    put(id, "device %s, %s, %s, %" PRIu64 " B, driver %u, runtime %u, %s\n",
        hst_dev_name(probe->dev), info.model, info.pci, info.memory_total_bytes,
        info.driver_version, info.runtime_version, info.libraries);
}

/* A simulated drive is not to be found: its name stands for it. */
static void put_drive(const struct hst_probe_drive *drive, struct identity *id)
{
    struct hst_drive d;
    enum hst_aio_backend carried = drive->info ? drive->info->backend : HST_AIO_AUTO;
    if (hst_drive_of(drive->directory, &d))
        put(id, "drive %s, carried %d\n", drive->directory, (int)carried);
    else
        put(id, "drive %s, %s, %s, %s, %s %016" PRIx64 ", link %s, carried %d\n", d.device, d.disks,
            d.model, d.serial, d.file_system, d.file_system_id, d.link, (int)carried);
}

static void put_gemm(const struct hst_gemm *p, struct identity *id)
{
    put(id, "product %zu %zu %zu, dtype %d, %d%d%d, %u times, %u at once\n", p->m, p->n, p->k,
        (int)p->dtype, p->a_transposed, p->b_transposed, p->accumulate, p->times, p->batch);
}

void identity_of(const struct hst_probe *probe, struct identity *id)
{
    id->used = 0;
    id->cut = false;
    put_processor(probe, id);
    put_device(probe, id);
    if (probe->host_math)
        put(id, "host math %s\n", probe->host_math);
    put(id, "parts %x, memory %" PRIu64 ", written %" PRIu64 ", backend %d\n", probe->parts,
        probe->memory_bytes, probe->drive_bytes, (int)probe->backend);
    for (uint32_t i = 0; i < probe->drive_count; i++)
        put_drive(&probe->drives[i], id);
    for (uint32_t i = 0; i < probe->gemm_count; i++)
        put_gemm(&probe->gemms[i], id);
    for (uint32_t i = 0; i < probe->operation_count; i++)
        put(id, "operation %.17g %u %d, %s\n", probe->operations[i].amount,
            probe->operations[i].times, probe->operations[i].flop, probe->operations[i].what);
    for (size_t i = 0; i < id->used; i++) /* what a device says of itself may be anything */
        if ((unsigned char)id->text[i] < ' ' && id->text[i] != '\n')
            id->text[i] = ' ';
}
