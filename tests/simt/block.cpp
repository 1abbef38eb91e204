/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a grid: blocks in order, and within one the thread that the schedule chooses, until it
 * waits. Every wait is a set of bits per warp, so that a choice costs a few instructions.
 *
 * Schedules differ in what they expose. "forward" and "reversed" go round all threads. "ahead" lets
 * the first warp run on as far as it can before others move: it overtakes readers that a missing
 * trailing barrier leaves behind. "ahead-reversed" favours the last warp.
 */
#include "interpreter.h"

hst::Block hst::block;
hst::Thread *hst::current;
const uint3 *hst::thread_position;
uint3 hst::block_position;
dim3 hst::block_extent, hst::grid_extent;

static unsigned char *dynamic_memory;
static char begin_tag, end_tag; /* order a block's threads after and before the host */

enum class Schedule { forward, reversed, ahead, ahead_reversed, random };
static Schedule schedule;
static uint64_t random_state;
static bool schedule_known; /* said by a test, or read from the environment */

/* ---- errors ---------------------------------------------------------------------------------- */

static void print_thread(const hst::Thread *t)
{
    if (t)
        fprintf(stderr, "  thread (%u,%u,%u), warp %u lane %u, at %s:%d\n", t->position.x,
                t->position.y, t->position.z, t->index / 32, t->index % 32,
                t->site.file ? t->site.file : "?", t->site.line);
}

void hst::die(const char *what, const Thread *a, const Thread *b)
{
    Site site = block.launch ? block.launch->site : Site{"?", 0};
    fprintf(stderr, "simt: %s, in the kernel launched at %s:%d, block (%u,%u,%u)\n", what,
            site.file, site.line, block_position.x, block_position.y, block_position.z);
    print_thread(a);
    print_thread(b);
    fflush(stderr);
    abort();
}

void hst::die_misaligned(const char *what, const void *address)
{
    char text[160];
    snprintf(text, sizeof text, "%s: %p is not aligned to 16 bytes", what, address);
    die(text, current, nullptr);
}

[[noreturn]] static void die_deadlock()
{
    const hst::Thread *barrier = nullptr, *collective = nullptr;
    for (unsigned i = 0; i < hst::block.thread_count; i++) {
        uint32_t lane = 1u << i % 32;
        const hst::Warp &warp = hst::block.warps[i / 32];
        if (!barrier && warp.at_barrier & lane)
            barrier = &hst::block.threads[i];
        if (!collective && warp.at_collective & lane)
            collective = &hst::block.threads[i];
    }
    hst::die("deadlock: nobody can go on (a barrier or collective that some threads never reach)",
             barrier, collective);
}

bool hst::is_skipped(Site site)
{
    static const char *skip = getenv("HST_SIMT_SKIP");
    if (!skip)
        return false;
    const char *name = strrchr(site.file, '/');
    char place[256];
    snprintf(place, sizeof place, "%s:%d", name ? name + 1 : site.file, site.line);
    return strcmp(place, skip) == 0;
}

/* ---- who runs next --------------------------------------------------------------------------- */

bool hst::set_schedule(const char *name)
{
    static const struct {
        const char *name;
        Schedule schedule;
    } known[] = {{"forward", Schedule::forward},
                 {"reversed", Schedule::reversed},
                 {"ahead", Schedule::ahead},
                 {"ahead-reversed", Schedule::ahead_reversed}};
    for (auto &k : known)
        if (strcmp(name, k.name) == 0) {
            schedule = k.schedule;
            return schedule_known = true;
        }
    if (strncmp(name, "random:", 7) != 0)
        return false;
    schedule = Schedule::random;
    random_state = (strtoull(name + 7, nullptr, 10) + 1) * 0x9e3779b97f4a7c15u;
    return schedule_known = true;
}

unsigned hst::grid_most()
{
    static const char *most = getenv("HST_SIMT_GRID");
    return most ? (unsigned)strtoul(most, nullptr, 10) : 1u << 30;
}

static void read_schedule()
{
    const char *name = getenv("HST_SIMT_SCHEDULE");
    if (!schedule_known && name && !hst::set_schedule(name)) {
        fprintf(stderr,
                "simt: HST_SIMT_SCHEDULE=%s: forward, reversed, ahead, ahead-reversed and "
                "random:SEED are known\n",
                name);
        abort();
    }
    schedule_known = true;
}

static unsigned lowest(uint32_t bits)
{
    return (unsigned)__builtin_ctz(bits);
}

static unsigned highest(uint32_t bits)
{
    return 31 - (unsigned)__builtin_clz(bits);
}

/* The next bit after `position`, going round. */
static unsigned next_up(uint32_t bits, unsigned position)
{
    uint32_t above = position == 31 ? 0 : bits & ~0u << (position + 1);
    return lowest(above ? above : bits);
}

