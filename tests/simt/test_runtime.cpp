/* SPDX-License-Identifier: Apache-2.0 */
/* The fake runtime is as lazy, as strict and as broken as it is told to be. */
#include "runtime.h"
#include "support.h"

static __global__ void k_add(float *x, float value, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x)
        x[i] += value;
}

static void add(float *x, float value, size_t count, cudaStream_t stream)
{
    HST_LAUNCH(k_add, 3, 64, 0, stream, x, value, count);
}

struct Streams {
    cudaStream_t a, b;
    cudaEvent_t event;
    Streams()
    {
        assert_int_equal(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), 0);
        assert_int_equal(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking), 0);
        assert_int_equal(cudaEventCreateWithFlags(&event, cudaEventDefault), 0);
    }
    Streams(const Streams &) = delete;
    Streams &operator=(const Streams &) = delete;
    ~Streams()
    {
        cudaStreamDestroy(a);
        cudaStreamDestroy(b);
        cudaEventDestroy(event);
    }
};

/* ---- order ----------------------------------------------------------------------------------- */

static bool second_stream_sees_the_first(bool waits)
{
    Streams s;
    Vector<float> x(100);
    std::vector<float> host(100);
    void *memory = host.data();
    assert_int_equal(cudaHostRegister(memory, 400, 0), 0);
    add(x.data, 2, 100, s.a);
    cudaEventRecord(s.event, s.a);
    if (waits)
        cudaStreamWaitEvent(s.b, s.event, 0);
    cudaMemcpyAsync(memory, x.data, 400, cudaMemcpyDeviceToHost, s.b);
    cudaStreamSynchronize(s.b);
    cudaHostUnregister(memory);
    return host == std::vector<float>(100, 2);
}

static void a_missing_wait_between_streams_is_caught(void **)
{
    expect_right([] { return second_stream_sees_the_first(true); });
    assert_false(outcome_of("forward", [] { return second_stream_sees_the_first(false); }).right);
}

static bool copies_what_was_there(bool waits)
{
    Streams s;
    Vector<float> x(100);
    void *memory;
    assert_int_equal(cudaMallocHost(&memory, 400), 0);
    float *staging = static_cast<float *>(memory);
    for (int i = 0; i < 100; i++)
        staging[i] = 1;
    cudaMemcpyAsync(x.data, memory, 400, cudaMemcpyHostToDevice, s.a);
    if (waits)
        cudaStreamSynchronize(s.a);
    for (int i = 0; i < 100; i++)
        staging[i] = 5; /* used again, perhaps too early */
    cudaStreamSynchronize(s.a);
    std::vector<float> got = x.read();
    cudaFreeHost(memory);
    return got == std::vector<float>(100, 1);
}

static void a_buffer_used_again_too_early_is_caught(void **)
{
    expect_right([] { return copies_what_was_there(true); });
    assert_false(outcome_of("forward", [] { return copies_what_was_there(false); }).right);
}

static void nothing_runs_before_it_is_waited_for(void **)
{
    Streams s;
    void *memory;
    assert_int_equal(cudaMallocHost(&memory, 4), 0);
    volatile float *out = static_cast<volatile float *>(memory);
    Vector<float> x(1), y(1, 7);
    cudaMemcpyAsync(memory, y.data, 4, cudaMemcpyDeviceToHost, s.a);
    cudaEventRecord(s.event, s.a);
    add(x.data, 1, 1, s.a);
    assert_true(*out != 7);
    assert_int_equal(cudaEventSynchronize(s.event), 0);
    assert_true(*out == 7);
    assert_int_equal(cudaStreamQuery(s.a), cudaErrorNotReady); /* the add is still there */
    assert_int_equal(cudaGetLastError(), cudaErrorNotReady);
    assert_int_equal(cudaStreamQuery(s.a), 0);
    assert_true(x.read()[0] == 1);
    cudaFreeHost(memory);
}

