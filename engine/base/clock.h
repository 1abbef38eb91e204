/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_BASE_CLOCK_H
#define HOISTWAY_ENGINE_BASE_CLOCK_H
#include <stdint.h>

/** Monotonic seconds. */
double clock_seconds(void);
/** Milliseconds since 1970. */
uint64_t clock_wall_ms(void);

#endif
