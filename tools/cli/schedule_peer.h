/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_SCHEDULE_PEER_H
#define HOISTWAY_TOOLS_CLI_SCHEDULE_PEER_H
/* The learning rates of DeepSpeed's schedulers, of which a configuration names one. */
#include <stdbool.h>
#include <stdint.h>

enum peer_kind { PEER_NONE = 0, PEER_WARMUP, PEER_WARMUP_DECAY, PEER_WARMUP_COSINE };

struct schedule_peer {
    enum peer_kind kind;
    bool linear;     /* the warmup; else it rises with the logarithm of the step */
    double lr_begin; /* of the warmup: a rate; of WarmupCosineLR a fraction of the peak */
    double lr_end;   /* of WarmupCosineLR: a fraction of the peak */
    uint64_t warmup_steps, total_steps; /* 0: those of the run */
};

/** Their names in a configuration, "WarmupLR" and so on, from PEER_WARMUP on; null-terminated. */
extern const char *const PEER_NAMES[];

/**
 * Rate of step s, 1 to n, with the peak `lr`, b = s−2 and w = max(warmup_steps, 2). DeepSpeed moves
 * its scheduler behind a step, so that steps 1 and 2 both have the first rate.
 *   s = 1    lr_begin; of WarmupCosineLR 0
 *   b < w    lr_begin + (lr − lr_begin)·f  with f = b/w, or log(b+1)/log(w)
 *   b ≥ w    the same, with f = 1 of WarmupLR, and max(0, (T−b)/max(1, T−w)) of WarmupDecayLR;
 *            WarmupCosineLR lr·(e + (1−e)·(1 + cos(π·p))/2) with p = min(1, (b−w+1)/max(1, T−w))
 * T is total_steps, e is lr_end; of WarmupCosineLR lr_begin stands for lr·lr_begin. Pure.
 * Source: the classes of these names in DeepSpeed 0.19.8, deepspeed/runtime/lr_schedules.py.
 */
double schedule_peer_lr(const struct schedule_peer *peer, double lr, uint64_t step);

#endif
