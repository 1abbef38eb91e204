/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is ordered before what, whatever has run by now: an operation comes after those before it
 * in its stream, after an event that its stream waited for, and after all that the host had seen
 * the end of when it was enqueued. (What one thread of the host has seen counts for all.)
 */
#include "runtime.h"

#include <cstdio>
#include <cstdlib>

void hst::comes_after(Clock *clock, const Clock &before)
{
    for (auto &[id, number] : before) {
        unsigned long &known = (*clock)[id];
        known = known < number ? number : known;
    }
}

unsigned long hst::begin_operation(Queue *queue)
{
    comes_after(&queue->before, state().before);
    return queue->before[queue->id] = ++queue->enqueued;
}

/* ---- workspaces ------------------------------------------------------------------------------ */

struct Use {
    size_t bytes;
    unsigned long id, number; /* of the queue and the operation */
    unsigned long stream;
};

static std::map<const char *, Use> uses; /* the last of each workspace; `state` guards it */

static bool holds(const hst::Clock &before, const Use &use)
{
    auto known = before.find(use.id);
    return known != before.end() && known->second >= use.number;
}

void hst::use_workspace(Queue *queue, const char *memory, size_t bytes)
{
    std::lock_guard<std::mutex> lock(state().state);
    for (auto use = uses.begin(); use != uses.end();) {
        if (use->first >= memory + bytes || memory >= use->first + use->second.bytes) {
            ++use;
            continue;
        }
        if (!holds(queue->before, use->second) && !holds(state().before, use->second)) {
            fprintf(stderr,
                    "fake CUDA: streams %lu and %lu have products in one workspace at %p, and "
                    "nothing orders them\n",
                    use->second.stream, queue->number, static_cast<const void *>(memory));
            abort();
        }
        use = uses.erase(use);
    }
    uses[memory] = {bytes, queue->id, queue->enqueued + 1, queue->number};
}
