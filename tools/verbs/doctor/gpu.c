/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file has what hoistway doctor tells of GPUs: why none can be used, or, for each, its memory,
 * driver and libraries, and how fast data gets there: the link now and at most, copies measured,
 * and how far the cores in use are. The copies come first: a link that was asleep is awake after
 * them.
 */
#include "base/text.h"
#include "bench/figure.h"
#include "bench/layer/locking.h"
#include "cli/options/device.h"
#include "verbs/doctor/doctor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LINK_SHARE   0.7 /* of a link's rate: less than that is worth a look */
#define COPY_BUDGET  (UINT64_C(1) << 30)
#define LOCKED_BYTES (UINT64_C(64) << 20) /* long enough for a figure, and soon done */
#define PYTHON_MS    5000 /* a Python that takes longer to start is not waited for */

/* A Python environment may have what the search does not reach: the line that names its folders. */
static const char *library_fix(struct doctor *d)
{
    static const char export[] = "export HOISTWAY_CUDA_PATH=";
    char *folders = d->export_line + strlen(export);
    if (!doctor_python_folders("python3", PYTHON_MS, folders,
                               sizeof d->export_line - strlen(export)))
        return NULL;
    memcpy(d->export_line, export, strlen(export));
    return d->export_line;
}

static void report_absent(struct doctor *d, const struct hst_dev_failure *failure, int rc)
{
    bool usual = device_absent(failure->why);
    const char *export = failure->why == HST_DEV_LIBRARY ? library_fix(d) : NULL;
    snprintf(d->gpu_fix, sizeof d->gpu_fix, "%s%s", usual ? "for a GPU: " : "",
             hst_dev_fix(failure->why));
    doctor_report(d, "gpu", usual ? STATUS_OK : STATUS_WARN, export ? export : d->gpu_fix,
                  "using the host: %s", failure->text[0] ? failure->text : strerror(-rc));
}

static void report_card(struct doctor *d, unsigned index, const struct hst_dev_info *info)
{
    char name[16], total[TEXT_BYTES], left[TEXT_BYTES];
    snprintf(name, sizeof name, "gpu %u", index);
    bool full = info->memory_free_bytes < info->memory_total_bytes / 2; /* nothing runs yet */
    doctor_report(d, name, full ? STATUS_WARN : STATUS_OK,
                  full ? "end what else uses the GPU (nvidia-smi)" : NULL,
                  "%s, %s, %s free, compute capability %u.%u, %u multiprocessors", info->model,
                  text_size(info->memory_total_bytes, total),
                  text_size(info->memory_free_bytes, left), info->compute_major,
                  info->compute_minor, info->multiprocessors);
    doctor_report(d, "driver", STATUS_OK, NULL, "CUDA %u.%u, runtime %u.%u, %s",
                  info->driver_version / 1000, info->driver_version % 1000 / 10,
                  info->runtime_version / 1000, info->runtime_version % 1000 / 10,
                  info->libraries[0] ? info->libraries : "no libraries");
    if (info->library_files[0] || info->library_unused[0])
        doctor_report(d, "libraries", info->library_unused[0] ? STATUS_WARN : STATUS_OK,
                      info->library_unused[0]
                          ? "put a newer or whole one in its place, or do without "
                            "(HOISTWAY_ATTENTION=own, HOISTWAY_MATMUL=own)"
                          : NULL,
                      "%s%s%s", info->library_files,
                      !info->library_unused[0] ? ""
                      : info->library_files[0] ? "; not used: "
                                               : "not used: ",
                      info->library_unused);
    if (info->absent[0]) {
        const char *export = library_fix(d);
        doctor_report(d, "gpu products", STATUS_WARN,
                      export ? export : hst_dev_fix(HST_DEV_LIBRARY),
                      "by hoistway's own kernels, as %s was not found", info->absent);
    }
}

