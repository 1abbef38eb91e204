/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which the fake runtime runs what is enqueued. A wait runs what it needs and no more:
 * another stream moves only where an event demands it, up to that event. Beyond that the
 * configured order says what runs when it is enqueued, with nobody waiting: nothing (late), all
 * but one stream's (early), copies to the device (h2d-early) or what a seed chooses (random).
 */
#include "runtime.h"

#include <ctime>

using hst::Mark;
using hst::Operation;
using hst::Order;
using hst::Queue;
using Lock = std::lock_guard<std::mutex>;

/* What `random` has chosen; `execution` guards it. */
static struct {
    uint64_t state;
    unsigned long late; /* the stream that is held back for now */
    unsigned left;      /* choices until it is another one */
} chance;

static int64_t now_ns()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* ---- queues ---------------------------------------------------------------------------------- */

void hst::reset_order(State *state)
{
    state->streams_made = 0;
    chance = {};
    chance.state = state->config.order_number;
}

std::shared_ptr<Queue> hst::add_queue(int device, unsigned long number)
{
    auto queue = std::make_shared<Queue>();
    queue->device = device;
    queue->number = number;
    static unsigned long ids;
    queue->id = ++ids;
    state().queues.push_back(queue);
    return queue;
}

Operation *hst::front(Queue *queue)
{
    Lock lock(state().state);
    return queue->operations.empty() ? nullptr : &queue->operations.front();
}

/* ---- running --------------------------------------------------------------------------------- */

/* What is taken away unrun and records counts as passed: else who waits for it does so for ever. */
void hst::forget_operations(Queue *queue, size_t kept)
{
    while (queue->operations.size() > kept) {
        const Operation &operation = queue->operations.back();
        if (operation.kind == Operation::record)
            operation.mark->queue = nullptr;
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
            hst::forget_operations(queue.get(), queue.get() == running ? 1 : 0);
}

/* Where the operation waits for an event that is not passed: the queue that has to move. */
static Queue *blocker(const Operation *operation)
{
    Lock lock(hst::state().state);
    return operation->kind == Operation::wait ? operation->mark->queue.get() : nullptr;
}

void hst::advance(Queue *queue)
{
    State &s = state();
    Operation *operation = front(queue);
    while (operation) {
        Queue *other = blocker(operation);
        if (!other)
            break;
        queue = other;
        operation = front(queue);
    }
    if (!operation)
        return;
    if (operation->ready && !operation->ready()) {
        const timespec nap = {0, 50000}; /* it is for another process to go on */
        nanosleep(&nap, nullptr);
        return;
    }
    for (const Extent &used : operation->page_locked)
        check_page_locked(used);
    if (operation->run)
        if (cudaError_t error = operation->run())
            fail_device(queue, error);
    Operation done; /* destroyed without the lock: it may hold the last of a queue */
    std::shared_ptr<Queue> kept;
    Lock lock(s.state);
    done = std::move(queue->operations.front());
    queue->operations.pop_front();
    if (done.kind == Operation::record) {
        kept = std::move(done.mark->queue);
        done.mark->queue = nullptr;
        done.mark->passed_ns = now_ns();
    }
}

/* ---- before anyone waits --------------------------------------------------------------------- */

static uint64_t draw(uint64_t below)
{
    chance.state = chance.state * 6364136223846793005u + 1442695040888963407u;
    return (chance.state >> 33) % below;
}

/* May the queue's first operation run, with nobody waiting for it? The caller holds `state`. */
static bool may_run_early(const Queue &queue, const hst::Config &config)
{
    if (queue.operations.empty())
        return false;
    const Operation &first = queue.operations.front();
    if (first.kind == Operation::host_call || (first.kind == Operation::wait && first.mark->queue))
        return false;
    if (first.ready && !first.ready())
        return false;
    switch (config.order) {
    case Order::late:
        return false;
    case Order::early:
        return queue.number != config.order_number;
    case Order::h2d_early:
        return first.kind != Operation::work;
    case Order::random:
        return queue.number != chance.late;
    }
    return false;
}

/* The queue that runs an operation next; null: none does. */
static std::shared_ptr<Queue> choose()
{
    hst::State &s = hst::state();
    Lock lock(s.state);
    std::vector<std::shared_ptr<Queue>> able;
    for (auto &queue : s.queues)
        if (may_run_early(*queue, s.config))
            able.push_back(queue);
    if (able.empty() || s.config.order != Order::random)
        return able.empty() ? nullptr : able[0];
    return draw(4) ? able[draw(able.size())] : nullptr;
}

/* One stream falls far behind the others, for a while: else all are about as far. */
static void choose_the_late_one()
{
    hst::State &s = hst::state();
    Lock lock(s.state);
    if (s.config.order != Order::random || chance.left--)
        return;
    chance.late = draw(s.streams_made + 1);
    chance.left = (unsigned)draw(64);
}

void hst::settle()
{
    choose_the_late_one();
    std::shared_ptr<Queue> queue = choose();
    if (!queue)
        return;
    hst::OpenMemory open;
    for (; queue; queue = choose())
        hst::advance(queue.get());
}

static bool is_late()
{
    Lock lock(hst::state().state);
    return hst::state().config.order == Order::late;
}

void hst::push(const std::shared_ptr<Queue> &queue, Operation operation)
{
    State &s = state();
    {
        Lock lock(s.state);
        begin_operation(queue.get());
        if (operation.kind == Operation::wait)
            comes_after(&queue->before, operation.mark->before);
        if (operation.kind == Operation::record)
            operation.mark->before = queue->before;
        queue->operations.push_back(std::move(operation));
    }
    if (is_late())
        return;
    Lock lock(s.execution);
    settle();
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void drain_held(Queue *queue)
{
    if (!hst::front(queue))
        return;
    hst::OpenMemory open;
    while (hst::front(queue)) {
        hst::advance(queue);
        hst::settle();
    }
}

cudaError_t hst::drain(const std::shared_ptr<Queue> &queue)
{
    State &s = state();
    Clock before;
    {
        Lock lock(s.state);
        before = queue->before;
    }
    {
        Lock lock(s.execution);
        drain_held(queue.get());
    }
    Lock lock(s.state);
    comes_after(&s.before, before);
    return s.devices[(size_t)queue->device].sticky;
}

void hst::drain_device_held(int device)
{
    State &s = state();
    for (size_t i = 0;; i++) {
        std::shared_ptr<Queue> queue;
        {
            Lock lock(s.state);
            if (i >= s.queues.size()) {
                comes_after(&s.before, s.gone);
                return;
            }
            queue = s.queues[i];
        }
        if (queue->device != device)
            continue;
        drain_held(queue.get());
        Lock lock(s.state);
        comes_after(&s.before, queue->before);
    }
}
