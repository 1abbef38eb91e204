/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HOISTWAY_ENGINE_BASE_REAL_H
#define HOISTWAY_ENGINE_BASE_REAL_H
/* Real numbers of a configuration. Pure. */

enum { REAL_TEXT_BYTES = 32 };

/** A field of hst_config where 0 stands for a default and HST_NONE for 0. */
double real_or(double value, double fallback);
/** The number with the fewest digits that give it back. Returns text. */
const char *real_text(double x, char text[REAL_TEXT_BYTES]);

#endif
