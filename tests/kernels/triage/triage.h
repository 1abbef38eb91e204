/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_KERNELS_TRIAGE_H
#define HST_TESTS_KERNELS_TRIAGE_H
/*
 * The ground of the triage, which tells in seconds which operations of a device are wrong: each at
 * a small odd shape, at the shapes of an 8B Llama, and with more than 2^31 elements.
 *
 * Inputs are a fixed sequence of PERIOD numbers, made once on the host and copied to the device;
 * an operand is that sequence, repeated, from a place of its own on. So the host knows each element
 * of a tensor of gigabytes by its index. PERIOD is a prime: an index that is off by 2^31 or 2^32
 * elements or bytes, or by a row of any width that is used here, finds another number.
 *
 * Outputs are all ones bits (NaN) before. Checked are: sampled rows or elements, always the first
 * and the last, against float64; that every element was written (of large outputs, in windows); and
 * the guard behind each operand.
 *
 * HST_TRIAGE_SCALE (a power of two, default 1) divides the large shapes.
 */
#include "suite.h"

enum { TRIAGE_PERIOD = 4194301, TRIAGE_SAMPLES = 64, TRIAGE_OPERANDS = 16 };

enum triage_size { TRIAGE_SMALL, TRIAGE_REAL, TRIAGE_BEYOND };

/** Extents of a model, from which an operation takes its own. */
struct triage_shape {
    size_t batch, seq, tokens; /* tokens = batch · seq */
    size_t hidden, ffn, vocab, heads, kv_heads, head_dim;
    size_t rows_of_logits; /* as many as are held at once */
    size_t count;          /* of an operation element by element */
};

/** BEYOND: count, tokens · hidden and rows_of_logits · vocab are above 2^31 (at a scale of 1). */
struct triage_shape triage_shape(enum triage_size size);

struct operand {
    const char *name;
    size_t rows, columns;
    enum hst_dtype dtype;
    void *data;   /* device memory */
    size_t start; /* of an input, in the sequence; what ids are below; seq of documents */
    bool positive, input;
    /* what the checks found */
    size_t checked, wrong;
    struct triage_miss {
        size_t index;
        double got, want, allowed;
    } first, last;
    struct {
        size_t low, high;
    } wrong_rows, wrong_columns;
};

struct triage {
    struct hst_dev *dev;
    struct hst_stream *stream;
    char *staging; /* TRIAGE_STAGING_BYTES of page-locked memory */
    struct operand operands[TRIAGE_OPERANDS];
    size_t operand_count, held_bytes;
    struct operand *work;
};

enum { TRIAGE_GUARD_BYTES = 64 };
#define TRIAGE_STAGING_BYTES ((size_t)64 << 20)

/**
 * Begins a case: frees what the one before left, also where that failed. The device is the one that
 * argv named; it stays open.
 */
struct triage *triage_begin(void);
/** The device is opened anew by the next triage_begin, as the environment then has it. */
void triage_reopen(void);

/**
 * New operands. A case that does not fit into what the device says is free is skipped with the
 * bytes that it wants.
 */
struct operand *triage_input(struct triage *t, const char *name, size_t rows, size_t columns,
                             enum hst_dtype dtype);
/** f32, all above 0. */
struct operand *triage_positive(struct triage *t, const char *name, size_t rows, size_t columns);
struct operand *triage_output(struct triage *t, const char *name, size_t rows, size_t columns,
                              enum hst_dtype dtype);
/** Ids below `below`: the first is 0, the last below − 1, and each fourth one of sixteen. */
struct operand *triage_ids(struct triage *t, const char *name, size_t count, size_t below);
uint32_t triage_id(const struct operand *ids, size_t index);
/**
 * hst_attention.first of packed documents: in each sequence some that begin with a tile and some
 * elsewhere, one of a single token, and padding behind them, which says its own place or a greater
 * one.
 */
struct operand *triage_documents(struct triage *t, const char *name, size_t batch, size_t seq);
/** Of token `index` of the batch. */
uint32_t triage_first(const struct operand *documents, size_t index);
struct hst_work triage_work(struct triage *t, size_t size_bytes);

