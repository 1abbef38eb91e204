/* SPDX-License-Identifier: Apache-2.0 */
/* Updates whose results go elsewhere: the bytes of the update in place, the old ones untouched. */
#include "support.h"

#include <errno.h>
#include <stdlib.h>

enum { ARRAYS = 6, SCALES = 4, MOST = 2600, ROUNDS = 6 };

static const struct hst_cpu_adam_ops *tables[TABLES_MAX];
static size_t table_count;
static uint64_t rng;

/* weights, master, m, v, from SCALES on the scales of m and v: old values, where new ones go, and
 * what they are to be. */
struct memory {
    struct guarded from[ARRAYS], into[ARRAYS], want[ARRAYS], grads;
};

static void memory_open(struct memory *m)
{
    for (int i = 0; i < ARRAYS; i++) {
        guarded_create(MOST * 4, &m->from[i]);
        guarded_create(MOST * 4, &m->into[i]);
        guarded_create(MOST * 4, &m->want[i]);
    }
    guarded_create(MOST * 4, &m->grads);
}

static void memory_close(struct memory *m)
{
    for (int i = 0; i < ARRAYS; i++) {
        guarded_destroy(&m->from[i]);
        guarded_destroy(&m->into[i]);
        guarded_destroy(&m->want[i]);
    }
    guarded_destroy(&m->grads);
}

static struct hst_adam_coef random_coef(void)
{
    const struct hst_adam_hyper hyper = {1e-2, 0.9, 0.999, 1e-8, 0.1};
    struct hst_adam_coef k;
    assert_int_equal(hst_adam_coef_init(&hyper, 1 + random_below(&rng, 100), 0.5f, &k), 0);
    return k;
}

/* n elements that end where the accessible pages do, or begin where they begin, or between. */
static unsigned char *place(const struct guarded *g, size_t bytes, size_t element, int where)
{
    size_t room = g->data_bytes - bytes;
    return g->data + (where == 0   ? 0
                      : where == 1 ? room
                                   : random_below(&rng, room / element) * element);
}

static void fill(unsigned char *at, size_t n, size_t element)
{
    for (size_t i = 0; i < n; i++) {
        float x = random_below(&rng, 9) ? random_unit(&rng) : float_of(random_special(&rng));
        uint32_t bits = bits_of(x);
        memcpy(at + i * element, element < 4 ? (unsigned char *)&bits + 2 : (unsigned char *)&bits,
               element);
    }
}

/* The upper half of the elements' indices changes in every range; where it goes has none. */
#define INDEX ((UINT64_C(3) << 32) - 5)

static struct hst_update_arrays arrays_of(unsigned char *const at[ARRAYS], const void *grads)
{
    return (struct hst_update_arrays){.weights = at[0],
                                      .master = at[1],
                                      .m = at[2],
                                      .v = at[3],
                                      .grads = grads,
                                      .index = grads ? INDEX : 0,
                                      .m_scales = (float *)(void *)at[4],
                                      .v_scales = (float *)(void *)at[5]};
}

/* Some arrays go elsewhere, `mask`, the others stay in place. */
static void check(struct memory *m, const struct hst_update *u, size_t n, unsigned mask)
{
    const size_t scale = u->kind.moments == HST_CPU_CODE ? sizeof(float) : 0;
    const size_t bytes[ARRAYS] = {u->bytes.weights, u->bytes.master, u->bytes.m,
                                  u->bytes.v,       scale,           scale};
    const size_t blocks = (n + HST_CODE_BLOCK - 1) / HST_CODE_BLOCK;
    unsigned char *from[ARRAYS] = {0}, *into[ARRAYS] = {0}, *want[ARRAYS] = {0}, *old[ARRAYS] = {0};
    const struct hst_adam_coef k = random_coef();
    int where = (int)random_below(&rng, 3);
    unsigned char *grads = place(&m->grads, n * u->bytes.grads, u->bytes.grads, where);
    fill(grads, n, u->bytes.grads);
    for (int i = 0; i < ARRAYS; i++) {
        const size_t count = i < SCALES ? n : blocks, size = count * bytes[i];
        if (!bytes[i])
            continue;
        from[i] = place(&m->from[i], size, bytes[i], where);
        into[i] = mask >> i & 1 ? place(&m->into[i], size, bytes[i], where) : from[i];
        want[i] = m->want[i].data;
        fill(from[i], count, bytes[i]);
        memcpy(want[i], from[i], size);
        old[i] = malloc(size + 1);
        memcpy(old[i], from[i], size);
    }
    const struct hst_update_arrays f = arrays_of(from, grads), t = arrays_of(into, NULL),
                                   w = arrays_of(want, grads);
    assert_int_equal(hst_update_run_into(u, &k, &f, &t, n), hst_update_run(u, &k, &w, n));
    for (int i = 0; i < ARRAYS; i++) {
        const size_t size = (i < SCALES ? n : blocks) * bytes[i];
        if (size && memcmp(into[i], want[i], size) != 0)
            fail_msg("%s: array %d of %zu elements is another, mask %u", u->name, i, n, mask);
        if (size && (mask >> i & 1) && memcmp(from[i], old[i], size) != 0)
            fail_msg("%s: array %d was written to where it was", u->name, i);
        free(old[i]);
    }
}

static void results_go_elsewhere_as_they_would_stay(void **state)
{
    static const size_t sizes[] = {0, 1, 31, 64, 1023, 1024, 1025, 2048, MOST};
    struct memory m;
    (void)state;
    memory_open(&m);
    for (size_t t = 0; t < table_count; t++)
        for (size_t i = 0; i < tables[t]->update_count; i++)
            for (int round = 0; round < ROUNDS; round++) {
                size_t n = sizes[random_below(&rng, sizeof sizes / sizeof *sizes)];
                unsigned mask = round == 0 ? 63 : (unsigned)random_below(&rng, 64);
                check(&m, &tables[t]->updates[i], n, mask);
            }
    memory_close(&m);
}

static void arrays_that_meet_are_refused(void **state)
{
    static float memory[8 * 64];
    const struct hst_update *u = hst_update_find(tables[0], (struct hst_update_kind){0});
    const struct hst_adam_coef k = random_coef();
    const struct hst_update_arrays from = {
        .weights = memory, .m = memory + 64, .v = memory + 128, .grads = memory + 192};
    const struct hst_update_arrays good = {
        .weights = memory + 256, .m = memory + 320, .v = memory + 384};
    struct hst_update_arrays bad[] = {good, good, good, good, good};
    (void)state;
    assert_int_equal(hst_update_run_into(u, &k, &from, &good, 64), 0);
    bad[0].weights = memory + 63; /* the old m begins within it */
    bad[1].m = memory + 383;      /* the new v does */
    bad[2].v = memory + 192;      /* the gradients */
    bad[3].weights = NULL;
    bad[4].m = (char *)memory + 2; /* of f32 */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(hst_update_run_into(u, &k, &from, &bad[i], 64), -EINVAL);
    struct hst_adam_coef unsound = k;
    unsound.eps = 0;
    assert_int_equal(hst_update_run_into(u, &unsound, &from, &good, 64), -EINVAL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_go_elsewhere_as_they_would_stay),
        cmocka_unit_test(arrays_that_meet_are_refused),
    };
    rng = seed_begin(argc, argv);
    table_count = tables_list(tables);
    return cmocka_run_group_tests_name("into", tests, NULL, NULL);
}
