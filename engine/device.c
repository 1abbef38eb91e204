/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the device that the engine computes on, and tells what a device says of its failures. */
#include "engine_state.h"
#include "exec/version_text.h"
#include "size_text.h"

#include <errno.h>
#include <string.h>

#define HBM_SHARE 0.9 /* of what is free: other processes, and what libraries take unasked */

/* One thing to do about it. */
static const char *fix_for(enum hst_dev_why why)
{
    switch (why) {
    case HST_DEV_NAME:
        return "--device host, cuda or cuda:INDEX";
    case HST_DEV_LOCKED_MEMORY:
        return "raise ulimit -l (locked memory), or lower --dram";
    case HST_DEV_NO_PLUGIN:
        return "--device takes host, cuda or cuda:INDEX; for cuda build hoistway where the CUDA "
               "toolkit is installed, or name the plugin's folder in HOISTWAY_PLUGIN_PATH";
    case HST_DEV_BROKEN_PLUGIN:
        return "take library and plugin from one build, or --device host";
    case HST_DEV_NO_DRIVER:
        return "install NVIDIA's driver (in a container: --gpus all), or --device host";
    case HST_DEV_OLD_DRIVER:
        return "update NVIDIA's driver, or --device host";
    case HST_DEV_NO_DEVICE:
        return "look at nvidia-smi and CUDA_VISIBLE_DEVICES, or --device host";
    case HST_DEV_ARCHITECTURE:
        return "rebuild with a CUDA toolkit that knows the card, or --device host";
    case HST_DEV_LIBRARY:
        return "install CUDA's libraries, or name their folder in HOISTWAY_CUDA_PATH, or --device "
               "host";
    case HST_DEV_ENVIRONMENT:
        return "give the variable one of these values, or unset it";
    case HST_DEV_BLAS:
        return "apt install libopenblas0-openmp, or name the folder of libopenblas.so.0 in "
               "HOISTWAY_BLAS_PATH";
    case HST_DEV_CORE:
        return "another --host-math, or leave it and OPENBLAS_CORETYPE out: OpenBLAS then chooses";
    case HST_DEV_ADDRESS_SPACE:
        return "raise ulimit -v";
    case HST_DEV_MEMORY:
        return "end what else uses the GPU (nvidia-smi), or lower --hbm";
    default:
        return "look at dmesg for the driver's messages (Xid), then start again";
    }
}

static int code_for(enum hst_dev_why why)
{
    return why == HST_DEV_MEMORY || why == HST_DEV_LOCKED_MEMORY ? HST_E_DEVICE_MEMORY
           : why == HST_DEV_EXECUTION                            ? HST_E_DEVICE_FAILED
           : why == HST_DEV_NAME                                 ? HST_E_VALUE
           : why == HST_DEV_CORE                                 ? HST_E_HOST_MATH
           : why == HST_DEV_ADDRESS_SPACE                        ? HST_E_BUDGET
                                                                 : HST_E_DEVICE;
}

static int fail_open(struct hst_engine *engine, int native, const struct hst_dev_failure *failure)
{
    const char *name = engine->config.device;
    if (failure->why != HST_DEV_OK)
        return engine_fail(engine, code_for(failure->why), native,
                           "device \"%s\" can not be opened: %s. Fix: %s", name, failure->text,
                           fix_for(failure->why));
    return engine_fail(engine, HST_E_DEVICE, native, "device \"%s\" can not be opened: %s", name,
                       strerror(-native));
}

/* The device's part of the plan: where it computes, and how much of its memory there is. */
static int resolve_hbm(struct hst_engine *engine, struct placement_in *in)
{
    in->compute_tier = HST_TIER_DRAM;
    if (hst_dev_flags(engine->dev) & HST_DEV_HOST_MEMORY) {
        if (engine->config.hbm_bytes == 0)
            return 0;
        return engine_fail(engine, HST_E_VALUE, -EINVAL,
                           "--hbm is for a GPU, device \"%s\" has no HBM. Fix: leave it out",
                           engine->config.device);
    }
    struct hst_dev_info info;
    char wish[SIZE_TEXT_BYTES], left[SIZE_TEXT_BYTES], all[SIZE_TEXT_BYTES];
    hst_dev_info(engine->dev, &info);
    in->compute_tier = HST_TIER_HBM;
    in->hbm_budget = engine->config.hbm_bytes;
    if (in->hbm_budget == 0)
        in->hbm_budget = (uint64_t)(HBM_SHARE * (double)info.memory_free_bytes);
    if (in->hbm_budget > info.memory_free_bytes && engine->config.plan != HST_PLAN_ELSEWHERE)
        return engine_fail(
            engine, HST_E_BUDGET, -ENOMEM,
            "--hbm is %s, but %s of the %s of %s (%s) are free. Fix: lower --hbm, or end what else "
            "uses it (nvidia-smi)",
            size_text(in->hbm_budget, wish), size_text(info.memory_free_bytes, left),
            size_text(info.memory_total_bytes, all), info.model, engine->config.device);
    return 0;
}

