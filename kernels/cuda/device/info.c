/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This file tells what is known of a GPU: most from the runtime, once; the link and the NUMA node
 * from sysfs, where Linux tells of every PCI device in one line per file. What cannot be read
 * stays 0, -1 or "".
 */
#include "cuda.h"
#include "cudnn/sdpa.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#define SYSFS_PCI "/sys/bus/pci/devices"

cudaError_t cuda_info_read(int index, struct hst_dev_info *info)
{
    struct cudaDeviceProp properties;
    int driver = 0, runtime = 0;
    cudaError_t error = cudaGetDeviceProperties(&properties, index);
    if (error)
        return error;
    *info = (struct hst_dev_info){.numa_node = -1};
    snprintf(info->model, sizeof info->model, "%.*s", (int)sizeof info->model - 1, properties.name);
    info->memory_total_bytes = properties.totalGlobalMem;
    info->compute_major = (unsigned)properties.major;
    info->compute_minor = (unsigned)properties.minor;
    info->multiprocessors = (unsigned)properties.multiProcessorCount;
    if (cudaDriverGetVersion(&driver) == cudaSuccess)
        info->driver_version = (unsigned)driver;
    if (cudaRuntimeGetVersion(&runtime) == cudaSuccess)
        info->runtime_version = (unsigned)runtime;
    if (cudaDeviceGetPCIBusId(info->pci, (int)sizeof info->pci, index) != cudaSuccess) {
        info->pci[0] = '\0';
        (void)cudaGetLastError();
    }
    for (char *c = info->pci; *c; c++)
        *c = (char)tolower((unsigned char)*c); /* as sysfs writes it */
    cuda_info_read_pci(SYSFS_PCI, info);
    return cudaSuccess;
}

/* The number that the file begins with: "16", "-1", "32.0 GT/s PCIe". */
static double read_number(const char *root, const char *pci, const char *name, double absent)
{
    char path[256], line[64];
    if (snprintf(path, sizeof path, "%s/%s/%s", root, pci, name) >= (int)sizeof path)
        return absent;
    FILE *file = fopen(path, "re");
    if (!file)
        return absent;
    char *end = line;
    double number = absent;
    if (fgets(line, sizeof line, file))
        number = strtod(line, &end);
    fclose(file);
    return end == line ? absent : number;
}

/* Each generation is known by its transfers per second; 0 where the file says "Unknown". */
static unsigned generation_of(double gigatransfers)
{
    static const double speeds[] = {2.5, 5, 8, 16, 32, 64, 128};
    unsigned generation = 0;
    for (unsigned i = 0; i < sizeof speeds / sizeof *speeds; i++)
        if (gigatransfers >= speeds[i])
            generation = i + 1;
    return generation;
}

static unsigned lanes_of(double lanes)
{
    return lanes >= 1 && lanes <= 32 ? (unsigned)lanes : 0; /* 255 and 63: unknown */
}

void cuda_info_read_pci(const char *root, struct hst_dev_info *info)
{
    if (!*info->pci)
        return;
    const char *pci = info->pci;
    double node = read_number(root, pci, "numa_node", -1);
    info->numa_node = node >= 0 && node < 4096 ? (int)node : -1;
    info->pcie_generation = generation_of(read_number(root, pci, "current_link_speed", 0));
    info->pcie_generation_max = generation_of(read_number(root, pci, "max_link_speed", 0));
    info->pcie_lanes = lanes_of(read_number(root, pci, "current_link_width", 0));
    info->pcie_lanes_max = lanes_of(read_number(root, pci, "max_link_width", 0));
}

void cuda_dev_info(struct hst_dev *dev, struct hst_dev_info *info)
{
    struct cuda_dev *cuda = cuda_dev_of(dev);
    size_t free_bytes = 0, total_bytes = 0;
    *info = cuda->info;
    cuda_info_read_pci(SYSFS_PCI, info);
    if (cuda->sdpa) {
        struct hst_sdpa_made made;
        hst_sdpa_made(cuda->sdpa, &made);
        info->plans = made.plans;
        info->plans_s = made.plans_s;
    }
    if (cuda_enter(cuda))
        return;
    cudaError_t error = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (error)
        (void)cuda_failed(cuda, error, "asking for free memory");
    else
        info->memory_free_bytes = free_bytes;
}
