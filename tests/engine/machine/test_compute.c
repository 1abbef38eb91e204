/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of computation: how GEMMs and a client's operations are cut, and weighed together. */
#include "assert_figure.h"
#include "probe/probe.h"
#include "session/engine_state.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

#define MIB (UINT64_C(1) << 20)

static const struct hst_gemm gemms[] = {
    {.m = 300, .n = 200, .k = 100, .dtype = HST_F32, .b_transposed = true, .times = 3},
    {.m = 64, .n = 128, .k = 256, .dtype = HST_F32, .a_transposed = true, .accumulate = true},
    {.m = 256, .n = 128, .k = 64, .dtype = HST_BF16},
    {.m = 96, .n = 64, .k = 32, .dtype = HST_BF16, .b_transposed = true, .batch = 2},
    {.m = 64, .n = 32, .k = 96, .dtype = HST_F32, .a_transposed = true, .batch = 3},
};
enum { PRODUCTS = sizeof gemms / sizeof *gemms };

/* ---- GEMMs ---- */

static void the_rate_of_all_products_weighs_each_by_its_work(void **state)
{
    (void)state;
    const struct hst_probe probe = {
        .size = sizeof probe, .parts = HST_PROBE_COMPUTE, .gemms = gemms, .gemm_count = PRODUCTS};
    struct hst_rates r;
    double flops = 0, seconds = 0;
    assert_int_equal(hst_probe(&probe, &r), 0);
    for (int i = 0; i < PRODUCTS; i++) {
        double many = i == 0 ? 3 : i == 3 ? 2 : i == 4 ? 3 : 1; /* times, or at once */
        double work = many * 2.0 * (double)gemms[i].m * (double)gemms[i].n * (double)gemms[i].k;
        flops += work;
        seconds += work / r.gemms[i].value;
    }
    /* each is a whole number, and on a slow machine a small one */
    assert_true(fabs(r.figures[HST_RATE_COMPUTE].value * seconds / flops - 1) < 1e-5);
    assert_string_equal(r.figures[HST_RATE_DRAM].how, ""); /* nobody asked */
    assert_string_equal(r.gemms[0].how, "300x200x100 f32, B transposed");
    assert_string_equal(r.gemms[1].how, "64x128x256 f32, A transposed, added to C");
    assert_string_equal(r.gemms[3].how, "96x64x32 bf16, B transposed, 2 at once");
    assert_string_equal(r.gemms[4].how, "64x32x96 f32, A transposed, 3 at once");
}

/* What the last product of three matrices at once had, how often the next one stood behind it, and
   how often it stood where that had; and how many of others there were. */
static struct {
    struct hst_matmul last;
    unsigned moves, stays, overlaps, others;
} seen;

int __real_hst_op_matmul(struct hst_stream *stream, const struct hst_matmul *args);
int __wrap_hst_op_matmul(struct hst_stream *stream, const struct hst_matmul *args);
int __wrap_hst_op_matmul(struct hst_stream *stream, const struct hst_matmul *args)
{
    const struct hst_matmul *last = &seen.last;
    seen.others += args->batch != 3;
    if (args->batch != 3)
        return __real_hst_op_matmul(stream, args);
    seen.stays += args->a.data == last->a.data;
    if (last->m == args->m && (char *)args->a.data > (char *)last->a.data) {
        const float *end = (float *)last->c.data + 3 * last->c_step;
        seen.moves++;
        seen.overlaps += (float *)args->a.data < end;
    }
    seen.last = *args;
    return __real_hst_op_matmul(stream, args);
}

static void a_product_has_other_operands_each_time(void **state)
{
    (void)state;
    const struct hst_probe probe = {
        .size = sizeof probe, .parts = HST_PROBE_COMPUTE, .gemms = &gemms[4], .gemm_count = 1};
    struct hst_rates r;
    memset(&seen, 0, sizeof seen);
    assert_int_equal(hst_probe(&probe, &r), 0);
    assert_true(seen.moves > 0); /* how often is a matter of time */
    assert_int_equal(seen.stays, 0);
    assert_int_equal(seen.overlaps, 0);
}

/* One step has more GEMMs than a second suffices for, the next one hardly any work. */
static void the_host_is_warm_before_its_gemms_are_measured(void **state)
{
    (void)state;
    struct hst_gemm gemm = {.m = 64, .n = 64, .k = 64, .dtype = HST_BF16, .times = 1u << 31};
    const struct hst_probe probe = {
        .size = sizeof probe, .parts = HST_PROBE_COMPUTE, .gemms = &gemm, .gemm_count = 1};
    struct hst_rates r;
    unsigned calls[2];
    for (int i = 0; i < 2; i++, gemm.times = 1) {
        seen.others = 0;
        assert_int_equal(hst_probe(&probe, &r), 0);
        assert_true(i == 1 || r.seconds >= PROBE_WARM_S);
        calls[i] = seen.others;
    }
    assert_true(calls[0] > 2 * calls[1]);
}

