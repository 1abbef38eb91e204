/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The updates beside what the memory allows. Decides what is compared with what, and how: in each
 * round every contestant of a format has its turn on the same arrays, the order being reversed from
 * round to round; what counts is the median of the rounds' ratios. After an update's turn as many
 * elements pass through the same kernel in a cache. It can be faster neither than its bytes are
 * moved nor than its arithmetic is done, and both change with the clock from one run to the next.
 */
#include "bench/adam/adam.h"

#include "base/now.h"
#include "base/text.h"
#include "bench/adam/arrays.h"
#include "bench/adam/null.h"
#include "bench/adam/peer.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { HUGE_PAGE_BYTES = 2 << 20, ARRAYS_MAX = 7, CONTESTANTS_MAX = 20 };
/* The plain C of x86-64 computes an fma in libm: a part of the elements tells what one takes. */
enum { PLAIN_PART = 64 };
/* Threads of a peer may still be spinning when it is done. */
static const struct timespec PAUSE = {.tv_nsec = 5000000};

struct bench;

struct contestant {
    const char *name, *note;
    void (*step)(struct bench *bench, const struct contestant *contestant);
    unsigned threads;
    uint64_t elements;
    struct hst_update_arrays arrays;
    unsigned repeats;                /* how often each thread updates its part of them in a turn */
    const struct hst_update *update; /* of these arrays */
    adam_null *null;                 /* the kernel of a null kernel */
    bool is_best;                    /* the table that a caller would get */
    bool is_peer;
};

struct bench {
    const struct bench_adam_in *in;
    struct hst_error *error;
    struct team *team;
    bench_peer_adamw *peer; /* null: none */
    unsigned peer_step;
    unsigned char *memory;
    uint64_t memory_bytes;
    struct hst_adam_coef coef;
    const struct hst_cpu_adam_ops *best;
    /* of the group at hand */
    struct hst_update_arrays narrow; /* what the peer's f32 arrays are cast from and to */
    struct hst_update_arrays cached; /* `cached_each` elements for each thread */
    uint64_t cached_each;
    struct contestant contestants[CONTESTANTS_MAX];
    unsigned count;
    double *seconds; /* [2 × CONTESTANTS_MAX × rounds], per element; the second half in a cache */
    double *ratios;  /* [rounds] */
};

/* ---- steps ---- */

struct turn {
    struct bench *bench;
    const struct contestant *contestant;
};

static void update_share(void *arg, unsigned thread, unsigned threads)
{
    const struct turn *turn = arg;
    const struct contestant *c = turn->contestant;
    struct adam_part part = adam_part(c->elements, thread, threads);
    struct hst_update_arrays a = hst_update_arrays_at(c->update, &c->arrays, part.first);
    for (unsigned i = 0; i < c->repeats; i++)
        hst_update_run(c->update, &turn->bench->coef, &a, part.count);
}

static void null_share(void *arg, unsigned thread, unsigned threads)
{
    const struct turn *turn = arg;
    const struct contestant *c = turn->contestant;
    struct adam_part part = adam_part(c->elements, thread, threads);
    struct hst_update_arrays a = hst_update_arrays_at(c->update, &c->arrays, part.first);
    volatile float one = 1, zero = 0; /* so that no compiler knows them */
    const struct adam_null_in numbers = {.one = one, .zero = zero, .no_bits = (uint16_t)zero};
    c->null(&a, part.count, &numbers);
}

static void widen_share(void *arg, unsigned thread, unsigned threads)
{
    const struct turn *turn = arg;
    const struct contestant *c = turn->contestant;
    struct adam_part part = adam_part(c->elements, thread, threads);
    const uint16_t *from = (const uint16_t *)turn->bench->narrow.grads + part.first;
    float *to = (float *)(uintptr_t)c->arrays.grads + part.first;
    turn->bench->best->f32_from_bf16(from, to, part.count);
}

