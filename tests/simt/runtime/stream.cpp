/* SPDX-License-Identifier: Apache-2.0 */
/* The fake runtime's streams and events, and launches into them: calls over the queues. */
#include "runtime.h"
#include "simt.h"

#include <dlfcn.h>

struct CUstream_st {
    std::shared_ptr<hst::Queue> queue;
    unsigned flags;
    int priority;
};

struct CUevent_st {
    std::shared_ptr<hst::Mark> mark; /* null: never recorded */
    bool timed;
    bool blocks; /* who waits for it sleeps */
};

using hst::Mark;
using hst::Operation;
using hst::Queue;
using Lock = std::lock_guard<std::mutex>;

/* The null stream of the calling thread's device; `state` is held. It waits for no other. */
static std::shared_ptr<Queue> null_queue()
{
    static std::map<int, std::shared_ptr<Queue>> queues;
    auto &queue = queues[hst::current_device()];
    if (!queue)
        queue = hst::add_queue(hst::current_device(), 0);
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

cudaError_t hst::enqueue(cudaStream_t stream, Operation::Kind kind,
                         std::function<cudaError_t()> work)
{
    std::shared_ptr<Queue> queue = queue_of(stream);
    if (!queue)
        return cudaErrorInvalidResourceHandle;
    push(queue, {kind, std::move(work), nullptr, {}});
    return cudaSuccess;
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

/* HST_SIMT_LAUNCHES=FILE: each launch that differs from those before in kernel or block appends the
 * kernel's module, its offset there, threads and dynamic shared memory of a block. */
static void note_launch(const hst::Launch &l)
{
    static const char *path = getenv("HST_SIMT_LAUNCHES");
    static std::set<std::string> noted;
    Dl_info where;
    if (!path || !dladdr(l.kernel, &where))
        return;
    char line[4200];
    snprintf(line, sizeof line, "%s\t%zx\t%u\t%zu\n", where.dli_fname,
             (size_t)((const char *)l.kernel - (const char *)where.dli_fbase),
             l.block.x * l.block.y * l.block.z, l.shared_bytes);
    Lock lock(hst::state().state);
    if (!noted.insert(line).second)
        return;
    FILE *file = fopen(path, "a");
    if (!file || fputs(line, file) < 0 || fclose(file)) {
        fprintf(stderr, "fake CUDA: HST_SIMT_LAUNCHES=%s: cannot be written\n", path);
        abort();
    }
}

void hst::enqueue_launch(const Launch &launch, cudaStream_t stream, std::function<void()> thread)
{
    if (enter("cudaLaunchKernel"))
        return;
    std::shared_ptr<Queue> queue = queue_of(stream);
    note_launch(launch);
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
                 nullptr,
                 {}});
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    return hst::leave(hst::enqueue(stream, Operation::host_call, [=] {
        function(argument);
        return cudaSuccess;
    }));
}

/* ---- streams --------------------------------------------------------------------------------- */

/* Writes the event's last record, null where it was never recorded. False: no such event. */
static bool mark_of(cudaEvent_t event, std::shared_ptr<Mark> *mark)
{
    hst::State &s = hst::state();
    Lock lock(s.state);
    if (!s.events.count(event))
        return false;
    *mark = event->mark;
    return true;
}

/* The host has seen that this is done. */
static void has_ended(const hst::Clock &before)
{
    Lock lock(hst::state().state);
    hst::comes_after(&hst::state().before, before);
}

