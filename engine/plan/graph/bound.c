/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least time a training step can take on given rates. Each term counts what must move or be
 * computed whatever the schedule, and terms of different resources overlap fully but for the first
 * unit's way in and the last unit's way out. docs/nvme-bench.md derives each term, says what can
 * beat it, and works two examples by hand.
 */
#include "optimizer/optimizer.h"

#include <hoistway/plan.h>

#include <errno.h>
#include <math.h>
#include <string.h>

#define TOKENS_MAX (UINT64_C(1) << 50)
#define SETS_MAX   (UINT32_C(1) << 20)

static const struct {
    const char *name;
    enum hst_precision precision;
} precisions[] = {
    {"bf16", HST_PRECISION_BF16},
    {"fp32", HST_PRECISION_FP32},
    {"fp16", HST_PRECISION_FP16},
};

static struct hst_param_bytes bytes_of(const struct optimizer *o)
{
    const double weight = (double)optimizer_weight_bytes(o);
    return (struct hst_param_bytes){weight, optimizer_state_bytes(o), weight};
}

bool hst_precision_bytes(const char *precision, struct hst_param_bytes *bytes)
{
    for (size_t i = 0; i < sizeof precisions / sizeof precisions[0]; i++) {
        if (strcmp(precision, precisions[i].name) == 0) {
            *bytes = bytes_of(optimizer_measured(precisions[i].precision, HST_STATE_DEFAULT));
            return true;
        }
    }
    return false;
}

bool hst_config_bytes(const struct hst_config *config, struct hst_param_bytes *bytes)
{
    const struct optimizer *o = optimizer_find(config->optimizer, config->precision, config->state);
    if (o)
        *bytes = bytes_of(o);
    return o;
}

static bool rate_is_valid(double rate)
{
    return isfinite(rate) && rate >= 0;
}

static bool share_is_valid(double share)
{
    return share >= 0 && share <= 1;
}

static bool input_is_valid(const struct hst_bound_in *in)
{
    const struct hst_shape *s = &in->shape;
    bool sized = s->hidden && s->intermediate && s->layers && s->heads && s->kv_heads &&
                 s->head_dim && s->vocab && in->seq_len;
    bool bytes = in->bytes.weight > 0 && in->bytes.state >= 0 && in->bytes.grad >= 0;
    bool rates = rate_is_valid(in->read) && rate_is_valid(in->write) && rate_is_valid(in->mixed) &&
                 rate_is_valid(in->link) && rate_is_valid(in->dram) &&
                 rate_is_valid(in->flops_per_s) && in->flops_per_s > 0;
    bool shares = share_is_valid(in->states_on_nvme) && share_is_valid(in->weights_on_nvme) &&
                  in->spill_bytes >= 0;
    bool drives = in->states_on_nvme > 0 || in->weights_on_nvme > 0 || in->spill_bytes > 0;
    return sized && hst_shape_params(s) && bytes && rates && shares &&
           (!drives || (in->read > 0 && in->write > 0));
}

/* A rate of 0 limits nothing. */
static double seconds(double bytes, double rate)
{
    return rate > 0 ? bytes / rate : 0;
}

/* The weights on drives: what a sweep reads of them. */
static double fetched_bytes(const struct hst_bound_in *in)
{
    return in->bytes.weight * in->weights_on_nvme * (double)hst_shape_params(&in->shape);
}

/* The update moves this between memory and drives. */
struct traffic {
    double read, written; /* never fewer written than read */
};

/* Its read of the weights is the forward's too. A version is written whole, so weights are written
   with their states, wherever they live. */
static struct traffic update_traffic(const struct hst_bound_in *in)
{
    double n = (double)hst_shape_params(&in->shape), w = in->bytes.weight;
    double f_w = in->weights_on_nvme, f_s = in->states_on_nvme;
    return (struct traffic){.read = (in->bytes.state * f_s + w * f_w) * n,
                            .written = (in->bytes.state * f_s + w * fmax(f_s, f_w)) * n};
}

/*
 * The drive may be given reads and writes one after the other, or mixed until all is read and then
 * the rest of the writes, so the bound takes what is faster; a mixed rate that was not measured
 * leaves the former.
 */
static double update_seconds(const struct hst_bound_in *in, struct traffic t)
{
    double apart = seconds(t.read, in->read) + seconds(t.written, in->write);
    double mixed = seconds(2 * t.read, in->mixed) + seconds(t.written - t.read, in->write);
    return in->mixed > 0 ? fmin(apart, mixed) : apart;
}

/* Seconds of each resource in one phase of the step. */
struct phase {
    double gpu, nvme, link, dram;
};

/* The longest resource works all the time; on the chain drive → link → GPU it waits for the first
   unit to reach it, and the others still have the last unit to do when it is done. */
static double phase_seconds(const struct phase *p, double units)
{
    double longest = fmax(fmax(p->gpu, p->nvme), p->link);
    double chained = longest + (p->gpu + p->nvme + p->link - longest) / units;
    return fmax(chained, p->dram);
}

static enum hst_bound_by longest_of(const struct hst_bound *b)
{
    double longest = fmax(fmax(b->gpu_s, b->nvme_s), fmax(b->link_s, b->dram_s));
    if (longest == b->gpu_s)
        return HST_BOUND_GPU;
    if (longest == b->nvme_s)
        return HST_BOUND_NVME;
    return longest == b->link_s ? HST_BOUND_LINK : HST_BOUND_DRAM;
}

