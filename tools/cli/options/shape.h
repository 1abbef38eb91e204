/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_TOOLS_CLI_OPTIONS_SHAPE_H
#define HOISTWAY_TOOLS_CLI_OPTIONS_SHAPE_H
#include "base/fail.h"

/**
 * Says that what an option ("--plan") names is nothing that is there, and no model known by name;
 * names those, and the one nearest in size or spelling. cache: the folder of Hugging Face's cache
 * that lacks a model of that name, which is then told instead; null: it is no such name. Returns
 * -EINVAL (E402).
 */
int cli_shape_unknown(const char *option, const char *name, const char *cache,
                      struct hst_error *error);

#endif
