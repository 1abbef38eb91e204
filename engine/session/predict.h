/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PREDICT_H
#define HOISTWAY_ENGINE_PREDICT_H
/* What rates of a machine say of an engine's steps, before any was made. */
#include "plan/graph/simulate.h"

#include <hoistway/predict.h>

/** The rates of each lane; those that are not known are 0. */
struct sim_rates predict_rates(const struct hst_engine *engine, const struct hst_rates *rates);
/** What half of the host's threads reach of the update's rate; 0: not known. */
double predict_half(const struct hst_engine *engine, const struct hst_rates *rates);
/** Of the homes that were decided, before there is a graph, too. */
void predict_start_up(const struct hst_engine *engine, const struct hst_rates *rates,
                      struct hst_start_up *start_up);
/** Whether all is known that a step could need, wherever its bytes were. */
bool predict_is_all_known(const struct hst_engine *engine, const struct hst_rates *rates);

#endif