static void device_defaults(struct hst_engine *engine)
{
    struct hst_config *c = &engine->config;
    bool host = engine_computes_in_dram(engine);
    if (c->precision == HST_PRECISION_DEFAULT)
        c->precision = host ? HST_PRECISION_FP32 : HST_PRECISION_BF16;
    engine->step.scale.value = c->precision != HST_PRECISION_FP16 ? 1.0f
                               : c->loss_scale != 0               ? (float)c->loss_scale
                                                                  : (float)LOSS_SCALE_FIRST;
}

static int choose_update(struct hst_engine *engine)
{
    const struct hst_config *c = &engine->config;
    engine->adam = hst_cpu_adam_ops(HST_CPU_ISA_AUTO);
    engine->update = hst_update_find(engine->adam, record_kind(c->precision, c->state));
    if (!engine->update)
        return engine_fail(engine, HST_E_VALUE, -EINVAL,
                           "--state bf16 is for --precision bf16. Fix: leave one of them out");
    engine->plan_in.host_updates = c->state == HST_STATE_BF16; /* a GPU's are with fp32 */
    return 0;
}

int device_open(struct hst_engine *engine)
{
    int rc = workers_create(engine->config.threads, &engine->workers);
    if (rc)
        return engine_fail(engine, HST_E_DEVICE, rc,
                           "%u worker threads could not be started: %s. Fix: lower --threads",
                           engine->config.threads, strerror(-rc));
    struct hst_parallel parallel = {
        .run = workers_run, .context = engine->workers, .width = engine->config.threads};
    struct hst_dev_config config = {
        .size = sizeof config, .parallel = &parallel, .host_math = engine->config.host_math};
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    rc = hst_dev_open(engine->config.device, &config, &engine->dev, &failure);
    if (rc)
        return fail_open(engine, rc, &failure);
    hst_dev_math(engine->dev, engine->math, sizeof engine->math);
    if (engine->config.host_math && !(hst_dev_flags(engine->dev) & HST_DEV_HOST_MEMORY))
        return engine_fail(engine, HST_E_VALUE, -EINVAL,
                           "--host-math is for the host, device \"%s\" has kernels of its own. "
                           "Fix: --device host, or leave it out",
                           engine->config.device);
    return 0;
}

int device_prepare(struct hst_engine *engine)
{
    int rc = resolve_hbm(engine, &engine->plan_in);
    if (rc)
        return rc;
    rc = hst_dev_budget(engine->dev, engine->plan_in.hbm_budget, engine->plan_in.dram_budget);
    rc = rc ? rc : hst_stream_create(engine->dev, "hst-compute", &engine->stream);
    rc = rc ? rc : hst_event_create(engine->dev, &engine->unit_passed);
    if (rc)
        return engine_fail_device(engine, rc, "making a stream");
    device_defaults(engine);
    return choose_update(engine);
}

/* What makes other bits is no reason to stop, but one to say so: the run is not that which an
   uninterrupted one would have been. Versions of before say nothing. */
void device_tell_math(struct hst_engine *engine, const char *was)
{
    const char *is = engine->math;
    if (!*was || hst_dev_math_equal(was, is))
        return;
    version_math_differ(&was, &is);
    bool host = hst_dev_flags(engine->dev) & HST_DEV_HOST_MEMORY;
    engine_log(engine, HST_LOG_WARNING,
               "W624 results depend on '%.160s' now, on '%.160s' when the store was trained: from "
               "here on they are not the bits of a run without an interruption. Fix: where that "
               "matters, the machine and libraries of before%s",
               is, was, host ? ", or a --host-math" : "");
}

int hst_engine_device_failed(struct hst_engine *engine, int native, const char *what)
{
    return native < 0 ? engine_fail_device(engine, native, what) : -EINVAL;
}

int engine_fail_device(struct hst_engine *engine, int native, const char *what)
{
    struct hst_dev_failure failure = {.why = HST_DEV_OK};
    hst_dev_failure(engine->dev, &failure);
    if (failure.why == HST_DEV_OK)
        return engine_fail(engine, HST_E_DEVICE_FAILED, native, "%s failed on device \"%s\": %s",
                           what, hst_dev_name(engine->dev), strerror(-native));
    return engine_fail(engine, code_for(failure.why), native,
                       "%s failed on device \"%s\": %s. Fix: %s", what, engine->config.device,
                       failure.text, fix_for(failure.why));
}
