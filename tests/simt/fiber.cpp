/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fibers: a stack with a guard page below it, and a switch that keeps the registers which the
 * x86-64 ABI gives to the callee. The sanitizers are told of each switch; TSan's fibers are
 * switched without order, so that only barriers order CUDA threads, and never share a stack, whose
 * history it would take for one thread's.
 */
#include "interpreter.h"
#include <sys/mman.h>
#if HST_SIMT_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#if HST_SIMT_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#ifndef __x86_64__
#error "the interpreter's switch of stacks is written for x86-64"
#endif

enum {
    PAGE_BYTES = 4096,
    STACK_BYTES = 256 << 10,
    /* Stacks begin at different places of a page, or all would fall into the same cache sets. */
    COLOURS = 61,
    COLOUR_BYTES = 1088
};

extern "C" void hst_fiber_swap(void **save, void *to);
__asm__(".text\n"
        ".globl hst_fiber_swap\n"
        ".hidden hst_fiber_swap\n"
        ".type hst_fiber_swap,@function\n"
        "hst_fiber_swap:\n"
        "pushq %rbp\n"
        "pushq %rbx\n"
        "pushq %r12\n"
        "pushq %r13\n"
        "pushq %r14\n"
        "pushq %r15\n"
        "movq %rsp,(%rdi)\n"
        "movq %rsi,%rsp\n"
        "popq %r15\n"
        "popq %r14\n"
        "popq %r13\n"
        "popq %r12\n"
        "popq %rbx\n"
        "popq %rbp\n"
        "ret\n"
        ".size hst_fiber_swap,.-hst_fiber_swap\n");

static hst::Fiber fibers[hst::BLOCK_THREADS];
static hst::Fiber *idle[hst::BLOCK_THREADS];
static unsigned made, idle_count;
static hst::Fiber *came_from; /* of the switch that is under way */

static void make(hst::Fiber *fiber)
{
    size_t bytes = STACK_BYTES + (COLOURS * COLOUR_BYTES / PAGE_BYTES + 2) * PAGE_BYTES;
    void *stack = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, PAGE_BYTES, PROT_NONE))
        hst::die("no memory for a stack", nullptr, nullptr);
    fiber->stack = static_cast<char *>(stack);
    fiber->stack_bytes = bytes;
#if HST_SIMT_TSAN
    fiber->tsan_fiber = __tsan_create_fiber(0);
#endif
}

hst::Fiber *hst::fiber_take(unsigned index, void (*entry)())
{
    Fiber *fiber;
    if (HST_SIMT_TSAN)
        fiber = &fibers[index];
    else
        fiber = idle_count ? idle[--idle_count] : &fibers[made++];
    if (!fiber->stack)
        make(fiber);
    size_t colour = (size_t)(fiber - fibers) % COLOURS * COLOUR_BYTES;
    void **top = (void **)(fiber->stack + fiber->stack_bytes - 64 - colour);
    *--top = nullptr; /* where entry would return to */
    *--top = reinterpret_cast<void *>(entry);
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    fiber->stack_pointer = top;
    fiber->asan_fake_stack = nullptr;
    return fiber;
}

void hst::fiber_put(Fiber *fiber)
{
    if (!HST_SIMT_TSAN)
        idle[idle_count++] = fiber;
}

void hst::fiber_adopt(Fiber *self)
{
    *self = {};
#if HST_SIMT_TSAN
    self->tsan_fiber = __tsan_get_current_fiber();
#endif
}

void hst::fiber_arrived()
{
#if HST_SIMT_ASAN
    /* The bounds of a host thread's stack are known only once it has been left. */
    const void *stack;
    size_t bytes;
    Fiber *from = came_from;
    __sanitizer_finish_switch_fiber(nullptr, &stack, &bytes);
    if (!from->stack) {
        from->stack = static_cast<const char *>(stack);
        from->stack_bytes = bytes;
    }
#endif
}

void hst::fiber_switch(Fiber *from, Fiber *to, bool ends)
{
    came_from = from;
#if HST_SIMT_ASAN
    __sanitizer_start_switch_fiber(ends ? nullptr : &from->asan_fake_stack, to->stack,
                                   to->stack_bytes);
#else
    (void)ends;
#endif
#if HST_SIMT_TSAN
    __tsan_switch_to_fiber(to->tsan_fiber, __tsan_switch_to_fiber_no_sync);
#endif
    hst_fiber_swap(&from->stack_pointer, to->stack_pointer);
#if HST_SIMT_ASAN
    __sanitizer_finish_switch_fiber(from->asan_fake_stack, nullptr, nullptr);
#endif
}

void hst::order_release(void *tag)
{
#if HST_SIMT_TSAN
    __tsan_release(tag);
#else
    (void)tag;
#endif
}

void hst::order_acquire(void *tag)
{
#if HST_SIMT_TSAN
    __tsan_acquire(tag);
#else
    (void)tag;
#endif
}
