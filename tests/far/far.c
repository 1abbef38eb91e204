/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libhoistway-far.so: a device that computes what the host device computes, to the bit, and says
 * that its memory is its own. What the engine does for a GPU (homes in HBM, page-locked slots,
 * norm and update on the device) then has the host as its oracle, byte for byte.
 */
#include "base.h"

#include <assert.h>
#include <hoistway/cpu_adam.h>
#include <stdlib.h>
#include <string.h>

enum { FAR_BYTES = 256 << 20 };

static struct hst_dev_ops table;

static void far_info(struct hst_dev *dev, struct hst_dev_info *info)
{
    struct hst_dev_usage usage;
    hst_dev_usage(dev, &usage);
    *info = (struct hst_dev_info){.model = "the host, from afar",
                                  .numa_node = -1,
                                  .memory_total_bytes = FAR_BYTES,
                                  .memory_free_bytes = FAR_BYTES - usage.memory_bytes};
}

static enum hst_cpu_type cpu_type(enum hst_dtype dtype)
{
    return dtype == HST_BF16 ? HST_CPU_BF16 : dtype == HST_F16 ? HST_CPU_F16 : HST_CPU_F32;
}

/* The two that the host leaves to cpu_adam; what is queued before them runs first. */
static int far_norm2(struct hst_stream *stream, const struct hst_norm2 *args)
{
    const struct hst_cpu_adam_ops *ops = hst_cpu_adam_ops(HST_CPU_ISA_AUTO);
    int rc = hst_stream_sync(stream);
    if (rc == 0)
        ops->norm2[cpu_type(args->dtype)](args->x, args->count, args->partial);
    return rc;
}

static int far_adamw(struct hst_stream *stream, const struct hst_adamw *a)
{
    const struct hst_cpu_adam_ops *ops = hst_cpu_adam_ops(HST_CPU_ISA_AUTO);
    const struct hst_adam_coef coef = {
        .grad_scale = a->grad_scale,
        .beta1_hi = a->beta1_hi,
        .beta1_lo = a->beta1_lo,
        .one_minus_beta1 = a->one_minus_beta1,
        .beta2_hi = a->beta2_hi,
        .beta2_lo = a->beta2_lo,
        .one_minus_beta2 = a->one_minus_beta2,
        .inv_sqrt_bias2 = a->inv_sqrt_bias2,
        .eps = a->eps,
        .decay = a->decay,
        .step_size = a->step_size,
    };
    int rc = hst_stream_sync(stream);
    const struct hst_update_kind kind = {.weights = cpu_type(a->dtype),
                                         .grads = cpu_type(a->dtype)};
    void *master = a->dtype == HST_F16 ? (void *)a->master : a->remainder;
    const struct hst_update_arrays arrays = {a->weight, master, a->m, a->v, a->grad};
    rc = rc ? rc : hst_update_run(hst_update_find(ops, kind), &coef, &arrays, a->count);
    return rc < 0 ? rc : 0; /* a device does not count the weights that are not finite */
}

static int far_open(const struct hst_dev_config *config, struct hst_dev **dev,
                    struct hst_dev_failure *failure)
{
    struct hst_dev *host;
    int rc = hst_dev_host_open(config, &host);
    if (rc) {
        *failure = (struct hst_dev_failure){.why = HST_DEV_NO_DEVICE, .text = "no host device"};
        return rc;
    }
    table = *host->ops;
    table.name = "far";
    table.flags = 0;
    table.info = far_info;
    table.norm2 = far_norm2;
    table.adamw = far_adamw;
    host->ops = &table;
    *dev = host;
    return 0;
}

extern const struct hst_dev_plugin hst_dev_plugin;
const struct hst_dev_plugin hst_dev_plugin = {
    .size = sizeof(struct hst_dev_plugin),
    .version = FAR_VERSION,
    .ops_size = sizeof(struct hst_dev_ops),
    .open = far_open,
};
