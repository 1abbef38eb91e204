/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fake runtime's memory. A device allocation ends at a guard page and is closed to everyone
 * but running kernels and copies; at first it holds ones bits. Copies know page-locked memory from
 * other host memory (runtime_host.cpp) and are as asynchronous as CUDA makes them.
 */
#include "runtime.h"

#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

using hst::Operation;
using hst::Place;
using Lock = std::lock_guard<std::mutex>;

enum {
    ALIGNMENT_BYTES = 256, /* what CUDA promises */
    HUGE_BYTES = 2 << 20,  /* what it gives to whole multiples of this, without a promise */
    FILL_BYTES = 8 << 20   /* at both ends of an allocation */
};

/* ---- device memory --------------------------------------------------------------------------- */

static void protect_all(int protection)
{
    hst::State &s = hst::state();
    Lock lock(s.state);
    for (auto &[pointer, allocation] : s.memory)
        if (mprotect(allocation.mapping, allocation.mapping_bytes, protection))
            abort();
}

static unsigned opened; /* OpenMemory that live; `execution` guards it */

hst::OpenMemory::OpenMemory()
{
    if (!opened++)
        protect_all(PROT_READ | PROT_WRITE);
}

hst::OpenMemory::~OpenMemory()
{
    if (!--opened)
        protect_all(PROT_NONE);
}

/* Around the allocation, so that ASan is exact to the byte. */
static void poison(const hst::Allocation &a, const char *pointer, bool poisoned)
{
#if defined(__SANITIZE_ADDRESS__)
    if (!poisoned) {
        __asan_unpoison_memory_region(a.mapping, a.mapping_bytes);
        return;
    }
    const char *end = pointer + a.size_bytes;
    __asan_poison_memory_region(a.mapping, (size_t)(pointer - a.mapping));
    __asan_poison_memory_region(end, (size_t)(a.mapping + a.mapping_bytes - end));
#else
    (void)a, (void)pointer, (void)poisoned;
#endif
}

/*
 * Pages and a guard page behind them, closed. Huge pages, where the system has them, because every
 * wait opens and closes all device memory. Whole multiples of a huge page are aligned to one, or,
 * with the configuration's loose=1, just not.
 */
static char *map_device(size_t bytes)
{
    size_t room = bytes + hst::PAGE_BYTES, mapped = room + 2 * HUGE_BYTES;
    void *mapping = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
        return nullptr;
    char *start = static_cast<char *>(mapping);
    char *base = start + (-(uintptr_t)start % HUGE_BYTES);
    if (hst::state().config.loose)
        base += hst::PAGE_BYTES;
    if (base > start)
        munmap(start, (size_t)(base - start));
    munmap(base + room, (size_t)(start + mapped - base) - room);
    if (mprotect(base, bytes, PROT_READ | PROT_WRITE))
        abort();
    (void)madvise(base, bytes, MADV_HUGEPAGE);
    size_t ends = bytes < FILL_BYTES ? bytes : (size_t)FILL_BYTES;
    memset(base, 0xff, ends);
    memset(base + bytes - ends, 0xff, ends);
    if (mprotect(base, bytes, PROT_NONE))
        abort();
    return base;
}

/* What of the device's memory an allocation takes. */
static size_t counted(size_t bytes)
{
    return (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
}

cudaError_t cudaMalloc(void **memory, size_t size_bytes)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    *memory = nullptr;
    hst::State &s = hst::state();
    Lock execution(s.execution);
    Lock lock(s.state);
    hst::Device &device = s.devices[(size_t)hst::current_device()];
    if (!size_bytes)
        return cudaSuccess;
    if (size_bytes > s.config.memory_bytes || counted(size_bytes) > hst::free_bytes(device))
        return hst::leave(cudaErrorMemoryAllocation);
    size_t bytes = (size_bytes + hst::PAGE_BYTES - 1) / hst::PAGE_BYTES * hst::PAGE_BYTES;
    char *base = map_device(bytes);
    if (!base)
        return hst::leave(cudaErrorMemoryAllocation);
    char *pointer = base + (bytes - size_bytes) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
    hst::Allocation a = {base, bytes, size_bytes, hst::current_device()};
    poison(a, pointer, true);
    s.memory[pointer] = a;
    device.used_bytes += counted(size_bytes);
    *memory = pointer;
    return cudaSuccess;
}

/* Waits for the device, as CUDA does. */
cudaError_t cudaFree(void *memory)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    if (!memory)
        return cudaSuccess;
    hst::State &s = hst::state();
    Lock execution(s.execution);
    hst::drain_device_held(hst::current_device());
    Lock lock(s.state);
    auto found = s.memory.find(static_cast<char *>(memory));
    if (found == s.memory.end())
        return hst::leave(cudaErrorInvalidValue);
    const hst::Allocation &a = found->second;
    poison(a, found->first, false);
    munmap(a.mapping, a.mapping_bytes + hst::PAGE_BYTES);
    s.devices[(size_t)a.device].used_bytes -= counted(a.size_bytes);
    s.memory.erase(found);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    hst::State &s = hst::state();
    Lock lock(s.state);
    *total_bytes = s.config.memory_bytes;
    *free_bytes = hst::free_bytes(s.devices[(size_t)hst::current_device()]);
    return cudaSuccess;
}

/* ---- where memory is ------------------------------------------------------------------------- */

