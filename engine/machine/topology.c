/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine as hwloc sees it. Hyperthreads share their vector units, so cores are counted. hwloc
 * tells of devices too, but of its plugins only those for PCI and Linux are let in: the others open
 * GPU drivers or an X server, which takes seconds and changes nothing here.
 */
#include "machine/topology.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PCI_DISPLAY   0x03u /* the class of GPUs */
#define AFFINITY_MOST (1 << 20)

static const char *const unwanted[] = {"cuda", "nvml", "rsmi", "levelzero", "opencl", "gl"};

/* If a sandbox refuses the question, hwloc asks it for ever, with more room each time. EINVAL alone
 * says that there was too little. */
static bool affinity_can_be_asked(void)
{
    for (int count = CPU_SETSIZE; count <= AFFINITY_MOST; count *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)count);
        if (!set)
            return false;
        int rc = sched_getaffinity(0, CPU_ALLOC_SIZE((size_t)count), set);
        int why = errno;
        CPU_FREE(set);
        if (rc == 0 || why != EINVAL)
            return rc == 0;
    }
    return false;
}

/* Then hwloc is told of as many cores as the C library counts, on one node; it binds nothing. */
static int assume_cores(hwloc_topology_t topology)
{
    char text[64];
    snprintf(text, sizeof text, "core:%ld pu:1", sysconf(_SC_NPROCESSORS_ONLN));
    return hwloc_topology_set_synthetic(topology, text);
}

int topology_load(hwloc_topology_t *topology, enum hwloc_type_filter_e devices)
{
    hwloc_topology_t t;
    errno = 0;
    if (hwloc_topology_init(&t))
        return errno ? -errno : -ENOMEM;
    for (size_t i = 0; i < sizeof unwanted / sizeof *unwanted;
         i++) /* fails where it is not there */
        (void)hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                            unwanted[i]);
    hwloc_topology_set_io_types_filter(t, devices);
    if ((!affinity_can_be_asked() && assume_cores(t)) || hwloc_topology_load(t)) {
        int rc = errno ? -errno : -EIO;
        hwloc_topology_destroy(t);
        return rc;
    }
    *topology = t;
    return 0;
}

hwloc_bitmap_t topology_usable(hwloc_topology_t topology)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (set && hwloc_get_cpubind(topology, set, HWLOC_CPUBIND_PROCESS))
        hwloc_bitmap_copy(set, hwloc_topology_get_allowed_cpuset(topology));
    return set;
}

static uint32_t count_cores(hwloc_topology_t topology, hwloc_const_bitmap_t set,
                            hwloc_const_bitmap_t within)
{
    uint32_t count = 0;
    hwloc_obj_t core = NULL;
    while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)))
        count += hwloc_bitmap_intersects(core->cpuset, set) &&
                 hwloc_bitmap_intersects(core->cpuset, within);
    return count;
}

/* ---- nodes ---- */

static void fill_distances(hwloc_topology_t topology, struct hst_topology *out)
{
    struct hwloc_distances_s *found;
    unsigned count = 1;
    if (hwloc_distances_get_by_type(
            topology, HWLOC_OBJ_NUMANODE, &count, &found,
            HWLOC_DISTANCES_KIND_FROM_OS | HWLOC_DISTANCES_KIND_MEANS_LATENCY, 0) ||
        count == 0)
        return;
    for (unsigned i = 0; i < found->nbobjs; i++)
        for (unsigned j = 0; j < found->nbobjs; j++) {
            unsigned from = found->objs[i]->logical_index, to = found->objs[j]->logical_index;
            uint64_t value = found->values[(size_t)i * found->nbobjs + j];
            if (from < out->node_count && to < out->node_count && value <= UINT16_MAX)
                out->nodes[from].distance[to] = (uint16_t)value;
        }
    hwloc_distances_release(topology, found);
}

static void fill_nodes(hwloc_topology_t topology, hwloc_const_bitmap_t set,
                       struct hst_topology *out)
{
    hwloc_obj_t node = NULL;
    while (out->node_count < HST_TOPOLOGY_NODES_MAX &&
           (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)))
        out->nodes[out->node_count++] =
            (struct hst_topology_node){.number = node->os_index,
                                       .cores = count_cores(topology, set, node->cpuset),
                                       .memory_bytes = node->attr->numanode.local_memory};
    fill_distances(topology, out);
}

/* ---- devices ---- */

static void copy_info(hwloc_obj_t object, const char *key, char *dst, size_t dst_bytes)
{
    const char *text = hwloc_obj_get_info_by_name(object, key);
    if (text)
        snprintf(dst, dst_bytes, "%s", text);
}

