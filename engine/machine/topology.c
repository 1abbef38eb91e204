/* SPDX-License-Identifier: Apache-2.0 */
/* Counts cores as hwloc sees them: hyperthreads share their vector units, so they do not count. */
#include "machine/machine.h"

#include <hwloc.h>
#include <unistd.h>

static unsigned online_processors(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (unsigned)n : 1;
}

unsigned machine_cores(void)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology))
        return online_processors();
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
    unsigned cores = 0;
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    if (allowed && hwloc_topology_load(topology) == 0) {
        if (hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_PROCESS))
            hwloc_bitmap_copy(allowed, hwloc_topology_get_allowed_cpuset(topology));
        int found = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
        for (int i = 0; i < found; i++) {
            hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i);
            cores += hwloc_bitmap_intersects(core->cpuset, allowed) ? 1 : 0;
        }
    }
    hwloc_bitmap_free(allowed);
    hwloc_topology_destroy(topology);
    return cores > 0 ? cores : online_processors();
}
