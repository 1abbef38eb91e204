/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The double of NCCL: operations on the fake runtime's streams. What a rank sends is read when its
 * stream comes to the operation, and what it receives is ones bits from then on until all ranks
 * have come: so who reads it earlier, or writes what is still to be sent, has wrong results.
 */
#include "double.h"

#include <cstring>

using hst_nccl::Call;
using hst_nccl::Group;
using hst_nccl::Message;
using hst_nccl::Part;
using hst_nccl::Seat;
using hst_nccl::Work;

size_t hst_nccl::type_bytes(int32_t type)
{
    return type == NCCL_INT8 ? 1 : type == NCCL_INT64 ? 8 : 0;
}

static const char *name_of(const Call &call)
{
    static const char *const names[] = {"",          "AllGather", "AlltoAll",
                                        "AllReduce", "Broadcast", "Send and Recv"};
    return names[call.kind];
}

/* ---- what is brought ------------------------------------------------------------------------- */

static size_t sent_bytes(const Group &group, const Call &call)
{
    const size_t bytes = call.count * hst_nccl::type_bytes(call.type);
    if (call.kind == Call::broadcast && call.root != group.rank)
        return 0;
    return call.kind == Call::all_to_all ? bytes * (size_t)group.ranks : bytes;
}

static char *room(const Group &group, size_t bytes)
{
    if (bytes > hst_nccl::SLOT_BYTES)
        hst_nccl::stop("rank %d brings %zu bytes at once, of which %zu are the most", group.rank,
                       bytes, hst_nccl::SLOT_BYTES);
    return group.slot[group.rank];
}

static void bring_messages(Group *group, const Work &work)
{
    Seat &own = group->own();
    size_t at = 0;
    own.sends = 0;
    for (const Message &message : work.messages) {
        const size_t bytes = message.part.count * hst_nccl::type_bytes(message.part.type);
        if (!message.send)
            continue;
        if (own.sends == hst_nccl::PARTS_MOST)
            hst_nccl::stop("more than %d messages in a group", hst_nccl::PARTS_MOST);
        memcpy(room(*group, at + bytes) + at, message.memory, bytes);
        own.send[own.sends] = message.part;
        own.send[own.sends++].at = at;
        at += bytes;
    }
    for (const Message &message : work.messages)
        if (!message.send)
            memset(message.memory, 0xff,
                   message.part.count * hst_nccl::type_bytes(message.part.type));
}

/* Ones bits in all that is received but what is brought from there. */
static void spoil(const Group &group, const Work &work, size_t sent)
{
    const size_t bytes = work.call.count * hst_nccl::type_bytes(work.call.type);
    const bool many = work.call.kind == Call::gather || work.call.kind == Call::all_to_all;
    if (work.call.kind == Call::broadcast && work.call.root == group.rank)
        return;
    const char *from = work.send, *to = work.send + sent;
    for (size_t r = 0; r < (many ? (size_t)group.ranks : 1); r++) {
        char *part = work.receive + r * bytes;
        if (part + bytes <= from || part >= to)
            memset(part, 0xff, bytes);
    }
}

static void bring(Group *group, const Work &work, uint64_t number)
{
    Seat &own = group->own();
    own.call = work.call;
    if (work.call.kind == Call::messages) {
        bring_messages(group, work);
    } else {
        const size_t sent = sent_bytes(*group, work.call);
        memcpy(room(*group, sent), work.send, sent);
        spoil(*group, work, sent);
    }
    own.brought = number;
}

/* ---- what is taken --------------------------------------------------------------------------- */

static void compare(const Group &group, uint64_t number)
{
    const Call &own = group.table->seat[group.rank].call;
    for (int r = 0; r < group.ranks; r++) {
        const Call &other = group.table->seat[r].call;
        if (own.kind == other.kind && own.type == other.type && own.root == other.root &&
            own.count == other.count)
            continue;
        hst_nccl::stop("operation %llu of a communicator is %s of %llu elements of type %d, root "
                       "%d, on rank %d, and %s of %llu elements of type %d, root %d, on rank %d",
                       (unsigned long long)number, name_of(own), (unsigned long long)own.count,
                       own.type, own.root, group.rank, name_of(other),
                       (unsigned long long)other.count, other.type, other.root, r);
    }
}

