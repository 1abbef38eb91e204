/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_SIMT_INTERPRETER_H
#define HST_SIMT_INTERPRETER_H
/*
 * Inside the interpreter: fibers (fiber.cpp), the block that runs and who runs next (block.cpp),
 * what a warp computes together (warp.cpp). One kernel runs at a time, in the thread that holds the
 * fake runtime's lock, so the state is plain.
 *
 * These three files are compiled without sanitizers (they touch threads' stacks and memory that is
 * being handed over) and are told which one the kernels are compiled with: HST_SIMT_ASAN,
 * HST_SIMT_TSAN.
 */
#include "simt.h"
#include <vector>

/* Blocks and threads are named by numbers here, not by what kernels call them. */
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

#ifndef HST_SIMT_ASAN
#define HST_SIMT_ASAN 0
#endif
#ifndef HST_SIMT_TSAN
#define HST_SIMT_TSAN 0
#endif

namespace hst {

enum { WARP_LANES = 32, BLOCK_WARPS = 32, BLOCK_THREADS = WARP_LANES * BLOCK_WARPS };

/* ---- fibers ---------------------------------------------------------------------------------- */

struct Fiber {
    void *stack_pointer;
    const char *stack; /* lowest address, a guard page */
    size_t stack_bytes;
    void *asan_fake_stack;
    void *tsan_fiber;
};
/** A fiber that starts in `entry` at the next switch to it. `index` has its own one under TSan. */
Fiber *fiber_take(unsigned index, void (*entry)());
void fiber_put(Fiber *fiber);
/** The fiber that is this host thread's own stack; the caller keeps it until it is back there. */
void fiber_adopt(Fiber *self);
/** `ends`: nothing comes back to `from`. */
void fiber_switch(Fiber *from, Fiber *to, bool ends);
/** The first thing that `entry` calls. */
void fiber_arrived();

/** What happened before the release is before what follows an acquire of the same tag (TSan). */
void order_release(void *tag);
void order_acquire(void *tag);

/* ---- the block that runs --------------------------------------------------------------------- */

struct PendingCopies { /* cp.async of one thread: groups are numbered as they are committed */
    struct Entry {
        AsyncCopy copy;
        unsigned group;
    };
    std::vector<Entry> entries;
    size_t next;
    unsigned committed;
};

struct Thread {
    uint3 position;
    unsigned index;
    Fiber *fiber; /* null before its first turn */
    Site site;    /* where it waits */
    Collective *collective;
    PendingCopies copies;
};

struct Warp { /* a bit per lane */
    uint32_t live, ready, at_barrier, at_collective;
    char order_tags[WARP_LANES][2]; /* by a group's lowest lane and the parity of its meetings */
    unsigned char meetings[WARP_LANES];
};

struct Block {
    Thread threads[BLOCK_THREADS];
    Warp warps[BLOCK_WARPS];
    uint32_t ready_warps;
    unsigned thread_count, warp_count, live_count;
    unsigned waiting, predicates; /* at the barrier now */
    unsigned phase;               /* barriers passed */
    int reduced[4];               /* of the last one, by enum Reduce */
    char order_tags[2];
    unsigned last; /* thread that ran last */
    const Launch *launch;
    const std::function<void()> *body;
    Fiber host;
};
extern Block block;
extern Thread *current;

void make_ready(unsigned warp, uint32_t lanes);
/** Lets another thread run; returns when this one is ready and chosen. */
void suspend();
/** Completes the collectives of the warp for which nobody is missing any more. */
void check_collectives(unsigned warp);
void run_grid(const Launch &launch, const std::function<void()> &body);

/** Is this barrier or __syncwarp to be left out (HST_SIMT_SKIP=FILE:LINE, a test of tests)? */
bool is_skipped(Site site);

/** Prints what, the launch and the threads (may be null), and aborts. */
[[noreturn]] void die(const char *what, const Thread *a, const Thread *b);

} // namespace hst

#endif
