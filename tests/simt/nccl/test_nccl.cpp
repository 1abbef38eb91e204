/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The double of NCCL itself: two ranks, each a process, that call it as a program would. What is
 * right passes in every order of streams; each way to break a rule ends with its words.
 */
#include "../runtime/streams.h"
#include "comm/nccl/api.h"

#include <cstring>

extern "C" {
#define DECLARE(type, name) type name;
NCCL_FUNCTIONS(DECLARE)
#undef DECLARE
#define DECLARE(type, name, version) type name;
NCCL_LATER_FUNCTIONS(DECLARE)
#undef DECLARE
}

enum { COUNT = 1000, BYTES = COUNT * 8 };

struct Rank {
    int rank;
    nccl_comm *comm;
    cudaStream_t stream;
    int64_t *send, *receive; /* [2 · COUNT], of ncclMemAlloc */

    void fill(int64_t first)
    {
        std::vector<int64_t> values(2 * COUNT);
        for (int i = 0; i < 2 * COUNT; i++)
            values[(size_t)i] = first + i;
        cudaMemcpy(send, values.data(), 2 * BYTES, cudaMemcpyHostToDevice);
    }
    /* Where value i is first + i; behind an event of the stream, unless it is to be wrong. */
    bool holds(int64_t first, bool waits = true)
    {
        std::vector<int64_t> values(COUNT);
        cudaStream_t other = nullptr;
        cudaEvent_t event = nullptr;
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        cudaEventRecord(event, stream);
        if (waits)
            cudaStreamWaitEvent(other, event, 0);
        cudaMemcpyAsync(values.data(), receive, BYTES, cudaMemcpyDeviceToHost, other);
        cudaStreamSynchronize(stream);
        for (int i = 0; i < COUNT; i++)
            if (values[(size_t)i] != first + i)
                return false;
        return true;
    }
};

using Body = bool (*)(Rank *rank);

static bool settle(nccl_comm *comm)
{
    nccl_result state = NCCL_IN_PROGRESS;
    while (ncclCommGetAsyncError(comm, &state) == NCCL_SUCCESS && state == NCCL_IN_PROGRESS)
        usleep(100);
    return state == NCCL_SUCCESS;
}

static nccl_config config_of(int blocking)
{
    nccl_config config = {};
    config.size = sizeof config;
    config.magic = NCCL_CONFIG_MAGIC;
    config.version = NCCL_VERSION_ALL_TO_ALL;
    config.blocking = blocking;
    return config;
}

/* One rank, in a process of its own: 0 where the body is content. */
[[noreturn]] static void run_rank(int rank, const nccl_id &id, Body body)
{
    Rank own = {rank, nullptr, nullptr, nullptr, nullptr};
    void *memory[2] = {};
    nccl_config config = config_of(1);
    for (int sign : {SIGABRT, SIGSEGV, SIGBUS})
        signal(sign, SIG_DFL);
    alarm(30);
    cudaSetDevice(rank);
    cudaStreamCreateWithFlags(&own.stream, cudaStreamNonBlocking);
    if (ncclCommInitRankConfig(&own.comm, 2, id, rank, &config) ||
        ncclMemAlloc(&memory[0], 2 * BYTES) || ncclMemAlloc(&memory[1], 2 * BYTES))
        _exit(2);
    own.send = static_cast<int64_t *>(memory[0]);
    own.receive = static_cast<int64_t *>(memory[1]);
    own.fill(rank * 1000000);
    const bool content = body(&own);
    fflush(nullptr);
    _exit(content ? 0 : 1);
}

struct Ends {
    bool right; /* both were content */
    std::string text;
};

/* Both ranks. One that is left alone by the other's end is ended. */
static Ends both(const char *streams, const char *nccl, Body body)
{
    int ends[2];
    nccl_id id;
    pid_t child[2];
    assert_int_equal(pipe(ends), 0);
    ncclGetUniqueId(&id);
    for (int rank = 0; rank < 2; rank++) {
        child[rank] = fork();
        assert_true(child[rank] >= 0);
        if (child[rank])
            continue;
        dup2(ends[1], 2);
        setenv("HST_FAKE_NCCL", nccl, 1);
        hst_fake_cuda_configure((std::string("devices=2,streams=") + streams).c_str());
        run_rank(rank, id, body);
    }
    close(ends[1]);
    Ends found = {true, ""};
    for (int i = 0; i < 2; i++) {
        int status = 0;
        const pid_t ended = wait(&status);
        assert_false(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM); /* it hung */
        found.right = found.right && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (i == 0 && !found.right)
            kill(child[ended == child[0]], SIGKILL);
    }
    char buffer[4096];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
        found.text.append(buffer, (size_t)n);
    close(ends[0]);
    return found;
}

