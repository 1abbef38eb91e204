/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is told of machines: this one, beside what /sys says of it, and one with two nodes, in
 * hwloc's own format, written by hand.
 */
#include "machine/topology.h"

#include <errno.h>
#include <glob.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- this machine ---- */

static bool read_text(const char *path, char *text, size_t room)
{
    FILE *file = fopen(path, "re");
    text[0] = '\0';
    if (!file)
        return false;
    bool got = fgets(text, (int)room, file) != NULL;
    fclose(file);
    return got;
}

static size_t count_paths(const char *pattern)
{
    glob_t found = {0};
    size_t count = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return count;
}

/* Different pairs of package and core among the processors that this process may run on. */
static uint32_t cores_by_sysfs(void)
{
    static char seen[CPU_SETSIZE][64];
    cpu_set_t mine;
    uint32_t count = 0;
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        char path[128], package[32], core[64], name[96];
        if (!CPU_ISSET(cpu, &mine))
            continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id",
                 cpu);
        read_text(path, package, sizeof package);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/core_id", cpu);
        if (!read_text(path, core, sizeof core))
            return 0;
        snprintf(name, sizeof name, "%s/%s", package, core);
        bool known = false;
        for (uint32_t i = 0; i < count; i++)
            known |= strcmp(seen[i], name) == 0;
        if (!known)
            snprintf(seen[count++], sizeof seen[0], "%.63s", name);
    }
    return count;
}

static void cores_are_those_of_sysfs_in_this_process_s_affinity(void **state)
{
    (void)state;
    struct hst_topology machine;
    uint32_t expected = cores_by_sysfs();
    assert_int_equal(hst_topology_read(&machine), 0);
    assert_int_equal(machine.cores, expected);
    assert_int_equal(machine_cores(), expected);
    assert_string_not_equal(machine.cpus, "");
    assert_true(machine.memory_bytes > 0);
}

static void nodes_and_their_distances_are_those_of_sysfs(void **state)
{
    (void)state;
    struct hst_topology machine;
    uint32_t cores = 0;
    assert_int_equal(hst_topology_read(&machine), 0);
    size_t expected = count_paths("/sys/devices/system/node/node[0-9]*");
    if (expected == 0) /* a kernel without NUMA: one node, of which nothing is told */
        expected = 1;
    assert_int_equal(machine.node_count, expected);
    for (uint32_t i = 0; i < machine.node_count; i++) {
        char path[128], text[1024], *at = text;
        snprintf(path, sizeof path, "/sys/devices/system/node/node%u/distance",
                 machine.nodes[i].number);
        read_text(path, text, sizeof text);
        for (uint32_t j = 0; machine.node_count > 1 && j < machine.node_count; j++)
            assert_int_equal(machine.nodes[i].distance[j], strtoul(at, &at, 10));
        cores += machine.nodes[i].cores;
    }
    assert_int_equal(cores, machine.cores);
}

static int node_by_sysfs(const struct hst_topology_device *device)
{
    char path[256], text[32];
    snprintf(path, sizeof path,
             device->kind == HST_TOPOLOGY_GPU ? "/sys/bus/pci/devices/%s/numa_node"
                                              : "/sys/block/%s/device/numa_node",
             device->name);
    return read_text(path, text, sizeof text) ? atoi(text) : -1;
}

static void devices_are_in_sysfs_and_on_its_nodes(void **state)
{
    (void)state;
    struct hst_topology machine;
    assert_int_equal(hst_topology_read(&machine), 0);
    for (uint32_t i = 0; i < machine.device_count; i++) {
        const struct hst_topology_device *d = &machine.devices[i];
        char path[256];
        snprintf(path, sizeof path,
                 d->kind == HST_TOPOLOGY_GPU ? "/sys/bus/pci/devices/%s" : "/sys/block/%s",
                 d->name);
        assert_int_equal(access(path, F_OK), 0);
        if (node_by_sysfs(d) >= 0)
            assert_int_equal(d->node, node_by_sysfs(d));
    }
}

/* ---- another machine ---- */

/* Two packages of two cores, each with memory and a last-level cache; an NVMe drive beside the
   first, a GPU beside the second, a disk and a DVD that hang on neither. */
static hwloc_topology_t load_two_nodes(void)
{
    hwloc_topology_t topology;
    assert_int_equal(hwloc_topology_init(&topology), 0);
    assert_int_equal(hwloc_topology_set_xml(topology, TWO_NODES), 0);
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    assert_int_equal(hwloc_topology_load(topology), 0);
    return topology;
}

static void a_machine_of_two_nodes_is_told_with_what_hangs_on_each(void **state)
{
    (void)state;
    struct hst_topology machine;
    hwloc_topology_t topology = load_two_nodes();
    assert_int_equal(topology_fill(topology, &machine), 0);
    hwloc_topology_destroy(topology);
    assert_string_equal(machine.cpu, "ACME 9000");
    assert_string_equal(machine.cpus, "0-3");
    assert_int_equal(machine.cores, 4);
    assert_true(machine.memory_bytes == 3000000);
    assert_true(machine.cache_bytes == 2 * UINT64_C(33554432));
    assert_int_equal(machine.node_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(machine.nodes[i].number, i);
        assert_int_equal(machine.nodes[i].cores, 2);
        assert_true(machine.nodes[i].memory_bytes == 1000000 * (i + 1));
        assert_int_equal(machine.nodes[i].distance[i], 10);
    }
    assert_int_equal(machine.nodes[0].distance[1], 21);
    assert_int_equal(machine.nodes[1].distance[0], 32);
    assert_int_equal(machine.device_count, 3);
    static const struct hst_topology_device expected[] = {
        {HST_TOPOLOGY_GPU, "0000:41:00.0", "GH100", 1},
        {HST_TOPOLOGY_DRIVE, "nvme0n1", "ACME Turbo 2TB", 0},
        {HST_TOPOLOGY_DRIVE, "sda", "", -1},
    };
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(machine.devices[i].kind, expected[i].kind);
        assert_string_equal(machine.devices[i].name, expected[i].name);
        assert_string_equal(machine.devices[i].model, expected[i].model);
        assert_int_equal(machine.devices[i].node, expected[i].node);
    }
}

