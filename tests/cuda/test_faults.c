/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can be missing or fail on a machine with a GPU, on the double, whose runtime fails as it is
 * told to (HST_FAKE_CUDA, tests/simt). Argument 1 is a folder with a library that is not cuBLASLt,
 * though it is called so.
 */
#include "support.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MIB = 1 << 20, WORDS = 1024, BYTES = WORDS * 4 };

static const char *impostors; /* folder of what is not cuBLASLt */

static void expect_story(struct hst_dev *dev, enum hst_dev_why why, int native, const char *word)
{
    struct hst_dev_failure failure;
    hst_dev_failure(dev, &failure);
    expect_word(failure.text, word);
    assert_int_equal(failure.why, why);
    assert_int_equal(failure.native, native);
}

/* ---- opening --------------------------------------------------------------------------------- */

static void whatever_fails_in_opening_leaves_nothing(void **state)
{
    (void)state;
    static const char *const calls[] = {"cudaGetDeviceCount", "cudaSetDevice",
                                        "cudaGetDeviceProperties", "cudaFuncGetAttributes",
                                        "cudaStreamCreateWithFlags"};
    char faults[100];
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        snprintf(faults, sizeof faults, "fail=%s:1:3", calls[i]);
        expect_closed(faults, "cuda", -ENODEV, HST_DEV_EXECUTION, 3, "does not start");
    }
    expect_closed("fail=cudaSetDevice:1:2", "cuda", -ENOMEM, HST_DEV_MEMORY, 2, "memory is full");
    expect_closed("fail=cublasLtCreate:1:1", "cuda", -ENODEV, HST_DEV_LIBRARY, 1,
                  "/libcublasLt.so.13: CUBLAS_STATUS_NOT_INITIALIZED");
    expect_closed("fail=cublasLtCreate:1:3", "cuda", -ENOMEM, HST_DEV_MEMORY, 3, "cublasLtCreate");
}

static void what_only_is_called_cublaslt_is_refused(void **state)
{
    (void)state;
    char *before = strdup(getenv("HOISTWAY_CUDA_PATH"));
    struct hst_dev *dev = NULL;
    struct hst_dev_failure failure;
    assert_int_equal(setenv("HOISTWAY_CUDA_PATH", impostors, 1), 0);
    assert_int_equal(hst_dev_open("cuda", &wide, &dev, &failure), -ENODEV);
    assert_int_equal(failure.why, HST_DEV_LIBRARY);
    expect_word(failure.text, "libcublasLt.so.13 has no cublasLtCreate");
    assert_null(dev);
    assert_int_equal(setenv("HOISTWAY_CUDA_PATH", before, 1), 0);
    free(before);
    dev = open_device("cuda");
    hst_dev_close(&dev);
}

static void the_engine_of_attention_can_be_wished_for(void **state)
{
    (void)state;
    struct hst_dev *dev = NULL;
    struct hst_dev_failure failure;
    assert_int_equal(setenv("HOISTWAY_ATTENTION", "fastest", 1), 0);
    assert_int_equal(hst_dev_open("cuda", &wide, &dev, &failure), -EINVAL);
    assert_int_equal(failure.why, HST_DEV_ENVIRONMENT);
    expect_word(failure.text, "HOISTWAY_ATTENTION is \"fastest\"");
    assert_int_equal(setenv("HOISTWAY_ATTENTION", "cudnn", 1), 0); /* the double has none */
    assert_int_equal(hst_dev_open("cuda", &wide, &dev, &failure), -ENODEV);
    assert_int_equal(failure.why, HST_DEV_LIBRARY);
    expect_word(failure.text, "cuDNN");
    assert_null(dev);
    assert_int_equal(setenv("HOISTWAY_ATTENTION", "own", 1), 0);
    dev = open_device("cuda");
    hst_dev_close(&dev);
    assert_int_equal(unsetenv("HOISTWAY_ATTENTION"), 0);
}

