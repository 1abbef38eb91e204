/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_NAMES_H
#define HOISTWAY_ENGINE_NAMES_H
/* Names of tensors, and globs that fit none of them. */
#include "plan/layout/layout.h"

/** The name that is nearest to the glob, of any parameter; "none" where there is none. Pure. */
const char *names_nearest(const struct layout *layout, const char *glob);

#endif