static const char *const orders[] = {"late", "early:1", "h2d-early", "random:3"};

static void expect_right_in_all(Body body)
{
    for (const char *streams : orders) {
        const Ends ends = both(streams, "", body);
        if (!ends.right)
            fail_msg("%s: %s", streams, ends.text.c_str());
    }
}

static void expect_words(const char *words, Body body)
{
    const Ends ends = both("late", "", body);
    if (ends.right || ends.text.find(words) == std::string::npos)
        fail_msg("no \"%s\" but: %s", words, ends.text.c_str());
}

/* ---- what is right --------------------------------------------------------------------------- */

static bool gathers(Rank *r)
{
    ncclAllGather(r->send, r->receive, COUNT / 2, NCCL_INT64, r->comm, r->stream);
    std::vector<int64_t> values(COUNT);
    cudaStreamSynchronize(r->stream);
    cudaMemcpy(values.data(), r->receive, BYTES, cudaMemcpyDeviceToHost);
    return values[1] == 1 && values[COUNT / 2] == 1000000;
}

static bool exchanges(Rank *r)
{
    ncclAlltoAll(r->send, r->receive, COUNT, NCCL_INT64, r->comm, r->stream);
    if (!r->holds(r->rank * COUNT))
        return false;
    ncclGroupStart();
    ncclSend(r->send, COUNT, NCCL_INT64, 1 - r->rank, r->comm, r->stream);
    ncclRecv(r->receive, COUNT, NCCL_INT64, 1 - r->rank, r->comm, r->stream);
    ncclGroupEnd();
    return r->holds((1 - r->rank) * 1000000);
}

static bool adds_and_broadcasts(Rank *r)
{
    std::vector<int64_t> values(COUNT);
    ncclAllReduce(r->send, r->receive, COUNT, NCCL_INT64, NCCL_SUM, r->comm, r->stream);
    cudaStreamSynchronize(r->stream);
    cudaMemcpy(values.data(), r->receive, BYTES, cudaMemcpyDeviceToHost);
    ncclBroadcast(r->send, r->receive, COUNT, NCCL_INT64, 1, r->comm, r->stream);
    return values[7] == 1000014 && r->holds(1000000);
}

static void operations_move_what_they_say(void **)
{
    expect_right_in_all(gathers);
    expect_right_in_all(exchanges);
    expect_right_in_all(adds_and_broadcasts);
}

static bool reads_too_early(Rank *r)
{
    ncclBroadcast(r->send, r->receive, COUNT, NCCL_INT64, 1, r->comm, r->stream);
    return r->rank == 1 ? cudaStreamSynchronize(r->stream) == cudaSuccess
                        : r->holds(1000000, false);
}

static bool writes_too_early(Rank *r)
{
    Streams s;
    ncclAlltoAll(r->send, r->receive, COUNT, NCCL_INT64, r->comm, r->stream);
    cudaMemsetAsync(r->send, 0, 2 * BYTES, s.b);
    cudaStreamSynchronize(s.b);
    return r->holds(r->rank * COUNT);
}

static void what_is_not_ordered_has_other_bytes(void **)
{
    assert_false(both("late", "", reads_too_early).right);
    assert_false(both("late", "", writes_too_early).right);
}

static bool splits(Rank *r)
{
    nccl_comm *alone = nullptr;
    nccl_config config = config_of(0);
    if (ncclCommSplit(r->comm, r->rank, 0, &alone, &config) != NCCL_SUCCESS || !settle(alone))
        return false;
    const nccl_result first =
        ncclBroadcast(r->send, r->receive, COUNT, NCCL_INT64, 0, alone, r->stream);
    const nccl_result second =
        ncclBroadcast(r->send, r->receive, COUNT, NCCL_INT64, 0, alone, r->stream);
    return first == NCCL_IN_PROGRESS && second == NCCL_INVALID_ARGUMENT && settle(alone) &&
           r->holds(r->rank * 1000000) && ncclCommDestroy(alone) == NCCL_SUCCESS;
}

static void a_call_before_the_last_one_is_taken_is_refused(void **)
{
    const Ends ends = both("late", "in-progress=3", splits);
    if (!ends.right)
        fail_msg("%s", ends.text.c_str());
}

/* ---- what is wrong --------------------------------------------------------------------------- */

static bool differ_in_type(Rank *r)
{
    ncclAllGather(r->send, r->receive, 80, r->rank ? NCCL_INT64 : NCCL_INT8, r->comm, r->stream);
    return cudaStreamSynchronize(r->stream) == cudaSuccess;
}

static bool differ_in_order(Rank *r)
{
    for (int i = 0; i < 2; i++)
        if (i == r->rank)
            ncclAllGather(r->send, r->receive, 80, NCCL_INT8, r->comm, r->stream);
        else
            ncclAllReduce(r->send, r->receive, 80, NCCL_INT64, NCCL_SUM, r->comm, r->stream);
    return cudaStreamSynchronize(r->stream) == cudaSuccess;
}

