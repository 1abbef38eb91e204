/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin whose device is nothing but a number; and, by macros, plugins that are not one. */
#include <errno.h>
#include <hoistway/plugin.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef SAMPLE_SIZE
#define SAMPLE_SIZE sizeof(struct hst_dev_plugin)
#endif
#ifndef SAMPLE_VERSION
#define SAMPLE_VERSION PROJECT_VERSION
#endif
#ifndef SAMPLE_OPS_SIZE
#define SAMPLE_OPS_SIZE sizeof(struct hst_dev_ops)
#endif
#ifndef SAMPLE_OPEN
#define SAMPLE_OPEN sample_open
#endif

struct sample {
    const struct hst_dev_ops *ops;
    unsigned index;
};

static void sample_close(struct hst_dev *dev)
{
    free(dev);
}

/* The index, as the one thing that a test can ask of it. */
static void sample_info(struct hst_dev *dev, struct hst_dev_info *info)
{
    *info = (struct hst_dev_info){.multiprocessors = ((struct sample *)dev)->index};
}

static const struct hst_dev_ops sample_ops = {
    .size = sizeof(struct hst_dev_ops),
    .name = "sample",
    .close = sample_close,
    .info = sample_info,
};

__attribute__((unused)) static int sample_open(const struct hst_dev_config *config,
                                               struct hst_dev **dev,
                                               struct hst_dev_failure *failure)
{
#ifdef SAMPLE_OPENS_NOTHING
    (void)config, (void)dev, (void)failure, (void)sample_ops;
    return 0;
#elif defined SAMPLE_IS_MUTE
    (void)config, (void)dev, (void)failure, (void)sample_ops;
    return -ENODEV;
#else
    if (config->index == 9) {
        *failure = (struct hst_dev_failure){.why = HST_DEV_ARCHITECTURE, .native = 209};
        snprintf(failure->text, sizeof failure->text, "nine\nis too many");
        return -ENODEV;
    }
    struct sample *sample = malloc(sizeof *sample);
    if (!sample)
        return -ENOMEM;
    *sample = (struct sample){&sample_ops, config->index};
    *dev = (struct hst_dev *)sample;
    return 0;
#endif
}

#ifndef SAMPLE_WITHOUT_SYMBOL
extern const struct hst_dev_plugin hst_dev_plugin;
const struct hst_dev_plugin hst_dev_plugin = {SAMPLE_SIZE, SAMPLE_VERSION, SAMPLE_OPS_SIZE,
                                              SAMPLE_OPEN};
#endif
