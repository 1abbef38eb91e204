/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HST_TESTS_STORE_REAL_H
#define HST_TESTS_STORE_REAL_H
/* Stores on real files. After cmocka.h, whose assertions it uses. */
#include "toy.h"

static inline struct hst_aio *new_aio(const char *directory, enum hst_aio_backend backend)
{
    const struct hst_aio_config config = {.size = sizeof config,
                                          .backend = backend,
                                          .thread_count = 2,
                                          .queue_depth = 4,
                                          .lock_timeout_ms = 1};
    struct hst_aio *aio = NULL;
    assert_int_equal(hst_aio_open(&config, directory, &aio, NULL), 0);
    return aio;
}

static inline void open_toy_on(struct toy *toy, uint32_t drives, enum hst_aio_backend backend)
{
    assert_int_equal(toy_open(toy, drives), 0);
    for (uint32_t d = 0; d < drives; d++)
        toy->drives[d].aio = toy->aio[d] = new_aio(toy->directories[d], backend);
}

static inline void open_toy(struct toy *toy, uint32_t drives)
{
    open_toy_on(toy, drives, HST_AIO_THREADS);
}

static inline struct store *create(struct toy *toy)
{
    struct store *store = NULL;
    struct hst_error error = {0};
    int rc = store_create(&toy->config, &store, &error);
    if (rc)
        print_message("%s\n", error.message);
    assert_int_equal(rc, 0);
    return store;
}

static inline struct store *reopen(struct toy *toy, struct store_found *found)
{
    struct store *store = NULL;
    struct hst_error error = {0};
    int rc = store_open(&toy->config, &store, found, &error);
    if (rc)
        print_message("%s\n", error.message);
    assert_int_equal(rc, 0);
    return store;
}

#endif