static void report_link(struct doctor *d, const struct hst_dev_info *info)
{
    if (!info->pcie_generation_max || !info->pcie_lanes_max) {
        doctor_report(d, "pcie", STATUS_OK, NULL, "the link of %s cannot be told",
                      info->pci[0] ? info->pci : "the GPU");
        return;
    }
    bool narrow = info->pcie_lanes < info->pcie_lanes_max;
    doctor_report(d, "pcie", narrow ? STATUS_WARN : STATUS_OK,
                  narrow ? "another slot, or look at its riser and at the board's manual" : NULL,
                  "%s: generation %u x%u now, generation %u x%u (%.1f GB/s each way) at most",
                  info->pci, info->pcie_generation, info->pcie_lanes, info->pcie_generation_max,
                  info->pcie_lanes_max,
                  1e-9 * bench_pcie_rate(info->pcie_generation_max, info->pcie_lanes_max));
}

static void report_copies(struct doctor *d, const struct hst_dev_info *info,
                          const struct hst_figure *figures)
{
    const struct hst_figure *in = &figures[HST_RATE_H2D], *out = &figures[HST_RATE_D2H];
    if (in->value <= 0 || out->value <= 0) {
        doctor_report(d, "copies", STATUS_WARN, "look at dmesg for the driver's messages (Xid)",
                      "not measured: %s", in->value <= 0 ? in->how : out->how);
        return;
    }
    double link = bench_pcie_rate(info->pcie_generation_max, info->pcie_lanes_max);
    bool slow = in->value < LINK_SHARE * link || out->value < LINK_SHARE * link;
    char of_link[64] = "";
    if (link > 0)
        snprintf(of_link, sizeof of_link, " (the link: %.1f each way)", 1e-9 * link);
    doctor_report(
        d, "copies", slow ? STATUS_WARN : STATUS_OK,
        slow ? "run on the cores near the GPU (below); look for others on the link" : NULL,
        "page-locked memory: %.1f GB/s to the GPU, %.1f back, %.1f both at once%s",
        1e-9 * in->value, 1e-9 * out->value, 1e-9 * figures[HST_RATE_COPY_BOTH].value, of_link);
}

/* An engine that keeps states in DRAM pays this before its first step. */
static void report_locking(struct doctor *d, struct hst_dev *dev)
{
    struct bench_locking locking;
    struct hst_error error = {0};
    char told[BENCH_PAGES_KINDS * 64] = "";
    if (bench_locking(dev, LOCKED_BYTES, 1, &locking, &error)) {
        doctor_report(d, "page-locking", STATUS_WARN, "ulimit -l unlimited", "not measured: %s",
                      error.message);
        return;
    }
    for (enum bench_pages pages = 0; pages < BENCH_PAGES_KINDS; pages++) {
        size_t used = strlen(told);
        double amount = (double)locking.size_bytes;
        if (locking.missing[pages])
            snprintf(told + used, sizeof told - used, "%s%s: %s", used ? "; " : "",
                     bench_pages_name(pages), locking.missing[pages]);
        else
            snprintf(told + used, sizeof told - used, "%s%s: %.1f GB/s, let go at %.1f",
                     used ? "; " : "", bench_pages_name(pages),
                     1e-9 * amount / locking.lock[pages].median_s,
                     1e-9 * amount / locking.unlock[pages].median_s);
    }
    doctor_report(d, "page-locking", STATUS_OK, NULL, "%s", told);
}

/* A plan shares the optimizer's work by this. */
static void report_update(struct doctor *d, const struct hst_figure *figures)
{
    const struct hst_figure *update = &figures[HST_RATE_DEVICE_BF16];
    const struct hst_figure *shared = &figures[HST_RATE_SHARED];
    const struct hst_figure *half = &figures[HST_RATE_HALF_BF16];
    const struct hst_figure *missing = update->value <= 0   ? update
                                       : shared->value <= 0 ? shared
                                       : half->value <= 0   ? half
                                                            : NULL;
    if (missing)
        doctor_report(d, "gpu update", STATUS_WARN, "give the GPU and host memory some room",
                      "not measured: %s", missing->how);
    else
        doctor_report(
            d, "gpu update", STATUS_OK, NULL,
            "AdamW in bf16: %.3g G parameters/s on the GPU, %.3g by half of the host's threads; "
            "host memory carries %.1f GB/s while all of them update and copies run both ways",
            1e-9 * update->value, 1e-9 * half->value, 1e-9 * shared->value);
}

