/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake runtime's streams: queues that run as late as a program may rely on, and no further than
 * the wait needs. Another stream moves only where an event demands it, up to that event.
 */
#include "runtime.h"
#include "simt.h"

#include <ctime>

struct CUstream_st {
    std::shared_ptr<hst::Queue> queue;
    unsigned flags;
    int priority;
};

struct CUevent_st {
    std::shared_ptr<hst::Mark> mark;
    bool timed;
};

using hst::Mark;
using hst::Operation;
using hst::Queue;
using Lock = std::lock_guard<std::mutex>;

static int64_t now_ns()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* ---- running --------------------------------------------------------------------------------- */

static std::shared_ptr<Queue> add_queue(int device)
{
    auto queue = std::make_shared<Queue>();
    queue->device = device;
    hst::state().queues.push_back(queue);
    return queue;
}

/* The null stream of the calling thread's device; `state` is held. It waits for no other. */
static std::shared_ptr<Queue> null_queue()
{
    static std::map<int, std::shared_ptr<Queue>> queues;
    auto &queue = queues[hst::current_device()];
    if (!queue)
        queue = add_queue(hst::current_device());
    return queue;
}

std::shared_ptr<Queue> hst::queue_of(cudaStream_t stream)
{
    State &s = state();
    Lock lock(s.state);
    if (!stream || stream == cudaStreamLegacy)
        return null_queue();
    return s.streams.count(stream) ? stream->queue : nullptr;
}

static void push(const std::shared_ptr<Queue> &queue, Operation operation)
{
    Lock lock(hst::state().state);
    queue->operations.push_back(std::move(operation));
}

cudaError_t hst::enqueue(cudaStream_t stream, std::function<cudaError_t()> work)
{
    std::shared_ptr<Queue> queue = queue_of(stream);
    if (!queue)
        return cudaErrorInvalidResourceHandle;
    push(queue, {Operation::work, std::move(work), nullptr, 0, nullptr});
    return cudaSuccess;
}

/* What the queue begins with; null where it is empty. It stays there while it runs. */
static Operation *front(Queue *queue)
{
    Lock lock(hst::state().state);
    return queue->operations.empty() ? nullptr : &queue->operations.front();
}

static bool is_passed(const Operation *operation)
{
    Lock lock(hst::state().state);
    return operation->mark->passed >= operation->generation;
}

/* Takes the operation away unrun. What it records counts as passed: else who waits for it does so
 * for ever. */
static void forget(const Operation &operation)
{
    Mark *mark = operation.mark.get();
    if (operation.kind == Operation::record && mark->passed < operation.generation)
        mark->passed = operation.generation;
}

/* Leaves the first `kept` operations; the caller holds `state`. */
static void forget_operations(Queue *queue, size_t kept)
{
    while (queue->operations.size() > kept) {
        forget(queue->operations.back());
        queue->operations.pop_back();
    }
}

/* After a failure nothing of the device runs any more; what failed is still being run. */
static void fail_device(Queue *running, cudaError_t error)
{
    hst::State &s = hst::state();
    Lock lock(s.state);
    s.devices[(size_t)running->device].sticky = error;
    for (auto &queue : s.queues)
        if (queue->device == running->device)
            forget_operations(queue.get(), queue.get() == running ? 1 : 0);
}

/* Runs the first operation; where it waits for an event, one that the event waits for. */
static void advance(Queue *queue)
{
    hst::State &s = hst::state();
    Operation *operation = front(queue);
    while (operation && operation->kind == Operation::wait && !is_passed(operation)) {
        queue = operation->queue.get();
        operation = front(queue);
    }
    if (!operation)
        return;
    if (operation->kind == Operation::work)
        if (cudaError_t error = operation->run())
            fail_device(queue, error);
    Operation done; /* destroyed without the lock: it may hold the last of a queue */
    Lock lock(s.state);
    if (operation->kind == Operation::record && operation->mark->passed < operation->generation) {
        operation->mark->passed = operation->generation;
        operation->mark->passed_ns = now_ns();
    }
    done = std::move(*operation);
    queue->operations.pop_front();
}