static bool differ_in_root(Rank *r)
{
    ncclBroadcast(r->send, r->receive, 80, NCCL_INT8, r->rank, r->comm, r->stream);
    return cudaStreamSynchronize(r->stream) == cudaSuccess;
}

static void ranks_that_do_not_do_the_same_are_told_of(void **)
{
    expect_words("AllGather of 80 elements of type 4, root 0, on rank 1", differ_in_type);
    expect_words("AllReduce of 80 elements", differ_in_order);
    expect_words("Broadcast of 80 elements of type 0, root 1, on rank 1", differ_in_root);
}

static bool message(Rank *r, size_t sent, size_t received)
{
    ncclGroupStart();
    if (sent && r->rank == 0)
        ncclSend(r->send, sent, NCCL_INT8, 1, r->comm, r->stream);
    if (received && r->rank == 1)
        ncclRecv(r->receive, received, NCCL_INT8, 0, r->comm, r->stream);
    ncclSend(r->send, 8, NCCL_INT8, r->rank, r->comm, r->stream);
    ncclRecv(r->receive + 100, 8, NCCL_INT8, r->rank, r->comm, r->stream);
    ncclGroupEnd();
    return cudaStreamSynchronize(r->stream) == cudaSuccess;
}

static void messages_that_nobody_sends_or_receives_are_told_of(void **)
{
    expect_right_in_all([](Rank *r) { return message(r, 80, 80); });
    expect_words("rank 1 receives 88 elements of type 0 from rank 0, which sends it 80 of type 0",
                 [](Rank *r) { return message(r, 80, 88); });
    expect_words("rank 0 sends more to rank 1 than that receives",
                 [](Rank *r) { return message(r, 80, 0); });
    expect_words("from rank 0, which sends nothing", [](Rank *r) { return message(r, 0, 80); });
}

static bool window(Rank *r, size_t bytes, void **made)
{
    return ncclCommWindowRegister(r->comm, r->receive, bytes, made, NCCL_WIN_COLL_SYMMETRIC) ==
               NCCL_SUCCESS &&
           *made;
}

static void windows_are_alike_and_end_in_time(void **)
{
    expect_right_in_all([](Rank *r) {
        void *made;
        return window(r, BYTES, &made) && ncclCommWindowDeregister(r->comm, made) == NCCL_SUCCESS &&
               ncclMemFree(r->receive) == NCCL_SUCCESS && ncclCommDestroy(r->comm) == NCCL_SUCCESS;
    });
    expect_words("a window has", [](Rank *r) {
        void *made;
        return window(r, r->rank ? BYTES : 2 * BYTES, &made);
    });
    expect_words("1 windows outlive their communicator", [](Rank *r) {
        void *made;
        return window(r, BYTES, &made) && ncclCommDestroy(r->comm) == NCCL_SUCCESS;
    });
    expect_words("memory is freed while a window is of it", [](Rank *r) {
        void *made;
        return window(r, BYTES, &made) && ncclMemFree(r->receive) == NCCL_SUCCESS;
    });
}

static void a_communicator_that_is_at_work_is_not_destroyed(void **)
{
    expect_words("is destroyed while something is under way", [](Rank *r) {
        ncclAllGather(r->send, r->receive, 8, NCCL_INT8, r->comm, r->stream);
        return ncclCommDestroy(r->comm) == NCCL_SUCCESS;
    });
}

static bool ends_by_force(Rank *r)
{
    if (r->rank == 1)
        return true;
    ncclAllGather(r->send, r->receive, 8, NCCL_INT8, r->comm, r->stream);
    if (cudaStreamQuery(r->stream) != cudaErrorNotReady)
        return false;
    ncclCommAbort(r->comm);
    return cudaStreamSynchronize(r->stream) == cudaSuccess;
}

static void an_abort_ends_what_waits_for_others(void **)
{
    expect_right_in_all(ends_by_force);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_move_what_they_say),
        cmocka_unit_test(what_is_not_ordered_has_other_bytes),
        cmocka_unit_test(a_call_before_the_last_one_is_taken_is_refused),
        cmocka_unit_test(ranks_that_do_not_do_the_same_are_told_of),
        cmocka_unit_test(messages_that_nobody_sends_or_receives_are_told_of),
        cmocka_unit_test(windows_are_alike_and_end_in_time),
        cmocka_unit_test(a_communicator_that_is_at_work_is_not_destroyed),
        cmocka_unit_test(an_abort_ends_what_waits_for_others),
    };
    return cmocka_run_group_tests_name("simt/nccl", tests, nullptr, nullptr);
}