/* It tells how near the GPU's node is to the cores in use: those on it, the way to the farthest. */
static void report_distance(struct doctor *d, const struct hst_dev_info *info)
{
    const struct hst_topology *machine = &d->machine;
    const struct hst_topology_node *near = NULL;
    uint32_t distance = 0;
    for (uint32_t i = 0; i < machine->node_count; i++)
        if ((int)machine->nodes[i].number == info->numa_node)
            near = &machine->nodes[i];
    if (!near) {
        doctor_report(d, "numa", STATUS_OK, NULL, "the machine names no node for the GPU");
        return;
    }
    for (uint32_t i = 0; i < machine->node_count; i++)
        if (machine->nodes[i].cores > 0 && near->distance[i] > distance)
            distance = near->distance[i];
    bool far = machine->cores > 0 && near->cores == 0;
    doctor_report(d, "numa", far ? STATUS_WARN : STATUS_OK,
                  far ? "run under numactl --cpunodebind and --membind with the GPU's node" : NULL,
                  "node %d: %" PRIu32 " of %" PRIu32 " usable cores are on it, the farthest at "
                  "distance %" PRIu32,
                  info->numa_node, near->cores, machine->cores, distance);
}

static void check_gpu(struct doctor *d, unsigned index, struct hst_dev *dev)
{
    char name[16];
    struct hst_rates rates;
    struct hst_dev_info info;
    const struct hst_probe probe = {.size = sizeof probe,
                                    .parts = (unsigned)HST_PROBE_COPIES | HST_PROBE_DEVICE |
                                             HST_PROBE_LOCKING,
                                    .dev = dev};
    hst_dev_info(dev, &info); /* free memory, before any of it is taken */
    report_card(d, index, &info);
    snprintf(name, sizeof name, "cuda:%u", index);
    doctor_keep_room(d, name, HST_TIER_HBM, info.memory_total_bytes, info.memory_free_bytes);
    bool measured =
        hst_dev_budget(dev, COPY_BUDGET, COPY_BUDGET) == 0 && hst_probe(&probe, &rates) == 0;
    hst_dev_info(dev, &info);
    report_link(d, &info);
    if (measured)
        report_copies(d, &info, rates.figures);
    if (measured)
        report_locking(d, dev);
    if (measured)
        report_update(d, rates.figures);
    doctor_check_clock(d, dev, info.pci);
    for (enum hst_rate r = HST_RATE_H2D; measured && r <= HST_RATE_LOCK; r++)
        doctor_keep_rate(d, name, r, &rates.figures[r]);
    report_distance(d, &info);
    if (measured && rates.figures[HST_RATE_H2D].value > 0 && !d->gpu[0])
        snprintf(d->gpu, sizeof d->gpu, "cuda:%u (%s)", index, info.model);
}

static bool is_of_one_card(enum hst_dev_why why)
{
    return why == HST_DEV_MEMORY || why == HST_DEV_ARCHITECTURE || why == HST_DEV_IN_USE ||
           why == HST_DEV_CARD;
}

void doctor_check_gpus(struct doctor *d)
{
    for (unsigned index = 0; index < DOCTOR_MAX_GPUS; index++) {
        const struct hst_dev_config config = {.size = sizeof config};
        struct hst_dev_failure failure = {.why = HST_DEV_OK};
        struct hst_dev *dev;
        char name[16];
        snprintf(name, sizeof name, "cuda:%u", index);
        int rc = hst_dev_open(name, &config, &dev, &failure);
        if (rc && index > 0 && failure.why == HST_DEV_NO_DEVICE)
            return; /* they are counted from 0 without gaps */
        if (rc) {
            report_absent(d, &failure, rc);
            if (index == 0 && !is_of_one_card(failure.why))
                return; /* the next one would say the same */
            continue;
        }
        check_gpu(d, index, dev);
        hst_dev_close(&dev);
    }
}
