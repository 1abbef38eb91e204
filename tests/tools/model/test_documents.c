/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Documents that share a sequence: the loss and every gradient are those of the same documents one
 * by one, a sequence each, whatever lies beside them.
 */
#include "harness.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEQ = 80, ROWS = 3, DOCUMENTS = 8, VOCAB = 60 };

/* Rows after one another: lengths of their documents, 0 where there are no more. The first ends
 * with padding, the second is full, the third is one document. */
static const uint32_t lengths[ROWS][4] = {{33, 1, 31, 5}, {64, 7, 9}, {71}};

static const struct llama_config small = {
    .hidden = 24,
    .intermediate = 40,
    .layers = 2,
    .heads = 4,
    .kv_heads = 2,
    .head_dim = 8,
    .vocab = VOCAB,
    .max_positions = SEQ,
    .rms_norm_eps = 1e-5,
    .tied_embeddings = true,
    .rope = {.type = ROPE_DEFAULT, .theta = 100.0},
};

/* Larger than a fresh model's: attention has to matter. */
static int read_values(void *context, const struct hst_param_ref *param, uint64_t offset,
                       float *dst, size_t count)
{
    const struct llama_config *config = context;
    llama_init_random(config, &(struct llama_init){3, param->name, offset}, dst, count);
    for (size_t i = 0; i < count && param->dim_count > 1; i++)
        dst[i] *= 10;
    return 0;
}

/* A document's token i, the id behind it, and whether that is learned. */
static uint32_t id_of(uint32_t document, uint32_t i)
{
    return (document * 131 + i * i * 7 + i) % VOCAB;
}

static uint32_t target_of(uint32_t document, uint32_t i)
{
    return (document + i) % 3 ? id_of(document, i + 1) : HST_NO_TARGET;
}

struct rows {
    uint32_t inputs[DOCUMENTS * SEQ], targets[DOCUMENTS * SEQ];
    uint32_t first[DOCUMENTS * SEQ], position[DOCUMENTS * SEQ];
};

/* Padding everywhere: any id, seen by itself alone. */
static void fill_padding(struct rows *r)
{
    for (uint32_t t = 0; t < DOCUMENTS * SEQ; t++) {
        r->inputs[t] = t % VOCAB;
        r->targets[t] = HST_NO_TARGET;
        r->first[t] = t % SEQ;
        r->position[t] = 0;
    }
}

static void put(struct rows *r, uint32_t at, uint32_t document, uint32_t length)
{
    for (uint32_t i = 0; i < length; i++) {
        r->inputs[at + i] = id_of(document, i);
        r->targets[at + i] = target_of(document, i);
        r->first[at + i] = at % SEQ;
        r->position[at + i] = i;
    }
}

/* Packed, or each at the beginning of a sequence of its own. */
static void lay(struct rows *r, bool packed)
{
    uint32_t document = 0;
    fill_padding(r);
    for (uint32_t row = 0; row < ROWS; row++) {
        uint32_t column = 0;
        for (size_t i = 0; i < 4 && lengths[row][i]; i++, document++) {
            put(r, packed ? row * SEQ + column : document * SEQ, document, lengths[row][i]);
            column += lengths[row][i];
        }
    }
    assert_int_equal(document, DOCUMENTS);
}

struct outcome {
    double loss, grad_norm, evaluated; /* before the step, of the batch of it */
    size_t count;
    float grads[40000];
};
static struct outcome outcomes[2]; /* large: not on the stack */

static void take_gradients(const struct harness *h, struct outcome *out)
{
    out->count = 0;
    const struct llama_tensor *tensor;
    for (size_t i = 0; (tensor = llama_tensor(h->model, i)); i++) {
        size_t count = 0;
        const float *grad = fake_engine_grad(h->engine, tensor->name, &count);
        assert_true(grad && out->count + count <= sizeof out->grads / sizeof *out->grads);
        memcpy(out->grads + out->count, grad, count * sizeof *grad);
        out->count += count;
    }
}

/* saves: as fake_engine_saves. A grain is two sequences; a last one may be one. */
static void run(const struct llama_config *config, enum hst_precision precision, bool packed,
                uint64_t saves, struct outcome *out)
{
    static struct rows r;
    const uint32_t sequences = packed ? ROWS : DOCUMENTS;
    const struct llama_run sizes = {.seq_len = SEQ,
                                    .batch_tokens = (uint64_t)sequences * SEQ,
                                    .micro_batch_tokens = (uint64_t)2 * SEQ,
                                    .documents = packed};
    const struct hst_config engine = harness_engine(&sizes, precision);
    const struct hst_step_in in = {.size = sizeof in, .lr = 1e-3};
    const struct hst_reader reader = {.read = read_values, .context = (void *)config};
    struct hst_step_stats stats = {0};
    struct harness h = {0};
    lay(&r, packed);
    assert_int_equal(llama_create(config, &sizes, &h.model, NULL), 0);
    assert_int_equal(hst_engine_create(&engine, &h.engine), 0);
    assert_int_equal(llama_add_units(h.model, h.engine), 0);
    fake_engine_saves(h.engine, saves);
    assert_int_equal(hst_engine_seal(h.engine, HST_ORDER_FORWARD), 0);
    assert_int_equal(hst_engine_load(h.engine, &reader), 0);
    const struct llama_batch batch = {.inputs = r.inputs,
                                      .targets = r.targets,
                                      .first = packed ? r.first : NULL,
                                      .position = packed ? r.position : NULL};
    struct llama_evaluation found = {0};
    assert_int_equal(llama_evaluate(h.model, h.engine, &batch, sizes.batch_tokens, &found), 0);
    out->evaluated = found.loss_sum / (double)found.target_count;
    assert_int_equal(llama_step(h.model, h.engine, &in, &batch, &out->loss, &stats), 0);
    out->grad_norm = stats.grad_norm;
    take_gradients(&h, out);
    harness_close(&h);
}

