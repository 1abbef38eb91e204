/* SPDX-License-Identifier: Apache-2.0 */
/* The fake runtime is as strict and as broken as it is told to be. */
#include "runtime/streams.h"

#include <sys/mman.h>

/* ---- memory ---------------------------------------------------------------------------------- */

static void pageable_memory_is_copied_as_cuda_does(void **)
{
    Streams s;
    Vector<float> x(10);
    std::vector<float> host(10, 3), back(10);
    cudaMemcpyAsync(x.data, host.data(), 40, cudaMemcpyHostToDevice, s.a);
    host.assign(10, 4); /* staged: too late to matter */
    cudaMemcpyAsync(back.data(), x.data, 40, cudaMemcpyDeviceToHost, s.a); /* waits */
    assert_true(back == std::vector<float>(10, 3));
}

static void the_host_can_not_read_device_memory(void **)
{
    Outcome outcome = outcome_of("forward", [] {
        Vector<float> x(10, 1);
        return *static_cast<volatile float *>(x.data) == 1;
    });
    assert_false(outcome.right);
    assert_false(outcome_of("forward", [] {
                     Vector<float> x(10, 1);
                     add(x.data, 1, 10, nullptr);
                     cudaDeviceSynchronize();
                     return *static_cast<volatile float *>(x.data) == 2;
                 }).right);
}

static void memory_has_an_end(void **)
{
    void *first, *second;
    size_t free_bytes, total_bytes;
    hst_fake_cuda_configure("memory=6M");
    assert_int_equal(cudaMalloc(&first, 3 << 20), 0); /* which takes 4 MiB */
    assert_int_equal(cudaMalloc(&second, (2 << 20) + 1), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), 0);
    assert_int_equal(cudaMemGetInfo(&free_bytes, &total_bytes), 0);
    assert_int_equal(free_bytes, 2 << 20);
    assert_int_equal(total_bytes, 6 << 20);
    assert_int_equal(cudaMemset(static_cast<char *>(first) + 1, 0, 3 << 20), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(first), 0);
    assert_int_equal(cudaFree(first), cudaErrorInvalidValue);
    hst_fake_cuda_configure("");
}

static size_t free_now()
{
    size_t free_bytes = 0, total_bytes;
    assert_int_equal(cudaMemGetInfo(&free_bytes, &total_bytes), 0);
    return free_bytes;
}

static void a_context_takes_memory_of_its_own(void **)
{
    void *memory;
    int count;
    hst_fake_cuda_configure("memory=8M,overhead=3M,devices=2");
    assert_int_equal(free_now(), 5 << 20);
    assert_int_equal(cudaMalloc(&memory, 5 << 20), cudaErrorMemoryAllocation); /* 6 MiB */
    assert_int_equal(cudaMalloc(&memory, 1), 0);
    assert_int_equal(free_now(), 3 << 20);
    assert_int_equal(cudaSetDevice(1), 0);
    assert_int_equal(free_now(), 5 << 20);
    assert_int_equal(cudaSetDevice(0), 0);
    assert_int_equal(cudaFree(memory), 0);
    assert_int_equal(free_now(), 5 << 20);
    hst_fake_cuda_configure("memory=8M,overhead=9M");
    assert_int_equal(cudaGetDeviceCount(&count), 0); /* which needs no context */
    assert_int_equal(cudaSetDevice(0), cudaErrorMemoryAllocation);
    assert_int_equal(cudaMalloc(&memory, 1), cudaErrorMemoryAllocation);
    hst_fake_cuda_configure("");
}

static void page_locked_memory_is_kept_account_of(void **)
{
    static char memory[8192];
    assert_int_equal(cudaHostRegister(memory, 4096, 0), 0);
    assert_int_equal(cudaHostRegister(memory + 100, 4096, 0), cudaErrorHostMemoryAlreadyRegistered);
    assert_int_equal(cudaHostUnregister(memory + 100), cudaErrorHostMemoryNotRegistered);
    struct cudaPointerAttributes attributes;
    assert_int_equal(cudaPointerGetAttributes(&attributes, memory + 9), 0);
    assert_int_equal(attributes.type, cudaMemoryTypeHost);
    assert_int_equal(cudaHostUnregister(memory), 0);
    assert_int_equal(cudaPointerGetAttributes(&attributes, memory + 9), 0);
    assert_int_equal(attributes.type, cudaMemoryTypeUnregistered);
    (void)cudaGetLastError();
}