/* What an open device says of its products: its info and math texts. */
static void read_products(struct hst_dev_info *info, char math[HST_DEV_MATH_BYTES])
{
    struct hst_dev *dev = open_device("cuda");
    const struct hst_matmul args = {
        .m = 9, .n = 9, .k = 9, .a.dtype = HST_BF16, .b.dtype = HST_BF16, .c.dtype = HST_BF16};
    hst_dev_info(dev, info);
    hst_dev_math(dev, math, HST_DEV_MATH_BYTES);
    bool own = strncmp(info->libraries, "own products", 12) == 0;
    assert_int_equal(hst_matmul_work_bytes(dev, &args) == 0, own);
    assert_true(own ? strstr(math, ", own products, ") && !strstr(math, "proposals")
                    : strstr(math, ", cuBLASLt 13.") && strstr(math, ", its first proposals, "));
    hst_dev_close(&dev);
}

static void the_engine_of_products_can_be_wished_for(void **state)
{
    (void)state;
    char *before = strdup(getenv("HOISTWAY_CUDA_PATH")), math[2][HST_DEV_MATH_BYTES];
    struct hst_dev *dev = NULL;
    struct hst_dev_failure failure;
    struct hst_dev_info info;
    assert_int_equal(setenv("HOISTWAY_MATMUL", "fastest", 1), 0);
    assert_int_equal(hst_dev_open("cuda", &wide, &dev, &failure), -EINVAL);
    assert_int_equal(failure.why, HST_DEV_ENVIRONMENT);
    expect_word(failure.text, "HOISTWAY_MATMUL is \"fastest\": none of \"own\", \"cublaslt\"");
    assert_null(dev);
    assert_int_equal(setenv("HOISTWAY_MATMUL", "cublaslt", 1), 0);
    read_products(&info, math[0]);
    expect_word(info.libraries, "cuBLASLt 13.");
    assert_int_equal(setenv("HOISTWAY_MATMUL", "", 1), 0); /* as if unset */
    read_products(&info, math[1]);
    assert_string_equal(math[0], math[1]);
    assert_int_equal(setenv("HOISTWAY_MATMUL", "own", 1), 0);
    assert_int_equal(setenv("HOISTWAY_CUDA_PATH", impostors, 1), 0); /* is not looked at */
    read_products(&info, math[1]);
    expect_word(info.libraries, "own products");
    assert_string_equal(info.absent, "");
    assert_null(strstr(info.library_files, "cublasLt"));
    assert_int_equal(setenv("HOISTWAY_CUDA_PATH", before, 1), 0);
    assert_int_equal(unsetenv("HOISTWAY_MATMUL"), 0);
    free(before);
}

static void without_cublaslt_products_are_the_plugins_own(void **state)
{
    (void)state;
    char math[2][HST_DEV_MATH_BYTES];
    struct hst_dev *dev = NULL;
    struct hst_dev_failure failure;
    struct hst_dev_info info;
    assert_int_equal(setenv("HST_ABSENT", "libcublasLt", 1), 0);
    read_products(&info, math[0]);
    expect_word(info.libraries, "own products");
    assert_string_equal(info.absent, "libcublasLt.so.13");
    assert_int_equal(setenv("HOISTWAY_MATMUL", "cublaslt", 1), 0);
    assert_int_equal(hst_dev_open("cuda", &wide, &dev, &failure), -ENODEV);
    assert_int_equal(failure.why, HST_DEV_LIBRARY);
    expect_word(failure.text, "libcublasLt.so.13 was not found");
    assert_null(dev);
    assert_int_equal(setenv("HOISTWAY_MATMUL", "own", 1), 0);
    read_products(&info, math[1]);
    assert_string_equal(info.absent, "");
    assert_string_equal(math[0], math[1]); /* wished for or not: the same bits */
    assert_int_equal(unsetenv("HOISTWAY_MATMUL"), 0);
    assert_int_equal(unsetenv("HST_ABSENT"), 0);
    read_products(&info, math[0]);
    expect_word(info.libraries, "cuBLASLt 13.");
}

