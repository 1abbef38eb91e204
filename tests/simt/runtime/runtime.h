/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_SIMT_RUNTIME_H
#define HST_SIMT_RUNTIME_H
/*
 * Inside the fake CUDA runtime: the real prototypes (cuda_runtime_api.h) over lazy streams and
 * guarded memory, to find what a card hides most of the time. Unless the configuration says
 * otherwise, nothing that is enqueued runs before someone waits for it, and then only what that
 * wait needs; device memory can be touched by kernels and copies alone.
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

/* When what is enqueued runs, where nobody waits for it: README.md. */
enum class Order { late, early, h2d_early, random };

/* What becomes of an asynchronous copy from or to memory that is not page-locked. */
enum class Pageable { as_cuda, counted, refused };

struct Refusal { /* products that cuBLASLt has no algorithm for */
    int type;           /* cudaDataType */
    uint64_t extent[3]; /* rows, columns, depth as it counts them; 0: any */
    uint64_t alignment; /* bytes that each line must be whole multiples of, else it is refused;
                           0: whatever the lines are */
};

struct Config { /* environment HST_FAKE_CUDA: README.md */
    size_t memory_bytes = (size_t)1 << 30;
    int devices = 1, major = 9, minor = 0, driver = CUDART_VERSION;
    size_t overhead_bytes = 0; /* of a context */
    std::string model; /* empty: "Fake GPU" and the device's index, so that each has a name */
    int multiprocessors = 4;
    int compute_mode = 0;     /* cudaComputeMode; two of them are another process's */
    std::vector<int> visible; /* the devices that CUDA_VISIBLE_DEVICES lets through, in its order */
    bool loose = false; /* device memory is aligned to no more than 4 KiB */
    bool card_arithmetic = false;
    Order order = Order::late;
    unsigned long order_number = 1; /* early: the stream that is late; random: the seed */
    Pageable pageable = Pageable::as_cuda;
    std::vector<Fault> faults;
    std::vector<Refusal> refusals;
};
/** Stops the program where the text says what is not known. */
Config parse_config(const char *text);

struct Device {
    size_t used_bytes;    /* of allocations, each a whole number of 2 MiB */
    size_t context_bytes; /* what the context takes, once it is there */
    size_t library_bytes; /* and what the first product takes */
    bool has_context;
    cudaError_t sticky; /* of work that failed while it ran; every later call returns it */
};

/* What has gone before something: of each stream, by Queue::id, its operations up to this one. */
using Clock = std::map<unsigned long, unsigned long>;

struct Mark { /* one record of an event */
    std::shared_ptr<struct Queue> queue; /* where it is still to be passed; null: it is */
    int64_t passed_ns;
    Clock before;
};

struct Extent {
    const char *from;
    size_t bytes;
};

struct Operation {
    /* A call of the host is run where someone waits for it alone: it may need what the thread that
     * enqueues holds. */
    enum Kind { work, copy_to_device, host_call, record, wait } kind;
    std::function<cudaError_t()> run; /* of the first three */
    std::shared_ptr<Mark> mark;       /* of the others */
    Extent page_locked[2];            /* a copy's */
    std::function<bool()> ready = {}; /* what waits for other processes: it may run now; else all
                                         may. Called with and without `state`: it takes no lock */
};

struct Queue { /* a stream; it outlives its handle until it is empty */
    int device;
    unsigned long number; /* streams are counted from 1 as they are made; the null stream is 0 */
    std::deque<Operation> operations;
    unsigned long id;       /* of no other stream, ever */
    unsigned long enqueued; /* operations so far */
    Clock before;           /* before the last of them, and it too */
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
    unsigned long streams_made;
    Clock before; /* what some thread of the host has seen the end of */
    Clock gone;   /* of streams that are destroyed: what a wait for the device sees the end of */
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
/** Bytes that nothing holds; the caller holds `state`. */
size_t free_bytes(const Device &device);
/** A product takes memory of its own, the first one on a device; an error where there is none. */
cudaError_t take_library_memory();

/* ---- order (runtime_order.cpp) --------------------------------------------------------------- */

/** As if no stream had been made and nothing been chosen; the caller holds `state`. */
void reset_order(State *state);
/** The caller holds `state`. */
std::shared_ptr<Queue> add_queue(int device, unsigned long number);
/** Appends, and runs what the configured order wants to have run by now. */
void push(const std::shared_ptr<Queue> &queue, Operation operation);
/** What the queue begins with; null where it is empty. It stays there while it runs. */
Operation *front(Queue *queue);
/** Runs the queue's first operation or, where it waits for an event, one that the event waits for.
 * The caller holds `execution`; device memory is open. */
void advance(Queue *queue);
/** Runs what the configured order wants to have run by now; the caller holds `execution`. */
void settle();
/** Runs what is needed for the queue to be empty. Takes `execution`; the _held form has it. */
cudaError_t drain(const std::shared_ptr<Queue> &queue);
void drain_device_held(int device);
/** Takes away what is enqueued, all but the first `kept`; the caller holds `state`. */
void forget_operations(Queue *queue, size_t kept);

/* ---- what is ordered (runtime_clock.cpp) ----------------------------------------------------- */

/* The caller holds `state`. */

/** The queue is about to get an operation; returns its number in the queue. */
unsigned long begin_operation(Queue *queue);
/** What comes next in the queue, or on the host, comes after this. */
void comes_after(Clock *clock, const Clock &before);

/** The queue's next operation writes [memory, memory + bytes) as it likes. Stops the program where
 * another stream's does so too and nothing orders the two. */
void use_workspace(Queue *queue, const char *memory, size_t bytes);

/* ---- streams (runtime_stream.cpp) ------------------------------------------------------------ */

/** The stream's queue; null where there is no such stream. */
std::shared_ptr<Queue> queue_of(cudaStream_t stream);
cudaError_t enqueue(cudaStream_t stream, Operation::Kind kind, std::function<cudaError_t()> work);

/* ---- memory (runtime_memory.cpp, runtime_host.cpp) ------------------------------------------- */

enum class Place { device, pinned, pageable, wrong };
/** Of host memory; wrong: it is page-locked in part, or in two pieces. The caller holds `state`. */
Place place_on_host(const void *from, size_t bytes);
/** Stops the program where page-locked memory is not there any more. */
void check_page_locked(const Extent &extent);
/** An asynchronous copy has memory that is not page-locked: an error where that is refused. */
cudaError_t count_pageable_copy();

/** Device memory may be touched while one lives, or several; the caller holds `execution`. */
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
/** Asynchronous copies from or to memory that was not page-locked, since the process began. */
extern "C" unsigned long hst_fake_cuda_pageable_copies();
/** Waits for an event in which a thread of a real machine would sleep, since the process began. */
extern "C" unsigned long hst_fake_cuda_blocking_waits();

#endif
