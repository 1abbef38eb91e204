/* SPDX-License-Identifier: Apache-2.0 */
/* See problem.h. */
#include "problem.h"

double error_units(double sum_of_squares, int count, int steps)
{
    return sqrt(sum_of_squares / count) / (0x1p-24 * sqrt(steps / 3.0));
}

struct hst_update_arrays problem_arrays(struct problem *p)
{
    const struct hst_update_bytes *bytes = &p->update->bytes;
    return (struct hst_update_arrays){.weights = p->weights,
                                      .master = bytes->master ? p->master : NULL,
                                      .m = bytes->m ? p->m : NULL,
                                      .v = bytes->v ? p->v : NULL,
                                      .grads = p->grads};
}

void problem_begin(struct problem *p, const struct hst_update *update, uint64_t *rng)
{
    *p = (struct problem){.update = update};
    for (int i = 0; i < COUNT; i++) {
        p->start[i] = random_unit(rng);
        p->want[i].p = (double)p->start[i];
    }
    update->set_weights(p->start, p->weights, update->bytes.master ? p->master : NULL, COUNT);
}

void problem_step(struct problem *p, const struct hst_adam_hyper *hyper,
                  const struct hst_adam_coef *coef, int t, float mean, reference_update *reference,
                  uint64_t *rng)
{
    const struct hst_update_arrays arrays = problem_arrays(p);

    for (int i = 0; i < COUNT; i++) {
        p->grads[i] = random_unit(rng) + mean;
        reference(p->update->kind.optimizer, hyper, t,
                  (double)coef->grad_scale * (double)p->grads[i], &p->want[i]);
    }
    assert_int_equal(hst_update_run(p->update, coef, &arrays, COUNT), 0);
}

void problem_masters(const struct problem *p, const struct hst_cpu_adam_ops *ops, float *out)
{
    enum hst_cpu_type type = p->update->kind.weights;
    if (type == HST_CPU_BF16)
        ops->join_f32((const uint16_t *)(const void *)p->weights,
                      (const int16_t *)(const void *)p->master, out, COUNT);
    else
        memcpy(out, type == HST_CPU_F32 ? p->weights : p->master, COUNT * sizeof *out);
}

float problem_moment(const struct problem *p, const unsigned char *array, int i)
{
    uint16_t half;
    float x;
    if (p->update->kind.moments == HST_CPU_BF16) {
        memcpy(&half, array + 2 * i, 2);
        return float_of((uint32_t)half << 16);
    }
    memcpy(&x, array + 4 * i, 4);
    return x;
}

float golden_unit(uint32_t *generator)
{
    *generator = *generator * 1664525u + 1013904223u;
    return (float)(*generator >> 8) * 0x1p-23f - 1.0f;
}
