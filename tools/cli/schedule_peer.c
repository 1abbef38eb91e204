/* SPDX-License-Identifier: Apache-2.0 */
/* Decides the rate of a step as DeepSpeed's schedulers do, in the order of their operations. */
#include "cli/schedule_peer.h"

#include <math.h>
#include <stddef.h>

const char *const PEER_NAMES[] = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", NULL};

static double at_least_one(double x)
{
    return x > 1 ? x : 1;
}

/* The fraction of the peak behind the warmup. */
static double behind(const struct schedule_peer *p, double b, double w)
{
    const double total = (double)p->total_steps, rest = at_least_one(total - w);
    if (p->kind == PEER_WARMUP)
        return 1;
    if (p->kind == PEER_WARMUP_DECAY)
        return b < total ? (total - b) / rest : 0;
    const double progress = b - w + 1 < rest ? (b - w + 1) / rest : 1;
    return p->lr_end + (1 - p->lr_end) * ((1 + cos(M_PI * progress)) / 2);
}

double schedule_peer_lr(const struct schedule_peer *p, double lr, uint64_t step)
{
    const bool cosine = p->kind == PEER_WARMUP_COSINE;
    const double w = p->warmup_steps > 2 ? (double)p->warmup_steps : 2;
    if (step < 2)
        return cosine ? 0 : p->lr_begin;
    const double b = (double)(step - 2);
    const double rise = p->linear ? b / w : 1 / log(w) * log(b + 1);
    const double f = b < w ? rise : behind(p, b, w);
    if (cosine)
        return lr * (b < w ? p->lr_begin + f * (1 - p->lr_begin) : f);
    return p->lr_begin + (lr - p->lr_begin) * f;
}