/* The device memory that holds all of [p, p + bytes); `state` is held. */
static auto device_memory_at(const void *p, size_t bytes)
{
    auto &memory = hst::state().memory;
    char *from = static_cast<char *>(const_cast<void *>(p));
    auto next = memory.upper_bound(from);
    if (next == memory.begin())
        return memory.end();
    auto found = std::prev(next);
    size_t offset = (size_t)(from - found->first), extent = found->second.size_bytes;
    return offset <= extent && bytes <= extent - offset ? found : memory.end();
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    hst::State &s = hst::state();
    Lock lock(s.state);
    *attributes = {};
    attributes->device = -1;
    attributes->type = cudaMemoryTypeUnregistered;
    auto device = device_memory_at(pointer, 1);
    if (device != s.memory.end()) {
        attributes->type = cudaMemoryTypeDevice;
        attributes->device = device->second.device;
        attributes->devicePointer = const_cast<void *>(pointer);
    } else if (hst::place_on_host(pointer, 1) == Place::pinned) {
        attributes->type = cudaMemoryTypeHost;
        attributes->device = hst::current_device();
        attributes->devicePointer = attributes->hostPointer = const_cast<void *>(pointer);
    }
    return cudaSuccess;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static Place place_of(const void *p, size_t bytes)
{
    hst::State &s = hst::state();
    Lock lock(s.state);
    if (device_memory_at(p, bytes) != s.memory.end())
        return Place::device;
    if (device_memory_at(p, 0) != s.memory.end())
        return Place::wrong; /* begins in device memory and leaves it */
    return hst::place_on_host(p, bytes);
}

static bool fits_kind(enum cudaMemcpyKind kind, Place to, Place from)
{
    bool to_device = to == Place::device, from_device = from == Place::device;
    switch (kind) {
    case cudaMemcpyHostToHost:
        return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
        return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
        return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
        return to_device && from_device;
    case cudaMemcpyDefault:
        return true;
    }
    return false;
}

/* What the operation needs to stay page-locked until it is done. */
static hst::Extent page_locked(Place place, const void *p, size_t bytes)
{
    return {static_cast<const char *>(p), place == Place::pinned ? bytes : 0};
}

static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                        cudaStream_t stream, bool may_be_pageable)
{
    Place target = place_of(to, bytes), source = place_of(from, bytes);
    std::shared_ptr<hst::Queue> queue = hst::queue_of(stream);
    if (!queue)
        return cudaErrorInvalidResourceHandle;
    if (!bytes)
        return cudaSuccess;
    if (target == Place::wrong || source == Place::wrong || !fits_kind(kind, target, source))
        return cudaErrorInvalidValue;
    if (!may_be_pageable && (target == Place::pageable || source == Place::pageable))
        if (cudaError_t error = hst::count_pageable_copy())
            return error;
    cudaError_t fault = hst::planned_fault("copy");
    std::shared_ptr<std::vector<char>> staged;
    if (source == Place::pageable) { /* read before the call returns */
        const char *bytes_from = static_cast<const char *>(from);
        staged = std::make_shared<std::vector<char>>(bytes_from, bytes_from + bytes);
    }
    bool to_device = target == Place::device && source != Place::device;
    Operation operation = {to_device ? Operation::copy_to_device : Operation::work,
                           nullptr,
                           nullptr,
                           {page_locked(target, to, bytes), page_locked(source, from, bytes)}};
    operation.run = [=] {
        if (!fault)
            memmove(to, staged ? staged->data() : from, bytes);
        return fault;
    };
    hst::push(queue, std::move(operation));
    return target == Place::pageable ? hst::drain(queue) : cudaSuccess; /* written on return */
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    return hst::leave(copy(to, from, bytes, kind, stream, false));
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    cudaError_t error = copy(to, from, bytes, kind, nullptr, true);
    return hst::leave(error ? error : hst::drain(hst::queue_of(nullptr)));
}

/* memset, but whole pages of much device memory become zeros by being taken away: much is zeroed
 * that is never looked at. */
static void fill_row(char *to, int value, size_t bytes, bool device)
{
    size_t before = -(uintptr_t)to % hst::PAGE_BYTES;
    if (!device || value || bytes < HUGE_BYTES) {
        memset(to, value, bytes);
        return;
    }
    size_t pages = (bytes - before) / hst::PAGE_BYTES * hst::PAGE_BYTES;
    memset(to, 0, before);
    if (madvise(to + before, pages, MADV_DONTNEED))
        memset(to + before, 0, pages);
    memset(to + before + pages, 0, bytes - before - pages);
}

static cudaError_t fill(void *to, size_t pitch, int value, size_t width, size_t height,
                        cudaStream_t stream)
{
    if (!width || !height)
        return cudaSuccess;
    if (height > 1 && pitch < width)
        return cudaErrorInvalidPitchValue;
    Place place = place_of(to, (height - 1) * pitch + width);
    if (place != Place::device && place != Place::pinned)
        return cudaErrorInvalidValue;
    std::shared_ptr<hst::Queue> queue = hst::queue_of(stream);
    if (!queue)
        return cudaErrorInvalidResourceHandle;
    cudaError_t fault = hst::planned_fault("copy");
    Operation operation = {Operation::work,
                           nullptr,
                           nullptr,
                           {page_locked(place, to, (height - 1) * pitch + width), {}}};
    operation.run = [=] {
        for (size_t row = 0; row < height && !fault; row++)
            fill_row(static_cast<char *>(to) + row * pitch, value, width, place == Place::device);
        return fault;
    };
    hst::push(queue, std::move(operation));
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    return hst::leave(fill(to, bytes, value, bytes, 1, stream));
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    return hst::leave(fill(to, pitch, value, width, height, stream));
}

/* On the null stream, which others do not wait for: as CUDA for streams made non-blocking. */
cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    if (cudaError_t error = hst::enter(__func__))
        return error;
    return hst::leave(fill(to, bytes, value, bytes, 1, nullptr));
}
