/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One instruction set, named by the first argument, against the table "c": the same bytes for every
 * operation, size, alignment, cut and bit pattern, and no access outside the arrays.
 *
 * With --digest it prints a hash of all results, which must not depend on compiler or machine
 * either (variants.py).
 *
 * All arrays of an operation get random bytes, read or not, lie in guarded pages, and the pages are
 * compared whole, so a stray write inside the pages shows too.
 */
#include "../short.h"
#include "operations.h"
#include "support.h"

#include <stdlib.h>

enum { SIZES_MAX = 130, BIG = 3 * HST_NORM_BLOCK + 77, SLACK = 64 };

enum fill { FILL_TYPICAL, FILL_ANY_BITS, FILL_SPECIAL, FILLS };

static const struct hst_cpu_adam_ops *tested, *plain;
static struct operation operations[OPERATIONS_MAX];
static size_t operation_count;
static uint64_t rng;
static uint64_t digest; /* 0: not asked for */
/* The same arrays three times: initial bytes, the plain table's result, the tested table's. */
static struct guarded initial[ARRAYS_MAX], expected[ARRAYS_MAX], actual[ARRAYS_MAX];

/* One random number a line: the order is then the same with every compiler. */
static struct hst_adam_coef random_coef(void)
{
    static const double decays[] = {0.0, 0.01, 0.1};
    struct hst_adam_hyper hyper = {.beta2 = 0.999, .eps = 1e-8};
    struct hst_adam_coef coef;

    hyper.lr = 1e-5 * (double)random_below(&rng, 1000);
    hyper.beta1 = 0.1 * (double)random_below(&rng, 10);
    hyper.weight_decay = decays[random_below(&rng, 3)];
    uint64_t t = 1 + random_below(&rng, 2000);
    float scale = random_unit(&rng);
    assert_int_equal(hst_adam_coef_init(&hyper, t, scale, &coef), 0);
    return coef;
}

/* Of every second range the upper half of the elements' indices changes within it. */
static uint64_t random_index(size_t n)
{
    uint64_t index = random_u64(&rng) >> 16;
    if (random_below(&rng, 2))
        index = (index | 0xffffffffu) - random_below(&rng, n + 1);
    return index;
}

static enum fill random_fill(void)
{
    return (enum fill)random_below(&rng, FILLS);
}

static uint32_t random_value(enum fill fill)
{
    if (fill == FILL_SPECIAL)
        return random_special(&rng);
    if (fill == FILL_ANY_BITS)
        return (uint32_t)random_u64(&rng);
    return bits_of(random_unit(&rng) * 0.01f);
}

/* Fills from the array's first byte to the end of its pages: what lies outside must survive. */
static void fill_array(struct guarded *g, size_t offset_bytes, size_t element_bytes, enum fill fill)
{
    size_t count = (g->data_bytes - offset_bytes) / element_bytes;

    memset(g->data, 0xa5, g->data_bytes);
    for (size_t i = 0; i < count; i++) {
        uint32_t value = random_value(fill);
        uint16_t half = (uint16_t)(value >> (fill == FILL_TYPICAL || i % 2 ? 16 : 0));
        unsigned char *at = g->data + offset_bytes + i * element_bytes;
        if (element_bytes == 1)
            *at = (unsigned char)random_u64(&rng);
        if (element_bytes == 2)
            memcpy(at, &half, 2);
        if (element_bytes == 4)
            memcpy(at, &value, 4);
    }
}

/* Of a number of the array. */
static size_t number_bytes(const struct operation *op, int a)
{
    return op->element_bytes[a] == OPERATION_SCALE ? 4 : op->element_bytes[a];
}

static size_t array_bytes(const struct operation *op, int a, size_t n)
{
    const size_t covers = op->element_bytes[a] == 8                 ? HST_NORM_BLOCK
                          : op->element_bytes[a] == OPERATION_SCALE ? HST_CODE_BLOCK
                                                                    : 1;
    return (n + covers - 1) / covers * number_bytes(op, a);
}