/* Pages of this process, with this access. */
static char *map_pages(size_t bytes, int access)
{
    void *pages = mmap(nullptr, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    return static_cast<char *>(pages);
}

static void memory_that_can_not_be_page_locked_is_refused(void **)
{
    const unsigned portable = cudaHostRegisterPortable;
    char *none = map_pages(8192, PROT_NONE), *read = map_pages(8192, PROT_READ);
    char *both = map_pages(16384, PROT_READ | PROT_WRITE);
    assert_int_equal(cudaHostRegister(none, 8192, portable), cudaErrorInvalidValue);
    assert_int_equal(cudaHostRegister(read, 8192, portable), cudaErrorInvalidValue);
    assert_int_equal(cudaHostRegister(read, 8192, portable | cudaHostRegisterReadOnly), 0);
    assert_int_equal(cudaHostUnregister(read), 0);
    char *nowhere = reinterpret_cast<char *>(0x10000);
    assert_int_equal(cudaHostRegister(nowhere, 8192, portable), cudaErrorInvalidValue);
    assert_int_equal(cudaHostRegister(both, 8192, 0xdead0000), cudaErrorInvalidValue);
    assert_int_equal(mprotect(both + 8192, 4096, PROT_NONE), 0); /* its third page */
    assert_int_equal(cudaHostRegister(both, 16384, portable), cudaErrorInvalidValue);
    assert_int_equal(cudaHostRegister(both, 8192, portable), 0);
    assert_int_equal(cudaHostUnregister(both), 0);
    void *memory;
    assert_int_equal(cudaHostAlloc(&memory, 64, 0xdead0000), cudaErrorInvalidValue);
    (void)cudaGetLastError();
    munmap(none, 8192);
    munmap(read, 8192);
    munmap(both, 16384);
}

static void a_copy_stays_in_one_registration(void **)
{
    Vector<char> x(16384);
    char *host = map_pages(16384, PROT_READ | PROT_WRITE);
    assert_int_equal(cudaHostRegister(host + 4096, 4096, 0), 0);
    assert_int_equal(cudaHostRegister(host + 8192, 4096, 0), 0);
    const struct {
        size_t from, bytes;
        cudaError_t error;
    } rows[] = {
        {4096, 4096, cudaSuccess},         {8192, 4096, cudaSuccess}, {0, 4096, cudaSuccess},
        {12288, 4096, cudaSuccess},        /* pageable */
        {8191, 2, cudaErrorInvalidValue},  /* in two */
        {12287, 2, cudaErrorInvalidValue}, /* leaves the second */
        {4095, 2, cudaErrorInvalidValue},  /* enters the first */
        {0, 16384, cudaErrorInvalidValue}, /* goes over both */
    };
    for (auto &row : rows)
        for (int back = 0; back < 2; back++) {
            void *to = back ? host + row.from : x.data, *from = back ? x.data : host + row.from;
            assert_int_equal(cudaMemcpyAsync(to, from, row.bytes, cudaMemcpyDefault, nullptr),
                             row.error);
        }
    assert_int_equal(cudaMemset(host + 8191, 0, 2), cudaErrorInvalidValue);
    (void)cudaGetLastError();
    assert_int_equal(cudaDeviceSynchronize(), 0);
    assert_int_equal(cudaHostUnregister(host + 4096), 0);
    assert_int_equal(cudaHostUnregister(host + 8192), 0);
    munmap(host, 16384);
}

enum Misuse { none, unmapped_before_copy, unmapped_before_unregister, unregistered, freed };

static bool gives_memory_back(Misuse misuse, bool device_writes)
{
    Streams s;
    Vector<char> x(4096);
    char *host = map_pages(8192, PROT_READ | PROT_WRITE);
    void *own;
    cudaHostRegister(host, 8192, 0);
    cudaMallocHost(&own, 4096);
    if (misuse == unmapped_before_copy || misuse == unmapped_before_unregister)
        munmap(host + 4096, 4096);
    char *memory = misuse == freed ? static_cast<char *>(own) : host;
    if (misuse == unmapped_before_copy)
        memory += 4096;
    if (misuse != unmapped_before_unregister)
        cudaMemcpyAsync(device_writes ? memory : x.data, device_writes ? x.data : memory, 4096,
                        cudaMemcpyDefault, s.a);
    if (misuse == freed)
        cudaFreeHost(own);
    if (misuse == unregistered)
        cudaHostUnregister(host);
    if (cudaStreamSynchronize(s.a) || (misuse != freed && cudaFreeHost(own)))
        return false;
    return !cudaHostUnregister(host) && !munmap(host, 8192);
}

static void page_locked_memory_is_not_given_back_under_the_device(void **)
{
    const char *unmapped = "8192 bytes of page-locked memory";
    for (int writes = 0; writes < 2; writes++) {
        auto with = [writes](Misuse misuse) {
            return [=] { return gives_memory_back(misuse, writes); };
        };
        expect_right(with(none));
        expect_message(unmapped, with(unmapped_before_copy));
        expect_message("were unmapped while they were registered", with(unmapped_before_copy));
        expect_message("cudaHostUnregister: 8192 bytes", with(unmapped_before_unregister));
        expect_message("cudaHostUnregister: 8192 bytes", with(unregistered));
        expect_message("enqueued and not known as done", with(unregistered));
        expect_message("cudaFreeHost: 4096 bytes", with(freed));
    }
}

static bool copies_pageable(const char *configuration, cudaError_t wanted)
{
    hst_fake_cuda_configure(configuration);
    Streams s;
    Vector<char> x(64);
    std::vector<char> host(64);
    void *locked;
    cudaMallocHost(&locked, 64);
    unsigned long before = hst_fake_cuda_pageable_copies();
    if (cudaMemcpyAsync(x.data, locked, 64, cudaMemcpyDefault, s.a) ||
        cudaMemcpy(x.data, host.data(), 64, cudaMemcpyDefault) || /* not asynchronous anyway */
        hst_fake_cuda_pageable_copies() != before)
        return false;
    return cudaMemcpyAsync(x.data, host.data(), 64, cudaMemcpyDefault, s.a) == wanted &&
           cudaMemcpyAsync(host.data(), x.data, 64, cudaMemcpyDefault, s.a) == wanted &&
           hst_fake_cuda_pageable_copies() == before + 2 && !cudaStreamSynchronize(s.a);
}

static void copies_of_pageable_memory_are_counted_told_and_refused(void **)
{
    const char *told = "fake CUDA: 2 asynchronous copies from or to pageable memory";
    assert_int_equal(hst_fake_cuda_pageable_copies(), 0); /* this test is the first */
    for (const char *configuration : {"", "pageable=count", "pageable=refuse"}) {
        bool refused = !strcmp(configuration, "pageable=refuse");
        cudaError_t wanted = refused ? cudaErrorNotPermitted : cudaSuccess;
        Outcome outcome =
            outcome_of("forward", [=] { return copies_pageable(configuration, wanted); });
        assert_true(outcome.right);
        assert_int_equal(outcome.text.find(told) != std::string::npos,
                         !strcmp(configuration, "pageable=count"));
    }
}

/* ---- what is refused, what fails ------------------------------------------------------------- */

static cudaError_t launch_error(dim3 grid, dim3 block, size_t shared_bytes)
{
    (void)cudaGetLastError();
    HST_LAUNCH(k_add, grid, block, shared_bytes, nullptr, nullptr, 0.0f, 0);
    return cudaGetLastError();
}

static void launches_that_a_card_refuses_are_refused(void **)
{
    assert_int_equal(launch_error(1, 1024, 48 << 10), 0);
    assert_int_equal(launch_error(1, 1025, 0), cudaErrorInvalidConfiguration);
    assert_int_equal(launch_error(1, dim3(1, 1, 65), 0), cudaErrorInvalidConfiguration);
    assert_int_equal(launch_error(0, 32, 0), cudaErrorInvalidConfiguration);
    assert_int_equal(launch_error(dim3(1, 65536), 32, 0), cudaErrorInvalidConfiguration);
    assert_int_equal(launch_error(1, 32, (48 << 10) + 1), cudaErrorInvalidValue);
    auto limit = cudaFuncAttributeMaxDynamicSharedMemorySize;
    assert_int_equal(cudaFuncSetAttribute(k_add, limit, (227 << 10) + 1), cudaErrorInvalidValue);
    assert_int_equal(cudaFuncSetAttribute(k_add, limit, 227 << 10), 0);
    assert_int_equal(launch_error(1, 32, 227 << 10), 0);
    assert_int_equal(cudaDeviceSynchronize(), 0);
}

static void flags_that_are_not_known_are_refused(void **)
{
    cudaStream_t stream;
    cudaEvent_t event;
    for (unsigned flags : {0u, 1u, 2u, 3u}) {
        assert_int_equal(cudaEventCreateWithFlags(&event, flags), 0);
        unsigned long before = hst_fake_cuda_blocking_waits();
        assert_int_equal(cudaEventSynchronize(event), 0);
        assert_int_equal(hst_fake_cuda_blocking_waits() - before, flags & cudaEventBlockingSync);
        assert_int_equal(cudaEventDestroy(event), 0);
    }
    for (unsigned flags : {(unsigned)cudaEventInterprocess, 8u, 9u, 1u << 31})
        assert_int_equal(cudaEventCreateWithFlags(&event, flags), cudaErrorInvalidValue);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, 2), cudaErrorInvalidValue);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), 0);
    assert_int_equal(cudaEventCreateWithFlags(&event, cudaEventDefault), 0);
    assert_int_equal(cudaStreamWaitEvent(stream, event, 2), cudaErrorInvalidValue);
    assert_int_equal(cudaStreamWaitEvent(stream, event, 0), 0);
    assert_int_equal(cudaEventDestroy(event), 0);
    assert_int_equal(cudaStreamDestroy(stream), 0);
}

