/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_BASE_CLOCK_H
#define HOISTWAY_ENGINE_BASE_CLOCK_H

/** Monotonic seconds. */
double clock_seconds(void);

#endif
