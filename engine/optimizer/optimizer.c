/* SPDX-License-Identifier: Apache-2.0 */
/* This is what all rows share: how one is found, its sizes, the user's numbers, its kernel on the
   host. */
#include "optimizer/optimizer.h"

#include "base/real.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- the table ---- */

const struct optimizer *optimizer_find(enum hst_precision precision, enum hst_state state)
{
    precision = precision == HST_PRECISION_DEFAULT ? HST_PRECISION_FP32 : precision;
    state = state == HST_STATE_DEFAULT ? HST_STATE_FP32 : state;
    for (size_t i = 0; i < optimizer_adamw_count; i++) {
        const struct optimizer *row = &optimizer_adamw[i];
        if (row->precision == precision && row->state == state)
            return row;
    }
    return NULL;
}

/* ---- sizes ---- */

uint32_t optimizer_number_bytes(enum optimizer_number number)
{
    return number == OPTIMIZER_F32 ? 4 : 2;
}

double optimizer_state_bytes(const struct optimizer *optimizer)
{
    double bytes = 0;
    for (uint32_t i = 0; i < optimizer->state_count; i++)
        bytes += (double)optimizer_number_bytes(optimizer->states[i].number) /
                 optimizer->states[i].covers;
    return bytes;
}

double optimizer_traffic_bytes(const struct optimizer *optimizer)
{
    const double weight = (double)optimizer_weight_bytes(optimizer), grad = weight;
    const bool copies = optimizer->host.weights == HST_CPU_F16; /* of masters: written alone */
    return 2 * optimizer_state_bytes(optimizer) + (copies ? 1 : 2) * weight + grad;
}

struct optimizer_arrays optimizer_arrays_at(const struct optimizer *optimizer,
                                            const struct optimizer_arrays *arrays, uint64_t first)
{
    const uint64_t weight_at = first * optimizer_weight_bytes(optimizer);
    struct optimizer_arrays at = {
        .weights = (char *)arrays->weights + weight_at,
        .grads = arrays->grads ? (const char *)arrays->grads + weight_at : NULL,
        .index = arrays->index + first,
    };
    for (uint32_t i = 0; i < optimizer->state_count; i++)
        at.states[i] = (char *)arrays->states[i] + optimizer_array_bytes(optimizer, i, first);
    return at;
}

/* ---- the user's numbers ---- */

void optimizer_resolve(struct hst_config *config)
{
    config->beta1 = real_or(config->beta1, 0.9);
    config->beta2 = real_or(config->beta2, 0.999);
    config->eps = real_or(config->eps, 1e-8);
    config->weight_decay = real_or(config->weight_decay, 0.01);
}

static struct optimizer_group group_of(const struct hst_config *config)
{
    return (struct optimizer_group){.beta1 = config->beta1,
                                    .beta2 = config->beta2,
                                    .eps = config->eps,
                                    .weight_decay = config->weight_decay};
}

const char *optimizer_refusal(const struct hst_config *config)
{
    const struct optimizer_group group = group_of(config);
    const struct optimizer_step step = {.lr = 0, .t = 1, .grad_scale = 1};
    struct optimizer_coef unused;
    return optimizer_adamw[0].coef(&group, &step, &unused)
               ? "betas must be in [0, 1), eps > 0, weight_decay >= 0, all finite"
               : NULL;
}

int optimizer_settings_write(const struct hst_config *config, char *text, size_t bytes)
{
    char real[4][REAL_TEXT_BYTES];
    return snprintf(text, bytes, "betas %s,%s\neps %s\nweight-decay %s\n",
                    real_text(config->beta1, real[0]), real_text(config->beta2, real[1]),
                    real_text(config->eps, real[2]), real_text(config->weight_decay, real[3]));
}

int optimizer_coefs_init(const struct optimizer *optimizer, const struct hst_config *config,
                         const struct optimizer_step *step, struct optimizer_coefs *coefs)
{
    struct optimizer_coefs all;
    for (uint32_t g = 0; g < OPTIMIZER_GROUPS; g++) {
        struct optimizer_group group = group_of(config);
        int rc = optimizer->coef(&group, step, &all.groups[g][true]);
        group.weight_decay = 0;
        rc = rc ? rc : optimizer->coef(&group, step, &all.groups[g][false]);
        if (rc)
            return rc;
    }
    *coefs = all;
    return 0;
}

/* All else follows from the step and the user's numbers. */
bool optimizer_coefs_agree(const struct optimizer_coefs *a, const struct optimizer_coefs *b)
{
    return a->groups[0][false].host.grad_scale == b->groups[0][false].host.grad_scale;
}

/* ---- on the host ---- */

struct optimizer_kernel optimizer_kernel_find(const struct optimizer *optimizer,
                                              const struct hst_cpu_adam_ops *ops)
{
    const struct hst_update *update = hst_update_find(ops, optimizer->host);
    assert(update); /* each table of cpu_adam has the same rows */
    return (struct optimizer_kernel){.optimizer = optimizer, .ops = ops, .update = update};
}

void optimizer_begin(const struct optimizer_kernel *kernel, const float *x,
                     const struct optimizer_arrays *arrays, size_t n)
{
    const struct optimizer *o = kernel->optimizer;
    kernel->update->set_weights(x, arrays->weights, o->has_master ? arrays->states[0] : NULL, n);
    for (uint32_t i = o->has_master; i < o->state_count; i++)
        memset(arrays->states[i], 0, optimizer_array_bytes(o, i, n));
}

const float *optimizer_masters(const struct optimizer_kernel *kernel,
                               const struct optimizer_arrays *arrays, float *room, size_t n)
{
    if (!kernel->optimizer->has_master)
        return arrays->weights;
    if (kernel->optimizer->host.weights == HST_CPU_F16)
        return arrays->states[0];
    kernel->ops->join_f32(arrays->weights, arrays->states[0], room, n);
    return room;
}

void optimizer_derive(const struct optimizer_kernel *kernel, const struct optimizer_arrays *arrays,
                      size_t n)
{
    kernel->update->set_weights(arrays->states[0], arrays->weights, arrays->states[0], n);
}

int optimizer_run(const struct optimizer_kernel *kernel, const struct optimizer_coef *coef,
                  const struct optimizer_arrays *arrays, size_t n)
{
    const struct hst_update_arrays a = kernel->optimizer->host_arrays(kernel->optimizer, arrays);
    return hst_update_run(kernel->update, &coef->host, &a, n);
}

int optimizer_run_into(const struct optimizer_kernel *kernel, const struct optimizer_coef *coef,
                       const struct optimizer_arrays *from, const struct optimizer_arrays *into,
                       size_t n)
{
    const struct optimizer *o = kernel->optimizer;
    const struct hst_update_arrays f = o->host_arrays(o, from), t = o->host_arrays(o, into);
    return hst_update_run_into(kernel->update, &coef->host, &f, &t, n);
}