static void limits_follow_the_compute_capability(void **)
{
    const struct {
        const char *configuration;
        int shared_bytes, threads, blocks_of_64_threads, blocks_of_64_kib;
    } cards[] = {
        {"cc=8.0", 166912, 2048, 32, 2},  {"cc=8.6", 101376, 1536, 16, 1},
        {"cc=8.9", 101376, 1536, 24, 1},  {"cc=9.0", 232448, 2048, 32, 3},
        {"cc=10.0", 232448, 2048, 32, 3}, {"cc=10.3", 232448, 2048, 32, 3},
        {"cc=12.0", 101376, 1536, 24, 1}, {"cc=12.1", 101376, 1536, 24, 1},
        {"", 232448, 2048, 32, 3},
    };
    auto limit = cudaFuncAttributeMaxDynamicSharedMemorySize;
    for (auto &card : cards) {
        struct cudaDeviceProp properties;
        int bytes, blocks;
        hst_fake_cuda_configure(card.configuration);
        assert_int_equal(cudaGetDeviceProperties(&properties, 0), 0);
        assert_int_equal(properties.sharedMemPerBlockOptin, card.shared_bytes);
        assert_int_equal(properties.sharedMemPerMultiprocessor, card.shared_bytes + 1024);
        assert_int_equal(properties.reservedSharedMemPerBlock, 1024);
        assert_int_equal(properties.maxThreadsPerMultiProcessor, card.threads);
        assert_int_equal(properties.maxThreadsPerBlock, 1024);
        assert_int_equal(properties.regsPerBlock, 65536);
        cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
        assert_int_equal(bytes, card.shared_bytes);
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)k_add, 64, 0);
        assert_int_equal(blocks, card.blocks_of_64_threads);
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)k_add, 64, 64 << 10);
        assert_int_equal(blocks, card.blocks_of_64_kib);
        assert_int_equal(cudaFuncSetAttribute(k_add, limit, bytes + 1), cudaErrorInvalidValue);
        assert_int_equal(launch_error(1, 32, (48 << 10) + 1), cudaErrorInvalidValue);
        assert_int_equal(cudaFuncSetAttribute(k_add, limit, bytes), 0);
        assert_int_equal(launch_error(1, 32, bytes + 1), cudaErrorInvalidValue);
        assert_int_equal(launch_error(1, 32, bytes), 0);
        assert_int_equal(cudaDeviceSynchronize(), 0);
    }
}

