/* SPDX-License-Identifier: Apache-2.0 */
#include "toy_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

struct hst_engine *toy_created(const struct hst_config *config)
{
    struct hst_error error = {0};
    struct hst_config c = *config;
    struct hst_engine *engine = NULL;
    c.error = &error;
    if (hst_engine_create(&c, &engine))
        fail_msg("E%d %s", error.code, error.message);
    return engine;
}

void toy_must(struct hst_engine *engine, int rc)
{
    if (rc)
        fail_msg("returned %d: E%d %s", rc, hst_engine_error(engine)->code,
                 hst_engine_error(engine)->message);
}

int toy_try(struct hst_engine *engine, int rc, struct toy_saved *saved, struct hst_error *error)
{
    struct hst_step_stats stats;
    for (int s = 0; s < 2 && rc == 0; s++)
        rc = toy_step(engine, &stats);
    rc = rc ? rc : toy_save(engine, saved);
    *error = *hst_engine_error(engine);
    if (rc) { /* sticky */
        struct hst_step step;
        struct hst_step_in in = {.size = sizeof in};
        assert_int_equal(hst_step_begin(engine, &in, &step), rc);
        assert_int_equal(hst_engine_drain(engine, NULL), rc);
    }
    hst_engine_destroy(&engine);
    return rc;
}

/* What moved in one window of all. */
static void add_bytes(struct toy_result *result, const struct hst_step_bytes *bytes)
{
    result->nvme_read += bytes->nvme_read;
    result->nvme_write += bytes->nvme_write;
    result->h2d += bytes->h2d;
    result->d2h += bytes->d2h;
}

void toy_run(const struct hst_config *config, struct toy_result *result)
{
    struct hst_engine *engine = toy_created(config);
    struct hst_step_stats drained;
    result->nvme_read = result->nvme_write = result->h2d = result->d2h = 0;
    result->nvme_s = result->copy_s = 0;
    toy_must(engine, toy_seal_and_load(engine));
    for (int s = 0; s < TOY_STEPS; s++) {
        toy_must(engine, toy_step(engine, &result->stats));
        assert_int_equal(result->stats.step, s + 1);
        result->norms[s] = result->stats.grad_norm;
        add_bytes(result, &result->stats.bytes);
        result->nvme_s += result->stats.stall_s.nvme;
        result->copy_s += result->stats.stall_s.copy;
    }
    toy_must(engine, hst_engine_drain(engine, &drained));
    add_bytes(result, &drained.bytes);
    toy_must(engine, toy_save(engine, &result->weights));
    toy_must(engine, hst_engine_memory(engine, &result->memory));
    hst_engine_destroy(&engine);
    assert_null(engine);
}

char toy_store[] = "hst-engine-XXXXXX";

int toy_make_store(void **state)
{
    (void)state;
    return mkdtemp(toy_store) ? 0 : -1;
}

int toy_remove_store(void **state)
{
    (void)state;
    return rmdir(toy_store); /* fails where a run left something behind */
}
