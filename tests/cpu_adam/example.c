/* SPDX-License-Identifier: Apache-2.0 */
/* One step of AdamW: cc example.c $(pkg-config --cflags --libs hoistway) -lm */
#include <hoistway/cpu_adam.h>
#include <math.h>
#include <stdio.h>

int main(void)
{
    float weights[3] = {1, -2, 3}, m[3] = {0}, v[3] = {0}, grads[3] = {0.1f, -3, 0}, scale;
    double partial;
    const struct hst_cpu_adam_ops *ops = hst_cpu_adam_ops(HST_CPU_ISA_AUTO);
    const struct hst_update *adamw = hst_update_find(ops, (struct hst_update_kind){0});
    ops->norm2[HST_CPU_F32](grads, 3, &partial);
    const struct hst_grad_scale_in clip = {sqrt(hst_norm2_sum(&partial, 1)), 1, 1};
    const struct hst_adam_hyper hyper = {1e-3, 0.9, 0.999, 1e-8, 0.01};
    struct hst_adam_coef coef;
    if (hst_grad_scale(&clip, &scale) || hst_adam_coef_init(&hyper, 1, scale, &coef))
        return 1;
    const struct hst_update_arrays arrays = {.weights = weights, .m = m, .v = v, .grads = grads};
    int rc = hst_update_run(adamw, &coef, &arrays, 3);
    printf("%s, %s: %.6f %.6f %.6f\n", ops->name, adamw->name, weights[0], weights[1], weights[2]);
    return rc != 0 || weights[0] >= 1 || weights[1] <= -2;
}