static void calls_fail_where_the_plan_says(void **)
{
    void *memory[3];
    hst_fake_cuda_configure("fail=cudaMalloc:2:2");
    assert_int_equal(cudaMalloc(&memory[0], 16), 0);
    assert_int_equal(cudaMalloc(&memory[1], 16), cudaErrorMemoryAllocation);
    assert_int_equal(cudaMalloc(&memory[2], 16), 0);
    cudaFree(memory[0]);
    cudaFree(memory[2]);
    hst_fake_cuda_configure("fail=cudaStreamCreateWithFlags:1+:2");
    cudaStream_t stream;
    for (int i = 0; i < 3; i++)
        assert_int_equal(cudaStreamCreateWithFlags(&stream, 0), cudaErrorMemoryAllocation);
    hst_fake_cuda_configure("");
}

static void a_failed_launch_stays(void **)
{
    Vector<float> x(10);
    hst_fake_cuda_configure("fail=launch:2:719");
    add(x.data, 1, 10, nullptr);
    add(x.data, 1, 10, nullptr);
    add(x.data, 1, 10, nullptr);
    assert_int_equal(cudaGetLastError(), 0); /* not known yet */
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    void *memory;
    assert_int_equal(cudaMalloc(&memory, 16), cudaErrorLaunchFailure);
    for (int i = 0; i < 2; i++)
        assert_int_equal(cudaGetLastError(), cudaErrorLaunchFailure);
    hst_fake_cuda_configure("");
    assert_int_equal(cudaDeviceReset(), 0);
    assert_true(x.read()[0] == 1); /* the third never ran */
}