static void a_cublaslt_of_another_version_is_told(void **state)
{
    (void)state;
    char folder[] = "/tmp/hst-faults-XXXXXX", file[64], told[160], math[HST_DEV_MATH_BYTES];
    char *before = strdup(getenv("HOISTWAY_CUDA_PATH"));
    struct hst_dev *dev = NULL;
    struct hst_dev_failure failure;
    struct hst_dev_info info;
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/libcublasLt.so.12", folder);
    snprintf(told, sizeof told, "%s (this build takes libcublasLt.so.13)", file);
    fclose(fopen(file, "w"));
    assert_int_equal(setenv("HST_ABSENT", "libcublasLt", 1), 0);
    assert_int_equal(setenv("HOISTWAY_CUDA_PATH", folder, 1), 0);
    read_products(&info, math);
    assert_string_equal(info.absent, "libcublasLt.so.13");
    assert_string_equal(info.library_unused, told);
    assert_int_equal(setenv("HOISTWAY_MATMUL", "cublaslt", 1), 0);
    assert_int_equal(hst_dev_open("cuda", &wide, &dev, &failure), -ENODEV);
    expect_word(failure.text, "libcublasLt.so.13 was not found, but another version: ");
    expect_word(failure.text, told);
    assert_int_equal(setenv("HOISTWAY_MATMUL", "own", 1), 0); /* is not looked for */
    read_products(&info, math);
    assert_string_equal(info.library_unused, "");
    assert_int_equal(unlink(file) | rmdir(folder) | unsetenv("HOISTWAY_MATMUL"), 0);
    assert_int_equal(setenv("HOISTWAY_CUDA_PATH", before, 1) | unsetenv("HST_ABSENT"), 0);
    free(before);
}