/* The index-th message from one rank to another; null where there is none. */
static const Part *message_to(const Seat &from, int to, unsigned index)
{
    for (uint32_t i = 0; i < from.sends; i++)
        if (from.send[i].peer == to && index-- == 0)
            return &from.send[i];
    return nullptr;
}

static void take_messages(const Group &group, const Work &work)
{
    unsigned taken[hst_nccl::RANKS_MOST] = {};
    for (const Message &message : work.messages) {
        if (message.send)
            continue;
        const int peer = message.part.peer;
        const Part *part = message_to(group.table->seat[peer], group.rank, taken[peer]++);
        if (!part || part->count != message.part.count || part->type != message.part.type)
            hst_nccl::stop("rank %d receives %llu elements of type %d from rank %d, which sends %s "
                           "%llu of type %d",
                           group.rank, (unsigned long long)message.part.count, message.part.type,
                           peer, part ? "it" : "nothing,",
                           part ? (unsigned long long)part->count : 0, part ? part->type : 0);
        memcpy(message.memory, group.slot[peer] + part->at,
               part->count * hst_nccl::type_bytes(part->type));
    }
    for (int r = 0; r < group.ranks; r++)
        if (message_to(group.table->seat[r], group.rank, taken[r]))
            hst_nccl::stop("rank %d sends more to rank %d than that receives", r, group.rank);
}

static void add_up(const Group &group, const Work &work)
{
    int64_t *sum = reinterpret_cast<int64_t *>(work.receive);
    if (work.call.type != NCCL_INT64)
        hst_nccl::stop("sums are of int64 alone, and this is of type %d", work.call.type);
    memset(sum, 0, work.call.count * sizeof *sum);
    for (int r = 0; r < group.ranks; r++)
        for (size_t i = 0; i < work.call.count; i++)
            sum[i] =
                (int64_t)((uint64_t)sum[i] + reinterpret_cast<const uint64_t *>(group.slot[r])[i]);
}

static void take(Group *group, const Work &work, uint64_t number)
{
    const size_t bytes = work.call.count * hst_nccl::type_bytes(work.call.type);
    compare(*group, number);
    if (work.call.kind == Call::messages)
        take_messages(*group, work);
    else if (work.call.kind == Call::all_reduce)
        add_up(*group, work);
    else if (work.call.kind == Call::broadcast)
        memcpy(work.receive, group->slot[work.call.root], bytes);
    for (int r = 0; r < group->ranks; r++)
        if (work.call.kind == Call::gather)
            memcpy(work.receive + (size_t)r * bytes, group->slot[r], bytes);
        else if (work.call.kind == Call::all_to_all)
            memcpy(work.receive + (size_t)r * bytes, group->slot[r] + (size_t)group->rank * bytes,
                   bytes);
    group->own().taken = number;
}

/* ---- in the stream --------------------------------------------------------------------------- */

static void push(const std::shared_ptr<hst::Queue> &queue, std::function<bool()> ready,
                 std::function<void()> run)
{
    hst::Operation operation = {hst::Operation::work, nullptr, nullptr, {}};
    operation.ready = std::move(ready);
    operation.run = [run = std::move(run)] {
        run();
        return cudaSuccess;
    };
    hst::push(queue, std::move(operation));
}

/* A slot is free again when all have taken what was in it. */
cudaError_t hst_nccl::enqueue(const std::shared_ptr<Group> &group, const Work &work,
                              cudaStream_t stream)
{
    std::shared_ptr<hst::Queue> queue = hst::queue_of(stream);
    if (!queue)
        return cudaErrorInvalidResourceHandle;
    const uint64_t number = ++group->enqueued;
    push(
        queue,
        [group, number, hangs = work.hangs] {
            return group->aborted || (!hangs && all_said(*group, [number](Seat &seat) {
                       return seat.taken + 1 >= number;
                   }));
        },
        [group, work, number] {
            if (!group->aborted)
                bring(group.get(), work, number);
        });
    push(
        queue,
        [group, number] {
            return group->aborted ||
                   all_said(*group, [number](Seat &seat) { return seat.brought >= number; });
        },
        [group, work, number] {
            if (!group->aborted)
                take(group.get(), work, number);
        });
    return cudaSuccess;
}