static void there_may_be_no_driver_or_no_device(void **)
{
    int number = -1;
    hst_fake_cuda_configure("driver=0");
    assert_int_equal(cudaGetDeviceCount(&number), cudaErrorInsufficientDriver);
    assert_int_equal(cudaDriverGetVersion(&number), 0);
    assert_int_equal(number, 0);
    hst_fake_cuda_configure("driver=12080");
    assert_int_equal(cudaGetDeviceCount(&number), cudaErrorInsufficientDriver);
    hst_fake_cuda_configure("devices=0");
    assert_int_equal(cudaGetDeviceCount(&number), cudaErrorNoDevice);
    hst_fake_cuda_configure("devices=2,cc=8.6");
    struct cudaDeviceProp properties;
    assert_int_equal(cudaGetDeviceProperties(&properties, 1), 0);
    assert_int_equal(properties.major * 10 + properties.minor, 86);
    assert_int_equal(cudaSetDevice(2), cudaErrorInvalidDevice);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidDevice);
    Streams s;
    assert_int_equal(cudaSetDevice(1), 0);
    HST_LAUNCH(k_add, 1, 32, 0, s.a, nullptr, 0.0f, 0); /* a stream of device 0 */
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidResourceHandle);
    hst_fake_cuda_configure("");
}

static void arguments_are_taken_when_launched(void **)
{
    Vector<float> x(10);
    float value = 1;
    HST_LAUNCH(k_add, 1, 32, 0, nullptr, x.data, value, x.count);
    value = 100;
    assert_true(x.read() == std::vector<float>(10, 1));
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_of_pageable_memory_are_counted_told_and_refused),
        cmocka_unit_test(pageable_memory_is_copied_as_cuda_does),
        cmocka_unit_test(the_host_can_not_read_device_memory),
        cmocka_unit_test(memory_has_an_end),
        cmocka_unit_test(a_context_takes_memory_of_its_own),
        cmocka_unit_test(page_locked_memory_is_kept_account_of),
        cmocka_unit_test(memory_that_can_not_be_page_locked_is_refused),
        cmocka_unit_test(a_copy_stays_in_one_registration),
        cmocka_unit_test(page_locked_memory_is_not_given_back_under_the_device),
        cmocka_unit_test(launches_that_a_card_refuses_are_refused),
        cmocka_unit_test(flags_that_are_not_known_are_refused),
        cmocka_unit_test(limits_follow_the_compute_capability),
        cmocka_unit_test(calls_fail_where_the_plan_says),
        cmocka_unit_test(a_failed_launch_stays),
        cmocka_unit_test(there_may_be_no_driver_or_no_device),
        cmocka_unit_test(arguments_are_taken_when_launched),
    };
    return cmocka_run_group_tests_name("runtime", tests, nullptr, nullptr);
}