static void every_index_is_a_device_of_its_own(void **state)
{
    (void)state;
    hst_fake_cuda_configure("devices=2");
    struct hst_dev *first = open_device("cuda:0"), *second = open_device("cuda:1");
    struct hst_dev_info info[2];
    void *a, *b;
    assert_int_equal(hst_dev_mem_alloc(second, 5 * MIB, &b), 0);
    hst_dev_info(first, &info[0]);
    hst_dev_info(second, &info[1]);
    assert_string_equal(info[0].model, "Fake GPU 0");
    assert_string_equal(info[1].model, "Fake GPU 1");
    assert_string_equal(info[0].pci, "00fa:01:00.0"); /* in lower case, as sysfs has it */
    assert_string_equal(info[1].pci, "00fa:02:00.0");
    assert_int_equal(info[0].memory_free_bytes, info[0].memory_total_bytes);
    assert_true(info[1].memory_free_bytes <= info[1].memory_total_bytes - 5 * MIB);
    assert_int_equal(info[0].compute_major, 9);
    assert_int_equal(info[0].numa_node, -1);
    assert_int_equal(info[0].driver_version / 1000, 13);
    expect_word(info[0].libraries, "cuBLASLt 13.");
    expect_word(info[0].library_files, "/libcublasLt.so.13");
    assert_string_equal(info[0].library_unused, "");        /* what is not there is not told */
    assert_int_equal(hst_dev_mem_alloc(first, MIB, &a), 0); /* this thread was the second's */
    hst_dev_info(first, &info[0]);
    assert_true(info[0].memory_free_bytes < info[0].memory_total_bytes);
    hst_dev_mem_free(first, a, MIB);
    hst_dev_mem_free(second, b, 5 * MIB);
    hst_dev_close(&first);
    hst_dev_close(&second);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void a_full_card_is_told_in_numbers(void **state)
{
    (void)state;
    hst_fake_cuda_configure("memory=64M");
    struct hst_dev *dev = open_device("cuda");
    struct hst_dev_usage usage;
    void *some, *more = NULL;
    assert_int_equal(hst_dev_mem_alloc(dev, 20 * MIB, &some), 0);
    assert_int_equal(hst_dev_mem_alloc(dev, 100 * MIB, &more), -ENOMEM);
    assert_null(more);
    expect_story(dev, HST_DEV_MEMORY, 2, "104857600 bytes were asked for");
    expect_story(dev, HST_DEV_MEMORY, 2, "of 67108864,");
    expect_story(dev, HST_DEV_MEMORY, 2, "20971520 held here");
    expect_story(dev, HST_DEV_MEMORY, 2, "another process");
    hst_dev_usage(dev, &usage);
    assert_int_equal(usage.memory_bytes, 20 * MIB);
    assert_int_equal(usage.memory_peak_bytes, 20 * MIB);
    assert_int_equal(hst_dev_mem_alloc(dev, 10 * MIB, &more), 0); /* what fits is given still */
    hst_dev_mem_free(dev, more, 10 * MIB);
    hst_dev_mem_free(dev, some, 20 * MIB);
    hst_dev_close(&dev);
}

/* Two streams' worth of everything; 0, or the first error, with all given back. */
static int make_everything(struct hst_dev *dev)
{
    void *memory = NULL, *host = NULL;
    struct hst_stream *stream = NULL;
    struct hst_event *event = NULL;
    int rc = hst_dev_mem_alloc(dev, 3 * MIB, &memory);
    if (!rc)
        rc = hst_dev_host_alloc(dev, MIB, &host);
    if (!rc)
        rc = hst_stream_create(dev, "all", &stream);
    if (!rc)
        rc = hst_event_create(dev, &event);
    hst_event_destroy(&event);
    hst_stream_destroy(&stream);
    hst_dev_host_free(dev, host, MIB);
    hst_dev_mem_free(dev, memory, 3 * MIB);
    return rc;
}

static void memory_is_aligned_though_the_runtimes_is_not(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2 * MIB, 2 * MIB + 1, 5 * MIB};
    hst_fake_cuda_configure("loose=1");
    struct hst_dev *dev = open_device("cuda");
    void *memory[4];
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(hst_dev_mem_alloc(dev, sizes[i], &memory[i]), 0);
        assert_int_equal((uintptr_t)memory[i] % (2 * MIB), 0);
    }
    for (size_t i = 0; i < 4; i++)
        hst_dev_mem_free(dev, memory[i], sizes[i]);
    struct hst_dev_info info;
    hst_dev_info(dev, &info);
    assert_int_equal(info.memory_free_bytes, info.memory_total_bytes); /* nothing stayed */
    hst_dev_close(&dev);
}

static void whatever_can_not_be_made_leaves_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *fault, *wait;
    } cases[] = {
        {"fail=cudaMalloc:1:2", "spin"},
        {"loose=1,fail=cudaMalloc:2:2", "spin"}, /* the first was not aligned */
        {"fail=cudaMemsetAsync:1:2", "spin"},
        {"fail=cudaStreamSynchronize:1:2", "spin"},
        {"fail=cudaHostRegister:1:2", "spin"},
        {"fail=cudaStreamCreateWithFlags:1:2", "spin"},
        {"fail=cudaEventCreateWithFlags:1:2", "spin"},  /* the client's: a stream has none */
        {"fail=cudaEventCreateWithFlags:1:2", "block"}, /* the stream's own */
        {"fail=cudaEventCreateWithFlags:2:2", "block"}  /* the client's, behind it */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hst_dev_usage usage;
        assert_int_equal(setenv("HOISTWAY_WAIT", cases[i].wait, 1), 0);
        struct hst_dev *dev = open_device("cuda");
        hst_fake_cuda_configure(cases[i].fault);
        assert_int_equal(make_everything(dev), -ENOMEM);
        hst_dev_usage(dev, &usage);
        assert_int_equal(usage.memory_bytes, 0);
        assert_int_equal(usage.host_bytes, 0);
        assert_int_equal(make_everything(dev), 0); /* the fault was one */
        hst_dev_close(&dev);
    }
    assert_int_equal(unsetenv("HOISTWAY_WAIT"), 0);
}

