/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_AIO_CONFORMANCE_H
#define HST_TESTS_AIO_CONFORMANCE_H
/* What the parts of the conformance suite share. One configuration per run of the executable. */
#include "hoistway/aio.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h> /* needs the ones before */

#include "handles.h"

enum { KIB = 1 << 10, MIB = 1 << 20 };

/* One rung of the ladder, or a backend that needs no drive; from the command line. */
struct configuration {
    const char *name;
    enum hst_aio_backend backend;
    uint32_t avoid;
    const char *model;
    bool fixed; /* every buffer is registered with every context */
};
extern const struct configuration *configuration;
extern const char *fault_plan; /* null, or empty: the backend is wrapped */
extern char directory[];             /* empty before and after each case */

/* Config of the backend under test; further fields may follow. */
#define CONFIG(...)                                                                                \
    (&(const struct hst_aio_config){                                                               \
        .size = sizeof(struct hst_aio_config), .backend = configuration->backend,                  \
        .avoid = configuration->avoid, .model = configuration->model, .fault = fault_plan,         \
        __VA_ARGS__})

struct hst_aio *open_aio(const struct hst_aio_config *config);
void close_aio(struct hst_aio **aio);
struct hst_aio_file *open_scratch(struct hst_aio *aio, uint64_t size_bytes);
void *alloc_buffer(size_t size_bytes);
void free_buffer(void *buffer, size_t size_bytes);
void fill_random(void *buffer, size_t size_bytes, uint64_t seed);
uint64_t next_random(uint64_t *state);

/* Submits one operation, waits for it, checks that it comes back once with `user`. */
struct hst_aio_completion run_op(struct hst_aio *aio, struct hst_aio_op op);
struct hst_aio_op read_op(struct hst_aio_file *file, uint64_t offset, void *buffer, uint64_t bytes);
struct hst_aio_op write_op(struct hst_aio_file *file, uint64_t offset, void *buffer,
                           uint64_t bytes);

/* Cases that hold where bytes are kept (all but null), everywhere, on real drives only. */
extern const struct CMUnitTest data_cases[], queue_cases[], system_cases[], file_cases[],
    feature_cases[];
extern const size_t data_case_count, queue_case_count, system_case_count, file_case_count,
    feature_case_count;
#endif