static void hyperthreads_are_not_cores(void **state)
{
    (void)state;
    struct hst_topology machine;
    hwloc_topology_t topology;
    assert_int_equal(hwloc_topology_init(&topology), 0);
    assert_int_equal(hwloc_topology_set_synthetic(topology, "pack:2 [numa] l3:2 core:3 pu:2"), 0);
    assert_int_equal(hwloc_topology_load(topology), 0);
    assert_int_equal(topology_fill(topology, &machine), 0);
    hwloc_topology_destroy(topology);
    assert_int_equal(machine.cores, 12);
    assert_string_equal(machine.cpus, "0-23");
    assert_int_equal(machine.nodes[1].cores, 6);
    assert_int_equal(machine.nodes[0].distance[1], 0); /* not told */
    assert_int_equal(machine.device_count, 0);
}

/* ---- where workers stay ---- */

static void expect_spread(const struct hst_topology *machine, uint32_t near, const char *expected)
{
    uint32_t node[16];
    char text[17] = "";
    unsigned count = (unsigned)strlen(expected);
    topology_spread(machine, near, count, node);
    for (unsigned i = 0; i < count; i++)
        text[i] = (char)('0' + node[i]);
    assert_string_equal(text, expected);
}

static void workers_fill_the_caller_s_node_then_the_nearest(void **state)
{
    (void)state;
    static struct hst_topology machine = {
        .node_count = 3,
        .nodes = {{.cores = 2, .distance = {10, 30, 20}},
                  {.cores = 3, .distance = {30, 10, 20}},
                  {.cores = 1, .distance = {20, 20, 10}}},
    };
    expect_spread(&machine, 0, "02111");       /* the caller has a core of node 0 */
    expect_spread(&machine, 1, "11200");       /* … of node 1 */
    expect_spread(&machine, 2, "00111");       /* equally far: by number; the caller has the only */
    expect_spread(&machine, 0, "02111002111"); /* more than cores: from the start, its own too */
    expect_spread(&machine, 1, "1");
    machine.nodes[0] = machine.nodes[1] = (struct hst_topology_node){.cores = 2}; /* not told */
    expect_spread(&machine, 1, "10021");
    machine = (struct hst_topology){.node_count = 1, .nodes = {{.cores = 1}}};
    expect_spread(&machine, 0, "000");
    machine.nodes[0].cores = 0;
    expect_spread(&machine, 0, "00");
}

static void a_node_s_processors_are_those_that_the_process_may_use(void **state)
{
    (void)state;
    hwloc_topology_t topology = load_two_nodes();
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    char text[16];
    static const char *const expected[] = {"0-1", "2-3"};
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(topology_node_set(topology, i, set), 0);
        hwloc_bitmap_list_snprintf(text, sizeof text, set);
        assert_string_equal(text, expected[i]);
    }
    assert_int_equal(topology_node_set(topology, 2, set), -ENODEV);
    hwloc_bitmap_free(set);
    hwloc_topology_destroy(topology);
}

static void *wait_for_end(void *arg)
{
    pthread_mutex_lock(arg);
    pthread_mutex_unlock(arg);
    return NULL;
}

/* Wherever they are bound, it is to processors of this process. */
static void bound_threads_stay_in_the_process_s_affinity(void **state)
{
    (void)state;
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    pthread_mutex_t end = PTHREAD_MUTEX_INITIALIZER;
    cpu_set_t mine, theirs, both;
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    pthread_mutex_lock(&end);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_end, &end), 0);
    assert_int_equal(machine_bind(threads, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_getaffinity_np(threads[i], sizeof theirs, &theirs), 0);
        CPU_AND(&both, &mine, &theirs);
        assert_true(CPU_EQUAL(&both, &theirs) && CPU_COUNT(&theirs) > 0);
    }
    pthread_mutex_unlock(&end);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(sched_getaffinity(0, sizeof theirs, &theirs), 0);
    assert_true(CPU_EQUAL(&mine, &theirs)); /* the caller is not bound */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_are_those_of_sysfs_in_this_process_s_affinity),
        cmocka_unit_test(nodes_and_their_distances_are_those_of_sysfs),
        cmocka_unit_test(devices_are_in_sysfs_and_on_its_nodes),
        cmocka_unit_test(a_machine_of_two_nodes_is_told_with_what_hangs_on_each),
        cmocka_unit_test(hyperthreads_are_not_cores),
        cmocka_unit_test(workers_fill_the_caller_s_node_then_the_nearest),
        cmocka_unit_test(a_node_s_processors_are_those_that_the_process_may_use),
        cmocka_unit_test(bound_threads_stay_in_the_process_s_affinity),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
