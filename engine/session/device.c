/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the device that the engine computes on: its budget, its stream, its defaults. */
#include "base/device_failure.h"
#include "base/size_text.h"
#include "session/engine_state.h"
#include "session/ranks/ranks.h"
#include "session/store/failure.h"
#include "session/way_sums.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int fail_open(struct hst_engine *engine, int native, const struct hst_dev_failure *failure)
{
    const char *name = engine->config.device;
    if (failure->why != HST_DEV_OK)
        return report_fail(&engine->report, device_error_code(failure->why), native,
                           "device \"%s\" cannot be opened: %s. Fix: %s%s", name, failure->text,
                           hst_dev_fix(failure->why), device_way_round(failure->why));
    return report_fail(&engine->report, HST_E_DEVICE, native, "device \"%s\" cannot be opened: %s",
                       name, strerror(-native));
}

/* A plan that nobody gave a budget takes of what is free: where others have most of the card that
 * is little, and slow. */
static void warn_of_others(struct hst_engine *engine, const struct hst_dev_info *info,
                           uint64_t taken_bytes)
{
    char left[SIZE_TEXT_BYTES], all[SIZE_TEXT_BYTES], taken[SIZE_TEXT_BYTES];
    if (engine->config.plan == HST_PLAN_ELSEWHERE ||
        info->memory_free_bytes >= info->memory_total_bytes / 2)
        return;
    report_log(&engine->report, HST_LOG_WARNING,
               "W202 %s of the %s of %s (%s) are free: others have the rest, and the plan takes at "
               "most %s. Fix: end what else uses it (nvidia-smi), or say --hbm",
               size_text(info->memory_free_bytes, left), size_text(info->memory_total_bytes, all),
               info->model, engine->config.device, size_text(taken_bytes, taken));
}

/* The device's part of the plan: where it computes, and how much of its memory there is. */
static int resolve_hbm(struct hst_engine *engine, struct placement_in *in)
{
    in->compute_tier = HST_TIER_DRAM;
    if (hst_dev_flags(engine->dev) & HST_DEV_HOST_MEMORY) {
        if (engine->config.hbm_bytes == 0)
            return 0;
        return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                           "--hbm is for a GPU, device \"%s\" has no HBM. Fix: leave it out",
                           engine->config.device);
    }
    struct hst_dev_info info;
    char wish[SIZE_TEXT_BYTES], left[SIZE_TEXT_BYTES], all[SIZE_TEXT_BYTES];
    hst_dev_info(engine->dev, &info);
    in->compute_tier = HST_TIER_HBM;
    in->hbm_budget = engine->config.hbm_bytes;
    const uint32_t sharers = ranks_share_device(engine, &info);
    if (sharers == 0)
        return engine->report.error.native;
    if (in->hbm_budget == 0) {
        in->hbm_budget = hst_dev_usual_bytes(info.memory_free_bytes) / sharers;
        warn_of_others(engine, &info, in->hbm_budget);
    }
    in->hbm_most = engine->config.plan != HST_PLAN_ELSEWHERE ? info.memory_free_bytes : 0;
    if (in->hbm_most && in->hbm_budget > in->hbm_most)
        return report_fail(
            &engine->report, HST_E_BUDGET, -ENOMEM,
            "--hbm is %s, but %s of the %s of %s (%s) are free. Fix: lower --hbm, or end what else "
            "uses it (nvidia-smi)",
            size_text(in->hbm_budget, wish), size_text(info.memory_free_bytes, left),
            size_text(info.memory_total_bytes, all), info.model, engine->config.device);
    return 0;
}

static void device_defaults(struct hst_engine *engine)
{
    struct hst_config *c = &engine->config;
    bool host = engine_computes_in_dram(engine) && !c->planned;
    if (c->precision == HST_PRECISION_DEFAULT)
        c->precision = host ? HST_PRECISION_FP32 : HST_PRECISION_BF16;
    engine->standing.scale.value = c->precision != HST_PRECISION_FP16 ? 1.0f
                                   : c->loss_scale != 0               ? (float)c->loss_scale
                                                                      : (float)LOSS_SCALE_FIRST;
}

/* "fp32 or bf16": the states that the optimizer has. */
static void list_states(enum hst_optimizer optimizer, char *text, size_t bytes)
{
    const char *state;
    size_t used = 0;
    for (int s = HST_STATE_FP32; (state = hst_state_name((enum hst_state)s)) && used < bytes; s++)
        if (optimizer_find(optimizer, HST_PRECISION_BF16, (enum hst_state)s))
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? " or " : "", state);
}