static void memory_that_can_not_be_locked_is_told(void **state)
{
    (void)state;
    struct hst_dev *dev = open_device("cuda");
    void *host = NULL;
    hst_fake_cuda_configure("fail=cudaHostRegister:1:2");
    assert_int_equal(hst_dev_host_alloc(dev, 3 * MIB, &host), -ENOMEM);
    assert_null(host);
    expect_story(dev, HST_DEV_LOCKED_MEMORY, 2,
                 "3145728 bytes of host memory cannot be page-locked");
    expect_story(dev, HST_DEV_LOCKED_MEMORY, 2, "RLIMIT_MEMLOCK");
    hst_dev_close(&dev);
}

/* The flags of the mapping that holds an address, as /proc/self/smaps has them: "rd wr mr dc". */
static void flags_of(const void *address, char flags[128])
{
    char line[256];
    bool inside = false;
    FILE *maps = fopen("/proc/self/smaps", "r");
    assert_non_null(maps);
    flags[0] = '\0';
    while (flags[0] == '\0' && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = (uintptr_t)address >= from && (uintptr_t)address < to;
        else if (inside && strncmp(line, "VmFlags: ", 9) == 0)
            snprintf(flags, 128, "%.127s", line + 9);
    }
    fclose(maps);
}

/* "dc": not copied when the process forks. What else a child maps may lie at the same address. */
static void a_child_has_none_of_the_locked_memory(void **state)
{
    (void)state;
    struct hst_dev *dev = open_device("cuda");
    void *host;
    char flags[128];
    assert_int_equal(hst_dev_host_alloc(dev, MIB, &host), 0);
    flags_of(host, flags);
    expect_word(flags, " dc");
    hst_dev_host_free(dev, host, MIB);
    hst_dev_close(&dev);
}

/* ---- execution ------------------------------------------------------------------------------- */

struct ground {
    struct hst_dev *dev;
    struct hst_stream *a, *b;
    struct hst_event *event;
    char *memory;
};

static void raise_ground(struct ground *g)
{
    void *memory;
    g->dev = open_device("cuda");
    assert_int_equal(hst_stream_create(g->dev, "first", &g->a), 0);
    assert_int_equal(hst_stream_create(g->dev, "second", &g->b), 0);
    assert_int_equal(hst_event_create(g->dev, &g->event), 0);
    assert_int_equal(hst_dev_mem_alloc(g->dev, 64 * MIB, &memory), 0);
    g->memory = memory;
}

static void raze_ground(struct ground *g)
{
    hst_event_destroy(&g->event);
    hst_stream_destroy(&g->a);
    hst_stream_destroy(&g->b);
    hst_dev_mem_free(g->dev, g->memory, 64 * MIB);
    hst_dev_close(&g->dev);
}

static int add(struct ground *g, struct hst_stream *stream)
{
    return hst_op_add(stream, &(struct hst_add){WORDS, HST_F32, g->memory, g->memory + BYTES,
                                                g->memory + 2 * BYTES});
}

static int multiply(struct ground *g, struct hst_stream *stream)
{
    return hst_op_matmul(stream, &(struct hst_matmul){.m = 8,
                                                      .n = 16,
                                                      .k = 32,
                                                      .a = {g->memory, 32, HST_F32},
                                                      .b = {g->memory + BYTES, 16, HST_F32},
                                                      .c = {g->memory + 2 * BYTES, 16, HST_F32},
                                                      .work = {g->memory + MIB, 60 * MIB}});
}

