/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_PREDICT_H
#define HOISTWAY_ENGINE_PREDICT_H
/* This header tells what rates of a machine say of an engine's steps, before any was made. */
#include "plan/search/planner.h"

#include <hoistway/predict.h>

/** This is what a plan has to know of the machine. False where something is not known that a step
 * could need, wherever its bytes were. rates: may be null. */
bool predict_machine(const struct hst_engine *engine, const struct hst_rates *rates,
                     struct planner_machine *machine);
/** It goes by the home tiers that were decided, before there is a graph, too. */
void predict_start_up(const struct hst_engine *engine, const struct hst_rates *rates,
                      struct hst_start_up *start_up);

#endif
