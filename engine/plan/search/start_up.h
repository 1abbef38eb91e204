/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PLAN_START_UP_H
#define HOISTWAY_ENGINE_PLAN_START_UP_H
#include "plan/placement/placement.h"

#include <hoistway/predict.h>

/** A run moves this before its first step. */
struct start_bytes {
    uint64_t locked;  /* host memory that is page-locked for a GPU */
    uint64_t read;    /* from drives */
    uint64_t written; /* to those of the store */
};

/**
 * It serves a run that begins, whose client reads `load_bytes`; or one that goes on from a store,
 * which has what lives on drives and reads the rest.
 */
struct start_bytes start_up_bytes(const struct placement_in *in, const struct placement *placement,
                                  uint64_t load_bytes, bool resumes);

/**
 * Seconds at these rates, one part after another. What has no rate is left out and named; bytes
 * that are none have no part. Pure.
 */
void start_up_seconds(const struct start_bytes *bytes, const struct hst_rates *rates,
                      struct hst_start_up *start_up);

#endif
