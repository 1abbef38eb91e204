/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_FORECAST_H
#define HOISTWAY_TOOLS_CLI_FORECAST_H
/* This header tells what a step was expected to take, and what it waits for: where the drives'
 * rates come from, and the sentence at the end of a run. */
#include <hoistway/predict.h>

#define FORECAST_TEXT_BYTES 512u

/**
 * Measures the drives of a sealed engine's store and the link to its device (a name of
 * hst_dev_open), or takes what was measured within a minute, unless anew. *rates has zeroes, and
 * why, where the model has nothing there or something failed. It takes 16 MiB for each drive; on
 * the device, and for its copies, what the plan has left of the budgets. config->stopped ends it.
 * Ranks that call it at once each measure what they have of a drive beside the others.
 */
void forecast_measure(const struct hst_config *config, const char *device,
                      const struct hst_memory *memory, bool anew, struct hst_rates *rates);

/**
 * Warns where something disturbed rates when they were measured (W108), and says what that means.
 * file: that they are of; null: they were measured here, or found in the cache.
 */
void forecast_tell_disturbed(const struct hst_rates *rates, const char *file);
/**
 * It tells whether what was predicted is wrong: all `count` steps took more than a quarter longer,
 * or all of them so much less. False where nothing was predicted or no step is given. Pure.
 */
bool forecast_is_off(double predicted_s, const double *steps_s, unsigned count);

/** A plan needs rates of these: a configuration with its device, and the model's computation. */
struct forecast_in {
    const struct hst_config *config; /* store, io, threads; stopped ends what is measured */
    const char *device;              /* a name of hst_dev_open */
    bool gpu;                        /* not the host */
    const struct hst_gemm *gemms;
    uint32_t gemm_count;
    const struct hst_operation *operations;
    uint32_t operation_count;
};
enum forecast_how {
    FORECAST_CACHED = 0, /* nothing is measured */
    FORECAST_KNOWN,      /* of what is not in the cache all but the drives is measured: 2 s */
    FORECAST_MEASURED,   /* all of it */
    FORECAST_PROBE,      /* all is measured anew */
};
/**
 * Rates before there is an engine: update and norm, computation, the link to a device, the drives
 * of the store; from the cache where they are not older than a week. What is not known is 0, and
 * says why. Drives are touched from FORECAST_MEASURED on alone. FORECAST_CACHED costs some 100 ms,
 * and opens a device only where rates of this machine are in the cache.
 */
void forecast_find(const struct forecast_in *in, enum forecast_how how, struct hst_rates *rates);

/**
 * "bounded by read: a step took 0.812 s, 0.790 s predicted (+2.8 %), at least 0.745 s; drives twice
 * as fast would make it 1.4 times as fast"; or why nothing was predicted. Pure.
 */
const char *forecast_text(const struct hst_prediction *prediction, double measured_s,
                          char dst[FORECAST_TEXT_BYTES]);

#endif