static void an_event_is_asked_until_it_is_passed(void **)
{
    Streams s;
    Vector<float> x(10);
    float ms = -1;
    assert_int_equal(cudaEventQuery(s.event), 0); /* never recorded */
    add(x.data, 1, 10, s.a);
    cudaEventRecord(s.event, s.a);
    int asked = 0;
    while (cudaEventQuery(s.event) == cudaErrorNotReady)
        asked++;
    assert_true(asked > 0);
    assert_int_equal(cudaEventElapsedTime(&ms, s.event, s.event), 0);
    assert_true(ms == 0);
    (void)cudaGetLastError();
}

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

/* ---- memory ---------------------------------------------------------------------------------- */

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
    hst_fake_cuda_configure("memory=4M");
    assert_int_equal(cudaMalloc(&first, 3 << 20), 0);
    assert_int_equal(cudaMalloc(&second, (1 << 20) + 1), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), 0);
    assert_int_equal(cudaMemGetInfo(&free_bytes, &total_bytes), 0);
    assert_int_equal(free_bytes, 1 << 20);
    assert_int_equal(total_bytes, 4 << 20);
    assert_int_equal(cudaMemset(static_cast<char *>(first) + 1, 0, 3 << 20), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(first), 0);
    assert_int_equal(cudaFree(first), cudaErrorInvalidValue);
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

/* Nothing is left of what a stream waits for: a wait for it must end all the same. */
static bool waiting_ends_when(bool fails, bool resets, bool another_device_waits)
{
    Streams s;
    Vector<float> x(10);
    alarm(60); /* a wait without an end */
    hst_fake_cuda_configure(fails ? "devices=2,fail=launch:1:719" : "devices=2");
    add(x.data, 1, 10, s.a);
    cudaEventRecord(s.event, s.a);
    cudaStreamWaitEvent(s.b, s.event, 0);
    add(x.data, 1, 10, s.b);
    if (resets)
        cudaDeviceReset();
    if (another_device_waits) {
        cudaStream_t other;
        cudaSetDevice(1);
        cudaStreamCreate(&other);
        cudaStreamWaitEvent(other, s.event, 0);
        if (cudaStreamSynchronize(other)) /* this device has not failed */
            return false;
        cudaSetDevice(0);
    }
    cudaError_t wanted = fails && !resets ? cudaErrorLaunchFailure : cudaSuccess;
    return cudaStreamSynchronize(s.b) == wanted && cudaDeviceSynchronize() == wanted &&
           cudaEventSynchronize(s.event) == wanted;
}

static void a_wait_for_what_a_failure_took_away_ends(void **)
{
    for (int which = 0; which < 8; which++)
        expect_right([=] { return waiting_ends_when(which & 1, which & 2, which & 4); });
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
        cmocka_unit_test(a_missing_wait_between_streams_is_caught),
        cmocka_unit_test(a_buffer_used_again_too_early_is_caught),
        cmocka_unit_test(nothing_runs_before_it_is_waited_for),
        cmocka_unit_test(an_event_is_asked_until_it_is_passed),
        cmocka_unit_test(pageable_memory_is_copied_as_cuda_does),
        cmocka_unit_test(the_host_can_not_read_device_memory),
        cmocka_unit_test(memory_has_an_end),
        cmocka_unit_test(page_locked_memory_is_kept_account_of),
        cmocka_unit_test(launches_that_a_card_refuses_are_refused),
        cmocka_unit_test(calls_fail_where_the_plan_says),
        cmocka_unit_test(a_failed_launch_stays),
        cmocka_unit_test(a_wait_for_what_a_failure_took_away_ends),
        cmocka_unit_test(there_may_be_no_driver_or_no_device),
        cmocka_unit_test(arguments_are_taken_when_launched),
    };
    return cmocka_run_group_tests_name("runtime", tests, nullptr, nullptr);
}