static void a_product_is_cut_at_its_longest_extents(void **state)
{
    (void)state;
    const struct hst_gemm p = {.m = 2048, .n = 14336, .k = 4096, .dtype = HST_BF16};
    struct hst_gemm cut = gemm_cut(&p, INFINITY, INFINITY);
    assert_true(cut.m == p.m && cut.n == p.n && cut.k == p.k);
    cut = gemm_cut(&p, 2.0 * 2048 * 7168 * 4096, INFINITY);
    assert_true(cut.m == 2048 && cut.n == 7168 && cut.k == 4096);
    cut = gemm_cut(&p, INFINITY, 2.0 * (2048 * 4096 + 4096 * 4096 + 2048 * 4096) + 1);
    assert_true(cut.m == 2048 && cut.n == 3584 && cut.k == 4096);
    struct hst_gemm two = p;
    two.batch = 2; /* of B and C */
    cut = gemm_cut(&two, 2.0 * 2 * 2048 * 7168 * 4096, INFINITY);
    assert_true(cut.n == 7168 && cut.batch == 2);
    cut = gemm_cut(&two, INFINITY, 2.0 * (2048 * 4096 + 2 * (4096 * 7168 + 2048 * 7168)) - 1);
    assert_true(cut.n == 3584 && cut.k == 4096);
    two.a_transposed = true; /* of A and C */
    cut = gemm_cut(&two, INFINITY, 2.0 * (2 * 2048 * 4096 + 4096 * 7168 + 2 * 2048 * 7168));
    assert_true(cut.n == 7168);
    cut = gemm_cut(&p, 1, 1); /* tiny, and never nothing */
    assert_true(cut.m == 16 && cut.n == 16 && cut.k == 16);
    const struct hst_gemm odd = {.m = 1, .n = 50257, .k = 3, .dtype = HST_F32};
    cut = gemm_cut(&odd, 2.0 * 30000 * 3, INFINITY);
    assert_true(cut.m == 1 && cut.n == 25136 && cut.k == 3);
}

/* ---- a client's operations ---- */

/* Here operations take time of their own, whatever else the machine does. */
static bool own_time;
static atomic_llong now_ns; /* workers look at it, too */

double __real_clock_seconds(void);
double __wrap_clock_seconds(void);
double __wrap_clock_seconds(void)
{
    long long now = atomic_fetch_add(&now_ns, 100); /* what waits for a deadline meets it */
    return own_time ? 1e-9 * (double)now : __real_clock_seconds();
}

/* It lasts half a second of a clock that GEMMs do not move. */
void __wrap_probe_burn(struct probe *probe);
void __wrap_probe_burn(struct probe *probe)
{
    (void)probe;
}

/* Does a million a second, in parts of 1,000. */
struct spinner {
    double room;        /* for so many at a time */
    double most, least; /* that were asked for */
    double says;        /* not 0: what it says it did */
    unsigned calls;
    struct hst_room seen;
};

static int spin(void *context, const struct hst_room *room, double most, double *amount)
{
    struct spinner *s = context;
    double wish = most < s->room ? most : s->room;
    s->calls++;
    s->most = most > s->most ? most : s->most;
    s->least = most < s->least ? most : s->least;
    s->seen = *room;
    memset((char *)room->memory.data + room->memory.size_bytes - 1, 0, 1); /* it is there */
    if (s->room < 1000)
        return -ENOSPC;
    *amount = wish < 1000 ? 1000 : floor(wish / 1000) * 1000;
    atomic_fetch_add(&now_ns, (long long)(*amount * 1e3));
    *amount = s->says != 0 ? s->says : *amount;
    return 0;
}

static struct spinner spinner(double room)
{
    return (struct spinner){.room = room, .least = INFINITY};
}

static struct hst_operation operation(const char *what, double amount, struct spinner *s)
{
    return (struct hst_operation){.what = what, .amount = amount, .enqueue = spin, .context = s};
}

/* Of little memory the product would have more than all as its workspace. */
static struct hst_rates probe_operations_of(const struct hst_operation *operations, uint32_t count,
                                            uint64_t memory_bytes, struct hst_dev *dev)
{
    const struct hst_gemm large = {.m = 4096, .n = 4096, .k = 4096, .dtype = HST_BF16};
    const struct hst_gemm small = {.m = 16, .n = 16, .k = 16, .dtype = HST_F32};
    const struct hst_probe probe = {.size = sizeof probe,
                                    .parts = HST_PROBE_COMPUTE,
                                    .threads = 3,
                                    .dev = dev,
                                    .gemms = memory_bytes ? &large : &small,
                                    .gemm_count = 1,
                                    .operations = operations,
                                    .operation_count = count,
                                    .memory_bytes = memory_bytes};
    struct hst_rates r;
    own_time = true;
    int rc = hst_probe(&probe, &r);
    own_time = false;
    assert_int_equal(rc, 0);
    assert_int_equal(r.operation_count, count);
    return r;
}