static unsigned next_down(uint32_t bits, unsigned position)
{
    uint32_t below = bits & ((1u << position) - 1);
    return highest(below ? below : bits);
}

static unsigned random_bit(uint32_t bits)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return next_up(bits, (unsigned)(random_state >> 32) % 32);
}

static unsigned choose_warp(uint32_t ready, unsigned last)
{
    switch (schedule) {
    case Schedule::forward:
        return next_up(ready, last);
    case Schedule::reversed:
        return next_down(ready, last);
    case Schedule::ahead:
        return lowest(ready);
    case Schedule::ahead_reversed:
        return highest(ready);
    case Schedule::random:
        break;
    }
    return random_bit(ready);
}

/* Going round all threads: on in the same warp while it has a lane beyond the last one. */
static bool stays_in_warp(uint32_t lanes, unsigned last_lane)
{
    if (schedule == Schedule::forward)
        return last_lane < 31 && lanes >> (last_lane + 1);
    if (schedule == Schedule::reversed)
        return lanes & ((1u << last_lane) - 1);
    return false;
}

/* Takes the next thread from those that are ready; null where none is. */
static hst::Thread *choose()
{
    hst::Block &b = hst::block;
    if (!b.ready_warps)
        return nullptr;
    unsigned last_warp = b.last / 32, last_lane = b.last % 32, lane;
    unsigned w = stays_in_warp(b.warps[last_warp].ready, last_lane)
                     ? last_warp
                     : choose_warp(b.ready_warps, last_warp);
    uint32_t lanes = b.warps[w].ready;
    if (schedule == Schedule::random)
        lane = random_bit(lanes);
    else if (schedule == Schedule::reversed || schedule == Schedule::ahead_reversed)
        lane = w == last_warp ? next_down(lanes, last_lane) : highest(lanes);
    else
        lane = w == last_warp ? next_up(lanes, last_lane) : lowest(lanes);
    b.warps[w].ready &= ~(1u << lane);
    if (!b.warps[w].ready)
        b.ready_warps &= ~(1u << w);
    b.last = w * 32 + lane;
    return &b.threads[b.last];
}

void hst::make_ready(unsigned warp, uint32_t lanes)
{
    block.warps[warp].ready |= lanes;
    if (lanes)
        block.ready_warps |= 1u << warp;
}

/* ---- threads --------------------------------------------------------------------------------- */

static void thread_main();

static void set_current(hst::Thread *t)
{
    hst::current = t;
    hst::thread_position = &t->position;
}

static void switch_to(hst::Fiber *from, hst::Thread *to, bool ends)
{
    if (!to->fiber)
        to->fiber = hst::fiber_take(to->index, thread_main);
    set_current(to);
    hst::fiber_switch(from, to->fiber, ends);
}

void hst::suspend()
{
    Thread *self = current, *next = choose();
    if (!next)
        die_deadlock();
    if (next != self)
        switch_to(self->fiber, next, false);
}

static void release_barrier()
{
    hst::Block &b = hst::block;
    b.reduced[(int)hst::Reduce::any] = b.predicates != 0;
    b.reduced[(int)hst::Reduce::all] = b.predicates == b.live_count;
    b.reduced[(int)hst::Reduce::count] = (int)b.predicates;
    b.predicates = b.waiting = 0;
    b.phase++;
    for (unsigned w = 0; w < b.warp_count; w++) {
        hst::make_ready(w, b.warps[w].at_barrier);
        b.warps[w].at_barrier = 0;
    }
}

static const hst::Thread *someone_at_barrier()
{
    for (unsigned w = 0; w < hst::block.warp_count; w++)
        if (hst::block.warps[w].at_barrier)
            return &hst::block.threads[w * 32 + lowest(hst::block.warps[w].at_barrier)];
    return nullptr;
}

int hst::barrier(Site site, Reduce reduce, bool predicate)
{
    if (reduce == Reduce::none && is_skipped(site))
        return 0;
    Thread *self = current;
    self->site = site;
    if (block.waiting) {
        const Thread *other = someone_at_barrier();
        if (other->site.line != site.line || strcmp(other->site.file, site.file) != 0)
            die("threads of a block wait at different barriers", self, other);
    }
    /* Two tags in turn: who passes early must not order its next steps for those still here. */
    char *tag = &block.order_tags[block.phase & 1];
    order_release(tag);
    block.warps[self->index / 32].at_barrier |= 1u << self->index % 32;
    block.predicates += predicate;
    if (++block.waiting == block.live_count)
        release_barrier();
    suspend();
    order_acquire(tag);
    return block.reduced[(int)reduce];
}

