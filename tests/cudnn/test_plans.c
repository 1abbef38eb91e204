/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDNN itself, without a device: the graphs are what it recognises, for each kind of card, and its
 * workspaces are within what cut.c promises. A card is described by its properties; the driver is
 * stub_driver.c, so nothing is run.
 */
#include "../short.h"
#include "cut.h"

#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SKIPPED 77

static struct cudnn_api cudnn, api; /* api: cudnn, with what is alive counted */
static struct hst_dev_failure failure;
static size_t live;
static bool all;                 /* both types of each row */
static unsigned turn, every = 1; /* which plans of the rows: one in so many, of the short form */

static cudnnStatus_t create_counted(cudnnBackendDescriptorType_t type, descriptor *made)
{
    cudnnStatus_t status = cudnn.create_descriptor(type, made);
    live += status == CUDNN_STATUS_SUCCESS;
    return status;
}

static cudnnStatus_t destroy_counted(descriptor d)
{
    live--;
    return cudnn.destroy_descriptor(d);
}

struct card {
    int compute, multiprocessors, shared_bytes;
};
static const struct card cards[] = {
    {80, 108, 166912}, {89, 142, 101376}, {90, 132, 232448}, {100, 148, 232448}, {120, 170, 101376},
};

static descriptor describe(struct graph *g, const struct card *card)
{
    char text[1024];
    int length = snprintf(
        text, sizeof text,
        "{\"version\":1,\"deviceId\":0,\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,"
        "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
        "\"regsPerBlock\":65536,\"multiProcessorCount\":%d,\"warpSize\":32,"
        "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
        "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
        "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
        "\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,\"memClockRateKHz\":2619000,"
        "\"l2CacheSize\":52428800,\"totalGlobalMem\":85000000000,\"deviceName\":\"card\"}",
        card->compute * 10, card->multiprocessors, card->shared_bytes);
    descriptor device = graph_make(g, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "a card");
    graph_set(g, device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, length + 1,
              text);
    graph_finalize(g, device);
    if (graph_status(g, &failure))
        fail_msg("%s", failure.text);
    return device;
}

static const char *name_of(cudnnDataType_t type)
{
    return type == CUDNN_DATA_HALF ? "f16" : "bf16";
}

/* The workspace, or a negative error. */
static int64_t plan_bytes(const struct card *card, enum sdpa_form form,
                          const struct sdpa_shape *shape)
{
    struct graph g;
    struct plan plan;
    graph_begin(&g, &api, 1);
    struct cudnn_target target = {.api = &api,
                                  .device = describe(&g, card),
                                  .compute = card->compute,
                                  .version = api.get_version()};
    int64_t rc = plan_build(&plan, &target, form, shape, cut_work_bytes(form, shape), &failure);
    if (rc == 0) {
        rc = (int64_t)plan.work_bytes;
        print_message("  %d.%d form %d %s b%d s%d h%d/%d d%d: engine %d, %zu bytes\n",
                      card->compute / 10, card->compute % 10, (int)form, name_of(shape->type),
                      (int)shape->batch, (int)shape->seq, (int)shape->heads, (int)shape->kv_heads,
                      (int)shape->head_dim, (int)plan.engine, plan.work_bytes);
        plan_destroy(&plan);
    }
    graph_end(&g);
    assert_int_equal(live, 0);
    return rc;
}

static enum sdpa_form backward_of(const struct card *card)
{
    struct cudnn_target target = {.compute = card->compute, .version = api.get_version()};
    return sdpa_backward_form(&target);
}

/* In both types, where all are asked for. Building a plan takes its time: otherwise
 * each row of a table is built in one type, forward in the one and backward in the other. */
static void check(const struct card *card, bool backward, size_t row, struct sdpa_shape shape)
{
    static const cudnnDataType_t types[] = {CUDNN_DATA_BFLOAT16, CUDNN_DATA_HALF};
    enum sdpa_form form = backward ? backward_of(card) : SDPA_FORWARD;
    if (form == SDPA_NONE)
        return; /* this version's engines are not trusted on this card */
    if (++turn % every)
        return;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!all && i != (row + backward) % 2)
            continue;
        shape.type = types[i];
        int64_t bytes = plan_bytes(card, form, &shape);
        if (bytes < 0)
            fail_msg("compute %d, backward %d, %s, seq %d, head_dim %d: %s", card->compute,
                     backward, name_of(types[i]), (int)shape.seq, (int)shape.head_dim,
                     failure.text);
        assert_true((size_t)bytes <= cut_work_bytes(form, &shape));
    }
}

static void each_card_has_a_forward_and_a_backward(void **state)
{
    (void)state;
    const struct sdpa_shape part_of_grouped = {1, 1000, 8, 2, 128, 32, 8, 0};
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        check(&cards[i], false, i, part_of_grouped);
        check(&cards[i], true, i, part_of_grouped);
    }
}

/* For one card: see check. */
static void any_length_and_head_dim_of_the_rule(void **state)
{
    (void)state;
    const struct card *hopper = &cards[2];
    const struct sdpa_shape shapes[] = {
        {2, 2, 2, 1, 64, 2, 1, 0},    {2, 17, 4, 2, 8, 4, 2, 0},       {1, 333, 6, 6, 72, 6, 6, 0},
        {1, 129, 2, 1, 256, 2, 1, 0}, {1, 8192, 1, 1, 128, 32, 32, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check(hopper, false, i, shapes[i]);
        check(hopper, true, i, shapes[i]);
    }
}

static void long_sequences_need_little_in_the_ordered_form(void **state)
{
    (void)state;
    const struct card *blackwell = &cards[3];
    if (backward_of(blackwell) != SDPA_BACKWARD_ORDERED)
        skip();
    check(blackwell, true, 0, (struct sdpa_shape){1, 32768, 4, 4, 128, 32, 32, 0});
}

/* What a large budget gives a group of heads alone; the longest is the most that there is. */
static void a_group_beyond_the_usual_bound_has_a_backward(void **state)
{
    (void)state;
    check(&cards[0], true, 0, (struct sdpa_shape){1, 8192, 4, 1, 128, 32, 8, 0});
    check(&cards[2], true, 0, (struct sdpa_shape){1, 8192, 4, 1, 128, 32, 8, 0});
    if (all)
        check(&cards[2], true, 0, (struct sdpa_shape){1, 22000, 4, 1, 128, 32, 8, 0});
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    const struct sdpa_shape wide = {1, 512, 2, 2, 256, 2, 2, CUDNN_DATA_HALF};
    assert_int_equal(plan_bytes(&cards[0], backward_of(&cards[0]), &wide), -ENOTSUP);
    assert_non_null(strstr(failure.text, "no deterministic plan"));
}

int main(int argc, char **argv)
{
    all = argc > 1 && !strcmp(argv[1], "--all");
    if (test_is_short()) {
        turn = test_turn();
        every = 3;
    }
    void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (!library || cudnn_load(&cudnn, library, "libcudnn.so.9", &failure)) {
        printf("skipped: %s\n", library ? failure.text : dlerror());
        return SKIPPED;
    }
    api = cudnn;
    api.create_descriptor = create_counted;
    api.destroy_descriptor = destroy_counted;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_card_has_a_forward_and_a_backward),
        cmocka_unit_test(any_length_and_head_dim_of_the_rule),
        cmocka_unit_test(long_sequences_need_little_in_the_ordered_form),
        cmocka_unit_test(a_group_beyond_the_usual_bound_has_a_backward),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