/* Where the record is still to be passed; null: it is, or there is none. */
static std::shared_ptr<Queue> pending_queue(const std::shared_ptr<Mark> &mark)
{
    Lock lock(hst::state().state);
    return mark ? mark->queue : nullptr;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    if (flags & ~(unsigned)cudaStreamNonBlocking)
        return hst::leave(cudaErrorInvalidValue);
    hst::State &s = hst::state();
    Lock lock(s.state);
    auto queue = hst::add_queue(hst::current_device(), ++s.streams_made);
    *stream = new CUstream_st{queue, flags, priority};
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
    hst::comes_after(&s.gone, stream->queue->before);
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
    if (!hst::front(queue.get())) {
        has_ended(queue->before);
        return cudaSuccess;
    }
    Lock lock(hst::state().execution);
    hst::OpenMemory open;
    hst::advance(queue.get());
    hst::settle();
    return hst::leave(cudaErrorNotReady);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    if (flags != cudaEventWaitDefault)
        return hst::leave(cudaErrorInvalidValue);
    std::shared_ptr<Queue> queue = hst::queue_of(stream);
    std::shared_ptr<Mark> mark;
    if (!queue || !mark_of(event, &mark))
        return hst::leave(cudaErrorInvalidResourceHandle);
    if (pending_queue(mark)) {
        hst::push(queue, {Operation::wait, nullptr, mark, {}});
    } else if (mark) {
        Lock lock(hst::state().state);
        hst::comes_after(&queue->before, mark->before);
    }
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
        if (queue->device == hst::current_device()) {
            hst::forget_operations(queue.get(), 0);
            hst::comes_after(&s.before, queue->before);
        }
    hst::comes_after(&s.before, s.gone);
    s.devices[(size_t)hst::current_device()].sticky = cudaSuccess;
    return cudaSuccess;
}

/* ---- events ---------------------------------------------------------------------------------- */

static unsigned long blocking_waits; /* `state` is held */

unsigned long hst_fake_cuda_blocking_waits()
{
    Lock lock(hst::state().state);
    return blocking_waits;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    if (flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming))
        return hst::leave(cudaErrorInvalidValue); /* nor between processes: nobody has them */
    hst::State &s = hst::state();
    Lock lock(s.state);
    *event = new CUevent_st{nullptr, !(flags & cudaEventDisableTiming),
                            (flags & cudaEventBlockingSync) != 0};
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
    auto mark = std::make_shared<Mark>(Mark{queue, 0, {}});
    {
        Lock lock(s.state);
        if (!queue || !s.events.count(event))
            return hst::leave(cudaErrorInvalidResourceHandle);
        event->mark = mark;
    }
    hst::push(queue, {Operation::record, nullptr, mark, {}});
    return cudaSuccess;
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
    std::shared_ptr<Mark> mark;
    if (!mark_of(event, &mark))
        return hst::leave(cudaErrorInvalidResourceHandle);
    Lock lock(hst::state().execution);
    std::shared_ptr<Queue> queue = pending_queue(mark);
    if (!queue) {
        if (mark)
            has_ended(mark->before);
        return cudaSuccess;
    }
    hst::OpenMemory open;
    hst::advance(queue.get());
    hst::settle();
    cudaError_t error = sticky_of(queue);
    return hst::leave(error ? error : cudaErrorNotReady);
}

static void count_wait(cudaEvent_t event)
{
    Lock lock(hst::state().state);
    blocking_waits += event->blocks;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    std::shared_ptr<Mark> mark;
    if (!mark_of(event, &mark))
        return hst::leave(cudaErrorInvalidResourceHandle);
    count_wait(event);
    Lock lock(hst::state().execution);
    std::shared_ptr<Queue> queue = pending_queue(mark);
    if (!queue) {
        if (mark)
            has_ended(mark->before);
        return cudaSuccess;
    }
    hst::OpenMemory open;
    while (pending_queue(mark)) {
        hst::advance(queue.get());
        hst::settle();
    }
    has_ended(mark->before);
    return hst::leave(sticky_of(queue));
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    hst::State &s = hst::state();
    Lock lock(s.state);
    if (!s.events.count(start) || !s.events.count(end) || !start->timed || !end->timed ||
        !start->mark || !end->mark)
        return hst::leave(cudaErrorInvalidResourceHandle);
    if (start->mark->queue || end->mark->queue)
        return hst::leave(cudaErrorNotReady);
    *milliseconds = (float)((double)(end->mark->passed_ns - start->mark->passed_ns) * 1e-6);
    return cudaSuccess;
}