/* ‖a − b‖ / ‖b‖ */
static double distance(const struct outcome *a, const struct outcome *b)
{
    double off = 0, size = 0;
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        const double difference = (double)a->grads[i] - (double)b->grads[i];
        off += difference * difference;
        size += (double)b->grads[i] * (double)b->grads[i];
    }
    return sqrt(off / size);
}

/* A Llama, one whose heads are normed, one with biases. */
static struct llama_config kin_of(int kind)
{
    struct llama_config config = small;
    config.qk_norm = kind == 1;
    config.qkv_bias = kind == 2;
    return config;
}

static void packed_documents_are_what_they_are_one_by_one(void **state)
{
    (void)state;
    struct outcome *packed = &outcomes[0], *alone = &outcomes[1];
    for (int kind = 0; kind < 3; kind++) {
        const struct llama_config config = kin_of(kind);
        run(&config, HST_PRECISION_FP32, true, 0, packed);
        run(&config, HST_PRECISION_FP32, false, 0, alone);
        const double loss = fabs(packed->loss / alone->loss - 1), grad = distance(packed, alone);
        print_message("loss off by %.1e, gradients by %.1e\n", loss, grad);
        assert_true(alone->grad_norm > 0 && loss <= 1e-6 && grad <= 1e-5);
        run(&config, HST_PRECISION_BF16, true, 0, packed);
        run(&config, HST_PRECISION_BF16, false, 0, alone);
        assert_true(fabs(packed->loss / alone->loss - 1) < 1e-2 && distance(packed, alone) < 3e-2);
    }
}

static void an_evaluation_of_packed_documents_has_the_loss_of_their_step(void **state)
{
    (void)state;
    for (int precision = HST_PRECISION_FP32; precision <= HST_PRECISION_BF16; precision++)
        for (int packed = 0; packed < 2; packed++) {
            run(&small, (enum hst_precision)precision, packed, 0, &outcomes[0]);
            assert_true(outcomes[0].loss > 0 && outcomes[0].evaluated == outcomes[0].loss);
        }
}

/* A step's sequences are one document each, an evaluation's are several. */
static void an_evaluation_may_be_of_documents_where_steps_are_not(void **state)
{
    (void)state;
    static struct rows r;
    run(&small, HST_PRECISION_FP32, true, 0, &outcomes[0]);
    lay(&r, true);
    const struct llama_run sizes = {.seq_len = SEQ,
                                    .batch_tokens = (uint64_t)ROWS * SEQ,
                                    .micro_batch_tokens = (uint64_t)2 * SEQ,
                                    .evaluates_other = true};
    const struct hst_config engine = harness_engine(&sizes, HST_PRECISION_FP32);
    const struct hst_reader reader = {.read = read_values, .context = (void *)&small};
    const struct llama_batch batch = {
        .inputs = r.inputs, .targets = r.targets, .first = r.first, .position = r.position};
    const struct llama_batch plain = {.inputs = r.inputs, .targets = r.targets};
    struct llama_evaluation found = {0};
    struct hst_step_stats stats = {0};
    const struct hst_step_in in = {.size = sizeof in, .lr = 1e-3};
    struct harness h = {0};
    double loss = -1;
    harness_open(&h, &small, &sizes, &engine, &reader);
    assert_int_equal(llama_evaluate(h.model, h.engine, &plain, SEQ, &found), -EINVAL);
    assert_int_equal(llama_step(h.model, h.engine, &in, &batch, &loss, &stats), -EINVAL);
    assert_int_equal(llama_evaluate(h.model, h.engine, &batch, sizes.batch_tokens, &found), 0);
    assert_true(found.loss_sum / (double)found.target_count == outcomes[0].loss);
    assert_int_equal(llama_step(h.model, h.engine, &in, &plain, &loss, &stats), 0);
    assert_true(loss > 0 && loss != outcomes[0].loss);
    harness_close(&h);
}

static void bits_are_the_same_whatever_layers_save(void **state)
{
    (void)state;
    for (int precision = HST_PRECISION_FP32; precision <= HST_PRECISION_BF16; precision++) {
        run(&small, (enum hst_precision)precision, true, 0, &outcomes[0]);
        for (uint64_t saves = 1; saves < 4; saves++) {
            run(&small, (enum hst_precision)precision, true, saves << 1, &outcomes[1]);
            assert_true(outcomes[0].loss == outcomes[1].loss);
            assert_int_equal(outcomes[0].count, outcomes[1].count);
            assert_memory_equal(outcomes[0].grads, outcomes[1].grads,
                                outcomes[0].count * sizeof *outcomes[0].grads);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_documents_are_what_they_are_one_by_one),
        cmocka_unit_test(an_evaluation_of_packed_documents_has_the_loss_of_their_step),
        cmocka_unit_test(an_evaluation_may_be_of_documents_where_steps_are_not),
        cmocka_unit_test(bits_are_the_same_whatever_layers_save),
    };
    return cmocka_run_group_tests_name("model/documents", tests, NULL, NULL);
}
