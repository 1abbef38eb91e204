/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_PREDICT_H
#define HOISTWAY_PREDICT_H
/* What a step of an engine will take, what it waits for, and what would help. */
#include <hoistway/hoistway.h>
#include <hoistway/machine.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A part of the machine, "cores", "drives", "GPU", "link" (between host and GPU); static text. */
struct hst_help {
    const char *what;
    double step_s; /* of a step, were that twice as fast */
};
#define HST_HELPS_MOST 4u

struct hst_prediction {
    double step_s;  /* a step of those to come; 0: not predicted, why says why */
    double bound_s; /* the least it could take on the same rates, in whatever order */
    /* the lane that the step waits for, as in hst_trace_event: of the resource that helps, the one
       that is busy longer; static text; null where not predicted */
    const char *bound_by;
    struct hst_help helps[HST_HELPS_MOST]; /* what would help alone, most first */
    uint32_t help_count;
    char why[200]; /* one line; "" where predicted */
};

/**
 * Runs the step graph in virtual time: on what computation, norm and update took so far, from the
 * second step on, each as if it were alone, and on measured rates of drives and link. Nothing is
 * taken from the steps' own seconds, so these can be judged by it. Before the second step, and in a
 * plan, `rates` say what computation, norm and update will take: the model's products, as if
 * nothing else were computed, and fp32's or bf16's update (fp16: fp32's). What it can not know is
 * not guessed: *prediction then has step_s 0 and says why.
 *
 * rates   READ, WRITE and MIXED of the store's directories, H2D and D2H of the device, PRODUCTS,
 *         UPDATE and NORM (hst_rates_get); null, or figures that are 0: not known, which is no
 *         matter where nothing lives on NVMe, nothing is copied, or it was measured
 *
 * Errors: -EINVAL before seal, or a plan that does not fit; -ENOMEM; *prediction is then untouched.
 * None is sticky.
 * Ownership: borrows all, keeps none.   Thread-safety: the engine's.
 * Cost: some 25 µs per tile, and bytes as the engine's own tables; nothing is waited for.
 */
int hst_engine_predict(const struct hst_engine *engine, const struct hst_rates *rates,
                       struct hst_prediction *prediction);

/** How the step that is predicted, or trained, updates: see enum hst_update_time; "early" where
 * nothing has to be waited for (no clip). After seal. */
const char *hst_engine_update(const struct hst_engine *engine);

#ifdef __cplusplus
}
#endif
#endif