static void fail_while_it_runs(void)
{
    struct ground g;
    raise_ground(&g);
    hst_fake_cuda_configure("fail=launch:2:700");
    assert_int_equal(add(&g, g.a), 0);
    assert_int_equal(hst_stream_sync(g.a), 0);
    assert_int_equal(add(&g, g.a), 0);
    assert_int_equal(hst_event_record(g.event, g.a), 0);
    assert_int_equal(hst_stream_sync(g.a), -EIO);
    expect_story(g.dev, HST_DEV_EXECUTION, 700, "stream \"first\"");
    expect_story(g.dev, HST_DEV_EXECUTION, 700, "cudaErrorIllegalAddress");
    assert_int_equal(hst_stream_sync(g.a), -EIO);
    assert_int_equal(add(&g, g.a), -EIO);
    assert_int_equal(multiply(&g, g.a), -EIO);
    assert_int_equal(hst_stream_copy(g.a, g.memory, g.memory + BYTES, 4), -EIO);
    assert_int_equal(hst_stream_zero(g.a, g.memory, 4), -EIO);
    assert_int_equal(hst_event_query(g.event), -EIO);
    assert_int_equal(hst_event_sync(g.event), -EIO);
    assert_int_equal(hst_event_record(g.event, g.a), -EIO);
    assert_int_equal(add(&g, g.b), -EIO); /* the card is lost, to every stream */
    assert_int_equal(hst_stream_sync(g.b), -EIO);
    assert_int_equal(make_everything(g.dev), -EIO);
    hst_fake_cuda_configure(NULL);               /* a card would not recover: even so, */
    assert_int_equal(add(&g, g.b), -EIO);        /* the stream stays failed */
    assert_int_equal(make_everything(g.dev), 0); /* and what is new is not */
    raze_ground(&g);
}

static void a_launch_that_fails_while_it_runs_stays(void **state)
{
    (void)state;
    fail_while_it_runs();
    assert_int_equal(setenv("HOISTWAY_WAIT", "block", 1), 0);
    fail_while_it_runs();
    assert_int_equal(unsetenv("HOISTWAY_WAIT"), 0);
}

static void a_refused_launch_fails_its_stream_and_who_waits_for_it(void **state)
{
    (void)state;
    struct ground g;
    raise_ground(&g);
    hst_fake_cuda_configure("fail=cudaLaunchKernel:1:98");
    assert_int_equal(hst_event_record(g.event, g.a), 0); /* before: passed in order */
    assert_int_equal(add(&g, g.a), -EIO);
    expect_story(g.dev, HST_DEV_EXECUTION, 98, "stream \"first\": add: cudaErrorInvalidDeviceFunc");
    assert_int_equal(add(&g, g.b), 0); /* the runtime's last error is not reported again */
    assert_int_equal(hst_event_record(g.event, g.a), -EIO);
    assert_int_equal(hst_stream_wait(g.b, g.event), 0);
    assert_int_equal(add(&g, g.b), -EIO);
    assert_int_equal(hst_stream_sync(g.b), -EIO);
    hst_stream_destroy(&g.a);
    assert_int_equal(hst_event_query(g.event), -EIO); /* it outlives its stream */
    assert_int_equal(hst_stream_create(g.dev, "third", &g.a), 0);
    assert_int_equal(add(&g, g.a), 0);
    assert_int_equal(hst_event_record(g.event, g.a), 0);
    assert_int_equal(hst_event_sync(g.event), 0);
    raze_ground(&g);
}

static void an_event_not_reached_yet_is_no_error(void **state)
{
    (void)state;
    struct ground g;
    raise_ground(&g);
    for (int i = 0; i < 20; i++)
        assert_int_equal(add(&g, g.a), 0);
    assert_int_equal(hst_event_record(g.event, g.a), 0);
    assert_int_equal(hst_event_query(g.event), 0);
    assert_int_equal(add(&g, g.b), 0); /* not taken for this launch's error */
    assert_int_equal(hst_event_sync(g.event), 0);
    assert_int_equal(hst_event_query(g.event), 1);
    expect_story(g.dev, HST_DEV_OK, 0, "");
    raze_ground(&g);
}