static size_t run_whole(const struct operation *op, const struct hst_cpu_adam_ops *table,
                        const struct hst_adam_coef *coef, struct guarded *at, const size_t *offset,
                        uint64_t index, size_t n)
{
    void *array[ARRAYS_MAX] = {0};
    for (int a = 0; a < ARRAYS_MAX && op->element_bytes[a]; a++)
        array[a] = at[a].data + offset[a];
    return op->call(op, table, coef, array, index, n);
}

static size_t run_in_pieces(const struct operation *op, const struct hst_cpu_adam_ops *table,
                            const struct hst_adam_coef *coef, struct guarded *at,
                            const size_t *offset, uint64_t index, size_t n)
{
    size_t counted = 0;
    for (size_t first = 0; first < n;) {
        size_t left = n - first;
        size_t piece = (1 + random_below(&rng, left / op->cut / 2 + 1)) * op->cut;
        size_t here[ARRAYS_MAX];
        for (int a = 0; a < ARRAYS_MAX; a++)
            here[a] = offset[a] + array_bytes(op, a, first);
        piece = piece < left ? piece : left;
        counted += run_whole(op, table, coef, at, here, index + first, piece);
        first += piece;
    }
    return counted;
}

typedef size_t run_fn(const struct operation *, const struct hst_cpu_adam_ops *,
                      const struct hst_adam_coef *, struct guarded *, const size_t *, uint64_t,
                      size_t);

/* FNV-1a on words: the pages are whole ones. */
static void add_to_digest(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, at + i, sizeof word);
        digest = (digest ^ word) * 0x100000001b3u;
        digest ^= digest >> 32;
    }
}

static void check(const struct operation *op, const size_t *offset, size_t n, enum fill fill,
                  run_fn *run)
{
    struct hst_adam_coef coef = random_coef();
    uint64_t index = random_index(n);

    for (int a = 0; a < ARRAYS_MAX && op->element_bytes[a]; a++) {
        fill_array(&initial[a], offset[a], number_bytes(op, a), fill);
        memcpy(expected[a].data, initial[a].data, initial[a].data_bytes);
        memcpy(actual[a].data, initial[a].data, initial[a].data_bytes);
    }
    size_t wanted = run_whole(op, plain, &coef, expected, offset, index, n);
    size_t counted = run(op, tested, &coef, actual, offset, index, n);
    if (counted != wanted)
        fail_msg("%s: counts %zu, not %zu (fill %d)", op->name, counted, wanted, (int)fill);
    for (int a = 0; digest && a < ARRAYS_MAX && op->element_bytes[a]; a++)
        add_to_digest(actual[a].data, actual[a].data_bytes);
    for (int a = 0; a < ARRAYS_MAX && op->element_bytes[a]; a++) {
        if (memcmp(expected[a].data, actual[a].data, actual[a].data_bytes) == 0)
            continue;
        size_t byte = 0;
        while (expected[a].data[byte] == actual[a].data[byte])
            byte++;
        long element = ((long)byte - (long)offset[a]) / (long)number_bytes(op, a);
        fail_msg("%s: array %d differs at element %ld of %zu (fill %d)", op->name, a, element, n,
                 (int)fill);
    }
}

static void place_at_end(const struct operation *op, size_t n, size_t *offset)
{
    for (int a = 0; a < ARRAYS_MAX; a++)
        offset[a] = initial[a].data_bytes - array_bytes(op, a, n);
}

static void place_at_start(size_t *offset)
{
    memset(offset, 0, ARRAYS_MAX * sizeof *offset);
}

static void place_unaligned(const struct operation *op, size_t *offset)
{
    for (int a = 0; a < ARRAYS_MAX; a++)
        offset[a] = random_below(&rng, SLACK) * number_bytes(op, a);
}

static void pages_create(size_t elements)
{
    for (int a = 0; a < ARRAYS_MAX; a++) {
        guarded_create(elements * 4, &initial[a]);
        guarded_create(elements * 4, &expected[a]);
        guarded_create(elements * 4, &actual[a]);
    }
}

