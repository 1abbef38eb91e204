/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_BASE_WHOLE_H
#define HOISTWAY_ENGINE_BASE_WHOLE_H

/** No whole number of an option may be greater: up to here a double is exact, so that reading loses
 * nothing. */
#define WHOLE_MAX 0x1p52

#endif
