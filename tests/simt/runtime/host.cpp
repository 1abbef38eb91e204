/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake runtime's page-locked host memory. It keeps account of what is registered, refuses what
 * the real one cannot page-lock, and stops the program where memory is given back that the
 * device may still read or write: on a card that ends in bytes of somebody else.
 */
#include "runtime.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

using hst::Place;
using Lock = std::lock_guard<std::mutex>;

static unsigned long pageable_copies; /* `state` guards it */

/* ---- registrations --------------------------------------------------------------------------- */

/* The first registration with a byte of [from, from + bytes), or the end; `state` is held. */
static std::map<char *, size_t>::iterator first_within(const void *from, size_t bytes)
{
    auto &pinned = hst::state().pinned;
    char *begin = static_cast<char *>(const_cast<void *>(from));
    auto next = pinned.upper_bound(begin);
    if (next != pinned.begin() && std::prev(next)->first + std::prev(next)->second > begin)
        return std::prev(next);
    return next != pinned.end() && next->first < begin + bytes ? next : pinned.end();
}

Place hst::place_on_host(const void *from, size_t bytes)
{
    auto found = first_within(from, bytes);
    if (found == state().pinned.end())
        return Place::pageable;
    const char *begin = static_cast<const char *>(from);
    bool whole = found->first <= begin && begin + bytes <= found->first + found->second;
    return whole ? Place::pinned : Place::wrong;
}

/* Are all pages of [from, from + bytes) mapped by this process? */
static bool is_mapped(const char *from, size_t bytes)
{
    std::vector<unsigned char> resident((size_t)1 << 16);
    uintptr_t at = (uintptr_t)from / hst::PAGE_BYTES * hst::PAGE_BYTES;
    uintptr_t end = (uintptr_t)from + bytes;
    while (at < end) {
        size_t length = end - at, most = resident.size() * hst::PAGE_BYTES;
        length = length < most ? length : most;
        if (mincore(reinterpret_cast<void *>(at), length, resident.data()) && errno == ENOMEM)
            return false;
        at += length;
    }
    return true;
}

[[noreturn]] static void die(const char *what, const char *memory, size_t bytes, const char *why)
{
    fprintf(stderr, "fake CUDA: %s: %zu bytes of page-locked memory at %p %s\n", what, bytes,
            static_cast<const void *>(memory), why);
    abort();
}

void hst::check_page_locked(const Extent &extent)
{
    if (!extent.bytes || is_mapped(extent.from, extent.bytes))
        return;
    Lock lock(state().state);
    auto found = first_within(extent.from, extent.bytes);
    if (found == state().pinned.end())
        die("a copy", extent.from, extent.bytes, "are neither registered nor mapped");
    die("a copy", found->first, found->second, "were unmapped while they were registered");
}

/* An operation that is not done may be running, and on a card is. `state` is held. */
static void check_given_back(const char *what, const char *memory, size_t bytes)
{
    for (auto &queue : hst::state().queues)
        for (const hst::Operation &operation : queue->operations)
            for (const hst::Extent &used : operation.page_locked)
                if (used.bytes && used.from < memory + bytes && memory < used.from + used.bytes)
                    die(what, memory, bytes, "have a copy that is enqueued and not known as done");
    if (!is_mapped(memory, bytes))
        die(what, memory, bytes, "were unmapped while they were registered");
}

/* May the device read it, and write it too? Every page of it has to be mapped so. */
static bool is_accessible(const char *memory, size_t bytes, bool written)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        abort();
    uintptr_t at = (uintptr_t)memory, end = at + bytes;
    char *line = nullptr;
    size_t room = 0;
    while (at < end && getline(&line, &room, maps) > 0) { /* in rising order */
        unsigned long from, to;
        char access[5];
        if (sscanf(line, "%lx-%lx %4s", &from, &to, access) != 3 || to <= at)
            continue;
        if (from > at || access[0] != 'r' || (written && access[1] != 'w'))
            break;
        at = to;
    }
    free(line);
    fclose(maps);
    return at >= end;
}

static cudaError_t pin(char *memory, size_t size_bytes)
{
    auto &pinned = hst::state().pinned;
    if (first_within(memory, size_bytes) != pinned.end())
        return cudaErrorHostMemoryAlreadyRegistered;
    pinned[memory] = size_bytes;
    return cudaSuccess;
}

/* ---- calls ----------------------------------------------------------------------------------- */

cudaError_t cudaHostRegister(void *memory, size_t size_bytes, unsigned flags)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    const unsigned known = cudaHostRegisterPortable | cudaHostRegisterMapped |
                           cudaHostRegisterIoMemory | cudaHostRegisterReadOnly;
    char *from = static_cast<char *>(memory);
    if (!memory || !size_bytes || (flags & ~known) ||
        !is_accessible(from, size_bytes, !(flags & cudaHostRegisterReadOnly)))
        return hst::leave(cudaErrorInvalidValue);
    Lock lock(hst::state().state);
    return hst::leave(pin(from, size_bytes));
}

cudaError_t cudaHostUnregister(void *memory)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    hst::State &s = hst::state();
    Lock lock(s.state);
    auto found = s.pinned.find(static_cast<char *>(memory));
    if (found == s.pinned.end() || s.host_allocations.count(found->first))
        return hst::leave(cudaErrorHostMemoryNotRegistered);
    check_given_back(__func__, found->first, found->second);
    s.pinned.erase(found);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **memory, size_t size_bytes, unsigned flags)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    const unsigned known = cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
    if (flags & ~known)
        return hst::leave(cudaErrorInvalidValue);
    hst::State &s = hst::state();
    Lock lock(s.state);
    if (posix_memalign(memory, hst::PAGE_BYTES, size_bytes ? size_bytes : 1))
        return hst::leave(cudaErrorMemoryAllocation);
    memset(*memory, 0xff, size_bytes);
    s.host_allocations.insert(static_cast<char *>(*memory));
    return hst::leave(pin(static_cast<char *>(*memory), size_bytes));
}

cudaError_t cudaMallocHost(void **memory, size_t size_bytes)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    return cudaHostAlloc(memory, size_bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *memory)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    if (!memory)
        return cudaSuccess;
    hst::State &s = hst::state();
    Lock lock(s.state);
    char *from = static_cast<char *>(memory);
    if (!s.host_allocations.erase(from))
        return hst::leave(cudaErrorInvalidValue);
    check_given_back(__func__, from, s.pinned[from]);
    s.pinned.erase(from);
    free(memory);
    return cudaSuccess;
}

/* ---- memory that is not page-locked ---------------------------------------------------------- */

cudaError_t hst::count_pageable_copy()
{
    State &s = state();
    Lock lock(s.state);
    pageable_copies++;
    return s.config.pageable == Pageable::refused ? cudaErrorNotPermitted : cudaSuccess;
}

unsigned long hst_fake_cuda_pageable_copies()
{
    Lock lock(hst::state().state);
    return pageable_copies;
}

__attribute__((destructor)) static void tell_pageable_copies()
{
    if (pageable_copies && hst::state().config.pageable == hst::Pageable::counted)
        fprintf(stderr, "fake CUDA: %lu asynchronous copies from or to pageable memory\n",
                pageable_copies);
}