static void pages_destroy(void)
{
    for (int a = 0; a < ARRAYS_MAX; a++) {
        guarded_destroy(&initial[a]);
        guarded_destroy(&expected[a]);
        guarded_destroy(&actual[a]);
    }
}

static void every_small_size_between_guard_pages(void **state)
{
    size_t offset[ARRAYS_MAX];
    (void)state;

    pages_create(SIZES_MAX);
    for (size_t o = 0; o < operation_count; o++)
        for (size_t n = 0; n <= SIZES_MAX; n++)
            for (enum fill fill = 0; fill < FILLS; fill++) {
                place_at_start(offset);
                check(&operations[o], offset, n, fill, run_whole);
                place_at_end(&operations[o], n, offset);
                check(&operations[o], offset, n, fill, run_whole);
            }
    pages_destroy();
}

static void sizes_around_the_blocks_of_a_norm(void **state)
{
    static const size_t sizes[] = {HST_NORM_BLOCK - 1,  HST_NORM_BLOCK,         HST_NORM_BLOCK + 1,
                                   HST_NORM_BLOCK + 16, 2 * HST_NORM_BLOCK - 1, BIG};
    size_t offset[ARRAYS_MAX];
    (void)state;

    pages_create(BIG);
    for (size_t o = 0; o < operation_count; o++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
            for (enum fill fill = 0; fill < FILLS; fill++) {
                place_at_end(&operations[o], sizes[s], offset);
                check(&operations[o], offset, sizes[s], fill, run_whole);
            }
    pages_destroy();
}

static void any_element_alignment_of_any_array(void **state)
{
    size_t offset[ARRAYS_MAX];
    (void)state;

    pages_create(4 * SIZES_MAX + 2 * SLACK);
    for (int round = 0; round < (test_is_short() ? 1000 : 4000); round++) {
        const struct operation *op = &operations[random_below(&rng, operation_count)];
        place_unaligned(op, offset);
        size_t n = random_below(&rng, 4 * SIZES_MAX);
        check(op, offset, n, random_fill(), run_whole);
    }
    pages_destroy();
}

static void any_cut_of_a_range(void **state)
{
    size_t offset[ARRAYS_MAX];
    (void)state;

    pages_create(BIG + 2 * SLACK);
    for (size_t o = 0; o < operation_count; o++)
        for (int round = 0; round < (test_is_short() ? 4 : 20); round++) {
            place_unaligned(&operations[o], offset);
            size_t n = BIG - random_below(&rng, 100);
            check(&operations[o], offset, n, random_fill(), run_in_pieces);
        }
    pages_destroy();
}

int main(int argc, char **argv)
{
    static const char *const names[] = {NULL, "c", "avx2", "avx512", "neon", "avx512vbmi"};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_size_between_guard_pages),
        cmocka_unit_test(sizes_around_the_blocks_of_a_norm),
        cmocka_unit_test(any_element_alignment_of_any_array),
        cmocka_unit_test(any_cut_of_a_range),
    };

    plain = hst_cpu_adam_ops(HST_CPU_ISA_C);
    for (int isa = HST_CPU_ISA_C; argc > 1 && isa <= HST_CPU_ISA_AVX512VBMI; isa++)
        if (strcmp(argv[1], names[isa]) == 0)
            tested = hst_cpu_adam_ops((enum hst_cpu_isa)isa);
    if (!tested) {
        printf("skipped: this CPU or build has no instruction set %s\n", argc > 1 ? argv[1] : "");
        return SKIP;
    }
    operation_count = operations_list(plain, operations);
    rng = seed_begin(argc, argv);
    if (strcmp(argv[argc - 1], "--digest") == 0)
        digest = 0xcbf29ce484222325u;
    int failed = cmocka_run_group_tests_name(tested->name, tests, NULL, NULL);
    if (digest)
        printf("digest %016llx\n", (unsigned long long)digest);
    return failed;
}
