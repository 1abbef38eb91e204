/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which cores worker threads stay on. A worker that moved to another node would find all that it
 * works on in far memory; within a node the system may move it.
 */
#include "machine/topology.h"

#include <errno.h>
#include <stdlib.h>

/* The node that comes after those already `taken`: the nearest to `near`, itself first. */
static uint32_t next_node(const struct hst_topology *machine, uint32_t near, const bool *taken)
{
    uint32_t best = near, best_distance = UINT32_MAX;
    for (uint32_t i = 0; i < machine->node_count; i++) {
        uint32_t distance = machine->nodes[near].distance[i];
        if (distance == 0)
            distance = UINT16_MAX;
        if (i == near)
            distance = 0;
        if (!taken[i] && distance < best_distance) {
            best = i;
            best_distance = distance;
        }
    }
    return best;
}

void topology_spread(const struct hst_topology *machine, uint32_t near, unsigned count,
                     uint32_t *node)
{
    unsigned done = 0;
    /* after the first round each gives a node to one thread at least, if there are cores at all */
    for (unsigned round = 0; done < count && round <= count; round++) {
        bool taken[HST_TOPOLOGY_NODES_MAX] = {false};
        for (uint32_t k = 0; k < machine->node_count; k++) {
            uint32_t i = next_node(machine, near, taken), cores = machine->nodes[i].cores;
            taken[i] = true;
            for (uint32_t c = i == near && round == 0; c < cores && done < count; c++)
                node[done++] = i;
        }
    }
    while (done < count)
        node[done++] = near;
}

int topology_node_set(hwloc_topology_t topology, uint32_t i, hwloc_bitmap_t set)
{
    hwloc_obj_t node = hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, i);
    hwloc_bitmap_t usable = topology_usable(topology);
    int rc = !usable ? -ENOMEM : node ? 0 : -ENODEV;
    if (rc == 0 && hwloc_bitmap_and(set, node->cpuset, usable))
        rc = -ENOMEM;
    hwloc_bitmap_free(usable);
    return rc;
}

/* The index of the node that the calling thread ran on last; 0 where that is not told. */
static uint32_t here(hwloc_topology_t topology, hwloc_bitmap_t set)
{
    hwloc_obj_t node = NULL;
    if (hwloc_get_last_cpu_location(topology, set, HWLOC_CPUBIND_THREAD))
        return 0;
    while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)))
        if (hwloc_bitmap_intersects(node->cpuset, set))
            return node->logical_index;
    return 0;
}

static int bind_all(hwloc_topology_t topology, const struct hst_topology *machine,
                    const pthread_t *threads, unsigned count, uint32_t *node)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (!set)
        return -ENOMEM;
    uint32_t near = here(topology, set);
    topology_spread(machine, near < machine->node_count ? near : 0, count, node);
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < count; i++) {
        rc = topology_node_set(topology, node[i], set);
        if (rc == 0 && !hwloc_bitmap_iszero(set) &&
            hwloc_set_thread_cpubind(topology, threads[i], set, 0))
            rc = errno ? -errno : -EIO;
    }
    hwloc_bitmap_free(set);
    return rc;
}

int machine_bind(const pthread_t *threads, unsigned count)
{
    hwloc_topology_t topology = NULL;
    struct hst_topology machine;
    int rc = topology_load(&topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    if (rc)
        return rc;
    rc = topology_fill(topology, &machine);
    uint32_t *node = rc || machine.node_count < 2 ? NULL : calloc((size_t)count + 1, sizeof *node);
    if (node)
        rc = bind_all(topology, &machine, threads, count, node);
    free(node);
    hwloc_topology_destroy(topology);
    return rc;
}
