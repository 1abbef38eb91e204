/* SPDX-License-Identifier: Apache-2.0 */
/* What runs when: as late as it may or as early, and always as events and waits promise. */
#include "runtime/streams.h"

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

/* One stream reads a buffer that another one overwrites; what is read, where they are not ordered,
 * is 1 as long as the reader goes first. */
static bool reader_goes_first(const char *order, bool from_host, bool waits)
{
    hst_fake_cuda_configure(order);
    Streams s;
    Vector<float> buffer(100, 1), out(100), next(100, 2);
    void *memory;
    assert_int_equal(cudaMallocHost(&memory, 400), 0);
    cudaMemcpy(memory, next.data, 400, cudaMemcpyDefault);
    cudaMemcpyAsync(out.data, buffer.data, 400, cudaMemcpyDefault, s.a);
    cudaEventRecord(s.event, s.a);
    if (waits)
        cudaStreamWaitEvent(s.b, s.event, 0);
    cudaMemcpyAsync(buffer.data, from_host ? memory : next.data, 400, cudaMemcpyDefault, s.b);
    if (cudaStreamSynchronize(s.a) || cudaStreamSynchronize(s.b))
        return false;
    bool right = buffer.read()[7] == 2 && out.read()[7] == 1;
    cudaFreeHost(memory);
    return right;
}

/* No child and no schedules: nothing here ends the program, and copies have no threads. */
static bool writer_is_caught(const char *order, bool from_host)
{
    assert_true(reader_goes_first(order, from_host, true));
    bool right = reader_goes_first(order, from_host, false);
    hst_fake_cuda_configure("");
    return !right;
}

static void a_missing_wait_of_a_writer_is_caught(void **)
{
    for (int from_host = 0; from_host < 2; from_host++) {
        assert_false(writer_is_caught("streams=late", from_host)); /* late finds readers alone */
        assert_true(writer_is_caught("streams=early", from_host));
        assert_true(writer_is_caught("streams=early:1", from_host));
        assert_false(
            writer_is_caught("streams=early:2", from_host)); /* the writer is the late one */
        assert_int_equal(writer_is_caught("streams=h2d-early", from_host), from_host);
        int caught = 0;
        for (char seed = '0'; seed <= '9'; seed++)
            caught += writer_is_caught((std::string("streams=random:") + seed).c_str(), from_host);
        assert_in_range(caught, 1, 9);
    }
}

static bool second_stream_sees_the_first_when(const char *order, bool waits)
{
    hst_fake_cuda_configure(order);
    return second_stream_sees_the_first(waits);
}

/* Early orders too keep what events and waits promise. */
static void what_is_ordered_is_so_in_every_order(void **)
{
    for (const char *order :
         {"streams=late", "streams=early:0", "streams=early:1", "streams=early:2",
          "streams=h2d-early", "streams=random:1", "streams=random:2"})
        assert_true(second_stream_sees_the_first_when(order, true));
    hst_fake_cuda_configure("");
    const char *reader_is_early = "streams=early:1";
    assert_false(outcome_of("forward", [=] {
                     return second_stream_sees_the_first_when(reader_is_early, false);
                 }).right);
}

static void early_work_is_done_when_it_is_asked_for(void **)
{
    hst_fake_cuda_configure("streams=early");
    Streams s;
    Vector<float> x(1), y(1, 7);
    void *memory;
    assert_int_equal(cudaMallocHost(&memory, 4), 0);
    volatile float *out = static_cast<volatile float *>(memory);
    add(x.data, 1, 1, s.a); /* the first stream is late */
    assert_int_equal(cudaStreamQuery(s.a), cudaErrorNotReady);
    cudaMemcpyAsync(memory, y.data, 4, cudaMemcpyDeviceToHost, s.b);
    assert_true(*out == 7);
    assert_int_equal(cudaStreamQuery(s.b), 0);
    add(x.data, 1, 1, s.a);
    cudaEventRecord(s.event, s.a);
    cudaStreamWaitEvent(s.b, s.event, 0);
    cudaMemcpyAsync(memory, x.data, 4, cudaMemcpyDeviceToHost, s.b);
    assert_true(*out == 7); /* it waits for the event, and nobody for it */
    assert_int_equal(cudaEventSynchronize(s.event), 0);
    assert_true(*out == 2); /* which the event has let go */
    assert_int_equal(cudaStreamQuery(s.b), 0);
    (void)cudaGetLastError();
    cudaFreeHost(memory);
    hst_fake_cuda_configure("");
}

/* An event that is recorded again stands for another place; who waited for the first still does. */
static void a_wait_is_for_the_record_that_was_there(void **)
{
    Streams s;
    cudaStream_t other;
    Vector<float> x(1), y(1);
    cudaStreamCreate(&other);
    add(x.data, 1, 1, s.a);
    cudaEventRecord(s.event, s.a);
    cudaStreamWaitEvent(s.b, s.event, 0);
    cudaEventRecord(s.event, other);
    assert_int_equal(cudaEventSynchronize(s.event), 0); /* passed, and s.a has not run */
    cudaMemcpyAsync(y.data, x.data, 4, cudaMemcpyDefault, s.b);
    cudaStreamSynchronize(s.b);
    assert_true(y.read()[0] == 1);
    cudaStreamDestroy(other);
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
        assert_true(outcome_of("forward", [=] {
                        return waiting_ends_when(which & 1, which & 2, which & 4);
                    }).right);
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_wait_between_streams_is_caught),
        cmocka_unit_test(a_buffer_used_again_too_early_is_caught),
        cmocka_unit_test(nothing_runs_before_it_is_waited_for),
        cmocka_unit_test(an_event_is_asked_until_it_is_passed),
        cmocka_unit_test(a_missing_wait_of_a_writer_is_caught),
        cmocka_unit_test(what_is_ordered_is_so_in_every_order),
        cmocka_unit_test(early_work_is_done_when_it_is_asked_for),
        cmocka_unit_test(a_wait_is_for_the_record_that_was_there),
        cmocka_unit_test(a_wait_for_what_a_failure_took_away_ends),
    };
    return cmocka_run_group_tests_name("order", tests, nullptr, nullptr);
}