static void narrow_share(void *arg, unsigned thread, unsigned threads)
{
    const struct turn *turn = arg;
    const struct contestant *c = turn->contestant;
    struct adam_part part = adam_part(c->elements, thread, threads);
    const float *from = (const float *)c->arrays.weights + part.first;
    uint16_t *to = (uint16_t *)turn->bench->narrow.weights + part.first;
    turn->bench->best->bf16_from_f32(from, to, part.count);
}

static void step_update(struct bench *bench, const struct contestant *c)
{
    team_run(bench->team, c->threads, update_share, &(struct turn){bench, c});
}

static void step_null(struct bench *bench, const struct contestant *c)
{
    team_run(bench->team, c->threads, null_share, &(struct turn){bench, c});
}

static void step_peer(struct bench *bench, const struct contestant *c)
{
    /* It passed its trial; what it returns now would be another kind of failure each time. */
    (void)adam_peer_step(bench->peer, &c->arrays, c->elements, ++bench->peer_step, c->threads);
}

static void step_cast_peer_cast(struct bench *bench, const struct contestant *c)
{
    struct turn turn = {bench, c};
    team_run(bench->team, c->threads, widen_share, &turn);
    step_peer(bench, c);
    team_run(bench->team, c->threads, narrow_share, &turn);
}

/* ---- rounds ---- */

static double take_turn(struct bench *bench, const struct contestant *c)
{
    if (bench->peer)
        nanosleep(&PAUSE, NULL);
    double start = now_s();
    c->step(bench, c);
    return (now_s() - start) / (double)c->elements / c->repeats;
}

/* The contestant's times per element. */
static double *seconds_of(const struct bench *bench, unsigned contestant)
{
    return bench->seconds + (size_t)contestant * bench->in->rounds;
}

static double *cached_seconds_of(const struct bench *bench, unsigned contestant)
{
    return seconds_of(bench, CONTESTANTS_MAX + contestant);
}

static bool is_update(const struct contestant *c)
{
    return c->step == step_update;
}

/* As many elements as a turn in memory has, of numbers as they are there: filling writes them into
 * the caches, too. */
static double take_cached_turn(struct bench *bench, const struct contestant *c)
{
    struct contestant cached = *c;
    cached.arrays = bench->cached;
    cached.arrays.ahead = c->arrays.ahead;
    cached.elements = bench->cached_each * c->threads;
    cached.repeats = (unsigned)(c->elements / cached.elements);
    cached.repeats = cached.repeats ? cached.repeats : 1;
    adam_fill(bench->team, c->update, &cached.arrays,
              bench->cached_each * team_threads(bench->team));
    return take_turn(bench, &cached);
}

