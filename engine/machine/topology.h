/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_TOPOLOGY_H
#define HOISTWAY_ENGINE_TOPOLOGY_H
/* Between topology.c, bind.c and their tests: the same of machines that are not this one. */
#include "machine/machine.h"

#include <hwloc.h>

/** Loads this machine, with its devices or without. Errors: -ENOMEM, hwloc's. */
int topology_load(hwloc_topology_t *topology, enum hwloc_type_filter_e devices);
/** It returns what this process is bound to; of another machine, all. Null: no memory. */
hwloc_bitmap_t topology_usable(hwloc_topology_t topology);
/** It tells what hst_topology_read does, of a machine that is loaded. Errors: -ENOMEM. */
int topology_fill(hwloc_topology_t topology, struct hst_topology *out);

/**
 * The node of each of `count` threads that help a thread on nodes[near], as indices: as many to a
 * node as it has cores, one of the near node's being taken; near first, then by distance from it
 * (by number where none is told). Where there are more threads than cores it begins anew. Pure.
 */
void topology_spread(const struct hst_topology *machine, uint32_t near, unsigned count,
                     uint32_t *node);
/** The processors of the i-th node that this process may use. Errors: -ENOMEM, -ENODEV. */
int topology_node_set(hwloc_topology_t topology, uint32_t i, hwloc_bitmap_t set);

#endif