/** Element `index` of an input, as it was before the operation. */
double triage_value(const struct operand *of, size_t index);
/** Of count elements from first on. */
void triage_values(const struct operand *of, size_t first, size_t count, double *values);
/** The bytes of elements [first, first + count) of an input. */
void triage_input_bytes(const struct operand *of, size_t first, size_t count, void *bytes);
/** Reads elements from the device, as bytes or as values. At most TRIAGE_STAGING_BYTES. */
void triage_read_bytes(struct triage *t, const void *from, size_t size_bytes);
void triage_read(struct triage *t, const struct operand *of, size_t first, size_t count,
                 double *values);

/** At most TRIAGE_SAMPLES of [0, count), rising, by a fixed seed; 0 and count − 1 are among them.
 */
size_t triage_samples(size_t count, size_t *samples);

/** The operation was taken; -ENOTSUP skips the case, with the reason that the device lacks it. */
void triage_taken(int rc);
void triage_sync(struct triage *t);
/** One element against its reference: |got − want| ≤ rounding(dtype, |want| + noise) + noise. */
void triage_check(struct operand *of, size_t index, double got, double want, double noise);
/** The very number. */
void triage_check_exact(struct operand *of, size_t index, double got, double want);
/** The same bytes; index is of the first element. */
void triage_check_bytes(struct operand *of, size_t index, size_t count, const void *got,
                        const void *want);
/** Ends a case: all of the outputs written, guards whole; fails with what each operand missed. */
void triage_end(struct triage *t);

/** A float64 array of the case, freed by the next triage_begin. */
double *triage_doubles(size_t count);

/* One test of an operation for each size and dtype; CASE(size, dtype). Large indices are in code
 * that all dtypes share, so bf16 stands for them beyond 2^31; _SHAPES are without it, for what
 * shares that code with another operation. */
#define TRIAGE_TEST(NAME, CASE, SIZE, DTYPE) \
    static void NAME(void **state)           \
    {                                        \
        (void)state;                         \
        CASE(SIZE, DTYPE);                   \
    }
#define TRIAGE_SHAPES(OP)                                             \
    TRIAGE_TEST(OP##_small_f32, OP, TRIAGE_SMALL, HST_F32)            \
    TRIAGE_TEST(OP##_small_bf16, OP, TRIAGE_SMALL, HST_BF16)          \
    TRIAGE_TEST(OP##_small_f16, OP, TRIAGE_SMALL, HST_F16)            \
    TRIAGE_TEST(OP##_real_shape_f32, OP, TRIAGE_REAL, HST_F32)        \
    TRIAGE_TEST(OP##_real_shape_bf16, OP, TRIAGE_REAL, HST_BF16)      \
    TRIAGE_TEST(OP##_real_shape_f16, OP, TRIAGE_REAL, HST_F16)
#define TRIAGE_TESTS(OP)                                              \
    TRIAGE_SHAPES(OP)                                                 \
    TRIAGE_TEST(OP##_beyond_2_31_bf16, OP, TRIAGE_BEYOND, HST_BF16)
#define TRIAGE_SHAPES_LIST(OP)                                                       \
    cmocka_unit_test(OP##_small_f32), cmocka_unit_test(OP##_small_bf16),             \
        cmocka_unit_test(OP##_small_f16), cmocka_unit_test(OP##_real_shape_f32),     \
        cmocka_unit_test(OP##_real_shape_bf16),                                      \
        cmocka_unit_test(OP##_real_shape_f16)
#define TRIAGE_LIST(OP) TRIAGE_SHAPES_LIST(OP), cmocka_unit_test(OP##_beyond_2_31_bf16)

struct triage_tests {
    const struct CMUnitTest *tests;
    size_t count;
};
struct triage_tests triage_row_tests(void), triage_element_tests(void), triage_token_tests(void),
    triage_optimizer_tests(void), triage_product_tests(void), triage_attention_tests(void),
    triage_engine_tests(void);
#endif