static void an_operation_grows_until_it_can_be_measured(void **state)
{
    (void)state;
    struct spinner large = spinner(1e12), whole = spinner(1e12), tight = spinner(2500);
    const struct hst_operation operations[] = {operation("large", 1e9, &large),
                                               operation("whole", 5000, &whole),
                                               operation("tight", 1e9, &tight)};
    const struct hst_rates r = probe_operations_of(operations, 3, 0, NULL);
    assert_true(large.least == 0);
    assert_true(large.most > 1e4 && large.most < 3e4); /* a sixth of a third of 0.4 s */
    assert_true(whole.most == 5000);
    assert_true(tight.calls < 40); /* does not ask for more for ever */
    assert_true(large.seen.dev && large.seen.stream && large.seen.memory.size_bytes >= MIB);
    assert_int_equal(large.seen.width, 3);
    assert_string_equal(r.operations[0].how, "large, a part");
    assert_string_equal(r.operations[1].how, "whole");
    assert_string_equal(r.operations[2].how, "tight, a part");
    for (int i = 0; i < 3; i++)
        assert_measured(&r.operations[i], 0.99e6, 1.01e6);
}

/* What is no FLOP takes time only. */
static void computation_is_products_and_operations_together(void **state)
{
    (void)state;
    struct spinner s = spinner(1e12);
    struct hst_operation operations[] = {operation("attention", 2e6, &s),
                                         operation("norms", 2e6, &s)};
    operations[0].flop = true;
    operations[0].times = 2;
    const struct hst_rates r = probe_operations_of(operations, 2, 0, NULL);
    double product = 2.0 * 16 * 16 * 16;
    double seconds =
        product / r.gemms[0].value + 4e6 / r.operations[0].value + 2e6 / r.operations[1].value;
    const struct hst_figure *all = &r.figures[HST_RATE_COMPUTE];
    assert_true(fabs(all->value * seconds / (product + 4e6) - 1) < 1e-5);
    assert_true(all->least <= all->value && all->value <= all->most);
    assert_non_null(strstr(all->how, "1 product and 2 operations on "));
}

static void computation_is_not_known_where_an_operation_is_not(void **state)
{
    (void)state;
    struct spinner none = spinner(0);
    const struct hst_operation large = operation("attention", 1e6, &none);
    const struct hst_rates r = probe_operations_of(&large, 1, 0, NULL);
    assert_true(r.gemms[0].value > 0);
    assert_failed(&r.operations[0], "attention: memory is too small for the least part");
    assert_failed(&r.figures[HST_RATE_COMPUTE], "operation 0: attention: memory is too small");
    static const double nonsense[] = {-1, NAN, INFINITY};
    for (int i = 0; i < 3; i++) {
        struct spinner liar = spinner(1e12);
        const struct hst_operation norms = operation("norms", 1e6, &liar);
        liar.says = nonsense[i];
        const struct hst_rates told = probe_operations_of(&norms, 1, 0, NULL);
        assert_failed(&told.operations[0], "norms: Invalid argument");
        assert_failed(&told.figures[HST_RATE_COMPUTE], "operation 0: norms");
    }
}

static void a_room_is_never_larger_than_the_memory(void **state)
{
    (void)state;
    struct spinner s = spinner(1e12);
    const struct hst_operation norms = operation("norms", 1e6, &s);
    struct hst_rates r = probe_operations_of(&norms, 1, MIB, NULL);
    assert_true(s.seen.memory.size_bytes > 0 && s.seen.memory.size_bytes <= MIB);
    assert_measured(&r.operations[0], 0.99e6, 1.01e6);
    struct hst_dev *dev = NULL;
    const struct hst_dev_config config = {
        .size = sizeof config, .memory_bytes = 3 * MIB, .host_bytes = MIB};
    assert_int_equal(hst_dev_open("far", &config, &dev, NULL), 0);
    r = probe_operations_of(&norms, 1, MIB, dev);
    assert_ptr_equal(s.seen.dev, dev);
    assert_int_equal(s.seen.width, 0);
    assert_true(s.seen.memory.size_bytes >= MIB && s.seen.memory.size_bytes <= 3 * MIB);
    assert_measured(&r.operations[0], 0.99e6, 1.01e6);
    hst_dev_close(&dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rate_of_all_products_weighs_each_by_its_work),
        cmocka_unit_test(a_product_has_other_operands_each_time),
        cmocka_unit_test(the_host_is_warm_before_its_gemms_are_measured),
        cmocka_unit_test(a_product_is_cut_at_its_longest_extents),
        cmocka_unit_test(an_operation_grows_until_it_can_be_measured),
        cmocka_unit_test(computation_is_products_and_operations_together),
        cmocka_unit_test(computation_is_not_known_where_an_operation_is_not),
        cmocka_unit_test(a_room_is_never_larger_than_the_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