/* The one node that it hangs on; a device beside several may be near any. */
static int node_of(hwloc_topology_t topology, hwloc_obj_t device)
{
    hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topology, device);
    if (!place || !place->nodeset || hwloc_bitmap_weight(place->nodeset) != 1)
        return -1;
    return hwloc_bitmap_first(place->nodeset);
}

static bool is_gpu(hwloc_obj_t object)
{
    return object->type == HWLOC_OBJ_PCI_DEVICE &&
           object->attr->pcidev.class_id >> 8 == PCI_DISPLAY;
}

static bool is_drive(hwloc_obj_t object)
{
    const char *type = hwloc_obj_get_info_by_name(object, "Type");
    return object->type == HWLOC_OBJ_OS_DEVICE &&
           object->attr->osdev.type == HWLOC_OBJ_OSDEV_BLOCK && object->name &&
           (!type || strcmp(type, "Disk") == 0 || strcmp(type, "NVM") == 0);
}

static void add_device(hwloc_topology_t topology, hwloc_obj_t object, struct hst_topology *out)
{
    bool gpu = is_gpu(object);
    if ((!gpu && !is_drive(object)) || out->device_count == HST_TOPOLOGY_DEVICES_MAX)
        return;
    struct hst_topology_device *device = &out->devices[out->device_count++];
    *device = (struct hst_topology_device){.kind = gpu ? HST_TOPOLOGY_GPU : HST_TOPOLOGY_DRIVE,
                                           .node = node_of(topology, object)};
    copy_info(object, gpu ? "PCIDevice" : "Model", device->model, sizeof device->model);
    const struct hwloc_pcidev_attr_s *pci = &object->attr->pcidev;
    if (gpu)
        snprintf(device->name, sizeof device->name, "%04x:%02x:%02x.%x", pci->domain, pci->bus,
                 pci->dev, pci->func);
    else
        snprintf(device->name, sizeof device->name, "%s", object->name);
}

static void fill_devices(hwloc_topology_t topology, struct hst_topology *out)
{
    hwloc_obj_t object = NULL;
    while ((object = hwloc_get_next_pcidev(topology, object)))
        add_device(topology, object, out);
    while ((object = hwloc_get_next_osdev(topology, object)))
        add_device(topology, object, out);
}

/* ---- all of it ---- */

/* The last level is what is nearest to the root on the way up from the first core. */
static uint64_t cache_bytes(hwloc_topology_t topology)
{
    hwloc_obj_t object = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PU, 0), last = NULL;
    uint64_t bytes = 0;
    for (; object; object = object->parent)
        last = hwloc_obj_type_is_dcache(object->type) ? object : last;
    if (!last)
        return 0;
    hwloc_obj_type_t type = last->type;
    for (last = NULL; (last = hwloc_get_next_obj_by_type(topology, type, last));)
        bytes += last->attr->cache.size;
    return bytes;
}

static void fill_cpu(hwloc_topology_t topology, hwloc_const_bitmap_t set, struct hst_topology *out)
{
    hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
    copy_info(hwloc_get_root_obj(topology), "CPUModel", out->cpu, sizeof out->cpu);
    if (package)
        copy_info(package, "CPUModel", out->cpu, sizeof out->cpu);
    hwloc_bitmap_list_snprintf(out->cpus, sizeof out->cpus, set);
    out->cores = count_cores(topology, set, set);
    out->cache_bytes = cache_bytes(topology);
    out->memory_bytes = hwloc_get_root_obj(topology)->total_memory;
}

int topology_fill(hwloc_topology_t topology, struct hst_topology *out)
{
    hwloc_bitmap_t set = topology_usable(topology);
    if (!set)
        return -ENOMEM;
    *out = (struct hst_topology){0};
    fill_cpu(topology, set, out);
    fill_nodes(topology, set, out);
    fill_devices(topology, out);
    hwloc_bitmap_free(set);
    return 0;
}

static int read_machine(struct hst_topology *out, enum hwloc_type_filter_e devices)
{
    hwloc_topology_t topology = NULL;
    int rc = topology_load(&topology, devices);
    if (rc)
        return rc;
    rc = topology_fill(topology, out);
    hwloc_topology_destroy(topology);
    return rc;
}

int hst_topology_read(struct hst_topology *topology)
{
    return read_machine(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
}

int topology_processors(struct hst_topology *topology)
{
    return read_machine(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
}

unsigned machine_cores(void)
{
    hwloc_topology_t topology = NULL;
    uint32_t cores = 0;
    if (topology_load(&topology, HWLOC_TYPE_FILTER_KEEP_NONE) == 0) {
        hwloc_bitmap_t set = topology_usable(topology);
        cores = set ? count_cores(topology, set, set) : 0;
        hwloc_bitmap_free(set);
        hwloc_topology_destroy(topology);
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? cores : online > 0 ? (unsigned)online : 1;
}
