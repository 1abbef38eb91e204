/* SPDX-License-Identifier: Apache-2.0 */
#include "base/real.h"

#include <hoistway/hoistway.h>
#include <stdio.h>
#include <stdlib.h>

double real_or(double value, double fallback)
{
    return value == 0 ? fallback : value == HST_NONE ? 0 : value;
}

const char *real_text(double x, char text[REAL_TEXT_BYTES])
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, REAL_TEXT_BYTES, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    return text;
}