static void a_product_without_an_algorithm_is_not_supported(void **state)
{
    (void)state;
    struct ground g;
    raise_ground(&g);
    hst_fake_cuda_configure("fail=cublasLtMatmulAlgoGetHeuristic:1:15");
    assert_int_equal(multiply(&g, g.a), -ENOTSUP);
    expect_story(g.dev, HST_DEV_EXECUTION, 15, "m=8 n=16 k=32");
    assert_int_equal(multiply(&g, g.a), 0); /* nothing was enqueued, nothing stays */
    assert_int_equal(hst_stream_sync(g.a), 0);
    hst_fake_cuda_configure("fail=cublasLtMatmul:1:13");
    assert_int_equal(multiply(&g, g.a), -EIO);
    assert_int_equal(multiply(&g, g.a), -EIO);
    assert_int_equal(multiply(&g, g.b), 0);
    assert_int_equal(hst_stream_sync(g.a), -EIO);
    assert_int_equal(hst_stream_sync(g.b), 0);
    raze_ground(&g);
}

static void a_product_of_one_shape_asks_for_an_algorithm_once(void **state)
{
    (void)state;
    struct ground g;
    raise_ground(&g);
    assert_int_equal(multiply(&g, g.a), 0);
    hst_fake_cuda_configure("fail=cublasLtMatmulAlgoGetHeuristic:1+:15");
    assert_int_equal(multiply(&g, g.a), 0);
    assert_int_equal(hst_stream_sync(g.a), 0); /* the workspace is one */
    assert_int_equal(multiply(&g, g.b), 0);
    raze_ground(&g);
}

static void more_shapes_than_are_remembered_are_no_matter(void **state)
{
    (void)state;
    struct ground g;
    raise_ground(&g);
    for (size_t round = 0; round < 2; round++)
        for (size_t n = 1; n < 600; n++)
            assert_int_equal(
                hst_op_matmul(g.a, &(struct hst_matmul){.m = 1,
                                                        .n = n,
                                                        .k = 1,
                                                        .a = {g.memory, 1, HST_F32},
                                                        .b = {g.memory + BYTES, n, HST_F32},
                                                        .c = {g.memory + 2 * BYTES, n, HST_F32},
                                                        .work = {g.memory + MIB, 60 * MIB}}),
                0);
    assert_int_equal(hst_stream_sync(g.a), 0);
    raze_ground(&g);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_faults FOLDER\n");
        return 2;
    }
    impostors = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(whatever_fails_in_opening_leaves_nothing, all_is_well),
        cmocka_unit_test_setup(what_only_is_called_cublaslt_is_refused, all_is_well),
        cmocka_unit_test_setup(the_engine_of_attention_can_be_wished_for, all_is_well),
        cmocka_unit_test_setup(the_engine_of_products_can_be_wished_for, all_is_well),
        cmocka_unit_test_setup(without_cublaslt_products_are_the_plugins_own, all_is_well),
        cmocka_unit_test_setup(a_cublaslt_of_another_version_is_told, all_is_well),
        cmocka_unit_test_setup(every_index_is_a_device_of_its_own, all_is_well),
        cmocka_unit_test_setup(a_full_card_is_told_in_numbers, all_is_well),
        cmocka_unit_test_setup(memory_is_aligned_though_the_runtimes_is_not, all_is_well),
        cmocka_unit_test_setup(whatever_can_not_be_made_leaves_nothing, all_is_well),
        cmocka_unit_test_setup(memory_that_can_not_be_locked_is_told, all_is_well),
        cmocka_unit_test_setup(a_child_has_none_of_the_locked_memory, all_is_well),
        cmocka_unit_test_setup(a_launch_that_fails_while_it_runs_stays, all_is_well),
        cmocka_unit_test_setup(a_refused_launch_fails_its_stream_and_who_waits_for_it, all_is_well),
        cmocka_unit_test_setup(an_event_not_reached_yet_is_no_error, all_is_well),
        cmocka_unit_test_setup(a_product_without_an_algorithm_is_not_supported, all_is_well),
        cmocka_unit_test_setup(a_product_of_one_shape_asks_for_an_algorithm_once, all_is_well),
        cmocka_unit_test_setup(more_shapes_than_are_remembered_are_no_matter, all_is_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
