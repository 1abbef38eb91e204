/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine as one of a process: a forked child has no part in it, a core dump has none of its
 * memory, and a sandbox that tells nothing of processors does not stop it.
 */
#include "aio/sandbox.h"
#include "machine/topology.h"
#include "toy_run.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>

#include <cmocka.h>

#define CHILD_S 20 /* a child that takes longer hangs */

static struct hst_engine *stepped(const char *place)
{
    struct hst_step_stats stats;
    struct hst_engine *engine =
        toy_created(hst_config(.store = toy_store, .durability = "step", .batch_tokens = 10,
                               .micro_batch_tokens = 4, .dram_bytes = 64u << 20, .threads = 2,
                               .tile_elements = 8192, .place = place));
    toy_must(engine, toy_seal_and_load(engine));
    for (int i = 0; i < 3; i++)
        toy_must(engine, toy_step(engine, &stats));
    return engine;
}

/* Nothing of it is left for the next one. */
static void end(struct hst_engine *engine)
{
    char command[128];
    hst_engine_destroy(&engine);
    snprintf(command, sizeof command, "rm -r '%s'/*", toy_store);
    assert_int_equal(system(command), 0);
}

/* What is left to do: the update of the last step, its version, and the weights. */
static void finish(struct hst_engine *engine, struct toy_saved *saved)
{
    struct hst_step_stats stats;
    toy_must(engine, toy_step(engine, &stats));
    toy_must(engine, hst_engine_drain(engine, &stats));
    toy_must(engine, toy_save(engine, saved));
    assert_int_equal(hst_engine_version(engine), 4);
    end(engine);
}

static struct hst_engine *inherited;

static void destroy_inherited(void)
{
    alarm(CHILD_S);
    hst_engine_destroy(&inherited);
    _exit(inherited ? 1 : 0);
}

static void a_forked_child_only_forgets_the_engine(void **state)
{
    static struct toy_saved alone, forked;
    static const char *const places[] = {"states=nvme,weights=nvme", "states=dram,weights=dram"};
    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        finish(stepped(places[i]), &alone);
        inherited = stepped(places[i]);
        assert_int_equal(in_child(destroy_inherited), 0);
        finish(inherited, &forked);
        assert_memory_equal(alone.bytes, forked.bytes, alone.used);
    }
}

/* Whether core dumps leave the mapping out that holds `address`. */
static bool left_out_of_dumps(const void *address)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    bool in = false, out = false;
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            in = (unsigned long)address >= begin && (unsigned long)address < end;
        else if (in && strncmp(line, "VmFlags:", 8) == 0)
            out = strstr(line, " dd") != NULL;
    }
    assert_int_equal(fclose(maps), 0);
    return out;
}

static void core_dumps_hold_no_weights_and_no_gradients(void **state)
{
    const struct hst_unit_view *view;
    struct hst_step step;
    (void)state;
    struct hst_engine *engine = stepped("states=dram,weights=dram");
    struct hst_stream *stream = hst_engine_stream(engine);
    const struct hst_step_in in = {.size = sizeof in, .lr = TOY_LR};
    toy_must(engine, hst_step_begin(engine, &in, &step));
    toy_must(engine, hst_unit_acquire(engine, 0, HST_FORWARD, stream, &view));
    assert_true(left_out_of_dumps(view->param[0].data));
    end(engine);
}

static void load_topology(void)
{
    hwloc_topology_t topology;
    alarm(CHILD_S);
    refuse_always(SYS_sched_getaffinity, EPERM);
    CHECK(topology_load(&topology, HWLOC_TYPE_FILTER_KEEP_NONE) == 0);
    CHECK(hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU) > 0);
    hwloc_topology_destroy(topology);
}

static void processors_are_found_where_their_affinity_is_not_told(void **state)
{
    (void)state;
    assert_int_equal(in_child(load_topology), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* first: hwloc asks once in a process */
        cmocka_unit_test(processors_are_found_where_their_affinity_is_not_told),
        cmocka_unit_test(a_forked_child_only_forgets_the_engine),
        cmocka_unit_test(core_dumps_hold_no_weights_and_no_gradients),
    };
    return cmocka_run_group_tests(tests, toy_make_store, toy_remove_store);
}
