/* SPDX-License-Identifier: Apache-2.0 */
/* See harness.h. */
#include "harness.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

uint64_t harness_slice_rows;

void harness_open(struct harness *h, const struct llama_config *model, const struct llama_run *run,
                  const struct hst_config *engine, const struct hst_reader *reader)
{
    *h = (struct harness){0};
    assert_int_equal(llama_create(model, run, &h->model, NULL), 0);
    assert_int_equal(hst_engine_create(engine, &h->engine), 0);
    fake_engine_slices(h->engine, harness_slice_rows);
    assert_int_equal(llama_add_units(h->model, h->engine), 0);
    assert_int_equal(hst_engine_seal(h->engine, HST_ORDER_FORWARD), 0);
    assert_int_equal(hst_engine_load(h->engine, reader), 0);
}

void harness_close(struct harness *h)
{
    hst_engine_destroy(&h->engine);
    llama_destroy(&h->model);
}

struct hst_config harness_engine(const struct llama_run *run, enum hst_precision precision)
{
    return (struct hst_config){
        .size = sizeof(struct hst_config),
        .precision = precision,
        .batch_tokens = run->batch_tokens,
        .micro_batch_tokens = run->micro_batch_tokens,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .weight_decay = HST_NONE,
        .clip = HST_NONE,
    };
}

int harness_device(struct hst_dev **dev, struct hst_stream **stream)
{
    struct hst_dev_config config = {.size = sizeof config};
    int rc = hst_dev_host_open(&config, dev);
    return rc ? rc : hst_stream_create(*dev, "test", stream);
}