static int choose_update(struct hst_engine *engine)
{
    const struct hst_config *c = &engine->config;
    const char *state = hst_state_name(c->state);
    char others[64] = "";
    engine->adam = hst_cpu_adam_ops(HST_CPU_ISA_AUTO);
    list_states(c->optimizer, others, sizeof others);
    engine->optimizer = optimizer_find(c->optimizer, c->precision, c->state);
    if (!engine->optimizer && !optimizer_find(c->optimizer, HST_PRECISION_BF16, c->state))
        return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                           "--state %s is not for --optimizer %s, whose moments are %s. Fix: "
                           "leave one of them out",
                           state, optimizer_name(c->optimizer), others);
    if (!engine->optimizer)
        return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                           "--state %s is for --precision bf16. Fix: leave one of them out", state);
    if (engine->optimizer->granularity > LAYOUT_PARAM_ALIGN)
        engine->layout.param_align = engine->optimizer->granularity;
    engine->kernel = optimizer_kernel_find(engine->optimizer, engine->adam);
    if (c->rates)
        engine->kernel.ahead = hst_ahead_elements(&c->rates->ahead[engine->optimizer->ahead_row]);
    engine->plan_in.host_updates = !engine->optimizer->device;
    return 0;
}

int device_open(struct hst_engine *engine)
{
    int rc = workers_create(engine->config.threads, &engine->workers);
    if (rc)
        return report_fail(&engine->report, HST_E_DEVICE, rc,
                           "%u worker threads could not be started: %s. Fix: lower --threads",
                           engine->config.threads, strerror(-rc));
    struct hst_parallel parallel = {
        .run = workers_run, .context = engine->workers, .width = engine->config.threads};
    struct hst_dev_config config = {
        .size = sizeof config, .parallel = &parallel, .host_math = engine->config.host_math};
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    if (strcmp(engine->config.device, "host") != 0) /* each rank of a node has one of its GPUs */
        config.index = engine->ranks.local;
    if (engine->config.planned)
        rc = hst_dev_planned_open(engine->config.planned, &engine->dev);
    else
        rc = hst_dev_open(engine->config.device, &config, &engine->dev, &failure);
    if (rc)
        return fail_open(engine, rc, &failure);
    if (engine->config.host_math && !(hst_dev_flags(engine->dev) & HST_DEV_HOST_MEMORY))
        return report_fail(&engine->report, HST_E_VALUE, -EINVAL,
                           "--host-math is for the host, device \"%s\" has kernels of its own. "
                           "Fix: --device host, or leave it out",
                           engine->config.device);
    return 0;
}

/* What joins ranks may have some memory by then, for what they agree on: no plan has it. */
int device_prepare(struct hst_engine *engine)
{
    struct hst_dev_usage held;
    int rc = resolve_hbm(engine, &engine->plan_in);
    if (rc)
        return rc;
    hst_dev_usage(engine->dev, &held);
    rc = hst_dev_budget(engine->dev, engine->plan_in.hbm_budget + held.memory_bytes,
                        engine->plan_in.dram_budget + held.host_bytes);
    rc = rc ? rc : hst_stream_create(engine->dev, "hst-compute", &engine->stream);
    if (rc)
        return engine_fail_device(engine, rc, "making a stream");
    device_defaults(engine);
    rc = way_sums_configure(engine); /* whose types follow from the precision */
    return rc ? rc : choose_update(engine);
}

/* Asking costs a call of the driver and some files of /sys: libraries load most of their code in
 * the first steps, so those are asked, then few. */
static bool asks_what_is_left(uint64_t step)
{
    return step <= 4 || step % 32 == 0;
}

uint64_t device_left(struct hst_engine *engine)
{
    struct hst_dev_info info;
    char left[SIZE_TEXT_BYTES], least[SIZE_TEXT_BYTES];
    if (engine_computes_in_dram(engine) || !asks_what_is_left(engine->standing.number))
        return 0;
    hst_dev_info(engine->dev, &info);
    const uint64_t free_bytes = info.memory_free_bytes;
    const uint64_t wanted = hst_dev_left_bytes(info.memory_total_bytes);
    if (!engine->config.hbm_bytes || engine->told_left || !free_bytes || free_bytes >= wanted)
        return free_bytes;
    engine->told_left = true;
    report_log(&engine->report, HST_LOG_WARNING,
               "W311 %s of GPU memory are left at the end of step %llu, less than the %s that "
               "libraries may need for code which they load when it is first called: a later step "
               "may run out of memory (E202). Fix: a smaller --hbm",
               size_text(free_bytes, left), (unsigned long long)engine->standing.number,
               size_text(wanted, least));
    return free_bytes;
}

int hst_engine_device_failed(struct hst_engine *engine, int native, const char *what)
{
    return native < 0 ? engine_fail_device(engine, native, what) : -EINVAL;
}