/* It counts what a step moves between memory and drives, and computes. */
static void count_work(const struct hst_bound_in *in, uint64_t tokens, struct hst_bound *b)
{
    const struct hst_shape *s = &in->shape;
    struct traffic update = update_traffic(in);
    double attention =
        (double)s->layers * (double)((uint64_t)s->heads * s->head_dim) * (double)in->seq_len;
    b->flops =
        (in->recompute ? 8 : 6) * ((double)hst_shape_matmul_params(s) + attention) * (double)tokens;
    b->nvme_read_bytes = update.read + fetched_bytes(in) + in->spill_bytes;
    b->nvme_write_bytes = update.written + in->spill_bytes;
    b->nvme_space_bytes = 2 * update.written;
    b->update_s = update_seconds(in, update);
}

static void split_phases(const struct hst_bound_in *in, const struct hst_bound *b,
                         struct phase *forward, struct phase *backward)
{
    double n = (double)hst_shape_params(&in->shape);
    double w = in->bytes.weight, g = in->bytes.grad, stored = in->bytes.state + w;
    double fetched = fetched_bytes(in);
    struct traffic update = update_traffic(in);
    *forward = (struct phase){
        .gpu = b->forward_s,
        .nvme = b->update_s + seconds(in->spill_bytes, in->write),
        .link = seconds(w * n, in->link),
        /* Adam reads and writes states and weights and reads gradients; the drives' copies pass
           through memory once each way; the weights leave it for the GPU */
        .dram = seconds((2 * stored + g + w) * n + update.read + update.written + in->spill_bytes,
                        in->dram),
    };
    *backward = (struct phase){
        .gpu = b->backward_s,
        .nvme = seconds(fetched + in->spill_bytes, in->read),
        .link = seconds(fmax(w, g) * n, in->link),
        .dram = seconds((w + g) * n + fetched + in->spill_bytes, in->dram),
    };
}

/* Rates of 1e-300 overflow: then nothing is said rather than inf - inf. */
static bool is_finite(const struct hst_bound *b)
{
    const double terms[] = {b->flops,     b->nvme_read_bytes,  b->nvme_write_bytes, b->gpu_s,
                            b->forward_s, b->nvme_space_bytes, b->backward_s,       b->update_s,
                            b->nvme_s,    b->link_s,           b->dram_s,           b->step_s};
    for (size_t i = 0; i < sizeof terms / sizeof terms[0]; i++)
        if (!isfinite(terms[i]))
            return false;
    return b->gpu_s > 0 && b->efficiency > 0;
}

int hst_bound(const struct hst_bound_in *in, uint64_t tokens, struct hst_bound *bound)
{
    struct phase forward, backward;
    struct hst_bound b = {0};
    if (!input_is_valid(in) || tokens == 0)
        return -EINVAL;
    count_work(in, tokens, &b);
    b.gpu_s = b.flops / in->flops_per_s;
    b.forward_s = b.gpu_s * 2 / (in->recompute ? 8 : 6);
    b.backward_s = b.gpu_s - b.forward_s;
    split_phases(in, &b, &forward, &backward);
    struct phase whole = {forward.gpu + backward.gpu, forward.nvme + backward.nvme,
                          forward.link + backward.link, forward.dram + backward.dram};
    b.nvme_s = whole.nvme;
    b.link_s = whole.link;
    b.dram_s = whole.dram;
    double units = in->shape.layers;
    b.step_s = in->overlap ? phase_seconds(&whole, units)
                           : phase_seconds(&forward, units) + phase_seconds(&backward, units);
    b.step_s = fmax(b.step_s, b.gpu_s); /* which the rounding of its two parts may miss */
    b.efficiency = b.gpu_s / b.step_s;
    if (!is_finite(&b))
        return -EINVAL;
    b.bound_by = longest_of(&b);
    *bound = b;
    return 0;
}

int hst_bound_tokens(const struct hst_bound_in *in, double target, uint64_t *tokens)
{
    struct hst_bound b;
    uint64_t low = 0, high = TOKENS_MAX; /* low does not reach the target, high does */
    int rc = hst_bound(in, high, &b);
    if (rc || !(target > 0 && target < 1))
        return -EINVAL;
    if (b.efficiency < target)
        return -ERANGE;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (hst_bound(in, middle, &b) == 0 && b.efficiency >= target)
            high = middle;
        else
            low = middle;
    }
    *tokens = high;
    return 0;
}

static double efficiency_of_sets(const struct hst_bound_in *in, uint64_t tokens, uint32_t sets)
{
    struct hst_bound_in many = *in;
    struct hst_bound b;
    many.read *= sets;
    many.write *= sets;
    many.mixed *= sets;
    return hst_bound(&many, tokens, &b) ? -1 : b.efficiency;
}

int hst_bound_drives(const struct hst_bound_in *in, uint64_t tokens, double target, uint32_t *sets)
{
    uint32_t low = 0, high = SETS_MAX;
    double most = efficiency_of_sets(in, tokens, high);
    if (most < 0 || !(target > 0 && target < 1))
        return -EINVAL;
    if (most < target)
        return -ERANGE;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (efficiency_of_sets(in, tokens, middle) >= target)
            high = middle;
        else
            low = middle;
    }
    *sets = high;
    return 0;
}
