/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_SIMT_RUNTIME_H
#define HST_SIMT_RUNTIME_H
/*
 * Inside the fake CUDA runtime: the real prototypes (cuda_runtime_api.h) over lazy streams and
 * guarded memory, to find what a card hides most of the time. Nothing that is enqueued runs before
 * someone waits for it, and then only what that wait needs; device memory can be touched by kernels
 * and copies alone.
 *
 * Locks, in this order: `execution` is held while enqueued work runs and while device memory is
 * made or freed; `state` for each look at what is shared. Kernels run under `execution`, so one at
 * a time.
 */
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace hst {

/* ---- configuration and errors (runtime_device.cpp) ------------------------------------------- */

struct Fault { /* the call-th call of `function` fails; `lasting`: and all that follow */
    std::string function;
    unsigned long call;
    bool lasting;
    cudaError_t error;
    unsigned long calls; /* so far */
};

struct Config { /* environment HST_FAKE_CUDA: README.md */
    size_t memory_bytes;
    int devices, major, minor, driver;
    bool loose; /* device memory is aligned to no more than 4 KiB */
    std::vector<Fault> faults;
};

struct Device {
    size_t used_bytes;
    cudaError_t sticky; /* of work that failed while it ran; every later call returns it */
};

struct Mark { /* what an event, waits and records share */
    unsigned long recorded, passed;
    int64_t passed_ns;
    std::shared_ptr<struct Queue> queue; /* where it was recorded last */
};

struct Operation {
    enum Kind { work, record, wait } kind;
    std::function<cudaError_t()> run;
    std::shared_ptr<Mark> mark;
    unsigned long generation;            /* of the mark */
    std::shared_ptr<struct Queue> queue; /* wait: where the mark is */
};

struct Queue { /* a stream; it outlives its handle until it is empty */
    int device;
    std::deque<Operation> operations;
};

struct Allocation {
    char *mapping;
    size_t mapping_bytes, size_bytes; /* mapping_bytes without the guard page */
    int device;
};

struct State {
    std::mutex execution, state;
    Config config;
    std::vector<Device> devices;
    std::map<char *, Allocation> memory; /* by what cudaMalloc gave */
    std::map<char *, size_t> pinned;     /* page-locked host memory */
    std::set<char *> host_allocations;   /* those of it that the runtime made */
    std::vector<std::shared_ptr<Queue>> queues;
    std::set<cudaStream_t> streams;
    std::set<cudaEvent_t> events;
    std::map<const void *, int> shared_limits; /* cudaFuncSetAttribute, by kernel */
};
State &state();

enum { SHARED_BYTES_DEFAULT = 48 << 10, SHARED_BYTES_RESERVED = 1 << 10, PAGE_BYTES = 4096 };

struct Limits { /* of a multiprocessor, and of a block; by compute capability */
    int shared_bytes, shared_bytes_block, threads, blocks, registers;
};
/** What the configured compute capability has. */
Limits limits();

/** The first thing of every call: what the configuration or an earlier failure says of it. */
cudaError_t enter(const char *function);
/** The last thing: a call's error is also the thread's last one. */
cudaError_t leave(cudaError_t error);
/** Counts a call of `function` (or "launch", "copy") and says whether the plan makes it fail. */
cudaError_t planned_fault(const char *function);
int current_device();

/* ---- streams (runtime_stream.cpp) ------------------------------------------------------------ */

/** The stream's queue; null where there is no such stream. */
std::shared_ptr<Queue> queue_of(cudaStream_t stream);
cudaError_t enqueue(cudaStream_t stream, std::function<cudaError_t()> work);
/** Runs what is needed for the queue to be empty. Takes `execution`; the _held form has it. */
cudaError_t drain(const std::shared_ptr<Queue> &queue);
void drain_held(Queue *queue);
void drain_device_held(int device);

/* ---- memory (runtime_memory.cpp) ------------------------------------------------------------- */

/** Device memory may be touched while one lives; the caller holds `execution`. */
class OpenMemory
{
  public:
    OpenMemory();
    ~OpenMemory();
    OpenMemory(const OpenMemory &) = delete;
    OpenMemory &operator=(const OpenMemory &) = delete;
};

} // namespace hst

/** For tests: as if the process had begun with this HST_FAKE_CUDA. */
extern "C" void hst_fake_cuda_configure(const char *text);

#endif