void hst::drain_held(Queue *queue)
{
    if (!front(queue))
        return;
    OpenMemory open;
    while (front(queue))
        advance(queue);
}

cudaError_t hst::drain(const std::shared_ptr<Queue> &queue)
{
    State &s = state();
    {
        Lock lock(s.execution);
        drain_held(queue.get());
    }
    Lock lock(s.state);
    return s.devices[(size_t)queue->device].sticky;
}

void hst::drain_device_held(int device)
{
    State &s = state();
    for (size_t i = 0;; i++) {
        std::shared_ptr<Queue> queue;
        {
            Lock lock(s.state);
            if (i >= s.queues.size())
                return;
            queue = s.queues[i];
        }
        if (queue->device == device)
            drain_held(queue.get());
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

namespace hst
{
void run_grid(const Launch &launch, const std::function<void()> &body);
}

static cudaError_t check_launch(const hst::Launch &l)
{
    hst::State &s = hst::state();
    uint64_t threads = (uint64_t)l.block.x * l.block.y * l.block.z;
    if (!threads || threads > 1024 || l.block.z > 64 || !l.grid.x || !l.grid.y || !l.grid.z ||
        l.grid.x > 0x7fffffff || l.grid.y > 65535 || l.grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    Lock lock(s.state);
    auto limit = s.shared_limits.find(l.kernel);
    size_t allowed = hst::SHARED_BYTES_DEFAULT;
    if (limit != s.shared_limits.end() && (size_t)limit->second > allowed)
        allowed = (size_t)limit->second;
    return l.shared_bytes > allowed ? cudaErrorInvalidValue : cudaSuccess;
}

void hst::enqueue_launch(const Launch &launch, cudaStream_t stream, std::function<void()> thread)
{
    if (enter("cudaLaunchKernel"))
        return;
    std::shared_ptr<Queue> queue = queue_of(stream);
    cudaError_t error = check_launch(launch);
    if (!queue || queue->device != current_device())
        error = cudaErrorInvalidResourceHandle;
    if (leave(error))
        return;
    cudaError_t fault = planned_fault("launch");
    push(queue, {Operation::work,
                 [launch, thread, fault] {
                     if (!fault)
                         run_grid(launch, thread);
                     return fault;
                 },
                 nullptr, 0, nullptr});
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    return hst::leave(hst::enqueue(stream, [=] {
        function(argument);
        return cudaSuccess;
    }));
}

/* ---- streams --------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    hst::State &s = hst::state();
    Lock lock(s.state);
    *stream = new CUstream_st{add_queue(hst::current_device()), flags, priority};
    s.streams.insert(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

/* As in CUDA it returns at once; what is queued stays the device's. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    hst::State &s = hst::state();
    Lock lock(s.state);
    if (!s.streams.erase(stream))
        return hst::leave(cudaErrorInvalidResourceHandle);
    for (size_t i = 0; i < s.queues.size(); i++)
        if (s.queues[i] == stream->queue && stream->queue->operations.empty())
            s.queues.erase(s.queues.begin() + (ptrdiff_t)i--);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    std::shared_ptr<Queue> queue = hst::queue_of(stream);
    return hst::leave(queue ? hst::drain(queue) : cudaErrorInvalidResourceHandle);
}

/* One operation runs, so that a program which asks again and again gets an end. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    std::shared_ptr<Queue> queue = hst::queue_of(stream);
    if (!queue)
        return hst::leave(cudaErrorInvalidResourceHandle);
    if (!front(queue.get()))
        return cudaSuccess;
    Lock lock(hst::state().execution);
    hst::OpenMemory open;
    advance(queue.get());
    return hst::leave(cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    if (cudaError_t error = hst::enter(__func__))
        return error;
    hst::State &s = hst::state();
    std::shared_ptr<Queue> queue = hst::queue_of(stream);
    Lock lock(s.state);
    if (!queue || !s.events.count(event))
        return hst::leave(cudaErrorInvalidResourceHandle);
    const std::shared_ptr<Mark> &mark = event->mark;
    if (mark->recorded > mark->passed)
        queue->operations.push_back({Operation::wait, nullptr, mark, mark->recorded, mark->queue});
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    hst::State &s = hst::state();
    {
        Lock lock(s.execution);
        hst::drain_device_held(hst::current_device());
    }
    Lock lock(s.state);
    return hst::leave(s.devices[(size_t)hst::current_device()].sticky);
}

/* Work is dropped, failures are forgotten; memory and handles stay for their owners to free. */
cudaError_t cudaDeviceReset(void)
{
    hst::State &s = hst::state();
    Lock execution(s.execution);
    Lock lock(s.state);
    for (auto &queue : s.queues)
        if (queue->device == hst::current_device())
            forget_operations(queue.get(), 0);
    s.devices[(size_t)hst::current_device()].sticky = cudaSuccess;
    return cudaSuccess;
}

/* ---- events ---------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    hst::State &s = hst::state();
    Lock lock(s.state);
    *event = new CUevent_st{std::make_shared<Mark>(), !(flags & cudaEventDisableTiming)};
    s.events.insert(*event);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    hst::State &s = hst::state();
    Lock lock(s.state);
    if (!s.events.erase(event))
        return hst::leave(cudaErrorInvalidResourceHandle);
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    hst::State &s = hst::state();
    std::shared_ptr<Queue> queue = hst::queue_of(stream);
    Lock lock(s.state);
    if (!queue || !s.events.count(event))
        return hst::leave(cudaErrorInvalidResourceHandle);
    event->mark->queue = queue;
    queue->operations.push_back(
        {Operation::record, nullptr, event->mark, ++event->mark->recorded, nullptr});
    return cudaSuccess;
}

/* The event's mark, or null where there is no such event. */
static std::shared_ptr<Mark> mark_of(cudaEvent_t event)
{
    hst::State &s = hst::state();
    Lock lock(s.state);
    return s.events.count(event) ? event->mark : nullptr;
}

static std::shared_ptr<Queue> pending_queue(const std::shared_ptr<Mark> &mark,
                                            unsigned long generation)
{
    Lock lock(hst::state().state);
    return mark->passed < generation ? mark->queue : nullptr;
}

static unsigned long recorded(const std::shared_ptr<Mark> &mark)
{
    Lock lock(hst::state().state);
    return mark->recorded;
}

static cudaError_t sticky_of(const std::shared_ptr<Queue> &queue)
{
    Lock lock(hst::state().state);
    return hst::state().devices[(size_t)queue->device].sticky;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    std::shared_ptr<Mark> mark = mark_of(event);
    if (!mark)
        return hst::leave(cudaErrorInvalidResourceHandle);
    std::shared_ptr<Queue> queue = pending_queue(mark, recorded(mark));
    if (!queue)
        return cudaSuccess;
    Lock lock(hst::state().execution);
    hst::OpenMemory open;
    advance(queue.get());
    cudaError_t error = sticky_of(queue);
    return hst::leave(error ? error : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    std::shared_ptr<Mark> mark = mark_of(event);
    if (!mark)
        return hst::leave(cudaErrorInvalidResourceHandle);
    unsigned long generation = recorded(mark);
    Lock lock(hst::state().execution);
    std::shared_ptr<Queue> queue = pending_queue(mark, generation);
    if (!queue)
        return cudaSuccess;
    hst::OpenMemory open;
    for (; queue; queue = pending_queue(mark, generation)) {
        if (cudaError_t error = sticky_of(queue))
            return hst::leave(error);
        advance(queue.get());
    }
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    hst::State &s = hst::state();
    Lock lock(s.state);
    if (!s.events.count(start) || !s.events.count(end) || !start->timed || !end->timed ||
        !start->mark->recorded || !end->mark->recorded)
        return hst::leave(cudaErrorInvalidResourceHandle);
    if (start->mark->passed < start->mark->recorded || end->mark->passed < end->mark->recorded)
        return hst::leave(cudaErrorNotReady);
    *milliseconds = (float)((double)(end->mark->passed_ns - start->mark->passed_ns) * 1e-6);
    return cudaSuccess;
}
