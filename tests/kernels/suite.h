/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_KERNELS_SUITE_H
#define HST_TESTS_KERNELS_SUITE_H
/*
 * The ground that every test of a device stands on. A test program is given the device's name
 * (argument 1, default "host") and uses kernels.h alone, so that another device runs the same
 * programs unchanged.
 *
 * A case is a function that makes tensors, runs operations and checks them against a reference.
 * suite_run runs it once with the device working alone and once with three workers, from the same
 * random seed, and compares every byte that the case read back; alone only, where HST_SUITE_ALONE
 * is set. Each tensor has guard bytes behind it, checked at the end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <hoistway/kernels.h>

enum { SUITE_TENSORS = 64, DTYPES = 3 };

/** Every dtype. */
extern const enum hst_dtype suite_dtypes[DTYPES];

/** Whether a row that takes long is tried in this dtype: in each, or in one where
 * HST_SUITE_LONG_ONCE is set. */
bool suite_tries(size_t row, size_t dtype);

struct tensor {
    void *data;     /* device memory */
    double *values; /* what was last written or read here, exactly as the dtype holds it */
    size_t count;
    enum hst_dtype dtype;
};

struct suite {
    struct hst_dev *dev;
    struct hst_stream *stream;
    uint64_t random;
    char *arena, *staging; /* device memory; host memory for copies */
    size_t arena_used;
    struct tensor tensors[SUITE_TENSORS];
    size_t tensor_count;
    struct tensor *work; /* one for all operations of a case: it may hold anything */
    char *log;           /* every byte read back, in order */
    size_t log_used;
};

/**
 * The main function of a test program: opens the device that argv names, runs the tests. A device
 * that is not there ends the program with 77 and the reason. A test that fails on a device is told
 * with the device's own words and the case's tensors, behind cmocka's message. HST_SUITE_LIST=1
 * prints the names of the tests instead, HST_SUITE_ONLY=NAME runs one of them. Where cuDNN has
 * built plans for more than HST_SUITE_PLANS_S=SECONDS, the cases left are by own kernels.
 */
int suite_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count);
/** Opens one more device of the same kind, with these budgets and this parallel; and closes it. */
int suite_open(uint64_t memory_bytes, uint64_t host_bytes, const struct hst_parallel *parallel,
               struct hst_dev **dev);
void suite_close(struct hst_dev **dev);
/** Three workers; static, and never ending before the program. */
const struct hst_parallel *suite_workers(void);
void suite_run(void (*run)(struct suite *suite, const void *parameters), const void *parameters);

/** Uniform in [-1, 1). */
double suite_random(struct suite *suite);

/** New tensors: random in [-scale, scale), of one number, or left as 0xff bytes (NaN). */
struct tensor *tensor_random(struct suite *suite, size_t count, enum hst_dtype dtype, double scale);
struct tensor *tensor_filled(struct suite *suite, size_t count, enum hst_dtype dtype, double value);
struct tensor *tensor_empty(struct suite *suite, size_t count, enum hst_dtype dtype);
struct tensor *tensor_ids(struct suite *suite, size_t count, uint32_t below);
/** u32, 4 bytes each as an f32 has; values are these numbers. */
struct tensor *tensor_words(struct suite *suite, size_t count, const uint32_t *words);
/** Rounds values to the tensor's dtype, in place, and writes them to the device. */
void tensor_write(struct suite *suite, struct tensor *tensor);
/** Reads the device's data back into values. */
void tensor_read(struct suite *suite, struct tensor *tensor);
struct hst_work suite_work(struct suite *suite, size_t size_bytes);

/** Waits for the stream; it must not have failed. */
void suite_sync(struct suite *suite);
/** Waits, and reads a tensor that has one value everywhere: what was refused has written none. */
void expect_everywhere(struct suite *suite, struct tensor *tensor, double value);

/**
 * got is within what the dtype's one rounding and an f32 sum may leave of want:
 *   |got − want| ≤ rounding(dtype, |want| + noise) + noise
 * noise: what the f32 arithmetic inside may lose, stated by the caller from the magnitudes it sums.
 */
void expect_close(const char *what, const struct tensor *got, const double *want, double noise);

/** The value rounded to f32 and then to the dtype, to nearest even. */
double round_to(enum hst_dtype dtype, double value);
/** What one rounding to the dtype may be off by: half an ulp, among subnormals half a step. */
double rounding(enum hst_dtype dtype, double value);
/** Whether the device rounds attention's weights to this type before they are multiplied: GPUs do,
 * and so does the host by AMX in bf16. A workspace was asked for before. */
bool suite_rounds_weights(struct hst_dev *dev, enum hst_dtype dtype);
/** Loss and gradient of whole rows, of a scale of 1. */
struct hst_cross_entropy suite_cross_entropy(size_t tokens, size_t vocab,
                                             const struct tensor *logits,
                                             const struct tensor *targets,
                                             const struct tensor *loss);
#endif
