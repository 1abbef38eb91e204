/* SPDX-License-Identifier: Apache-2.0 */
/* Another AdamW, from a library that was built elsewhere: opened, and tried before it is timed. */
#include "bench/adam/peer.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <string.h>

enum { TRIED = 1024, STEPS = 3 };

struct hst_adam_coef adam_coef(uint64_t step)
{
    const struct hst_adam_hyper hyper = {ADAM_LR, ADAM_BETA1, ADAM_BETA2, ADAM_EPS,
                                         ADAM_WEIGHT_DECAY};
    struct hst_adam_coef coef = {0};
    hst_adam_coef_init(&hyper, step, 1, &coef); /* of constants that are in range */
    return coef;
}

int adam_peer_step(bench_peer_adamw *peer, const struct hst_update_arrays *a, size_t n,
                   unsigned step, unsigned threads)
{
    return peer(a->weights, a->m, a->v, a->grads, n, (float)ADAM_LR, (float)ADAM_BETA1,
                (float)ADAM_BETA2, (float)ADAM_EPS, (float)ADAM_WEIGHT_DECAY, step, threads);
}

struct trial {
    float p[TRIED], m[TRIED], v[TRIED], g[TRIED];
};

static struct hst_update_arrays arrays_of(struct trial *t)
{
    return (struct hst_update_arrays){.weights = t->p, .m = t->m, .v = t->v, .grads = t->g};
}

static void fill(struct trial *t)
{
    uint32_t random = 1;
    memset(t, 0, sizeof *t);
    for (int i = 0; i < TRIED; i++) {
        random = random * 1664525u + 1013904223u;
        t->p[i] = (float)(random >> 8) * 0x1p-23f - 1;
        t->g[i] = t->p[i] * 1e-2f;
    }
}

/* The greatest difference of a weight after some steps, in steps; NaN where a step failed. */
static double difference(bench_peer_adamw *peer)
{
    static struct trial ours, theirs;
    const struct hst_update *update =
        hst_update_find(hst_cpu_adam_ops(HST_CPU_ISA_AUTO), (struct hst_update_kind){0});
    const struct hst_update_arrays our_arrays = arrays_of(&ours), their_arrays = arrays_of(&theirs);
    double worst = 0;

    fill(&ours);
    fill(&theirs);
    for (unsigned step = 1; step <= STEPS; step++) {
        const struct hst_adam_coef coef = adam_coef(step);
        if (hst_update_run(update, &coef, &our_arrays, TRIED) != 0 ||
            adam_peer_step(peer, &their_arrays, TRIED, step, 1) != 0)
            return NAN;
    }
    for (int i = 0; i < TRIED; i++) {
        double off = fabs((double)ours.p[i] - (double)theirs.p[i]) / ADAM_LR;
        worst = off <= worst ? worst : off; /* a NaN is kept */
    }
    return worst;
}

int adam_peer_open(const char *path, bench_peer_adamw **peer, struct hst_error *error)
{
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!library)
        return fail(error, FAIL_VALUE, -EINVAL, "--peer %s cannot be opened: %s", path, dlerror());
    *(void **)peer = dlsym(library, "hst_peer_adamw");
    if (!*peer)
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--peer %s does not export hst_peer_adamw. Fix: see tools/bench/adam/adam.h",
                    path);
    double off = difference(*peer);
    if (!(off < 0.05)) /* three roundings of a weight near 1 are 0.02 steps */
        return fail(error, FAIL_VALUE, -EINVAL,
                    "--peer %s does not compute AdamW: after %d steps a weight is %g steps away "
                    "from ours. Fix: decoupled decay, bias correction, eps outside of the root",
                    path, (int)STEPS, off);
    return 0;
}
