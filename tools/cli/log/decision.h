/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_LOG_DECISION_H
#define HOISTWAY_TOOLS_CLI_LOG_DECISION_H
/* This header tells what an engine has decided, as `plan --json` and the first line of `train
 * --log` tell it. */
#include "cli/log/json.h"

#include <hoistway/predict.h>

/** Writes its keys into the object at hand; what is not known (of a plan that does not fit) is null
 * or 0. */
void decision_put(struct json_writer *json, const struct hst_decision *decision);

#endif