static void retire(hst::Thread *t)
{
    hst::Block &b = hst::block;
    b.warps[t->index / 32].live &= ~(1u << t->index % 32);
    b.live_count--;
    if (b.waiting && b.waiting == b.live_count)
        release_barrier();
    hst::check_collectives(t->index / 32);
}

/* A fiber's life: threads one after another. One that ends hands its fiber to the next that has
 * none yet, so kernels without barriers never switch (not under TSan: see fiber.cpp). */
static void thread_main()
{
    hst::fiber_arrived();
    for (;;) {
        hst::Thread *self = hst::current;
        hst::order_acquire(&begin_tag);
        (*hst::block.body)();
        hst::order_release(&end_tag);
        hst::Fiber *fiber = self->fiber;
        retire(self);
        hst::Thread *next = choose();
        if (next && !next->fiber && !HST_SIMT_TSAN) {
            next->fiber = fiber;
            set_current(next);
            continue;
        }
        hst::fiber_put(fiber);
        if (next)
            switch_to(fiber, next, true);
        if (hst::block.live_count)
            die_deadlock();
        hst::fiber_switch(fiber, &hst::block.host, true);
    }
}

/* ---- blocks ---------------------------------------------------------------------------------- */

void *hst::dynamic_shared()
{
    return dynamic_memory;
}

static void begin_threads()
{
    hst::Block &b = hst::block;
    b.ready_warps = 0;
    for (unsigned w = 0; w < b.warp_count; w++) {
        unsigned lanes = b.thread_count - w * 32 < 32 ? b.thread_count - w * 32 : 32;
        uint32_t mask = lanes == 32 ? ~0u : (1u << lanes) - 1;
        b.warps[w].live = mask;
        b.warps[w].ready = b.warps[w].at_barrier = b.warps[w].at_collective = 0;
        hst::make_ready(w, mask);
    }
    for (unsigned i = 0; i < b.thread_count; i++) {
        b.threads[i].fiber = nullptr;
        b.threads[i].site = {};
        b.threads[i].copies.entries.clear();
        b.threads[i].copies.next = b.threads[i].copies.committed = 0;
    }
    b.live_count = b.thread_count;
    b.waiting = b.predicates = 0;
    bool from_last = schedule == Schedule::reversed || schedule == Schedule::ahead_reversed;
    b.last = from_last ? 0 : b.thread_count - 1; /* so that the other end comes first */
}

/* By hand: where static shared memory has ASan's red zones between, memset would be refused. */
static void fill_ones(volatile char *from, volatile char *to)
{
    for (; from < to && (uintptr_t)from % 8; from++)
        *from = (char)0xff;
    for (; from + 8 <= to; from += 8)
        *(volatile uint64_t *)from = ~0ull;
    for (; from < to; from++)
        *from = (char)0xff;
}

static void run_block()
{
    const hst::Launch *l = hst::block.launch;
    if (l->shared_bytes) {
        void *memory;
        if (posix_memalign(&memory, 128, l->shared_bytes))
            hst::die("no memory for dynamic shared memory", nullptr, nullptr);
        dynamic_memory = static_cast<unsigned char *>(memory);
        fill_ones((volatile char *)memory, (volatile char *)memory + l->shared_bytes);
    }
    fill_ones(l->shared_begin, l->shared_end);
    begin_threads();
    hst::fiber_adopt(&hst::block.host);
    hst::order_release(&begin_tag);
    switch_to(&hst::block.host, choose(), false);
    hst::order_acquire(&end_tag);
    free(dynamic_memory);
    dynamic_memory = nullptr;
}

static void place_threads(dim3 extent)
{
    unsigned i = 0;
    for (unsigned z = 0; z < extent.z; z++)
        for (unsigned y = 0; y < extent.y; y++)
            for (unsigned x = 0; x < extent.x; x++, i++) {
                hst::block.threads[i].position = {x, y, z};
                hst::block.threads[i].index = i;
            }
    hst::block.thread_count = i;
    hst::block.warp_count = (i + 31) / 32;
}

void hst::run_grid(const Launch &launch, const std::function<void()> &body)
{
    read_schedule();
    block.launch = &launch;
    block.body = &body;
    block_extent = launch.block;
    grid_extent = launch.grid;
    place_threads(launch.block);
    bool backwards = schedule == Schedule::reversed || schedule == Schedule::ahead_reversed;
    uint64_t count = (uint64_t)launch.grid.x * launch.grid.y * launch.grid.z;
    for (uint64_t n = 0; n < count; n++) {
        uint64_t i = backwards ? count - 1 - n : n;
        block_position.x = (unsigned)(i % launch.grid.x);
        block_position.y = (unsigned)(i / launch.grid.x % launch.grid.y);
        block_position.z = (unsigned)(i / launch.grid.x / launch.grid.y);
        run_block();
    }
    block.launch = nullptr;
}
