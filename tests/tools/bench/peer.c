/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer for `bench adam`: AdamW from the paper in float64; with -DWRONG, one that forgets the bias
 * correction.
 */
#include "bench/adam/adam.h"

#include <math.h>

bench_peer_adamw hst_peer_adamw;

int hst_peer_adamw(float *p, float *m, float *v, const float *g, size_t n, float lr, float beta1,
                   float beta2, float eps, float weight_decay, unsigned step, unsigned threads)
{
    double bias1 = 1 - pow((double)beta1, step), bias2 = 1 - pow((double)beta2, step);
    (void)threads;
#ifdef WRONG
    bias1 = bias2 = 1;
#endif
    for (size_t i = 0; i < n; i++) {
        double gi = (double)g[i], pi = (double)p[i];
        m[i] = (float)((double)beta1 * (double)m[i] + (1 - (double)beta1) * gi);
        v[i] = (float)((double)beta2 * (double)v[i] + (1 - (double)beta2) * gi * gi);
        double q = sqrt((double)v[i] / bias2) + (double)eps;
        p[i] = (float)(pi - (double)lr * ((double)m[i] / bias1 / q + (double)weight_decay * pi));
    }
    return 0;
}
