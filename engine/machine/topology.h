/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_TOPOLOGY_H
#define HOISTWAY_ENGINE_TOPOLOGY_H
/* Between topology.c and its test: the same of machines that are not this one. */
#include "machine/machine.h"

#include <hwloc.h>

/** What hst_topology_read tells, of a machine that is loaded. Errors: -ENOMEM. */
int topology_fill(hwloc_topology_t topology, struct hst_topology *out);

#endif