static void run_rounds(struct bench *bench)
{
    for (unsigned i = 0; i < bench->count; i++)
        take_turn(bench, &bench->contestants[i]); /* warms up */
    for (unsigned round = 0; round < bench->in->rounds; round++)
        for (unsigned i = 0; i < bench->count; i++) {
            unsigned turn = round % 2 ? bench->count - 1 - i : i;
            const struct contestant *c = &bench->contestants[turn];
            seconds_of(bench, turn)[round] = take_turn(bench, c);
            if (is_update(c))
                cached_seconds_of(bench, turn)[round] = take_cached_turn(bench, c);
        }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct bench_spread_of spread(double *values, unsigned count)
{
    qsort(values, count, sizeof *values, by_value);
    return (struct bench_spread_of){values[count / 2], values[0], values[count - 1]};
}

/* It is the spread of one contestant's times over another's, round by round. */
static struct bench_spread_of over(struct bench *bench, unsigned one, unsigned other)
{
    for (unsigned round = 0; round < bench->in->rounds; round++)
        bench->ratios[round] = seconds_of(bench, one)[round] / seconds_of(bench, other)[round];
    return spread(bench->ratios, bench->in->rounds);
}

/* The same over that of two others which is the larger in a round: a null kernel, and the kernel
 * itself in a cache. */
static struct bench_spread_of over_larger(struct bench *bench, unsigned one, unsigned null)
{
    for (unsigned round = 0; round < bench->in->rounds; round++) {
        const double moving = seconds_of(bench, null)[round];
        const double computing = cached_seconds_of(bench, one)[round];
        bench->ratios[round] =
            seconds_of(bench, one)[round] / (moving > computing ? moving : computing);
    }
    return spread(bench->ratios, bench->in->rounds);
}

static struct bench_spread_of nanoseconds(struct bench *bench, const double *seconds)
{
    for (unsigned round = 0; round < bench->in->rounds; round++)
        bench->ratios[round] = seconds[round] * 1e9;
    return spread(bench->ratios, bench->in->rounds);
}

/* ---- telling ---- */

/* The best rate of a null kernel on as many threads, in bytes per second. */
static double ceiling_of(struct bench *bench, const struct contestant *c, unsigned bytes)
{
    double least_ns = 0;
    for (unsigned i = 0; i < bench->count; i++) {
        const struct contestant *other = &bench->contestants[i];
        if (!other->null || other->threads != c->threads)
            continue;
        double ns = nanoseconds(bench, seconds_of(bench, i)).median;
        least_ns = least_ns == 0 || ns < least_ns ? ns : least_ns;
    }
    return bytes / (least_ns * 1e-9);
}

static void tell(struct bench *bench, const char *group, unsigned bytes, unsigned contestant)
{
    const struct contestant *c = &bench->contestants[contestant];
    struct bench_adam_row row = {.group = group,
                                 .name = c->name,
                                 .note = c->note,
                                 .threads = c->threads,
                                 .bytes = bytes,
                                 .ns = nanoseconds(bench, seconds_of(bench, contestant))};
    row.bytes_per_s = bytes / (row.ns.median * 1e-9);
    row.ceiling = ceiling_of(bench, c, bytes);
    if (is_update(c)) {
        row.cached_elements = bench->cached_each;
        row.cached_ns = nanoseconds(bench, cached_seconds_of(bench, contestant));
    }
    bool null_seen = false;
    for (unsigned i = 0; i < bench->count; i++) {
        const struct contestant *other = &bench->contestants[i];
        if (other->threads != c->threads)
            continue;
        bool is_plain_null = other->null && !null_seen; /* the first one */
        null_seen |= is_plain_null;
        if (i == contestant)
            continue;
        if (is_plain_null)
            row.over_null = over(bench, contestant, i);
        if (is_plain_null && is_update(c))
            row.over_larger = over_larger(bench, contestant, i);
        if (other->is_best && !c->null)
            row.over_best = over(bench, contestant, i);
        if (other->is_peer && !c->null)
            row.over_peer = over(bench, contestant, i);
    }
    bench->in->tell(bench->in->context, &row);
}

static void measure(struct bench *bench, const char *group, unsigned bytes)
{
    run_rounds(bench);
    for (unsigned i = 0; i < bench->count; i++)
        tell(bench, group, bytes, i);
}

/* ---- groups ---- */

static void add(struct bench *bench, struct contestant c)
{
    assert(bench->count < CONTESTANTS_MAX);
    c.elements = c.elements ? c.elements : bench->in->elements;
    c.repeats = 1;
    bench->contestants[bench->count++] = c;
}

static void add_null(struct bench *bench, const struct contestant *like, enum adam_null_way way)
{
    static const char *const names[ADAM_NULL_WAYS] = {
        [ADAM_NULL_PLAIN] = "null",
        [ADAM_NULL_FIRST_CACHE] = "null, prefetching",
        [ADAM_NULL_SECOND_CACHE] = "null, into the second cache",
    };
    struct contestant c = *like;
    c.name = names[way];
    c.null = adam_null_find(bench->best->name, c.update->kind, way);
    c.step = step_null;
    add(bench, c);
}

/* Every table but the plain one, the best first. */
static void add_tables(struct bench *bench, const struct contestant *like)
{
    for (int isa = HST_CPU_ISA_AVX512VBMI; isa > HST_CPU_ISA_C; isa--) {
        const struct hst_cpu_adam_ops *ops = hst_cpu_adam_ops((enum hst_cpu_isa)isa);
        struct contestant c = *like;
        if (!ops)
            continue;
        c.name = ops->name;
        c.update = hst_update_find(ops, like->update->kind);
        c.is_best = ops == bench->best;
        add(bench, c);
    }
}

static void add_plain(struct bench *bench, const struct contestant *like)
{
    const struct hst_cpu_adam_ops *ops = hst_cpu_adam_ops(HST_CPU_ISA_C);
    struct contestant c = *like;
    c.name = ops->name;
    c.note = "a 64th of the elements";
    c.update = hst_update_find(ops, like->update->kind);
    c.is_best = ops == bench->best;
    c.elements = (bench->in->elements + PLAIN_PART - 1) / PLAIN_PART;
    add(bench, c);
}

/* The best table once more: all others prefetch, so that this row tells what it is worth. */
static void add_silent(struct bench *bench, const struct contestant *like)
{
    struct contestant c = *like;
    c.name = "not prefetching";
    c.arrays.ahead = HST_AHEAD_NONE;
    add(bench, c);
}

static void add_ours(struct bench *bench, const struct contestant *like)
{
    for (int way = 0; way < ADAM_NULL_WAYS; way++) /* the plain one first: over_null is over it */
        add_null(bench, like, (enum adam_null_way)way);
    add_tables(bench, like);
    add_silent(bench, like);
}

/* Arrays that all begin at a multiple of 4 KiB: what staggering is worth. */
static void add_aligned(struct bench *bench, struct contestant like)
{
    struct adam_layout layout = {.end = bench->memory};
    like.name = "arrays at multiples of 4 KiB";
    like.arrays = adam_arrays(&layout, bench->in->elements, like.update);
    add(bench, like);
}

static void add_peer(struct bench *bench, const struct contestant *like, struct adam_layout *layout)
{
    struct contestant c = *like;
    c.is_peer = true;
    if (c.update->kind.weights == HST_CPU_F32) {
        c.name = "peer";
        c.step = step_peer;
    } else {
        c.name = "cast, peer, cast";
        c.step = step_cast_peer_cast;
        bench->narrow = c.arrays; /* m and v serve both */
        c.arrays.master = NULL;
        c.arrays.weights = adam_array(layout, bench->in->elements, sizeof(float));
        c.arrays.grads = adam_array(layout, bench->in->elements, sizeof(float));
        const struct hst_update *f32 = hst_update_find(bench->best, (struct hst_update_kind){0});
        adam_fill(bench->team, f32, &c.arrays, bench->in->elements);
    }
    add(bench, c);
}

static void measure_format(struct bench *bench, const char *group, struct hst_update_kind kind)
{
    struct adam_layout layout = {.end = bench->memory, .stagger = ADAM_STAGGER_BYTES};
    const struct hst_update *update = hst_update_find(bench->best, kind);
    struct contestant like = {.step = step_update,
                              .threads = team_threads(bench->team),
                              .update = update,
                              .arrays = adam_arrays(&layout, bench->in->elements, update)};
    bench->cached_each = adam_cached_elements(update);
    bench->cached = adam_arrays(&layout, bench->cached_each * like.threads, update);
    bool adamw_of_f32 = kind.moments == HST_CPU_F32 && kind.optimizer == HST_OPTIMIZER_ADAMW;
    bench->count = 0;
    add_ours(bench, &like);
    add_plain(bench, &like);
    if (kind.weights == HST_CPU_F32)
        add_aligned(bench, like);
    if (bench->peer && adamw_of_f32 && kind.weights != HST_CPU_F16)
        add_peer(bench, &like, &layout);
    if (like.threads > 1) {
        like.threads = 1;
        add_ours(bench, &like);
    }
    adam_fill(bench->team, update, &like.arrays, bench->in->elements);
    measure(bench, group, update->read_bytes + update->written_bytes);
}

/* ---- the whole ---- */

uint32_t bench_adam_threads(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > 0 ? (uint32_t)count : 1;
}

static int open_bench(struct bench *bench)
{
    const struct bench_adam_in *in = bench->in;
    const uint32_t threads = in->threads ? in->threads : bench_adam_threads();
    uint64_t elements = in->elements, room = HUGE_PAGE_BYTES;
    char size[TEXT_BYTES];
    /* fp32 and fp16 have the most; a peer's bf16 work has 14 bytes of ours and 8 of its own. */
    bench->memory_bytes = adam_arrays_bytes(elements, bench->peer ? 22 : 16, ARRAYS_MAX) +
                          adam_cached_bytes(ARRAYS_MAX) * threads + 2 * room;
    bench->seconds = calloc((size_t)CONTESTANTS_MAX * 2 * in->rounds, sizeof *bench->seconds);
    bench->ratios = calloc(in->rounds, sizeof *bench->ratios);
    bench->team = team_create(threads);
    void *map = mmap(NULL, bench->memory_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map != MAP_FAILED)
        bench->memory = map;
    if (!bench->seconds || !bench->ratios || !bench->team || !bench->memory)
        return fail(bench->error, FAIL_BUDGET, -ENOMEM,
                    "bench adam: %s of memory or the threads cannot be had. Fix: fewer "
                    "--elements or --threads",
                    text_size(bench->memory_bytes, size));
    madvise(bench->memory, bench->memory_bytes, MADV_HUGEPAGE);
    return 0;
}

static void close_bench(struct bench *bench)
{
    team_destroy(bench->team);
    if (bench->memory)
        munmap(bench->memory, bench->memory_bytes);
    free(bench->ratios);
    free(bench->seconds);
}

#define GROUP(name, group, optimizer, type, moments)                                               \
    {                                                                                              \
        name, BENCH_ADAM_##group,                                                                  \
        {                                                                                          \
            HST_OPTIMIZER_##optimizer, HST_CPU_##type, HST_CPU_##moments, HST_CPU_##type           \
        }                                                                                          \
    }
static const struct {
    const char *name;
    enum bench_adam_group group;
    struct hst_update_kind kind;
} groups[] = {
    GROUP("fp32", FP32, ADAMW, F32, F32),
    GROUP("bf16", BF16, ADAMW, BF16, F32),
    GROUP("bf16, bf16 moments", BF16_MOMENTS, ADAMW, BF16, BF16),
    GROUP("bf16, 8-bit moments", CODES, ADAMW, BF16, CODE),
    GROUP("fp16", FP16, ADAMW, F16, F32),
};

/* Each other optimizer in bf16, beside moments in f32. */
static void measure_others(struct bench *bench)
{
    for (int o = HST_OPTIMIZER_ADAMW + 1; o < HST_OPTIMIZER_ADAM; o++) {
        const struct hst_update_kind kind = {(enum hst_optimizer)o, HST_CPU_BF16, HST_CPU_F32,
                                             HST_CPU_BF16};
        const struct hst_update *update = hst_update_find(bench->best, kind);
        char group[64];
        if (!update)
            return;
        snprintf(group, sizeof group, "bf16, %.*s", (int)strcspn(update->name, " "), update->name);
        measure_format(bench, group, kind);
    }
}

static bool is_wanted(const struct bench_adam_in *in, enum bench_adam_group group)
{
    return in->only == BENCH_ADAM_ALL || in->only == (int)group;
}

int bench_adam(const struct bench_adam_in *in, struct hst_error *error)
{
    struct bench bench = {.in = in,
                          .error = error,
                          .coef = adam_coef(100),
                          .best = hst_cpu_adam_ops(HST_CPU_ISA_AUTO)};
    int rc = in->peer ? adam_peer_open(in->peer, &bench.peer, error) : 0;
    rc = rc ? rc : open_bench(&bench);
    if (!rc) {
        for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
            if (is_wanted(in, groups[i].group))
                measure_format(&bench, groups[i].name, groups[i].kind);
        if (is_wanted(in, BENCH_ADAM_OTHERS))
            measure_others(&bench);
    }
    close_bench(&bench);
    return rc;
}
